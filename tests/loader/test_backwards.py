"""The worst order of completion: of the steps in flight, the last is always finished first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.datasets.dataset import Indices, Out
from headrace.testing.gates import Gate
from headrace.testing.ragged_rows import AwaitedRows
from tests.loader.kinds import (
    ByAwaitedBatch,
    ByBatch,
    ByFetch,
    ByGet,
    ByItem,
    ByItems,
    arrays_of,
    columns_of,
    expected,
)
from tests.loader.test_stream import delivered

STEPS = 24
BATCH = 2
N = STEPS * BATCH


class Order:
    """Lets each step of a group finish only after the next one of the group has.

    Attributes:
        group_steps: Steps in flight at once, in groups one after another.
        finished: Steps in the order in which they were finished.
    """

    def __init__(self, group_steps: int) -> None:
        self.group_steps = group_steps
        self.finished: list[int] = []
        self._gates = [Gate() for _ in range(STEPS)]

    def wait_blocking(self, indices: Sequence[int]) -> None:
        """Wait for the turn of the step that holds these samples."""
        for step in self._steps_of(indices):
            if self._has_next(step):
                self._gates[step + 1].wait_blocking()
            self._finish(step)

    async def wait(self, indices: Sequence[int]) -> None:
        for step in self._steps_of(indices):
            if self._has_next(step):
                await self._gates[step + 1].wait()
            self._finish(step)

    def _steps_of(self, indices: Sequence[int]) -> list[int]:
        """Give the steps that begin here: the first sample of a step waits for all of it."""
        return [index // BATCH for index in indices if index % BATCH == 0]

    def _has_next(self, step: int) -> bool:
        return (step + 1) % self.group_steps != 0 and step + 1 < STEPS

    def _finish(self, step: int) -> None:
        self.finished.append(step)
        self._gates[step].open()


class ItemBackwards(ByItem):
    def __init__(self, order: Order) -> None:
        super().__init__(N)
        self.order = order

    def __getitem__(self, index: int) -> Any:
        self.order.wait_blocking([index])
        return super().__getitem__(index)


class ItemsBackwards(ByItems):
    def __init__(self, order: Order) -> None:
        super().__init__(N)
        self.order = order

    def __getitems__(self, indices: Sequence[int]) -> Any:
        self.order.wait_blocking(indices)
        return super().__getitems__(indices)


class BatchBackwards(ByBatch):
    def __init__(self, order: Order) -> None:
        super().__init__(N)
        self.order = order

    def get_batch(self, indices: Sequence[int]) -> Any:
        self.order.wait_blocking(indices)
        return super().get_batch(indices)


class GetBackwards(ByGet):
    def __init__(self, order: Order) -> None:
        super().__init__(N)
        self.order = order

    async def get(self, index: int) -> Any:
        await self.order.wait([index])
        return await super().get(index)


class FetchBackwards(ByFetch):
    def __init__(self, order: Order) -> None:
        super().__init__(N)
        self.order = order

    async def fetch(self, indices: Sequence[int]) -> Any:
        await self.order.wait(indices)
        return await super().fetch(indices)


class AwaitedBatchBackwards(ByAwaitedBatch):
    def __init__(self, order: Order) -> None:
        super().__init__(N)
        self.order = order

    async def get_batch(self, indices: Sequence[int]) -> Any:
        await self.order.wait(indices)
        return await super().get_batch(indices)


class RowsBackwards(AwaitedRows):
    def __init__(self, order: Order) -> None:
        super().__init__(hr.Arrays(arrays_of(N)))
        self.order = order

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        await self.order.wait(indices.tolist())
        await super().read_into(indices, out, np.asarray(rows))


BLOCKING: dict[str, Callable[[Order], Any]] = {
    "item": ItemBackwards,
    "items": ItemsBackwards,
    "batch": BatchBackwards,
}
WAITING: dict[str, Callable[[Order], Any]] = {
    "get": GetBackwards,
    "fetch": FetchBackwards,
    "awaited batch": AwaitedBatchBackwards,
    "awaited rows": RowsBackwards,
}


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize("prefetch", [1, 3, 8])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("kind", [*BLOCKING, *WAITING])
def test_steps_that_are_finished_backwards_are_delivered_forwards(
    kind: str, workers: int, prefetch: int, face: str
) -> None:
    """As many steps as can be in flight are finished last one first, and the stream is the
    same (S1-04, S1-08)."""
    order = Order(min(workers, prefetch) if kind in BLOCKING else prefetch)
    data = (BLOCKING | WAITING)[kind](order)
    loader = hr.Loader(data, BATCH, shuffle=False, workers=workers, prefetch=prefetch, probe=False)

    batches = delivered(loader, 0, STEPS, face)

    assert [columns_of(batch) for batch in batches] == [
        expected([i, i + 1]) for i in range(0, N, BATCH)
    ]
    groups = [
        order.finished[at : at + order.group_steps] for at in range(0, STEPS, order.group_steps)
    ]
    assert [sorted(group, reverse=True) for group in groups] == groups
