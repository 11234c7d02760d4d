"""Faults on purpose: one rule broken at a time, each to be found by some seed.

A mutant replaces methods for the time of its runs; no source is changed. `python -m
tests.proof.mutants` says in how many seeds each is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import loader, reader, stream, threads
from headrace.build import bulk
from headrace.plan import Plan
from headrace.reader import ReaderThreads, Run
from headrace.ring import blocks
from headrace.ring.blocks import Block, BlockPool
from headrace.ring.grants import Grants
from headrace.ring.ring import Ring, _resolve
from headrace.ring.slots import ABSENT, Slots

Change = tuple[Any, str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Mutant:
    """One broken rule.

    Attributes:
        rule: What is broken, in words.
        world: Whose seeds find it: "ring", "blocks" or "loader".
        changes: `(owner, name, change)`: the attribute becomes `change(what it was)`.
    """

    rule: str
    world: str
    changes: tuple[Change, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the rule meanwhile."""
        before = [(owner, name, vars(owner)[name]) for owner, name, _ in self.changes]
        for owner, name, change in self.changes:
            setattr(owner, name, change(vars(owner)[name]))
        try:
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)


def _is(method: Any) -> Callable[[Any], Any]:
    """Replace a method by another, whatever it was."""
    return lambda original: method


def _nothing(original: Any) -> Any:
    return lambda *args, **kwargs: None


MUTANTS: list[Mutant] = []


def mutant(world: str, rule: str, *changes: Change) -> None:
    MUTANTS.append(Mutant(rule, world, changes))


# -- slots -----------------------------------------------------------------------------------


def _without_prefetch(self: Slots[Any]) -> int:
    if self.is_closed:
        return 0
    free = self.max_slots - self.claimed_steps
    return max(free if self.end is None else min(free, self.end - self.next_to_claim), 0)


def _without_end(self: Slots[Any]) -> int:
    return 0 if self.is_closed else max(self.prefetch - self.claimed_steps, 0)


def _any_filled(self: Slots[Any]) -> bool:
    return any(value is not ABSENT for value in self._values)


def _take_any(self: Slots[Any]) -> tuple[int, Any]:
    step = next(
        step
        for step in range(self.next_to_take, self.next_to_claim)
        if self._values[step % self.max_slots] is not ABSENT
    )
    value, self._values[step % self.max_slots] = self._values[step % self.max_slots], ABSENT
    self.next_to_take += 1
    return step, value


def _fill_when_closed(self: Slots[Any], step: int, value: Any) -> None:
    self._values[step % self.max_slots] = value


def _fill_ring_when_closed(self: Ring[Any], first: int, values: Any) -> bool:
    with self.lock:
        for step, value in enumerate(values, first):
            self.slots.fill(step, value)
        if self.slots.has_next():
            self._wake_consumer()
        return True


def _set_any_prefetch(self: Ring[Any], steps: int) -> None:
    with self.lock:
        self.slots.prefetch = steps
        self._wake_builders()


mutant("ring", "claims ignore prefetch", (Slots, "claimable_steps", _is(_without_prefetch)))
mutant("ring", "claims ignore the end of the run", (Slots, "claimable_steps", _is(_without_end)))
mutant("ring", "prefetch outgrows the slots", (Ring, "set_prefetch", _is(_set_any_prefetch)))
mutant(
    "ring",
    "steps are taken as they are filled",
    (Slots, "has_next", _is(_any_filled)),
    (Slots, "take", _is(_take_any)),
)
mutant(
    "ring",
    "a closed ring accepts values",
    (Slots, "fill", _is(_fill_when_closed)),
    (Ring, "fill", _is(_fill_ring_when_closed)),
)

# -- grants ----------------------------------------------------------------------------------


def _grant_as(is_next: bool | None, bound_bytes: int | None = None) -> Callable[[Any], Any]:
    def change(original: Any) -> Any:
        def grant(self: Grants, step: int, nbytes: int, wanted_next: bool) -> bool:
            if bound_bytes is not None:
                self.bound_bytes = bound_bytes
            granted: bool = original(
                self, step, nbytes, wanted_next if is_next is None else is_next
            )
            return granted

        return grant

    return change


def _release_oldest(original: Any) -> Any:
    def fill(self: Ring[Any], first: int, values: Any) -> bool:
        is_open: bool = original(self, first, values)
        with self.lock:
            if is_open and self.grants._steps and self.grants._steps[0][0] == first:
                Grants.release(self.grants, first)
        return is_open

    return fill


