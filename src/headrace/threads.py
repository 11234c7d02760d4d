"""Threads: the one module that starts any, and what must happen to them at exit and fork.

Nothing that headrace computes depends on which thread ran it. All threads are daemons: Python
joins other threads before exit hooks run, so a loader that was left open would hang the program.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from types import MethodType
from typing import Generic, ParamSpec, TypeVar

from headrace.errors import CannotStartThreadError, ClosedError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("headrace")

# What hangs (a dead network disk, user code) delays the exit of a program by this much in all.
# Whoever presses Ctrl-C waits for it, and 5 s is what people bear.
EXIT_S = 3.0
NAME_PREFIX = "headrace-"
"""How the names of all threads here begin."""
_REAPER = NAME_PREFIX + "reaper"


def start_thread(
    target: Callable[[], object], name: str, into: list[threading.Thread] | None = None
) -> threading.Thread:
    """Start a daemon thread; whoever starts it joins it.

    Args:
        target: What it runs.
        name: Its name.
        into: Where it is noted before it starts, so that an interrupt of the caller does not
            leave a thread that nobody knows. `has_begun` tells one that was not started.

    Raises:
        CannotStartThreadError: The platform has no threads, or the process may have no more.
    """
    if sys.platform in ("emscripten", "wasi"):
        raise CannotStartThreadError(name, f"{sys.platform} has no threads")
    thread = threading.Thread(target=target, name=name, daemon=True)
    if into is not None:
        into.append(thread)
    try:
        thread.start()
    except RuntimeError as error:
        if into is not None:
            into.remove(thread)
        raise CannotStartThreadError(name, str(error)) from error
    return thread


def has_begun(thread: threading.Thread) -> bool:
    """Whether a thread was started; it may have ended since."""
    return thread.ident is not None


def join_all(threads: Iterable[threading.Thread], timeout_s: float | None) -> list[str]:
    """Wait for threads to be gone, the caller's own left out.

    Args:
        threads: Threads that were told to end.
        timeout_s: How long all of them together may take; None waits for them.

    Returns:
        Names of those that are still busy after that.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    me = threading.current_thread()
    others = [thread for thread in threads if thread is not me and has_begun(thread)]
    for thread in others:
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in others if thread.is_alive()]


def is_interrupt(error: BaseException) -> bool:
    """Whether an error is Ctrl-C, which Python raises in whatever the main thread runs."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
    )


class _Hooks:
    """Functions held weakly, to be called once at some event of the process.

    A bound method lives as long as its object; a plain function must be kept by its owner.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: list[weakref.ref[Callable[[], object]]] = []

    def add(self, call: Callable[[], object]) -> None:
        is_bound = isinstance(call, MethodType)
        ref = weakref.WeakMethod(call) if is_bound else weakref.ref(call)
        with self._lock:
            kept = [old for old in self._refs if old() is not None and old != ref]
            self._refs = [*kept, ref]

    def take(self) -> list[Callable[[], object]]:
        """Give those still alive, newest first, and forget all."""
        with self._lock:
            refs, self._refs = self._refs, []
        return [call for ref in reversed(refs) if (call := ref()) is not None]


_at_exit = _Hooks()
_at_fork = _Hooks()


def at_exit(close: Callable[[], object]) -> None:
    """Have `close` called when the interpreter exits, before daemon threads die.

    Held weakly: an owner that is gone by then is not closed. The newest is closed first.
    """
    _at_exit.add(close)


def at_fork(reset: Callable[[], object]) -> None:
    """Have `reset` called in every forked child, while it has one thread. Held weakly."""
    _at_fork.add(reset)


_exit_ends: float | None = None


def exit_left_s() -> float:
    """Give what is left of EXIT_S at exit, which all closers share; EXIT_S before that."""
    return EXIT_S if _exit_ends is None else max(0.0, _exit_ends - time.monotonic())


