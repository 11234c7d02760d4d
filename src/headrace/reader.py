"""Readers: the threads, and the loop in a thread of its own, that build claimed spans."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.build.builder import Builder
from headrace.build.built import Built
from headrace.errors import ClosedError, HeadraceError, ReaderDiedError, WouldWait
from headrace.plan import Plan, Span
from headrace.ring.ring import Ring
from headrace.threads import start_thread

T = TypeVar("T")


class Run:
    """One stretch of steps being read: its ring, plan and builder. Holds no thread.

    Attributes:
        next_step: The step that the consumer takes next.
        end: First step not to be read; None for an endless run.
        cancel: Stops whatever serves the run beyond closing its ring.
    """

    def __init__(self, ring: Ring[Built], plan: Plan, builder: Builder) -> None:
        self.ring = ring
        self.plan = plan
        self.builder = builder
        self.next_step = ring.slots.next_to_take
        self.end = ring.slots.end
        self.cancel: Callable[[], None] | None = None

    # -- the consumer --------------------------------------------------------------------

    def take_blocking(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Take the next step, blocking the calling thread until it is there.

        Args:
            stalled: Called once if that takes longer than `stall_s`; waiting goes on.
            stall_s: Seconds.

        Raises:
            EndOfRun: There is none, or the run is closed.
        """
        ring = self.ring
        while True:
            try:
                step, built = ring.take_nowait()
            except WouldWait:
                if not ring.wait_blocking(stall_s):
                    stalled(stall_s)
                    ring.wait_blocking()
                continue
            return self._taken(step, built)

    async def take(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Do as `take_blocking`, awaiting on any running loop. Cancelling loses nothing."""
        ring = self.ring
        while True:
            try:
                step, built = ring.take_nowait()
            except WouldWait:
                late = asyncio.get_running_loop().call_later(stall_s, stalled, stall_s)
                try:
                    await ring.wait()
                finally:
                    late.cancel()
                continue
            return self._taken(step, built)

    def _taken(self, step: int, built: Built) -> Built:
        if step != self.next_step:
            raise ClosedError(
                f"an interrupt fell into the taking of step {self.next_step}, whose batch is "
                "gone. Begin a new stream: it starts at that step."
            )
        self.next_step = step + 1
        return built

    def close(self) -> None:
        """Stop the work at once and wake everyone; does not wait for builders to notice."""
        self.ring.close()
        if self.cancel is not None:
            self.cancel()

    # -- builders ------------------------------------------------------------------------

    def build_blocking(self) -> None:
        """Build spans until none is left or the ring closes."""
        while self.ring.wait_claimable_blocking():
            span = self.plan.claim()
            if span is not None and not self._fill(span, self.builder.build_blocking(span)):
                return

    async def build(self, most_spans: int | None) -> None:
        """Build spans on the running loop, as many at once as can be claimed.

        Args:
            most_spans: How many spans at most are built at once; None for no bound of its own.
        """
        gate = asyncio.Semaphore(most_spans) if most_spans is not None else None
        async with asyncio.TaskGroup() as tasks:
            while await self._claimable():
                if gate is not None:
                    await gate.acquire()
                span = self.plan.claim()
                if span is not None:
                    tasks.create_task(self._build_span(span, gate))
                elif gate is not None:
                    gate.release()

    async def _build_span(self, span: Span, gate: asyncio.Semaphore | None) -> None:
        try:
            self._fill(span, await self.builder.build(span))
        finally:
            if gate is not None:
                gate.release()

    async def _claimable(self) -> bool:
        loop = asyncio.get_running_loop()
        look_again = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(look_again.set)
            except RuntimeError:
                # The loop has closed, and this run with it.
                return

        while (answer := self.ring.when_claimable(wake)) is None:
            await look_again.wait()
            look_again.clear()
        return answer

    def _fill(self, span: Span, built: list[Built]) -> bool:
        return self.ring.fill(span.steps.start, built)

    def died(self, error: BaseException) -> None:
        """Let the consumer meet an error of a reader itself."""
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, HeadraceError | MemoryError):
            self.ring.fail(error)
            return
        failure = ReaderDiedError(
            f"a reader of headrace ended by {type(error).__name__}: {error}. This is a fault of "
            "headrace or of a method that it calls outside samples; please report it."
        )
        failure.__cause__ = error
        self.ring.fail(failure)


class ReaderThreads:
    """Threads that build spans of whatever run is current; they outlive runs.

    Args:
        threads: How many.
        open_here: Called on each thread before its first span.
        close_here: Called on each thread when it ends.
    """

    def __init__(
        self, threads: int, open_here: Callable[[], None], close_here: Callable[[], None]
    ) -> None:
        self._count = threads
        self._open_here = open_here
        self._close_here = close_here
        self._changed = threading.Condition()
        self._run: Run | None = None
        self._busy = 0
        self._is_stopped = False
        self.threads: list[threading.Thread] = []

    def serve(self, run: Run) -> None:
        """Make a run the current one; threads start with the first.

        Raises:
            CannotStartThreadError: None could be started.
        """
        with self._changed:
            self._run = run
            self._changed.notify_all()
        while len(self.threads) < self._count:
            name = f"headrace-reader-{len(self.threads)}"
            self.threads.append(start_thread(self._serve, name))

    def wait_idle(self) -> None:
        """Block until no thread builds; the current run must be closed or complete."""
        with self._changed:
            self._run = None
            while self._busy:
                self._changed.wait()

    def stop(self) -> None:
        """Let every thread end after the span it is building. Does not wait."""
        with self._changed:
            self._is_stopped = True
            self._run = None
            self._changed.notify_all()

    def join(self, timeout_s: float) -> list[str]:
        """Wait for the threads; give the names of those that are still busy after the time."""
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)
        return [thread.name for thread in self.threads if thread.is_alive()]

    def _serve(self) -> None:
        last: Run | None = None
        is_open = False
        try:
            while (run := self._next_run(last)) is not None:
                last = run
                try:
                    if not is_open:
                        self._open_here()
                        is_open = True
                    run.build_blocking()
                except BaseException as error:  # noqa: BLE001 - the consumer raises it
                    run.died(error)
                finally:
                    self._rest()
        finally:
            if is_open:
                self._close_here()

    def _next_run(self, last: Run | None) -> Run | None:
        with self._changed:
            while True:
                if self._is_stopped:
                    return None
                if self._run is not None and self._run is not last:
                    self._busy += 1
                    return self._run
                self._changed.wait()

    def _rest(self) -> None:
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()


class LoopThread:
    """An event loop in a thread of its own, so that a busy consumer never holds up reads."""

    def __init__(self, name: str = "headrace-loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        try:
            self.thread = start_thread(self._serve, name)
        except BaseException:
            self._loop.close()
            raise

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block for its result; not from the loop itself.

        An interrupt of the caller cancels the coroutine.
        """
        if threading.current_thread() is self.thread:
            coroutine.close()
            raise RuntimeError("this call would wait for its own event loop")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(
        self, coroutine: Coroutine[Any, Any, None], on_error: Callable[[BaseException], None]
    ) -> Callable[[], None]:
        """Start a task on the loop; gives a function that cancels it, from any thread."""
        holder: list[asyncio.Task[None]] = []
        cancelled = threading.Event()

        async def guarded() -> None:
            try:
                await coroutine
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the consumer raises it
                on_error(error)

        def begin() -> None:
            if cancelled.is_set():
                coroutine.close()
                return
            task = self._loop.create_task(guarded())
            holder.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        def cancel() -> None:
            cancelled.set()
            self._post(lambda: [task.cancel() for task in holder])

        if not self._post(begin):
            coroutine.close()
            raise ClosedError("the event loop of this loader is closed")
        return cancel

    def _post(self, call: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return True

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel every task, run one last coroutine, end the loop. Does not wait."""

        async def finish() -> None:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            try:
                if last is not None:
                    await last()
            finally:
                self._loop.stop()

        def begin() -> None:
            task = self._loop.create_task(finish())
            self._finish = task

        self._post(begin)

    def join(self, timeout_s: float) -> list[str]:
        """Wait for the thread; give its name if it is still busy after the time."""
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout_s)
        return [self.thread.name] if self.thread.is_alive() else []


def top_frames(threads: list[threading.Thread]) -> dict[str, str]:
    """Give the line that each thread is at, for a stall report."""
    frames = sys._current_frames()
    found: dict[str, str] = {}
    for thread in threads:
        frame = frames.get(thread.ident or -1)
        if frame is not None:
            top = traceback.extract_stack(frame)[-1]
            found[thread.name] = f"{top.filename}:{top.lineno} in {top.name}"
    return found
