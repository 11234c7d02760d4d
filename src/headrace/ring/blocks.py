"""Host blocks: recycled memory for spans, back in the pool when the last view has died."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Columns begin on cache lines, which is also what pinned and device copies like.
ALIGN_BYTES = 64
# What a returned block is filled with where blocks are poisoned, so that a read through a
# dangling view is seen: 0xA5 is an odd, negative, non-text byte in every dtype.
POISON = 0xA5


class Lease:
    """A block handed out: a fresh plain object that exposes `__array_interface__`.

    Every numpy array, tensor or DLPack capsule made from `np.asarray(lease)` keeps this object
    alive, however it is sliced or reshaped. It must not be an ndarray, a subclass of it or a
    memoryview: numpy collapses chains of array bases and would let the object die early.

    It keeps the memory too, since the pool, which knows the block, may be gone before it.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, interface: dict[str, Any], memory: NDArray[np.uint8]) -> None:
        self.__array_interface__ = interface
        self._memory = memory


class _LeaseRef(weakref.ref[Lease]):
    __slots__ = ("block",)

    block: Block


class Block:
    """Host memory for one span. Owned by one builder until its leases are out.

    Attributes:
        memory: uint8 `[capacity]`, aligned to ALIGN_BYTES.
        views: What builders made of the memory and want to find again when it is recycled;
            untracked, so never handed out.
    """

    __slots__ = ("_holds", "_pool", "_raw", "address", "memory", "views")

    def __init__(self, pool: BlockPool, capacity_bytes: int) -> None:
        raw = np.empty(capacity_bytes + ALIGN_BYTES, np.uint8)
        skip = -raw.ctypes.data % ALIGN_BYTES
        self._raw = raw
        self._pool = pool
        self._holds = 0
        self.memory: NDArray[np.uint8] = raw[skip : skip + capacity_bytes]
        self.address: int = self.memory.ctypes.data
        self.views: dict[object, Any] = {}

    def array(
        self, offset_bytes: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Give an untracked view for the builder, who must not keep it."""
        return np.ndarray(shape, dtype, self.memory, offset_bytes)

    def lease(self, offset_bytes: int, shape: tuple[int, ...], typestr: str) -> NDArray[Any]:
        """Give an array whose last view, wherever it dies, lets the block go back.

        Called by the builder that holds the block, before `let_go`.
        """
        lease = Lease(
            {
                "shape": shape,
                "typestr": typestr,
                "data": (self.address + offset_bytes, False),
                "version": 3,
            },
            self.memory,
        )
        self._pool._track(lease, self)
        return np.asarray(lease)

    def let_go(self) -> None:
        """End the builder's hold; the block goes back when no lease is left."""
        self._pool._let_go(self)


class BlockPool:
    """Recycles blocks; thread-safe.

    A lease may die in any thread, under any lock, inside the garbage collector: its callback
    only appends to a deque. Whoever lends the next block reads the deque.

    Args:
        free_bound_bytes: How much memory may lie free; more is given back to the system.
        poison: Fill returned blocks with POISON.

    Attributes:
        made_blocks: Blocks allocated so far; constant in steady state.
        lent_blocks: Blocks given out so far.
    """

    def __init__(self, free_bound_bytes: int, poison: bool = False) -> None:
        self.made_blocks = 0
        self.lent_blocks = 0
        self._poison = poison
        self._free_bound_bytes = free_bound_bytes
        self._free_bytes = 0
        # The block returned last is lent first: its lines are still in the processor.
        self._free: dict[int, list[Block]] = {}
        self._lock = threading.Lock()
        self._refs: set[_LeaseRef] = set()
        self._dead: deque[weakref.ref[Lease]] = deque()

    @property
    def leases_out(self) -> int:
        """Leases whose views are still alive."""
        with self._lock:
            self._collect()
            return len(self._refs)

    def lend(self, capacity_bytes: int) -> Block:
        """Give a block of at least this many bytes, contents undefined, held by the caller."""
        with self._lock:
            self._collect()
            self.lent_blocks += 1
            free = self._free.get(capacity_bytes)
            if free:
                block = free.pop()
                self._free_bytes -= capacity_bytes
            else:
                self.made_blocks += 1
                block = Block(self, capacity_bytes)
            block._holds = 1
            return block

    def clear(self) -> None:
        """Give all free memory back to the system; leases that are out stay valid."""
        with self._lock:
            self._collect()
            self._free.clear()
            self._free_bytes = 0
            self._free_bound_bytes = 0

    def _track(self, lease: Lease, block: Block) -> None:
        ref = _LeaseRef(lease, self._dead.append)
        ref.block = block
        with self._lock:
            self._refs.add(ref)
            block._holds += 1

    def _let_go(self, block: Block) -> None:
        with self._lock:
            self._drop_hold(block)

    def _collect(self) -> None:
        while self._dead:
            ref = self._dead.popleft()
            if ref in self._refs:
                self._refs.discard(ref)
                self._drop_hold(ref.block)  # type: ignore[attr-defined]

    def _drop_hold(self, block: Block) -> None:
        block._holds -= 1
        if block._holds:
            return
        if self._poison:
            block.memory.fill(POISON)
        capacity = len(block.memory)
        self._make_room(capacity)
        if self._free_bytes + capacity <= self._free_bound_bytes:
            self._free.setdefault(capacity, []).append(block)
            self._free_bytes += capacity

    def _make_room(self, capacity_bytes: int) -> None:
        """Let sizes that nobody asks for any more go, so that the sizes in use can stay."""
        for other in list(self._free):
            while (
                other != capacity_bytes
                and self._free[other]
                and self._free_bytes + capacity_bytes > self._free_bound_bytes
            ):
                self._free[other].pop(0)
                self._free_bytes -= other


def capacity_for(nbytes: int) -> int:
    """Round a size up so that sizes near each other share blocks: at most 1/8 is wasted.

    Ragged spans differ in size by row; without rounding each would need a block of its own.
    """
    if nbytes <= 4096:
        return 4096
    step = 1 << max((nbytes - 1).bit_length() - 4, 0)
    return -(-nbytes // step) * step
