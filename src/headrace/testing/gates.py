"""A gate and a clock in a test's hand: waits that end when the test says so, never by time."""

from __future__ import annotations

import asyncio
import contextlib
import threading

# Only a failing test waits this long.
LIMIT_S = 20.0


class Gate:
    """Something to wait at until a test opens it; loops and threads may wait at the same time.

    Safe from any thread. A gate that was opened stays open until `shut`.
    """

    def __init__(self, is_open: bool = False) -> None:
        self._is_open = is_open
        self._changed = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._watching: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._arrivals = 0

    @property
    def is_open(self) -> bool:
        """Whether one may pass without waiting."""
        return self._is_open

    @property
    def arrivals(self) -> int:
        """How many have come to the gate so far, open or not."""
        return self._arrivals

    def open(self) -> None:
        """Let all pass who wait, and all who come later."""
        with self._changed:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for loop, future in waiting:
            _wake(loop, future)

    def shut(self) -> None:
        """Have those wait who come later."""
        with self._changed:
            self._is_open = False

    async def wait(self) -> None:
        """Wait on the running loop until the gate is open."""
        self._arrive()
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._is_open:
                return
            future = loop.create_future()
            self._waiting.append((loop, future))
        await future

    def wait_blocking(self) -> None:
        """Wait on this thread until the gate is open.

        Raises:
            TimeoutError: Nobody opened it within LIMIT_S.
        """
        self._arrive()
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_open, LIMIT_S):
                raise TimeoutError(f"the gate was not opened within {LIMIT_S} s")

    def arrived_blocking(self, count: int) -> None:
        """Wait on this thread until `count` have come to the gate.

        Raises:
            TimeoutError: They did not within LIMIT_S.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrivals >= count, LIMIT_S):
                raise TimeoutError(f"{self._arrivals} of {count} arrived within {LIMIT_S} s")

    async def arrived(self, count: int) -> None:
        """Wait on the running loop until `count` have come to the gate.

        Raises:
            TimeoutError: They did not within LIMIT_S.
        """
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._arrivals >= count:
                return
            future = loop.create_future()
            self._watching.append((count, loop, future))
        async with asyncio.timeout(LIMIT_S):
            await future

    def _arrive(self) -> None:
        with self._changed:
            self._arrivals += 1
            self._changed.notify_all()
            seen = [watch for watch in self._watching if watch[0] <= self._arrivals]
            self._watching = [watch for watch in self._watching if watch[0] > self._arrivals]
        for _, loop, future in seen:
            _wake(loop, future)


class ManualClock:
    """A clock that stands still until a test moves it. Safe from any thread.

    Attributes:
        now_s: What it shows, from 0.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._lock = threading.Lock()
        self._sleepers: list[tuple[float, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def sleepers(self) -> int:
        """How many wait for a later time, those cancelled not counted."""
        with self._lock:
            return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds_s: float) -> None:
        """Wait until the clock has been moved by this much."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._sleepers.append((self.now_s + seconds_s, loop, future))
        self.advance(0.0)
        await future

    def advance(self, by_s: float) -> None:
        """Move the clock; those whose time has come go on, the earliest first."""
        with self._lock:
            self.now_s += by_s
            due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self.now_s]
            self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self.now_s]
        for _, loop, future in sorted(due, key=lambda sleeper: sleeper[0]):
            _wake(loop, future)


def _wake(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """End a wait from any thread; a loop that has closed has nobody waiting."""

    def end() -> None:
        if not future.done():
            future.set_result(None)

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(end)