def leave_if_ending() -> None:
    """End the calling thread if it is a daemon and the program is ending.

    Python stops daemon threads anyway in a moment. An error would only be printed.
    """
    if _exit_ends is not None and threading.current_thread().daemon:
        raise SystemExit


def wait_for_daemon(ident: int | None, timeout_s: float) -> None:
    """Wait until a daemon thread of the user's is gone, at exit.

    Python takes such threads off the processor wherever they are. One that is inside torch just
    then, be it to free the memory of a batch, aborts the whole program.
    """
    for thread in threading.enumerate():
        if thread.ident == ident and thread.daemon and thread is not threading.current_thread():
            thread.join(timeout_s)


def _close_all() -> None:
    """Run every closer, also after one failed; the first error is then reported by atexit."""
    global _exit_ends
    _exit_ends = time.monotonic() + EXIT_S
    first: Exception | None = None
    for close in _at_exit.take():
        try:
            close()
        except Exception as error:  # noqa: BLE001 - any closer may fail, all must run
            first = first or error
    _wait_for_the_dropped()
    if first is not None:
        raise first


def _wait_for_the_dropped() -> None:
    """Wait for threads whose owner was dropped: told to end, but nobody joins them.

    One that the interpreter's end finds inside torch would abort the program.
    """
    ours = [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(NAME_PREFIX) and thread.name != _REAPER
    ]
    join_all(ours, exit_left_s())


def _reset_child() -> None:
    """Forget the parent's closers, whose threads do not exist here, and make locks anew."""
    global _at_exit, _at_fork, _reaper
    # A lock that another thread held at the fork would stay locked for ever, so the lists are
    # read past it: the child has one thread.
    refs = _at_fork._refs
    _at_exit, _at_fork = _Hooks(), _Hooks()
    _reaper = _Reaper()
    for ref in refs:
        if (reset := ref()) is not None:
            _at_fork.add(reset)
            reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_child)


