"""The event loop of a loader, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from headrace.errors import ClosedError
from headrace.threads import has_begun, start_thread

T = TypeVar("T")

Main = Callable[[], Coroutine[Any, Any, T]]


class _Job:
    """A coroutine on the loop, and who hears of its early end."""

    def __init__(self, main: Main[None], on_error: Callable[[BaseException], object]) -> None:
        self.main = main
        self.on_error = on_error
        self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None


class LoopThread:
    """An event loop in a thread of its own, so that a busy consumer never holds up reads.

    Whoever waits for something on the loop hears of its end: also when the loop is stopped
    first, or dies of an exception that ends programs (SystemExit in a callback of user code).

    Attributes:
        threads: The thread, once begun.
        has_ended: Whether the loop runs nothing any more.
    """

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.has_ended = False
        self._jobs: set[_Job] = set()
        self._is_stopping = False
        self._death: BaseException | None = None
        self._last: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving = threading.Lock()
        self._made = threading.Lock()
        self._made.acquire()

    # -- from any thread -----------------------------------------------------------------

    def begin(self) -> None:
        """Start the thread, once.

        Raises:
            CannotStartThreadError: It cannot be started.
        """
        if not any(map(has_begun, self.threads)):
            start_thread(self._serve, "headrace-loop", self.threads)

    def call(self, main: Main[T]) -> T:
        """Run a coroutine function on the loop and block for its result; not from the loop.

        An interrupt of the caller cancels the coroutine.

        Raises:
            ClosedError: The loop was stopped before the coroutine ended.
        """
        if threading.current_thread() in self.threads:
            raise RuntimeError("this call would wait for its own event loop")
        # A lock is all that an interrupt of this thread cannot leave half way: the condition of
        # a Future could stay locked by it, and then hold up the loop.
        ended = threading.Lock()
        ended.acquire()
        result: list[T] = []
        errors: list[BaseException] = []

        async def run() -> None:
            result.append(await main())
            ended.release()

        def fail(error: BaseException) -> None:
            errors.append(error)
            ended.release()

        cancel = self.start(run, fail)
        try:
            ended.acquire()
        except BaseException:
            cancel()
            raise
        if errors:
            raise errors.pop()
        return result.pop()

    def start(
        self, main: Main[None], on_error: Callable[[BaseException], object]
    ) -> Callable[[], None]:
        """Start a coroutine function on the loop.

        Args:
            main: What to run.
            on_error: Told, on the loop's thread, what it raised; a cancellation that was asked
                for is told as a ClosedError.

        Returns:
            A function that cancels it, from any thread.

        Raises:
            ClosedError: The loop has ended.
        """
        job = _Job(main, on_error)
        self._jobs.add(job)
        # The loop notes its end before it tells its jobs, so one of the two sees this one.
        if self.has_ended or not self._post(partial(self._begin, job)):
            self._jobs.discard(job)
            raise ClosedError("the event loop of this loader is closed")
        return partial(self._cancel, job)

    def wait_idle(self) -> None:
        """Block until all that was cancelled has ended."""
        self.call(self._until_cancelled_ended)

    def stop(self, last: Main[None]) -> None:
        """Cancel every task, run one last coroutine function, end the loop. Does not wait."""

        def begin() -> None:
            if self._last is None:
                self._last = asyncio.get_running_loop().create_task(self._finish(last))

        self._is_stopping = True
        self._post(begin)

    def _cancel(self, job: _Job) -> None:
        job.is_cancelled = True
        self._post(lambda: job.task and job.task.cancel())

    def _post(self, call: Callable[[], object]) -> bool:
        if not any(map(has_begun, self.threads)):
            return False
        with self._made:
            loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(call)
        except RuntimeError:
            return False
        return loop is not None

    # -- on the loop ---------------------------------------------------------------------

    def _serve(self) -> None:
        # An interrupted `begin` may be repeated while the first thread is on its way.
        if not self._serving.acquire(blocking=False):
            return
        try:
            self._loop = asyncio.new_event_loop()
        finally:
            self._made.release()
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._death = error
        self._is_stopping = self.has_ended = True
        # Before the tasks are cancelled, so that whoever waits hears of the cause.
        self._tell_all()
        try:
            self._loop.run_until_complete(self._cancel_others())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            self._tell_all()

    def _tell_all(self) -> None:
        for job in list(self._jobs):
            self._tell(job, self._end())

    def _tell(self, job: _Job, error: BaseException) -> None:
        """Tell of the end of a job, once."""
        if job in self._jobs:
            self._jobs.discard(job)
            job.on_error(error)

    def _begin(self, job: _Job) -> None:
        if job.is_cancelled or self._is_stopping:
            self._tell(job, self._end())
        else:
            job.task = asyncio.get_running_loop().create_task(self._run(job))

    async def _run(self, job: _Job) -> None:
        try:
            await job.main()
        except asyncio.CancelledError as error:
            was_asked_for = job.is_cancelled or self._is_stopping
            self._tell(job, self._end() if was_asked_for else error)
            raise
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._tell(job, error)
        else:
            self._jobs.discard(job)

    def _end(self) -> BaseException:
        """Say why the loop runs nothing any more.

        Afresh to each who waits: an error that is raised keeps the frames of whoever met it.
        """
        return self._death or ClosedError("the loader was closed")

    async def _until_cancelled_ended(self) -> None:
        tasks = [job.task for job in self._jobs if job.is_cancelled and job.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _finish(self, last: Main[None]) -> None:
        try:
            await self._cancel_others()
            await last()
        finally:
            asyncio.get_running_loop().stop()

    async def _cancel_others(self) -> None:
        """End every other task: ours, and those that user code left running."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