def _release_if_held(original: Any) -> Any:
    def release(self: Grants, step: int) -> int:
        is_held = bool(self._steps) and self._steps[0][0] == step
        return original(self, step) if is_held else 0  # type: ignore[no-any-return]

    return release


def _release_uncounted(self: Grants, step: int) -> int:
    return self._steps.popleft()[1]


mutant("ring", "grants ignore the bound", (Grants, "grant", _grant_as(None, 1 << 40)))
mutant("ring", "the step wanted next is not forced", (Grants, "grant", _grant_as(False)))
mutant("ring", "every step is forced", (Grants, "grant", _grant_as(True)))
mutant(
    "ring",
    "bytes go back at the fill and not at the take",
    (Ring, "fill", _release_oldest),
    (Grants, "release", _release_if_held),
)
mutant("ring", "bytes never go back", (Grants, "release", _is(_release_uncounted)))
mutant("ring", "closing forgets the grants", (Grants, "release_all", _nothing))

# -- wake-ups --------------------------------------------------------------------------------


def _refused_for_ever(self: Ring[Any]) -> bool:
    return self.slots.claimable_steps() > 0 and self._refused_at is None


def _refused_never(self: Ring[Any]) -> bool:
    return self.slots.claimable_steps() > 0


def _tell_when_it_was_empty(original: Any) -> Any:
    def fill(self: Ring[Any], first: int, values: Any) -> bool:
        with self.lock:
            if self.slots.is_closed:
                return False
            was_empty = not _any_filled(self.slots)
            for step, value in enumerate(values, first):
                self.slots.fill(step, value)
            if was_empty:
                self._wake_consumer()
            return True

    return fill


def _take_telling(tells: Callable[[Ring[Any]], bool]) -> Callable[[Any], Any]:
    """Take as `take_nowait` does, but tell builders at another moment."""

    def change(original: Any) -> Any:
        def take_nowait(self: Ring[Any]) -> Any:
            wake, self._wake_builders = self._wake_builders, lambda: None  # type: ignore[method-assign]
            try:
                taken = original(self)
            finally:
                self._wake_builders = wake  # type: ignore[method-assign]
            with self.lock:
                if tells(self):
                    self._wake_builders()
            return taken

        return take_nowait

    return change


def _tell_one(self: Ring[Any]) -> None:
    if self._parked:
        self._space.notify()


def _look_then_wait(self: Ring[Any], timeout_s: float | None = None) -> bool:
    gate = reader.threading.Lock()
    gate.acquire()
    with self.lock:
        if self._is_ready():
            return True
    with self.lock:
        self._gate = gate
    try:
        return gate.acquire(timeout=-1 if timeout_s is None else timeout_s)
    finally:
        with self.lock:
            self._gate = None


async def _look_then_await(self: Ring[Any]) -> None:
    loop = asyncio.get_running_loop()
    with self.lock:
        if self._is_ready():
            return
    future: asyncio.Future[None] = loop.create_future()
    with self.lock:
        self._waiter = (loop, future)
    try:
        await future
    finally:
        with self.lock:
            self._waiter = None


def _look_then_park(self: Ring[Any]) -> bool:
    while True:
        with self.lock:
            if self._has_no_more():
                return False
            if self._is_claimable():
                return True
        with self._space:
            self._parked += 1
            self._parked_at_steps = self.slots.claimed_steps
            self._space.wait()
            self._parked -= 1


def _silent(name: str) -> Callable[[Any], Any]:
    """Do as before, but with one of the ring's wake-ups left out."""

    def change(original: Any) -> Any:
        def method(self: Ring[Any], *args: Any) -> Any:
            setattr(self, name, lambda: None)
            try:
                return original(self, *args)
            finally:
                delattr(self, name)

        return method

    return change


def _at_less_than_none(ring: Ring[Any]) -> bool:
    return ring.slots.claimed_steps * 2 < ring._parked_at_steps - 1


