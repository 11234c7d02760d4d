"""Small data whose every row says which sample it is, as each kind of dataset that there is.

Row i has `id` i and `x`, 32 int64 numbers `i * 1000 + column`: a row out of place, half written
or overwritten (poison) does not fit its id. Wide rows live in blocks, as those of real data do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch

import headrace as hr
from headrace.datasets.dataset import Indices, Layout, Out
from headrace.testing.gates import Gate

WIDTH = 32
COLUMNS = np.arange(WIDTH, dtype=np.int64)


def rows_of(ids: Iterable[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Give what column `x` holds for these samples."""
    return np.fromiter(ids, np.int64)[:, None] * 1000 + COLUMNS


class Gated:
    """What all kinds share: a length, and a gate before one sample.

    Attributes:
        gate: Where whoever asks for sample `gated` waits; open where there is none.
        seen: Threads that have asked for samples.
        given: How many samples have been given.
    """

    thread_safe = True
    pure = True

    def __init__(self, num_samples: int, gated: int = -1) -> None:
        self.num_samples = num_samples
        self.gated = gated
        self.gate = Gate(is_open=gated < 0)
        self.seen: set[threading.Thread] = set()
        self.given = 0
        self._lock = threading.Lock()
        self._watching: list[tuple[int, Callable[[], object]]] = []

    def __len__(self) -> int:
        return self.num_samples

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.num_samples,)

    def pass_blocking(self, indices: Collection[int]) -> None:
        self.seen.add(threading.current_thread())
        if self.gated in indices:
            self.gate.wait_blocking()
        self._count(indices)

    async def passing(self, indices: Collection[int]) -> None:
        """Let the loop turn once, at least."""
        self.seen.add(threading.current_thread())
        await asyncio.sleep(0)
        if self.gated in indices:
            await self.gate.wait()
        self._count(indices)

    def when_given(self, count: int, call: Callable[[], object]) -> None:
        """Have a function called once so many samples have been given, from any thread."""
        with self._lock:
            self._watching.append((count, call))
        self._count([])

    def _count(self, indices: Collection[int]) -> None:
        with self._lock:
            self.given += len(indices)
            reached = [watch for watch in self._watching if watch[0] <= self.given]
            self._watching = [watch for watch in self._watching if watch[0] > self.given]
        for _, call in reached:
            call()


class Items(Gated):
    """Samples one by one, on reader threads."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.pass_blocking([index])
        return {"id": index, "x": index * 1000 + COLUMNS}


class Awaited(Gated):
    """Samples one by one, on the loop."""

    async def get(self, index: int) -> dict[str, Any]:
        await self.passing([index])
        return {"id": index, "x": index * 1000 + COLUMNS}


class Rows(Gated, hr.BulkDataset):
    """Rows of a layout, on reader threads."""

    @property
    def layout(self) -> Layout:
        number = np.dtype(np.int64)
        return hr.Column("id", number), hr.Column("x", number, (WIDTH,))

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        self.pass_blocking(indices.tolist())
        _fill(indices, out, rows)


class AwaitedRows(Rows):
    """Rows of a layout, on the loop."""

    read_into_blocking = hr.BulkDataset.read_into_blocking

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        await self.passing(indices.tolist())
        _fill(indices, out, rows)


def _fill(indices: Indices, out: Out, rows: Indices) -> None:
    ids, x = out["id"], out["x"]
    assert isinstance(ids, np.ndarray)
    assert isinstance(x, np.ndarray)
    ids[rows] = indices
    x[rows] = rows_of(indices)


KINDS: dict[str, Callable[..., Any]] = {
    "rows": Rows,
    "items": Items,
    "awaited": Awaited,
    "awaited rows": AwaitedRows,
}
"""Every kind of dataset, by name: give it a length and, if wanted, the sample to wait at."""

WAITING = ("awaited", "awaited rows")


def loader_of(kind: str, num_samples: int = 100, gated: int = -1, **knobs: Any) -> hr.Loader:
    """Give a loader of such data, in batches of 4 unless said otherwise."""
    settings: dict[str, Any] = {"batch_size": 4, "seed": 1, "probe": False} | knobs
    return hr.Loader(KINDS[kind](num_samples, gated), **settings)


def ids_of(batch: hr.Batch) -> list[int]:
    """Give the samples of a batch, once every row was seen to be whole."""
    ids: list[int] = batch["id"].tolist()
    assert torch.equal(batch["x"], torch.from_numpy(rows_of(ids))), f"torn rows in {batch}"
    assert batch.indices.tolist() == ids
    return ids


def all_ids(batches: Iterable[hr.Batch]) -> list[list[int]]:
    """Give the samples of many batches."""
    return [ids_of(batch) for batch in batches]


async def all_ids_awaited(batches: Any) -> list[list[int]]:
    """Do as `all_ids`, by `async for`."""
    return [ids_of(batch) async for batch in batches]


def epoch_of(loader: hr.Loader, epoch: int) -> list[list[int]]:
    """Give the samples that each batch of an epoch must hold."""
    sampler = loader.sampler
    steps = range(sampler.first_step(epoch), sampler.first_step(epoch + 1))
    return steps_of(loader, steps)


def steps_of(loader: hr.Loader, steps: Sequence[int]) -> list[list[int]]:
    """Give the samples that the batches of some steps must hold."""
    picks = [loader.sampler.picks(range(step, step + 1)) for step in steps]
    return [each.sample.tolist() for each in picks]