class _Reaper:
    """One thread that closes what was dropped, while there is anything to be dropped.

    A finalizer runs wherever the last reference dies or the garbage collector happens to run:
    in any thread, under any lock. It must take no lock itself, so it only puts the closing here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[Reaping] = set()
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def enter(self, user: Reaping) -> None:
        with self._lock:
            if user.is_ended:
                return
            self._users.add(user)
            if not any(map(has_begun, self._threads)):
                start_thread(self._serve, _REAPER, self._threads)

    def leave(self, user: Reaping) -> None:
        """Count a user out; the last ends the thread and joins it, unless it is the caller."""
        with self._lock:
            user.is_ended = True
            self._users.discard(user)
            threads = [] if self._users else list(self._threads)
            for _ in threads:
                self._calls.put(None)
        join_all(threads, exit_left_s())

    def put(self, call: Callable[[], object]) -> None:
        # Without a thread nobody has begun anything, and a closing kept here would keep its
        # owner alive for ever.
        if self._threads:
            self._calls.put(call)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None or not self._is_done():
            try:
                if call is not None:
                    call()
            except Exception:
                logger.exception("closing what was dropped failed")
            del call

    def _is_done(self) -> bool:
        """Whether nobody needs the calling thread; it is then forgotten."""
        with self._lock:
            if not self._users:
                self._threads.clear()
            return not self._users


_reaper = _Reaper()


class Reaping:
    """One owner's need of the reaper, from its first thread to its end.

    Attributes:
        is_ended: Whether it is over for good.
    """

    def __init__(self) -> None:
        self.is_ended = False

    def begin(self) -> None:
        """Have what this owner drops closed from here on. Idempotent.

        Raises:
            CannotStartThreadError: There are no threads, so nothing needs to be closed.
        """
        _reaper.enter(self)

    def end(self) -> None:
        """Need it no longer. Idempotent."""
        _reaper.leave(self)


def reap(close: Callable[[], object]) -> None:
    """Have something closed that was dropped; for finalizers, so it takes no lock."""
    _reaper.put(close)


class BlockingCalls:
    """A few daemon threads that run blocking functions for event loops.

    Threads start with the first call that finds all of them busy, and end at `close`, or when
    this object is dropped. Any loop of any thread may call. A forked child starts with no
    thread and no call. Where no thread can start, calls run on the loop: slower, the same
    results.
    """

    def __init__(
        self, threads: int, name: str, close_here: Callable[[], object] | None = None
    ) -> None:
        """Prepare; nothing starts.

        Args:
            threads: How many threads at most; 0 runs every call on the caller's loop.
            name: What the threads are named after.
            close_here: Called on each thread when it ends. It must not hold this object.
        """
        self._threads = threads
        self._name = name
        self._close_here = close_here
        self._reset()
        at_fork(self._reset)

    async def run(
        self,
        call: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a blocking function on one of the threads and give its result or raise its error.

        Cancellation takes effect at once if the function has not started, and it never runs
        then. If it has, cancellation waits until it returned: after `run` ended, nothing that
        it started still writes anywhere.
        """
        return await self._run(lambda: call(*args, **kwargs), lambda: None)

    async def run_until_stopped(self, call: Callable[[Callable[[], bool]], T]) -> T:
        """Do as `run`, for a function that asks now and then whether to stop early.

        Args:
            call: Gets a predicate that is true once the awaiting task was cancelled.
        """
        stops: list[bool] = []
        return await self._run(lambda: call(lambda: bool(stops)), lambda: stops.append(True))

    def close(self, timeout_s: float | None = None) -> None:
        """End the threads and join them; calls that did not start fail with ClosedError.

        May be called again, from any thread. A later call starts threads anew.

        Args:
            timeout_s: How long running calls may take to end; None waits for them.
        """
        self._dismiss().join(timeout_s)

    async def aclose(self) -> None:
        """Do as `close`, without blocking the loop."""
        crew = self._dismiss()
        await crew.ended()
        crew.join(None)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._crew = self._new_crew()

    def _new_crew(self) -> _Crew:
        return _Crew(self._threads, self._name, self._close_here)

    def _dismiss(self) -> _Crew:
        with self._lock:
            crew, self._crew = self._crew, self._new_crew()
        crew.fail_waiting(ClosedError(f"{self._name}: closed before the call began"))
        crew.stop()
        return crew

    def _close_at_exit(self) -> None:
        self.close(exit_left_s())

    async def _run(self, call: Callable[[], T], on_cancel: Callable[[], None]) -> T:
        waiting = _Call(call, asyncio.get_running_loop())
        if self._hand_over(waiting):
            await waiting.until_ended(on_cancel)
        else:
            waiting.run_here()
        return waiting.outcome()

    def _hand_over(self, waiting: _Call[T]) -> bool:
        """Give a call to the threads; False if there is none to run it."""
        with self._lock:
            crew = self._crew
            starts = not crew.threads
            is_taken = crew.take(waiting)
        if starts and is_taken:
            at_exit(self._close_at_exit)
        return is_taken

    def __del__(self) -> None:
        # This may run in any thread, under any lock: `stop` only puts to a SimpleQueue, which
        # allows that. Idle threads end by it, so nothing stays behind to be warned about.
        if hasattr(self, "_crew"):
            self._crew.stop()


