"""Where the coroutines of a loader run: on a loop in a thread, or on the caller's thread."""

from __future__ import annotations

import logging
import threading
from typing import TypeVar

from headrace.errors import CannotStartThreadError, ClosedError
from headrace.inline import PrivateLoop
from headrace.loop_thread import LoopThread, Main
from headrace.threads import Reaping

T = TypeVar("T")

logger = logging.getLogger("headrace")


class Loops:
    """The event loops of one loader, each begun when it is needed.

    Args:
        workers: Threads that are wanted.
        reaping: What the owner needs begun before any thread, so that it is closed if dropped.

    Attributes:
        workers: Threads that there may be; 0 once it showed that none can be started.
        private: The loop for `workers=0`.
    """

    def __init__(self, workers: int, reaping: Reaping) -> None:
        self.workers = workers
        self.private = PrivateLoop()
        self._reaping = reaping
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._is_closed = False

    @property
    def threads(self) -> list[threading.Thread]:
        """The thread of the loop, once begun."""
        return [] if self._thread is None else self._thread.threads

    def call(self, main: Main[T], what: str) -> T:
        """Run a coroutine function to its end and block for it.

        Raises:
            LoopRunningError: It would have to run on this thread, where a loop runs already.
            ClosedError: The loader was closed, before or meanwhile.
        """
        if self.workers:
            try:
                return self.begun().call(main)
            except CannotStartThreadError as error:
                self.do_without_threads(error)
        return self.private.call(main, what)

    def begun(self) -> LoopThread:
        """Give the loop in a thread, running; a new one if user code has killed the last.

        Raises:
            CannotStartThreadError: There can be none.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("the loader is closed")
            self._reaping.begin()
            if self._thread is None or self._thread.has_ended:
                self._thread = LoopThread()
            self._thread.begin()
            return self._thread

    def do_without_threads(self, error: CannotStartThreadError) -> None:
        """Run on the caller from here on."""
        logger.info("running as workers=0: %s", error)
        self.workers = 0

    def wait_idle(self) -> None:
        """Block until all that was cancelled on the loop in a thread has ended."""
        if self._thread is not None and not self._thread.has_ended:
            self._thread.wait_idle()

    def stop(self, last: Main[None]) -> None:
        """Have the loop in a thread cancel everything, run `last`, end. Does not wait."""
        with self._lock:
            self._is_closed = True
        if self._thread is not None:
            self._thread.stop(last)
