"""Locks, conditions, queues and event loops of which every step is a turn of an interleaving."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty
from types import SimpleNamespace
from typing import Any

from headrace import budget, threads
from tests.proof.interleave import Actor, Interleaving

PATCHED = ("threading", "SimpleQueue", "start_thread", "Future")


class Lock:
    """A lock that lets others go on before it is taken and after it is given back."""

    def __init__(self, play: Interleaving) -> None:
        self._play = play
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._play.switch()
        if self._is_held and not blocking:
            return False
        wait_s = None if timeout < 0 else timeout
        if self._is_held and not self._play.wait_until(lambda: not self._is_held, wait_s):
            return False
        self._is_held = True
        self._play.switch()
        return True

    def release(self) -> None:
        if not self._is_held and self._play.failure is None:
            raise RuntimeError("release of a lock that nobody holds")
        self._is_held = False
        self._play.switch()

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition:
    """A condition over such a lock."""

    def __init__(self, play: Interleaving, lock: Lock | None = None) -> None:
        self._play = play
        self._lock = lock or Lock(play)
        self._waiting: list[list[bool]] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        told: list[bool] = []
        self._waiting.append(told)
        self._lock.release()
        is_told = self._play.wait_until(lambda: bool(told), timeout)
        self._lock.acquire()
        return is_told

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        while not predicate():
            if not self.wait(timeout):
                return predicate()
        return True

    def notify(self, n: int = 1) -> None:
        for told in self._waiting[:n]:
            told.append(True)
        self._waiting = self._waiting[n:]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class SimpleQueue:
    """A queue whose `put` may be called anywhere, as the real one's."""

    def __init__(self, play: Interleaving) -> None:
        self._play = play
        self._held: deque[Any] = deque()

    def put(self, value: Any) -> None:
        self._held.append(value)
        self._play.switch()

    def get(self) -> Any:
        self._play.switch()
        self._play.wait_until(lambda: bool(self._held))
        return self._held.popleft()

    def get_nowait(self) -> Any:
        self._play.switch()
        if not self._held:
            raise Empty
        return self._held.popleft()


class Future:
    """What one actor waits for and another sets."""

    def __init__(self, play: Interleaving) -> None:
        self._play = play
        self._outcome: list[tuple[Any, BaseException | None]] = []

    def set_result(self, result: Any) -> None:
        self._outcome.append((result, None))
        self._play.switch()

    def set_exception(self, error: BaseException) -> None:
        self._outcome.append((None, error))
        self._play.switch()

    def result(self) -> Any:
        self._play.wait_until(lambda: bool(self._outcome))
        result, error = self._outcome[0]
        if error is not None:
            raise error
        return result


class Loop(asyncio.BaseEventLoop):
    """asyncio's own loop with nothing to select from: it wakes by calls and by timers."""

    def __init__(self, play: Interleaving) -> None:
        super().__init__()
        self._play = play
        self._is_woken = False
        self._selector = SimpleNamespace(select=self._select)

    def time(self) -> float:
        return self._play.now_s

    def _select(self, timeout: float | None) -> list[Any]:
        self._play.switch()
        if timeout is None or timeout > 0:
            self._play.wait_until(lambda: self._is_woken, timeout)
        self._is_woken = False
        return []

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        self._is_woken = True
        self._play.switch()


@contextmanager
def stepped(play: Interleaving) -> Iterator[None]:
    """Have headrace make its locks, threads and loops in an interleaving."""
    names = _names(play)
    before = [
        (module, name, getattr(module, name))
        for module in _modules()
        for name in PATCHED
        if hasattr(module, name)
    ]
    new_event_loop, logs = asyncio.new_event_loop, logging.getLogger("headrace")
    were_disabled = logs.disabled
    process = threads._reaper, threads._at_exit, threads._at_fork
    process_budget = budget._process
    for module, name, _ in before:
        setattr(module, name, names[name])
    threads._reaper = threads._Reaper()
    budget._process = None
    # What a failed run leaves unclosed is not closed at exit: nobody would go on any more.
    threads._at_exit, threads._at_fork = threads._Hooks(), threads._Hooks()
    asyncio.new_event_loop = asyncio.events.new_event_loop = lambda: Loop(play)
    logs.disabled = True
    # Finalisers run where `Interleaving.garbage` says, and not where the collector is due.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logs.disabled = were_disabled
        asyncio.new_event_loop = asyncio.events.new_event_loop = new_event_loop
        threads._reaper, threads._at_exit, threads._at_fork = process
        budget._process = process_budget
        for module, name, value in before:
            setattr(module, name, value)


def _names(play: Interleaving) -> dict[str, Any]:
    module = SimpleNamespace(**vars(threading))
    module.Lock = lambda: Lock(play)
    module.Condition = lambda lock=None: Condition(play, lock)
    module.current_thread = play.me
    module.main_thread = lambda: play.main or threading.main_thread()
    return {
        "threading": module,
        "SimpleQueue": lambda: SimpleQueue(play),
        "Future": lambda: Future(play),
        "start_thread": partial(_start_actor, play),
    }


def _start_actor(
    play: Interleaving,
    target: Callable[[], object],
    name: str,
    into: list[Any] | None = None,
) -> Actor:
    actor = play.spawn(target, name.removeprefix("headrace-"))
    if into is not None:
        into.append(actor)
    return actor


def _modules() -> list[Any]:
    skipped = ("headrace.testing", "headrace.cli")
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("headrace.") and not name.startswith(skipped)
    ]
