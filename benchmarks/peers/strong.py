"""What an expert writes by hand for one workload, and no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

from workload import Columns, Workload, as_columns

from peers.peer import EpochOrder, Peer


class Plain(Peer):
    """A loop around the gather. Every batch has memory of its own, so it may be kept."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.order = EpochOrder(workload, seed)

    def batches(self, epochs: int) -> Iterator[Columns]:
        for step in range(epochs * self.workload.steps):
            yield self.workload.gather(self.order.rows(step))


class Recycled(Plain):
    """The same into two blocks in turn: the fastest, as long as nobody keeps a batch."""

    recycles = True

    def batches(self, epochs: int) -> Iterator[Columns]:
        blocks = [self.workload.new_blocks() for _ in range(2)]
        columns = [as_columns(block) for block in blocks]
        for step in range(epochs * self.workload.steps):
            self.workload.gather_into(self.order.rows(step), blocks[step % 2])
            yield columns[step % 2]


class Ahead(Plain):
    """One thread fills recycled blocks up to four steps ahead of the loop."""

    recycles = True
    blocks_ahead = 4

    def batches(self, epochs: int) -> Iterator[Columns]:
        free: SimpleQueue[int] = SimpleQueue()
        ready: SimpleQueue[int] = SimpleQueue()
        blocks = [self.workload.new_blocks() for _ in range(self.blocks_ahead)]
        columns = [as_columns(block) for block in blocks]
        steps = epochs * self.workload.steps

        def fill() -> None:
            for step in range(steps):
                if (number := free.get()) < 0:
                    return
                self.workload.gather_into(self.order.rows(step), blocks[number])
                ready.put(number)

        thread = threading.Thread(target=fill, daemon=True)
        for number in range(self.blocks_ahead):
            free.put(number)
        thread.start()
        try:
            for _ in range(steps):
                number = ready.get()
                yield columns[number]
                free.put(number)
        finally:
            free.put(-1)
            thread.join()