mutant(
    "ring",
    "refused bytes are never asked for again",
    (Ring, "_is_claimable", _is(_refused_for_ever)),
)
mutant(
    "ring", "refused bytes are asked for without end", (Ring, "_is_claimable", _is(_refused_never))
)
mutant(
    "ring", "the consumer is told only by the first fill", (Ring, "fill", _tell_when_it_was_empty)
)
mutant("ring", "a take tells no builder", (Ring, "take_nowait", _take_telling(lambda ring: False)))
mutant(
    "ring",
    "builders parked at one step are never told",
    (Ring, "take_nowait", _take_telling(_at_less_than_none)),
)
mutant("ring", "only one builder is told", (Ring, "_wake_builders", _is(_tell_one)))
mutant(
    "ring", "a blocking consumer looks, then waits", (Ring, "wait_blocking", _is(_look_then_wait))
)
mutant("ring", "an awaiting consumer looks, then waits", (Ring, "wait", _is(_look_then_await)))
mutant(
    "ring", "a builder looks, then parks", (Ring, "wait_claimable_blocking", _is(_look_then_park))
)
mutant("ring", "closing tells no consumer", (Ring, "close", _silent("_wake_consumer")))
mutant("ring", "closing tells no builder", (Ring, "close", _silent("_wake_builders")))
mutant("ring", "a failure tells no consumer", (Ring, "fail", _silent("_wake_consumer")))

# -- waits that end early ----------------------------------------------------------------------


def _leave_the_gate(self: Ring[Any], timeout_s: float | None = None) -> bool:
    gate = reader.threading.Lock()
    gate.acquire()
    with self.lock:
        if self._is_ready():
            return True
        self._refuse_second_consumer()
        self._gate = gate
    return bool(gate.acquire(timeout=-1 if timeout_s is None else timeout_s))


async def _leave_the_waiter(self: Ring[Any]) -> None:
    loop = asyncio.get_running_loop()
    with self.lock:
        if self._is_ready():
            return
        self._refuse_second_consumer()
        future: asyncio.Future[None] = loop.create_future()
        self._waiter = (loop, future)
    await future
    with self.lock:
        self._waiter = None


def _pause_with_the_value(original: Any) -> Any:
    async def take(self: Run, stalled: Any, stall_s: float) -> Any:
        built = await original(self, stalled, stall_s)
        await asyncio.sleep(0)
        return built

    return take


def _keep_stale_waiters(self: Ring[Any]) -> None:
    if self._waiter is not None or self._gate is not None:
        raise reader.ClosedError("another consumer is already waiting for this stream")


def _tell_dead_loops(self: Ring[Any]) -> None:
    if self._gate is not None:
        gate, self._gate = self._gate, None
        gate.release()
    if self._waiter is not None:
        loop, future = self._waiter
        loop.call_soon_threadsafe(_resolve, future)


mutant(
    "ring", "a wait that timed out leaves its gate", (Ring, "wait_blocking", _is(_leave_the_gate))
)
mutant("ring", "a cancelled wait leaves its waiter", (Ring, "wait", _is(_leave_the_waiter)))
mutant("ring", "a cancelled take has the value", (Run, "take", _pause_with_the_value))
mutant(
    "ring",
    "a waiter outlives its loop",
    (Ring, "_refuse_second_consumer", _is(_keep_stale_waiters)),
)
mutant("ring", "a dead loop breaks the builder", (Ring, "_wake_consumer", _is(_tell_dead_loops)))

# -- readers -----------------------------------------------------------------------------------


def _unguarded(lock: str) -> Callable[[Any], Any]:
    def change(original: Any) -> Any:
        def init(self: Any, *args: Any, **knobs: Any) -> None:
            original(self, *args, **knobs)
            setattr(self, lock, contextlib.nullcontext())

        return init

    return change


async def _keep_the_turn(self: Run, span: Any, gate: Any) -> None:
    self._fill(span, await self._built(span))


def _stop_silently(self: ReaderThreads) -> None:
    with self._lock:
        self._is_stopped = True
        self._run = None


def _serve_again(self: ReaderThreads, last: Run | None) -> Run | None:
    with self._lock:
        while not self._is_stopped:
            if self._run is not None:
                self._busy += 1
                return self._run
            self._changed.wait()
        return None


mutant("ring", "spans are claimed by two at once", (Plan, "__init__", _unguarded("_lock")))
mutant("ring", "a built span keeps its turn", (Run, "_build_span", _is(_keep_the_turn)))
mutant("ring", "stopping tells no reader", (ReaderThreads, "stop", _is(_stop_silently)))
mutant("ring", "readers serve a run that is over", (ReaderThreads, "_next_run", _is(_serve_again)))

# -- blocks and leases -----------------------------------------------------------------------


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


def _track_the_array(self: Block, offset_bytes: int, shape: Any, typestr: str) -> Any:
    interface = {
        "shape": shape,
        "typestr": typestr,
        "data": (self.address + offset_bytes, False),
        "version": 3,
    }
    array = np.asarray(blocks.Lease(interface, self.memory))
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


