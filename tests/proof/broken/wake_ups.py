"""Who is told that something has changed, broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace import reader
from headrace.ring.ring import Ring
from tests.proof.broken.slots_and_grants import any_filled
from tests.proof.mutant import becomes, mutant


def _refused_for_ever(self: Ring[Any]) -> bool:
    return self.slots.claimable_steps() > 0 and self._refused_at is None


def _refused_never(self: Ring[Any]) -> bool:
    return self.slots.claimable_steps() > 0


def _tell_when_it_was_empty(original: Any) -> Any:
    def fill(self: Ring[Any], first: int, values: Any) -> bool:
        with self.lock:
            if self.slots.is_closed:
                return False
            was_empty = not any_filled(self.slots)
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


def _tell_one(original: Any) -> Any:
    def wake_builders(self: Ring[Any]) -> None:
        parked, self._parked = self._parked, 0
        original(self)
        self._parked = parked
        if parked:
            self._space.notify()

    return wake_builders


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


MUTANTS = (
    mutant(
        "ring",
        "refused bytes are never asked for again",
        (Ring, "_is_claimable", becomes(_refused_for_ever)),
    ),
    mutant(
        "ring",
        "refused bytes are asked for without end",
        (Ring, "_is_claimable", becomes(_refused_never)),
    ),
    mutant(
        "ring",
        "the consumer is told only by the first fill",
        (Ring, "fill", _tell_when_it_was_empty),
    ),
    mutant(
        "ring", "a take tells no builder", (Ring, "take_nowait", _take_telling(lambda ring: False))
    ),
    mutant(
        "ring",
        "builders parked at one step are never told",
        (Ring, "take_nowait", _take_telling(_at_less_than_none)),
    ),
    mutant("ring", "only one builder is told", (Ring, "_wake_builders", _tell_one)),
    mutant(
        "ring",
        "a blocking consumer looks, then waits",
        (Ring, "wait_blocking", becomes(_look_then_wait)),
    ),
    mutant(
        "ring", "an awaiting consumer looks, then waits", (Ring, "wait", becomes(_look_then_await))
    ),
    mutant(
        "ring",
        "a builder looks, then parks",
        (Ring, "wait_claimable_blocking", becomes(_look_then_park)),
    ),
    mutant("ring", "closing tells no consumer", (Ring, "close", _silent("_wake_consumer"))),
    mutant("ring", "closing tells no builder", (Ring, "close", _silent("_wake_builders"))),
    mutant("ring", "a failure tells no consumer", (Ring, "fail", _silent("_wake_consumer"))),
)
