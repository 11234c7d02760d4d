"""Memory: delivered batches are fresh, blocks are used again, samples die with their batch."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows
from tests.loader.kinds import KINDS, X_OFFSETS, Samples, arrays_of
from tests.loader.local_data import LOCAL

N = 12


class KeptSamples(Samples):
    """Gives out the very arrays that it keeps, as a dataset in memory does."""

    def __init__(self) -> None:
        super().__init__(N)
        columns = arrays_of(N)
        self.samples = [{"id": columns["id"][i], "x": columns["x"][i]} for i in range(N)]

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class KeptTensors(KeptSamples):
    """Gives out views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.from_numpy(arrays_of(N)["x"])

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "x": self.x[index]}


class KeptBatches(Samples):
    """Gives out slices of one tensor as batches."""

    def __init__(self) -> None:
        super().__init__(N)
        self.x = torch.from_numpy(arrays_of(N)["x"])
        self.ids = np.arange(N)

    def get_batch(self, indices: Sequence[int]) -> Any:
        rows = slice(indices[0], indices[-1] + 1)
        return {"id": self.ids[rows], "x": self.x[rows]}


KEPT: dict[str, Callable[[], Any]] = {
    **{name: partial(kind, N) for name, kind in KINDS.items()},
    "kept arrays": KeptSamples,
    "kept tensors": KeptTensors,
    "kept batches": KeptBatches,
    "list": lambda: KeptSamples().samples,
    "tensors": lambda: hr.Arrays({"id": torch.arange(N), "x": torch.tensor(arrays_of(N)["x"])}),
}


def spoil(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
    """Write to the batch in place, as a transform may."""
    batch["x"].add_(1)
    return batch


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("name", KEPT)
def test_writing_to_a_batch_damages_no_data(name: str, batch_size: int) -> None:
    """Each epoch shows one application of an in-place transform, and of a consumer's (S0-75)."""
    with hr.Loader(
        KEPT[name](), batch_size, shuffle=False, transform=spoil, workers=2, probe=False
    ) as loader:
        for epoch in loader.epochs(3):
            for batch in epoch:
                wanted = batch["id"].numpy().astype(np.float32)[:, None] + X_OFFSETS + 1
                assert batch["x"].tolist() == wanted.tolist()
                batch["x"].mul_(-1)


def large(num_samples: int) -> dict[str, Any]:
    """Give columns of which one fills blocks and one is small."""
    ids = np.arange(num_samples)
    return {"id": ids, "x": np.repeat(ids[:, None], 4096, axis=1).astype(np.float32)}


class LargeSamples(Samples):
    """Samples one by one, of which one column fills a block."""

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "x": np.full(4096, index, np.float32)}


BLOCKS: dict[str, Callable[[], Any]] = {
    "samples": lambda: LargeSamples(64),
    "rows": lambda: hr.Arrays(large(64)),
    "awaited rows": lambda: AwaitedRows(hr.Arrays(large(64))),
    "ragged rows": lambda: RaggedRows([[i] * (3000 + 17 * (i % 5)) for i in range(64)]),
}


def check_no_new_blocks(loader: hr.Loader) -> None:
    """Take 300 steps to warm up, and 100 more that lend blocks and make none."""
    stream = loader.stream(steps=400)
    for _ in range(300):
        next(stream)
    before = loader.stats()
    for _ in range(100):
        next(stream)
    after = loader.stats()

    assert after["blocks_lent"] >= before["blocks_lent"] + 12
    assert after["blocks_made"] == before["blocks_made"]


@pytest.mark.parametrize("name", BLOCKS)
def test_a_hundred_steps_make_no_new_block(name: str) -> None:
    """Once the first steps have made theirs, blocks are lent again and again (S1-43, S1-44)."""
    with hr.Loader(BLOCKS[name](), 8, workers=0) as loader:
        check_no_new_blocks(loader)


@pytest.mark.parametrize("name", LOCAL)
def test_no_workload_makes_new_blocks_once_warm(name: str, tmp_path: Path) -> None:
    """Zero new blocks per batch, in every workload of the benchmarks (S1-44, S1-52)."""
    with hr.Loader(**LOCAL[name](tmp_path), workers=0) as loader:
        check_no_new_blocks(loader)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", LOCAL)
def test_readers_make_few_blocks_in_every_workload(name: str, workers: int, tmp_path: Path) -> None:
    """As many as are in flight, of each size that a span may have: no more with time (S1-44)."""
    prefetch, steps = 4, 200
    with hr.Loader(**LOCAL[name](tmp_path), workers=workers, prefetch=prefetch) as loader:
        for _ in loader.stream(steps=steps):
            pass
        stats = loader.stats()

    # Two lengths of spans, and two sizes of each where rows differ or have two forms.
    assert stats["blocks_made"] <= 4 * (prefetch + 2)
    assert stats["blocks_lent"] >= steps / 2


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", BLOCKS)
def test_readers_make_as_many_blocks_as_are_in_flight(name: str, workers: int, face: str) -> None:
    """However long the run: those of the ring, one being taken and one in hand (S1-43, S1-44)."""
    prefetch, steps = 4, 400

    async def take() -> None:
        async for batch in loader.stream(steps=steps):
            assert batch.num_rows == 8

    with hr.Loader(BLOCKS[name](), 8, workers=workers, prefetch=prefetch) as loader:
        if face == "async for":
            asyncio.run(take())
        else:
            for batch in loader.stream(steps=steps):
                assert batch.num_rows == 8
        stats = loader.stats()

    # Spans are of one or two steps here, and each size has blocks of its own.
    assert stats["blocks_made"] <= 2 * (prefetch + 2)
    assert stats["blocks_lent"] >= steps / 2


@pytest.mark.parametrize("name", ["rows", "samples"])
def test_a_kept_batch_keeps_its_rows(name: str) -> None:
    """Blocks go back when the last view of them has died, so kept rows stay (S1-43)."""
    with hr.Loader(BLOCKS[name](), 8, shuffle=False, workers=2, probe=False) as loader:
        kept = [batch["x"][3] for batch in loader.epoch(0)]
        for _ in loader.epochs(4):
            pass
        found = [row[0].item() for row in kept]

    assert found == [8 * step + 3 for step in range(8)]


class Plain:
    """A sample that only the user's collate understands."""

    def __init__(self, index: int) -> None:
        self.index = index


class Traced(Samples):
    """Every sample is an object whose end can be seen."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(num_samples)
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()
        self.lock = threading.Lock()

    def __getitem__(self, index: int) -> Any:
        sample = Plain(index)
        with self.lock:
            self.alive.add(sample)
        return sample


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_samples_die_with_their_batch(workers: int) -> None:
    """No sample outlives the step that it was collated into, without help of the collector
    (S1-45)."""
    data = Traced(60)
    gc.disable()
    try:
        with hr.Loader(
            data,
            4,
            workers=workers,
            prefetch=2,
            probe=False,
            collate=lambda samples: torch.tensor([sample.index for sample in samples]),
        ) as loader:
            for batch in loader.stream(steps=45):
                assert len(batch["0"]) == 4
                # At most the step that each reader is at.
                assert len(data.alive) <= 4 * max(1, workers)
            left = len(data.alive)
    finally:
        gc.enable()

    assert left == 0
