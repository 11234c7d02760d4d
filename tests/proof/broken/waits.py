"""Waits that end early, broken."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace import reader
from headrace.errors import SecondConsumerError
from headrace.reader import Run
from headrace.ring.ring import Ring, _resolve
from tests.proof.mutant import becomes, mutant


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


async def _withdraw_under_the_lock(self: Ring[Any]) -> None:
    loop = asyncio.get_running_loop()
    with self.lock:
        if self._is_ready():
            return
        self._refuse_second_consumer()
        future: asyncio.Future[None] = loop.create_future()
        waiter = self._waiter = (loop, future)
    try:
        await future
    finally:
        self._withdraw(waiter)


def _pause_with_the_value(original: Any) -> Any:
    async def take(self: Run, stalled: Any, stall_s: float) -> Any:
        built = await original(self, stalled, stall_s)
        await asyncio.sleep(0)
        return built

    return take


def _keep_stale_waiters(self: Ring[Any]) -> None:
    if self._waiter is not None or self._gate is not None:
        raise SecondConsumerError


def _tell_dead_loops(self: Ring[Any]) -> None:
    if self._gate is not None:
        gate, self._gate = self._gate, None
        gate.release()
    if self._waiter is not None:
        loop, future = self._waiter
        loop.call_soon_threadsafe(_resolve, future)


MUTANTS = (
    mutant(
        "ring",
        "a wait that timed out leaves its gate",
        (Ring, "wait_blocking", becomes(_leave_the_gate)),
    ),
    mutant(
        "ring", "a cancelled wait leaves its waiter", (Ring, "wait", becomes(_leave_the_waiter))
    ),
    mutant(
        "ring",
        "a collected wait takes the lock",
        (Ring, "wait", becomes(_withdraw_under_the_lock)),
    ),
    mutant("ring", "a cancelled take has the value", (Run, "take", _pause_with_the_value)),
    mutant(
        "ring",
        "a waiter outlives its loop",
        (Ring, "_refuse_second_consumer", becomes(_keep_stale_waiters)),
    ),
    mutant(
        "ring",
        "a dead loop breaks the builder",
        (Ring, "_wake_consumer", becomes(_tell_dead_loops)),
    ),
)
