"""One pool of blocks under an interleaving: builders who lend, and consumers who keep and drop.

Every array that is handed out is filled with a stamp of its own, and looked at again before it
is dropped. Blocks are poisoned when they return, so memory that was given away shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headrace.ring.blocks import Block, BlockPool
from tests.proof.interleave import Interleaving
from tests.proof.stepped import stepped

BLOCK_FILES = ("ring/blocks.py",)
SIZES_BYTES = (256, 512)
ROWS = 4

# Ways to look at a column; each must keep its block, however they are chained.
VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda array: array,
    lambda array: array[len(array) // 2 :],
    lambda array: array.view(np.uint64).view(np.int64),
    lambda array: array.reshape(-1, 2),
    lambda array: torch.from_numpy(array) if array.flags.writeable else array,
    lambda array: np.from_dlpack(array),
    lambda array: memoryview(array),
)


@dataclass(eq=False)
class Held:
    """Something that a consumer holds of one lease."""

    block: Block
    stamp: int
    view: Any

    def check(self) -> None:
        found = np.unique(np.asarray(self.view)).tolist()
        assert found == [self.stamp], f"{self.stamp} was overwritten with {found}"


class BlockWorld:
    """A pool, who uses it, and a plain count of what is held of each block."""

    def __init__(self, play: Interleaving) -> None:
        self._play = play
        self._rng = play.rng
        self._bound_bytes = self._rng.choice((0, 600, 1 << 20))
        self.pool = BlockPool(self._bound_bytes, poison=True)
        self._lend, self.pool.lend = self.pool.lend, self._watched_lend  # type: ignore[method-assign]
        self._alive: Counter[Block] = Counter()
        # Blocks whose builder has not begun to let go, and those that may not be back yet.
        self._built: set[Block] = set()
        self._holders: set[Block] = set()
        self._out: Counter[int] = Counter()
        self._most_out: Counter[int] = Counter()
        self._basket: list[Held] = []
        self._stamps = 0
        self._builders = 2
        self._clears = self._rng.random() < 0.2

    def begin(self) -> None:
        for number in range(self._builders):
            self._play.spawn(self._build_some, f"builder-{number}")
        for number in range(2):
            self._play.spawn(self._consume, f"consumer-{number}")
        if self._clears:
            self._play.spawn(self._clear, "closer")

    # -- the actors ----------------------------------------------------------------------

    def _build_some(self) -> None:
        for _ in range(self._rng.randrange(1, 6)):
            self._build()
        self._builders -= 1

    def _build(self) -> None:
        size_bytes = self._rng.choice(SIZES_BYTES)
        self._out[size_bytes] += 1
        self._most_out[size_bytes] = max(self._most_out[size_bytes], self._out[size_bytes])
        block = self.pool.lend(size_bytes)
        self._stamps += 1
        stamp = self._stamps
        shape = (ROWS, size_bytes // ROWS // 8)
        whole = block.array(0, shape, np.dtype(np.int64))
        for row in whole:
            row[:] = stamp
            self._play.pause(1)
        assert (whole == stamp).all(), "somebody else wrote into a block being built"
        held = [self._hold(block, shape, stamp) for _ in range(self._rng.randrange(4))]
        self._play.pause(2)
        # What was taken from the ring may be dropped before its builder has let go.
        self._basket += held
        held.clear()
        self._play.pause(2)
        self._built.discard(block)
        block.let_go()
        self._holders.discard(block)
        self._count_back(block)

    def _hold(self, block: Block, shape: tuple[int, ...], stamp: int) -> Held:
        self._alive[block] += 1
        return Held(block, stamp, block.lease(0, shape, "<i8"))

    def _consume(self) -> None:
        while self._builders or self._basket:
            self._play.switch()
            if self._basket:
                self._use(self._basket.pop(self._rng.randrange(len(self._basket))))
        self._play.sweep()

    def _use(self, held: Held) -> None:
        for _ in range(self._rng.randrange(4)):
            held.view = self._rng.choice(VIEWS)(np.asarray(held.view))
            self._play.pause(4)
            held.check()
        if self._rng.random() < 0.3:
            self._play.garbage.append(lambda: self._drop(held))
        else:
            self._drop(held)

    def _drop(self, held: Held) -> None:
        held.check()
        self._alive[held.block] -= 1
        held.view = None
        self._count_back(held.block)

    def _clear(self) -> None:
        self._play.pause(40)
        self.pool.clear()

    # -- the rules -----------------------------------------------------------------------

    def _watched_lend(self, capacity_bytes: int) -> Block:
        block = self._lend(capacity_bytes)
        assert not self._alive[block], f"lent again with {self._alive[block]} views alive"
        assert block not in self._built, "lent again while it is built"
        assert len(block.memory) >= capacity_bytes
        self._built.add(block)
        self._holders.add(block)
        return block

    def _count_back(self, block: Block) -> None:
        if not self._alive[block] and block not in self._holders:
            self._out[len(block.memory)] -= 1

    def check(self) -> None:
        """See that everything came back, and that what came back was lent again."""
        pool = self.pool
        assert pool.leases_out == 0, f"{pool.leases_out} leases are out"
        free_bytes = sum(len(block.memory) for blocks in pool._free.values() for block in blocks)
        assert free_bytes == pool._free_bytes <= pool._free_bound_bytes
        assert not (self._clears and free_bytes), f"{free_bytes} bytes kept after the close"
        if self._bound_bytes > 600 and not self._clears:
            most = sum(self._most_out.values())
            assert pool.made_blocks <= most, f"{pool.made_blocks} made, {most} out at once"


def play_blocks(seed: int) -> Interleaving:
    """Play with a pool under a seed; raise what went wrong."""
    play = Interleaving(seed, BLOCK_FILES if seed % 4 == 0 else ())
    with stepped(play):
        world = BlockWorld(play)
        world.begin()
        play.run()
    world.check()
    return play