mutant("blocks", "leases are not counted", (BlockPool, "_track", _is(_track_uncounted)))
mutant("blocks", "dead leases are not noticed", (BlockPool, "_track", _is(_track_deaf)))
mutant("blocks", "a dying lease takes the lock", (BlockPool, "_track", _is(_track_under_the_lock)))
mutant("blocks", "the array is tracked, not its lease", (Block, "lease", _is(_track_the_array)))
mutant(
    "blocks", "a block returns at its first dead lease", (BlockPool, "_drop_hold", _drop_at_first)
)
mutant(
    "blocks",
    "the builder's hold is dropped before its leases are made",
    (BlockPool, "lend", _lend_unheld),
    (Block, "let_go", _nothing),
)
mutant("blocks", "a closed pool keeps memory", (BlockPool, "clear", _is(_clear_once)))
mutant("blocks", "free memory has no bound", (BlockPool, "_drop_hold", _make_no_room))

# -- late writers, cancellation, the end -------------------------------------------------------


async def _end_at_cancel(self: Any, on_cancel: Any) -> None:
    self._wake = self._loop.create_future()
    if not self._is_ended:
        await self._wake


async def _withdraw_in_name(self: Any, on_cancel: Any) -> None:
    cancelled: BaseException | None = None
    while not self._is_ended:
        self._wake = self._loop.create_future()
        try:
            await self._wake
        except asyncio.CancelledError as error:
            if self._call is not None:
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _run_anyway(self: Any) -> None:
    if self._call is not None:
        self.run_here()


def _shielded(original: Any) -> Any:
    async def attempt_awaited(call: Any, *args: Any) -> Any:
        return await asyncio.shield(asyncio.ensure_future(original(call, *args)))

    return attempt_awaited


def _read_and_let_go(original: Any) -> Any:
    """Give the memory away before the read, so that it may be lent while the read runs."""

    async def read(self: Any, samples: Any) -> Any:
        taken: list[Any] = []
        shelf_of = self._shelf
        self._shelf = lambda wanted: taken.append(shelf_of(wanted)) or taken[0]
        try:
            reading = asyncio.ensure_future(original(self, samples))
            await asyncio.sleep(0)
        finally:
            del self._shelf
        taken[0].block._holds += 1
        taken[0].let_go()
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            taken[0].let_go()
            raise

    return read


def _close_here(close: Any) -> None:
    close()


def _accept_any(original: Any) -> Any:
    def accept(self: Any, stream: Any, step: int, built: Any, asked: float) -> Any:
        self._stream = weakref.ref(stream)
        return original(self, stream, step, built, asked)

    return accept


def _serve_silently(original: Any) -> Any:
    def serve(self: ReaderThreads, run: Run) -> None:
        if self.threads:
            with self._lock:
                self._run = run
        else:
            original(self, run)

    return serve


mutant(
    "loader",
    "a cancelled call is not waited for",
    (threads._Call, "until_ended", _is(_end_at_cancel)),
)
mutant("loader", "a cancelled read is not waited for", (bulk, "attempt_awaited", _shielded))
mutant(
    "loader",
    "a withdrawn call runs",
    (threads._Call, "run_if_wanted", _is(_run_anyway)),
    (threads._Call, "until_ended", _is(_withdraw_in_name)),
)
mutant(
    "loader",
    "memory is given away while a read runs",
    (bulk.BulkBuilder, "_read", _read_and_let_go),
)
mutant("loader", "what is dropped is closed by the collector", (stream, "reap", _is(_close_here)))
mutant("loader", "reaping has no end", (threads.Reaping, "end", _nothing))
mutant("loader", "steps read ahead serve any stream", (loader, "_serves", _is(lambda *_: True)))
mutant(
    "loader",
    "the cursor is moved by two at once",
    (loader.Loader, "__init__", _unguarded("_moving")),
)
mutant("loader", "a stolen stream moves the cursor", (loader.Loader, "accept", _accept_any))
mutant("loader", "readers are not told of a new run", (ReaderThreads, "serve", _serve_silently))


def _main() -> None:
    from tests.proof.worlds import WORLDS, kills

    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for each in MUTANTS:
        found = kills(each, range(seeds))
        print(f"{each.world:7} {found:4} of {seeds}  {each.rule}", flush=True)
    print(f"{len(MUTANTS)} mutants in {len(WORLDS)} worlds")


if __name__ == "__main__":
    _main()
