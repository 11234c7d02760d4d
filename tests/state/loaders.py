"""Loaders by name, made alike in a test and in its child processes; and what they deliver."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler

import headrace as hr
from headrace.samplers import BlockShuffled, Bucketed, Mixing, Shuffled

SAMPLES = 23
BATCH = 4
EPOCHS = 3


def sample(index: int) -> dict[str, Any]:
    """Give the sample of an index; each carries its own id."""
    x = np.array([index / 7, -index, index * index], np.float32)
    return {"id": np.array([index]), "x": x}


class Samples:
    """What all datasets here have."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples


class Get(Samples):
    """Samples by `__getitem__`, a copy of the object per reader thread."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return sample(index)


class GetMany(Get):
    """Samples by torch's `__getitems__`."""

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [sample(index) for index in indices]


class Awaited(Samples):
    """Samples by `async get`, which come in another order than they were asked for."""

    async def get(self, index: int) -> dict[str, Any]:
        for _ in range(index * 5 % 3):
            await asyncio.sleep(0)
        return sample(index)


class Fetched(Samples):
    """Samples by `async fetch` and `decode`."""

    async def fetch(self, indices: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        return list(indices)

    def decode(self, raw: int) -> dict[str, Any]:
        return sample(raw)


class Batches(Samples):
    """Whole batches by `get_batch`."""

    def get_batch(self, indices: Sequence[int]) -> dict[str, Any]:
        rows = [sample(index) for index in indices]
        return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def arrays(samples: int) -> hr.Arrays:
    """Give the samples as arrays."""
    rows = [sample(index) for index in range(samples)]
    return hr.Arrays({name: np.stack([row[name] for row in rows]) for name in rows[0]})


DATA = {
    "arrays": arrays,
    "list": lambda samples: [sample(index) for index in range(samples)],
    "get": Get,
    "getitems": GetMany,
    "awaited": Awaited,
    "fetched": Fetched,
    "batches": Batches,
}


def with_draw(sample: dict[str, Any], key: hr.PickKey) -> dict[str, Any]:
    return {**sample, "draw": np.array(key.rng().next_u64()).astype(np.int64)}


class PerEpoch:
    """A sampler that hears of the epoch by `set_epoch`, as torch's DistributedSampler does."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng(self.epoch).permutation(self.samples).tolist())


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sampler(name: str, samples: int, batch: int, seed: int) -> dict[str, Any]:
    """Give the arguments of a Loader that choose an order by its name."""
    lengths = [(index * 37) % 19 for index in range(samples)]
    ours: dict[str, Any] = {
        "uniform": lambda: Shuffled(samples, batch, seed, order="uniform"),
        "blocks": lambda: BlockShuffled(samples, batch, seed, block=4, window=2),
        "mixing": lambda: Mixing.end_to_end([samples // 2, samples // 3], [1, 2], batch, 5, seed),
        "bucketed": lambda: Bucketed(lengths, batch, 2, seed),
        "bucketed-short": lambda: Bucketed(lengths, batch, 2, seed, drop_last=False),
    }
    torchs: dict[str, Any] = {
        "torch-random": lambda: RandomSampler(range(samples)),
        "torch-generator": lambda: RandomSampler(range(samples), generator=generator()),
        "torch-epochs": lambda: PerEpoch(samples),
    }
    plain: dict[str, dict[str, Any]] = {
        "sequential": {"shuffle": False},
        "sequential-dropping": {"shuffle": False, "drop_last": True},
        "shuffled": {},
        "shuffled-short": {"drop_last": False},
        "augmented": {"augment": 2},
    }
    if name == "torch-batches":
        inner = RandomSampler(range(samples), generator=generator())
        return {"sampler": BatchSampler(inner, batch, drop_last=False)}
    if name in ours:
        return {"sampler": ours[name]()}
    if name in torchs:
        return {"sampler": torchs[name](), "batch_size": batch}
    return {"batch_size": batch, **plain[name]}


SEEKING = (
    "sequential",
    "sequential-dropping",
    "shuffled",
    "shuffled-short",
    "augmented",
    "uniform",
    "blocks",
    "mixing",
    "bucketed",
    "bucketed-short",
)
REPLAYING = ("torch-random", "torch-generator", "torch-epochs", "torch-batches")


def loader(
    order: str = "shuffled",
    data: str = "arrays",
    samples: int = SAMPLES,
    batch: int = BATCH,
    seed: int = 42,
    draws: bool = False,
    **knobs: Any,
) -> hr.Loader:
    """Give a loader of named data in a named order; knobs are those of the Loader.

    With `draws`, each sample has a draw from the generator that headrace hands out.
    """
    chosen = sampler(order, samples, batch, seed)
    if draws:
        chosen["sample_transform"] = with_draw
    return hr.Loader(DATA[data](samples), seed=seed, **{"workers": 2, **chosen, **knobs})


def seen(batch: hr.Batch) -> dict[str, Any]:
    """Give what a batch is, as JSON: its place, its ids, and a digest of all its bytes."""
    digest = hashlib.sha256()
    for name, column in batch.items():
        digest.update(f"{name} {column.dtype} {tuple(column.shape)} ".encode())
        digest.update(column.numpy().tobytes())
    return {
        "step": batch.step,
        "epoch": batch.epoch,
        "ids": batch["id"].reshape(-1).tolist(),
        "bytes": digest.hexdigest()[:16],
    }


def ids(batch: hr.Batch) -> list[int]:
    """Give the ids that the rows of a batch carry."""
    found: list[int] = batch["id"].reshape(-1).tolist()
    return found


def run(made: hr.Loader, epochs: int = EPOCHS) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Train for some epochs: give what each batch is, and the state saved after it."""
    for epoch in made.epochs(epochs):
        for batch in epoch:
            yield seen(batch), made.state_dict()


async def run_awaited(
    made: hr.Loader, epochs: int = EPOCHS
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Do as `run`, with `async for`."""
    taken = []
    for epoch in made.epochs(epochs):
        taken += [(seen(batch), made.state_dict()) async for batch in epoch]
    return taken
