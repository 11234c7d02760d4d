"""Steps built on the consumer's own thread, for `workers=0`: no thread of ours."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.build.builder import Builder
from headrace.build.built import Built
from headrace.build.opened import OpenedDataset
from headrace.errors import CannotStartThreadError, ClosedError, LoopRunningError
from headrace.plan import Order, Span
from headrace.ring.ring import EndOfRun
from headrace.threads import start_thread

T = TypeVar("T")


class PrivateLoop:
    """An event loop that runs only while a thread blocks on a coroutine.

    One call at a time; others wait for it. A loop that is dropped unclosed is closed as it is.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._running = threading.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._is_closed = False

    def call(self, main: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Run a coroutine function to its end on the calling thread.

        Raises:
            LoopRunningError: A loop runs in this thread already.
            ClosedError: Another thread closed this one, before or meanwhile.
        """
        if is_loop_running():
            raise LoopRunningError(what)
        with self._running:
            if self._is_closed:
                raise ClosedError("the loader is closed")
            if self._runner is None:
                self._runner = asyncio.Runner()
            try:
                return self._runner.run(self._watched(main))
            except asyncio.CancelledError:
                if self._is_closed:
                    raise ClosedError("the loader was closed meanwhile") from None
                raise

    async def _watched(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._task = asyncio.current_task()
        try:
            # `close` sets the one, then reads the other, so one of the two sees it.
            if self._is_closed:
                raise asyncio.CancelledError
            return await main()
        finally:
            self._task = None

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs, run one last coroutine function, end the loop. Idempotent.

        From user code that runs on this very loop, the loop is left to be dropped.
        """
        self._is_closed = True
        task = self._task
        if task is not None:
            cancel_from_outside(task)
            if is_loop_running() and asyncio.get_running_loop() is task.get_loop():
                return
        with self._running:
            runner = self._runner
            if runner is None:
                return
            if _is_open(runner):
                (_end_aside if is_loop_running() else _end)(runner, last)
            # Forgotten only once it is closed, so that an interrupted close can be repeated.
            self._runner = None

    def __del__(self) -> None:
        # In any thread, under any lock: nothing may run on the loop here. An interrupted
        # constructor leaves no attribute.
        runner = getattr(self, "_runner", None)
        if runner is not None and _is_open(runner):
            runner.get_loop().close()


def _is_open(runner: asyncio.Runner) -> bool:
    try:
        return not runner.get_loop().is_closed()
    except RuntimeError:
        return False


def _end(runner: asyncio.Runner, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with runner:
        runner.run(last())


def _end_aside(runner: asyncio.Runner, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """End a loop while another runs in this thread: one thread runs one loop at a time."""
    try:
        start_thread(lambda: _end(runner, last), "headrace-close").join()
    except CannotStartThreadError:
        runner.get_loop().close()


def is_loop_running() -> bool:
    """Whether an event loop runs in the calling thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def cancel_from_outside(task: asyncio.Task[Any]) -> None:
    """Cancel a task from any thread; one whose loop has closed is gone."""
    with contextlib.suppress(RuntimeError):
        task.get_loop().call_soon_threadsafe(task.cancel)


class InlineRun:
    """Steps built when they are asked for: one at a time, or a short span where that is cheaper.

    Args:
        order: The picks.
        builder: Builds each step.
        opened: The dataset, to be opened on the consumer's thread or loop.
        private_loop: Where a waiting builder runs for a blocking consumer.
        start: First step.
        end: First step not to be built; None for an endless run.
        span_steps: The longest span. Spans grow 1, 2, 4, ... steps, so that neither the first
            batch nor a consumer that stops soon pays for more than about twice what it takes.

    Attributes:
        taker: The thread that took a step last, blocking.
    """

    def __init__(
        self,
        order: Order,
        builder: Builder,
        opened: OpenedDataset,
        private_loop: PrivateLoop,
        start: int,
        end: int | None,
        span_steps: int = 1,
    ) -> None:
        self.next_step = start
        self.end = end
        self._order = order
        self._builder = builder
        self._opened = opened
        self._private_loop = private_loop
        self._is_closed = False
        self._waits = builder.waits
        self._span_steps = span_steps
        self._ramp_steps = 1
        self._ahead: dict[int, Built] = {}
        self._blocking: asyncio.Task[Any] | None = None
        self.taker: int | None = None

    def take_blocking(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Build the next step on the calling thread."""
        self.taker = threading.get_ident()
        if not self._waits:
            return self._take_here()

        async def take() -> Built:
            self._blocking = asyncio.current_task()
            try:
                return await self.take(stalled, stall_s)
            finally:
                self._blocking = None

        try:
            return self._private_loop.call(take, "a blocking take")
        except (asyncio.CancelledError, ClosedError):
            if self._is_closed:
                raise EndOfRun from None
            raise

    async def take(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Build the next step in the calling task."""
        if not self._waits:
            # Nothing here waits, but the consumer's loop must turn: for its other tasks, and so
            # that time-outs and cancellation reach this one.
            await asyncio.sleep(0)
            return self._take_here()
        self._check_open()
        late = asyncio.get_running_loop().call_later(stall_s, stalled, stall_s)
        try:
            await self._opened.open_loop()
            self._opened.open_here()
            return (await self._builder.build(self._span()))[0]
        finally:
            late.cancel()

    def _take_here(self) -> Built:
        self._check_open()
        built = self._ahead.pop(self.next_step, None)
        if built is not None:
            return built
        self._opened.open_here()
        span = self._span(self._ramp_steps)
        self._ramp_steps = min(self._ramp_steps * 2, self._span_steps)
        first, *ahead = self._builder.build_blocking(span)
        self._ahead = dict(zip(span.steps[1:], ahead, strict=True))
        # `close` notes the end before it drops what is built, so one of the two sees it.
        if self._is_closed:
            self._ahead = {}
        return first

    def _span(self, steps: int = 1) -> Span:
        first = self.next_step
        window = self._order.window(first, self.end)
        return window.span(range(first, min(first + steps, window.steps.stop)))

    def _check_open(self) -> None:
        if self._is_closed or (self.end is not None and self.next_step >= self.end):
            raise EndOfRun

    def close(self) -> None:
        """Build no more; a blocking take that waits on another thread ends."""
        self._is_closed = True
        self._ahead = {}
        task = self._blocking
        if task is not None:
            cancel_from_outside(task)
