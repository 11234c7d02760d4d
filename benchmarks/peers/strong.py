"""What an expert writes by hand for one workload, and no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue

from workload import Blocks, Columns, Workload

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
        for step in range(epochs * self.workload.steps):
            yield self.workload.gather_into(self.order.rows(step), blocks[step % 2])


class Ahead(Plain):
    """One thread fills recycled blocks up to four steps ahead of the loop."""

    recycles = True
    threads = 1
    blocks_ahead = 4

    def batches(self, epochs: int) -> Iterator[Columns]:
        steps = epochs * self.workload.steps
        lanes = [Lane(self, range(n, steps, self.threads)) for n in range(self.threads)]
        try:
            for step in range(steps):
                lane = lanes[step % self.threads]
                block, columns = lane.ready.get()
                yield columns
                lane.free.put(block)
        finally:
            for lane in lanes:
                lane.end()


class AheadByTwo(Ahead):
    """Two threads do so, each every other step."""

    threads = 2


class Lane:
    """A thread that gathers some of the steps into blocks that come back to it."""

    def __init__(self, peer: Ahead, steps: range) -> None:
        self.ready: SimpleQueue[tuple[Blocks, Columns]] = SimpleQueue()
        self.free: SimpleQueue[Blocks | None] = SimpleQueue()
        for _ in range(peer.blocks_ahead // peer.threads):
            self.free.put(peer.workload.new_blocks())
        self._thread = threading.Thread(target=self._fill, args=(peer, steps), daemon=True)
        self._thread.start()

    def _fill(self, peer: Ahead, steps: range) -> None:
        for step in steps:
            if (block := self.free.get()) is None:
                return
            self.ready.put((block, peer.workload.gather_into(peer.order.rows(step), block)))

    def end(self) -> None:
        """Let the thread end after the step that it is at, and wait for it."""
        self.free.put(None)
        self._thread.join()