class _Call(Generic[T]):
    """One call: waiting, then started or withdrawn, then ended."""

    def __init__(self, call: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._call: Callable[[], T] | None = call
        self._loop = loop
        self._is_ended = False
        self._wake: asyncio.Future[None] | None = None
        self._result: list[T] = []
        self._error: BaseException | None = None
        # Acquired once and never released, by whoever comes first: the thread that starts the
        # call or the task that withdraws it.
        self._started = threading.Lock()

    def claim(self) -> bool:
        """Whether the caller is the first to start, withdraw or fail this call."""
        return self._started.acquire(blocking=False)

    def run_here(self) -> None:
        """Run the function and keep what it gave, or whatever it raised."""
        call, self._call = self._call, None
        assert call is not None
        try:
            self._result.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the awaiting task
            self._error = error

    def run_if_wanted(self) -> None:
        """Run the function unless it was withdrawn."""
        if self.claim():
            self.run_here()

    def fail(self, error: Exception) -> None:
        """End with an error, unless it has started or was withdrawn."""
        if self.claim():
            self._call, self._error = None, error
            self.tell()

    def tell(self) -> None:
        """Tell the loop that the call has ended; from any thread."""
        _quietly(lambda: self._loop.call_soon_threadsafe(self._end))

    async def until_ended(self, on_cancel: Callable[[], None]) -> None:
        """Wait, on the loop, until the function returned or was withdrawn."""
        cancelled: asyncio.CancelledError | None = None
        while not self._is_ended:
            self._wake = self._loop.create_future()
            try:
                await self._wake
            except asyncio.CancelledError as error:
                if self.claim():
                    self._call = None
                    raise
                on_cancel()
                cancelled = error
        if cancelled is not None:
            self._error = None
            raise cancelled

    def outcome(self) -> T:
        """Give the result or raise the error, once."""
        error, self._error = self._error, None
        if error is None:
            return self._result.pop()
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: a cycle would keep the caller's memory

    def _end(self) -> None:
        self._is_ended = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class _Crew:
    """The threads between one start and one close, and the calls given to them."""

    def __init__(self, limit: int, name: str, close_here: Callable[[], object] | None) -> None:
        self.threads: list[threading.Thread] = []
        self._limit = limit
        self._name = name
        self._close_here = close_here
        self._calls: SimpleQueue[_Call[object] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._alive = 0
        self._on_ended: list[Callable[[], object]] = []

    def take(self, call: _Call[T]) -> bool:
        """Take a call to run, starting a thread if all are busy; False if there is no thread."""
        with self._lock:
            if len(self.threads) <= self._unfinished and len(self.threads) < self._limit:
                self._start()
            if not self.threads:
                return False
            self._unfinished += 1
        self._calls.put(call)  # type: ignore[arg-type]
        return True

    def fail_waiting(self, error: Exception) -> None:
        """End every call that no thread has started. Nobody may hand over calls any more."""
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                return
            if call is not None:
                call.fail(error)

    def stop(self) -> None:
        """Have every thread end after what it runs and what was handed over before."""
        for _ in self.threads:
            self._calls.put(None)

    async def ended(self) -> None:
        """Wait until the threads have nothing left to do; they were told to stop before."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        with self._lock:
            if self._alive == 0:
                return
            self._on_ended.append(lambda: loop.call_soon_threadsafe(ended.set))
        await ended.wait()

    def join(self, timeout_s: float | None) -> None:
        """Wait for the threads to be gone, at most `timeout_s` for all of them."""
        join_all(self.threads, timeout_s)

    def _start(self) -> None:
        """Start one more thread; where that fails, those that run serve alone."""
        try:
            thread = start_thread(self._serve, f"headrace-{self._name}-{len(self.threads)}")
        except CannotStartThreadError:
            self._limit = len(self.threads)
        else:
            self.threads.append(thread)
            self._alive += 1

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run_if_wanted()
            # Free before the loop hears of it: its next call then finds this thread idle.
            with self._lock:
                self._unfinished -= 1
            call.tell()
            del call  # an idle thread must not keep the memory that the call wrote to
        self._close()
        with self._lock:
            self._alive -= 1
            tell = self._on_ended if self._alive == 0 else []
        for ended in tell:
            _quietly(ended)

    def _close(self) -> None:
        if self._close_here is None:
            return
        try:
            self._close_here()
        except Exception:
            logger.exception("closing at the end of a thread failed")


def _quietly(tell: Callable[[], object]) -> None:
    """Tell a loop something; one that has closed has nobody waiting."""
    with contextlib.suppress(RuntimeError):
        tell()
