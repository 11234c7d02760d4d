"""torchdata nodes: a sampler of index batches, a mapper that gathers, a prefetcher."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

from torchdata.nodes import BaseNode, Loader, Mapper, ParallelMapper, Prefetcher, SamplerWrapper
from workload import Columns, Rows, Workload

from peers.peer import Peer
from peers.torch_dataloader import BatchOrder

Gather = Callable[[Rows], Columns]


class SeekingOrder(BatchOrder):
    """Index batches with a state, so that a resume need not count through the epoch."""

    def __init__(self, workload: Workload, seed: int) -> None:
        super().__init__(workload, seed)
        self.next_step = 0

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch."""
        self.next_step = epoch * self.steps

    def __iter__(self) -> Iterator[Rows]:
        stop = (self.next_step // self.steps + 1) * self.steps
        while self.next_step < stop:
            self.next_step += 1
            yield self.order.rows(self.next_step - 1)

    def state_dict(self) -> dict[str, Any]:
        """Give the next step."""
        return {"next_step": self.next_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a step."""
        self.next_step = state["next_step"]


class InProcess(Peer):
    """Sampler and mapper on the calling thread."""

    can_resume = True

    def __init__(self, workload: Workload, seed: int) -> None:
        indices: SamplerWrapper[Rows] = SamplerWrapper(SeekingOrder(workload, seed))
        made = self._mapped(indices, workload.gather)
        self.loader: Loader[Columns] = Loader(self._ahead(made))

    def _mapped(self, indices: BaseNode[Rows], gather: Gather) -> BaseNode[Columns]:
        return Mapper(indices, gather)

    def _ahead(self, made: BaseNode[Columns]) -> BaseNode[Columns]:
        return made

    def batches(self, epochs: int) -> Iterator[Columns]:
        for _ in range(epochs):
            yield from self.loader

    def state(self) -> bytes:
        return pickle.dumps(self.loader.state_dict())

    def restore(self, state: bytes) -> None:
        self.loader.load_state_dict(pickle.loads(state))


class Prefetching(InProcess):
    """A prefetcher of eight batches, the rest as it comes."""

    def _ahead(self, made: BaseNode[Columns]) -> BaseNode[Columns]:
        return Prefetcher(made, prefetch_factor=8)


class Tuned(InProcess):
    """A prefetcher that asks for the state of its source once in 64 batches."""

    def _ahead(self, made: BaseNode[Columns]) -> BaseNode[Columns]:
        return Prefetcher(made, prefetch_factor=8, snapshot_frequency=64)


class TwoThreads(InProcess):
    """A parallel mapper on two threads, in order, that snapshots once in 64 batches."""

    def _mapped(self, indices: BaseNode[Rows], gather: Gather) -> BaseNode[Columns]:
        return ParallelMapper(
            indices,
            gather,
            num_workers=2,
            in_order=True,
            method="thread",
            snapshot_frequency=64,
        )
