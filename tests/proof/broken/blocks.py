"""Blocks and leases, broken."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from headrace.ring import blocks
from headrace.ring.blocks import Block, BlockPool
from tests.proof.mutant import becomes, does_nothing, mutant


def _track_uncounted(self: BlockPool, lease: Any, block: Block) -> None:
    ref = blocks._LeaseRef(lease, self._dead.append)
    ref.block = block
    with self._lock:
        self._refs.add(ref)


def _track_deaf(self: BlockPool, lease: Any, block: Block) -> None:
    ref = blocks._LeaseRef(lease)
    ref.block = block
    with self._lock:
        self._refs.add(ref)
        block._holds += 1


def _track_under_the_lock(self: BlockPool, lease: Any, block: Block) -> None:
    def died(ref: Any) -> None:
        with self._lock:
            self._refs.discard(ref)
            self._drop_hold(block)

    ref = blocks._LeaseRef(lease, died)
    ref.block = block
    with self._lock:
        self._refs.add(ref)
        block._holds += 1


class _ArrayRef(weakref.ref[Any]):
    __slots__ = ("block",)
    __hash__ = object.__hash__  # an array has none

    def __eq__(self, other: object) -> bool:
        return self is other


def _lease_a_view(self: Block, offset_bytes: int, shape: Any, typestr: str) -> Any:
    """Hand out a plain view: numpy lets a view of it refer past it, straight to the memory."""
    array = np.ndarray(shape, np.dtype(typestr), self.memory, offset_bytes)
    ref = _ArrayRef(array, self._pool._dead.append)
    ref.block = self  # type: ignore[attr-defined]
    with self._pool._lock:
        self._pool._refs.add(ref)  # type: ignore[arg-type]
        self._holds += 1
    return array


def _drop_at_first(original: Any) -> Any:
    def drop_hold(self: BlockPool, block: Block) -> None:
        block._holds = 1
        original(self, block)

    return drop_hold


def _lend_unheld(original: Any) -> Any:
    def lend(self: BlockPool, capacity_bytes: int) -> Block:
        block: Block = original(self, capacity_bytes)
        block._holds = 0
        return block

    return lend


def _clear_once(self: BlockPool) -> None:
    with self._lock:
        self._collect()
        self._free.clear()
        self._free_bytes = 0


def _make_no_room(original: Any) -> Any:
    def drop_hold(self: BlockPool, block: Block) -> None:
        self._free_bound_bytes = 1 << 40
        original(self, block)

    return drop_hold


MUTANTS = (
    mutant("blocks", "leases are not counted", (BlockPool, "_track", becomes(_track_uncounted))),
    mutant("blocks", "dead leases are not noticed", (BlockPool, "_track", becomes(_track_deaf))),
    mutant(
        "blocks",
        "a dying lease takes the lock",
        (BlockPool, "_track", becomes(_track_under_the_lock)),
    ),
    mutant("blocks", "a lease is a view of the block", (Block, "lease", becomes(_lease_a_view))),
    mutant(
        "blocks",
        "a block returns at its first dead lease",
        (BlockPool, "_drop_hold", _drop_at_first),
    ),
    mutant(
        "blocks",
        "the builder's hold is dropped before its leases are made",
        (BlockPool, "lend", _lend_unheld),
        (Block, "let_go", does_nothing),
    ),
    mutant("blocks", "a closed pool keeps memory", (BlockPool, "clear", becomes(_clear_once))),
    mutant("blocks", "free memory has no bound", (BlockPool, "_drop_hold", _make_no_room)),
)
