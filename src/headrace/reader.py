"""Readers: what builds claimed spans, on threads or on an event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable

from headrace.build.builder import Builder
from headrace.build.built import Built
from headrace.errors import (
    CannotStartThreadError,
    HeadraceError,
    InterruptedTakeError,
    ReaderDiedError,
    WouldWait,
)
from headrace.plan import Plan, Span
from headrace.ring.ring import Ring
from headrace.threads import has_begun, start_thread

logger = logging.getLogger("headrace")

_STANDARD = sysconfig.get_path("stdlib")

# A consumer that always finds its batch ready would never let its event loop turn.
TAKES_PER_TURN = 16


class Run:
    """One stretch of steps being read: its ring, plan and builder. Holds no thread.

    Attributes:
        next_step: The step that the consumer takes next; moved on by whoever accepts it.
        end: First step not to be read; None for an endless run.
        cancel: Stops whatever serves the run beyond closing its ring.
        taker: The thread that took a step last, blocking.
    """

    def __init__(self, ring: Ring[Built], plan: Plan, builder: Builder) -> None:
        self.ring = ring
        self.plan = plan
        self.builder = builder
        self.next_step = ring.slots.next_to_take
        self.end = ring.slots.end
        self.cancel: Callable[[], None] | None = None
        self.taker: int | None = None
        self._takes = 0

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
        self.taker = threading.get_ident()
        while True:
            try:
                return self._take_nowait()
            except WouldWait:
                pass  # and waits outside: an interrupt there is not an error of this one
            if not ring.wait_blocking(stall_s):
                stalled(stall_s)
                ring.wait_blocking()

    async def take(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Do as `take_blocking`, awaiting on any running loop. Cancelling loses nothing."""
        ring = self.ring
        self._takes += 1
        if self._takes % TAKES_PER_TURN == 0:
            await asyncio.sleep(0)
        while True:
            try:
                return self._take_nowait()
            except WouldWait:
                pass
            late = asyncio.get_running_loop().call_later(stall_s, stalled, stall_s)
            try:
                await ring.wait()
            finally:
                late.cancel()

    def _take_nowait(self) -> Built:
        # The consumer alone moves both, so they differ only after an interrupt between the two.
        slots = self.ring.slots
        if slots.next_to_take != self.next_step and not slots.is_closed:
            raise InterruptedTakeError
        return self.ring.take_nowait()[1]

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
            self._fill(span, await self._built(span))
        finally:
            if gate is not None:
                gate.release()

    async def _built(self, span: Span) -> list[Built]:
        try:
            return await self.builder.build(span)
        except asyncio.CancelledError as error:
            # We cancel only what is closed or has failed. User code may cancel any task of the
            # loop: its steps would then never be filled, and the consumer would wait for ever.
            if self.ring.slots.is_closed or self.ring.failure is not None:
                raise
            finish = self.builder.finish
            return [finish.failed(span, at, error) for at in range(len(span.steps))]
        except BaseException as error:
            # Told before the group cancels the other spans, whose steps are not at fault.
            self.died(error)
            raise

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
        if self.ring.slots.is_closed:
            return
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
        # Entered directly: an interrupt can fall between `Condition.__enter__` and its `with`.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._run: Run | None = None
        self._busy = 0
        self._is_stopped = False
        self.threads: list[threading.Thread] = []

    def serve(self, run: Run) -> None:
        """Make a run the current one; threads start with the first.

        Raises:
            CannotStartThreadError: None could be started. If some could, they do the work.
        """
        with self._lock:
            self._run = run
            self._changed.notify_all()
        while (begun := sum(map(has_begun, self.threads))) < self._count and not self._is_stopped:
            try:
                start_thread(self._serve, f"headrace-reader-{begun}", self.threads)
            except CannotStartThreadError as error:
                if not begun:
                    raise
                logger.info("reading with %d threads: %s", begun, error)
                self._count = begun

    def wait_idle(self) -> None:
        """Block until no thread builds; the current run must be closed or complete."""
        with self._lock:
            self._run = None
            while self._busy:
                self._changed.wait()

    def stop(self) -> None:
        """Let every thread end after the span it is building. Does not wait."""
        with self._lock:
            self._is_stopped = True
            self._run = None
            self._changed.notify_all()

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
                self._close_quietly()

    def _close_quietly(self) -> None:
        try:
            self._close_here()
        except Exception:
            logger.exception("closing the dataset for a reader thread failed")

    def _next_run(self, last: Run | None) -> Run | None:
        with self._lock:
            while True:
                if self._is_stopped:
                    return None
                if self._run is not None and self._run is not last:
                    self._busy += 1
                    return self._run
                self._changed.wait()

    def _rest(self) -> None:
        with self._lock:
            self._busy -= 1
            self._changed.notify_all()


def top_frames(threads: list[threading.Thread]) -> dict[str, str]:
    """Give the line that each thread is at, for a stall report.

    A wait inside the standard library is named by the line that waits: `Event.wait` is the
    same for everyone.
    """
    frames = sys._current_frames()
    found: dict[str, str] = {}
    for thread in threads:
        frame = frames.get(thread.ident or -1)
        if frame is not None:
            stack = traceback.extract_stack(frame)
            top = next((at for at in reversed(stack) if not _is_standard(at.filename)), stack[-1])
            found[thread.name] = f"{top.filename}:{top.lineno} in {top.name}"
    return found


def _is_standard(filename: str) -> bool:
    return filename.startswith((_STANDARD, "<frozen")) and "site-packages" not in filename
