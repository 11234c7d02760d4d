"""Grain: a map dataset over steps, whose transformation gathers the batch of a step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grain
from workload import Columns, Workload

from peers.peer import EpochOrder, Peer


class InProcess(Peer):
    """No read threads: what Grain's documentation advises for data in memory."""

    can_resume = True
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.order = EpochOrder(workload, seed)
        self._iterator: Any = None
        self._state: dict[str, Any] | None = None

    def _dataset(self, epochs: int) -> Any:
        steps = grain.MapDataset.range(epochs * self.workload.steps)
        batches = steps.map(lambda step: self.workload.gather(self.order.rows(step)))
        return batches.to_iter_dataset(self.options)

    def batches(self, epochs: int) -> Iterator[Columns]:
        self._iterator = iter(self._dataset(epochs))
        if self._state is not None:
            self._iterator.set_state(self._state)
        try:
            yield from self._iterator
        finally:
            self._iterator.close()

    def state(self) -> bytes:
        return json.dumps(self._iterator.get_state()).encode()

    def restore(self, state: bytes) -> None:
        self._state = json.loads(state)


class Prefetching(InProcess):
    """One thread runs the dataset eight batches ahead."""

    def _dataset(self, epochs: int) -> Any:
        return grain.experimental.ThreadPrefetchIterDataset(
            super()._dataset(epochs), prefetch_buffer_size=8
        )


class TwoThreads(InProcess):
    """Two read threads, eight batches ahead: Grain's own advice for work that takes long."""

    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)
