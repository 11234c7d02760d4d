"""The one iterator over batches, in an ordinary loop or an awaited one."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from headrace.batch import Batch
from headrace.build.built import Built
from headrace.errors import (
    BatchTimeoutError,
    ClosedError,
    ForkedError,
    LoopRunningError,
    SecondConsumerError,
)
from headrace.ring.ring import EndOfRun
from headrace.threads import leave_if_ending, reap


class Steps(Protocol):
    """Finished steps in order, wherever they are built.

    Attributes:
        next_step: The step that a take gives. A take does not move it: the stream does, once
            the step is accepted, so that an interrupt between the two cannot lose a step.
        end: First step that is not built; None for an endless run.
    """

    next_step: int
    end: int | None

    def take_blocking(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Take the next step; EndOfRun when there is none."""
        ...

    async def take(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Take the next step; EndOfRun when there is none."""
        ...

    def close(self) -> None:
        """Stop the work at once."""
        ...


class Owner(Protocol):
    """The loader, as a stream sees it: who starts the reading and who keeps the cursor."""

    stall_s: float

    def begin(self, stream: BatchStream) -> Steps:
        """Start the reading at the first take of a stream."""
        ...

    def accept(self, stream: BatchStream, step: int, built: Built, asked: float) -> Batch | None:
        """Move the cursor past a step asked for at a time; None when the step is skipped.

        Raises:
            ClosedError: The cursor went elsewhere while the step was on its way.
        """
        ...

    def waited_in_vain(self, asked: float) -> None:
        """Hear that a take was cancelled or interrupted."""
        ...

    def stalled(self, step: int, waited_s: float) -> None:
        """Report a take that has waited long."""
        ...

    def complete(self, stream: BatchStream, steps: Steps) -> None:
        """Hear that a stream delivered its last batch."""
        ...


class BatchStream:
    """Batches of consecutive steps: an iterator and an async iterator of the same batches.

    Use it in `for` or in `async for` (from any loop), or as a context manager of either kind.
    Leaving a loop early, `close`, dropping the stream or an error stops the reading at once
    without waiting for threads; `loader.close()` joins them. A take that is cancelled, timed
    out or interrupted loses nothing: the next take gives the same batch. One consumer at a time.

    An error while a batch was built is raised when its step is reached, once; then the stream
    has ended.

    Attributes:
        start: First global step.
        until: First global step not to be delivered; None for an endless stream.
        read_until: First global step not to be read ahead, at or past `until`.
    """

    def __init__(self, owner: Owner, start: int, until: int | None, read_until: int | None) -> None:
        self.start = start
        self.until = until
        self.read_until = read_until
        self._owner = owner
        self._pid = os.getpid()
        self._steps: Steps | None = None
        self._is_ended = False
        self._stolen_by = ""
        self._finalizer: weakref.finalize[..., BatchStream] | None = None

    # -- taking --------------------------------------------------------------------------

    def __iter__(self) -> BatchStream:
        return self

    def __next__(self) -> Batch:
        while (steps := self._ready()) is not None:
            asked = time.perf_counter()
            try:
                built = steps.take_blocking(self._stalled, self._owner.stall_s)
            except EndOfRun:
                if self._reads_again(steps):
                    continue
                self._lost()
                break
            except (LoopRunningError, SecondConsumerError, BatchTimeoutError):
                raise  # the caller's mistake or wish; the stream is as it was
            except Exception:
                self._give_up()
                raise
            except BaseException:
                self._owner.waited_in_vain(asked)
                raise
            batch = self._accept(steps, built, asked)
            if batch is not None:
                return batch
        raise StopIteration

    def __length_hint__(self) -> Any:
        """Give how many batches are left, skipped steps counted; none for an endless stream."""
        if self.until is None:
            return NotImplemented
        steps = self._steps
        at = self.start if steps is None else steps.next_step
        return 0 if self._is_ended else max(0, self.until - at)

    def __aiter__(self) -> BatchStream:
        return self

    async def __anext__(self) -> Batch:
        while (steps := self._ready()) is not None:
            asked = time.perf_counter()
            try:
                built = await steps.take(self._stalled, self._owner.stall_s)
            except EndOfRun:
                if self._reads_again(steps):
                    continue
                self._lost()
                break
            except SecondConsumerError:
                raise  # the caller's mistake; the stream is as it was
            except Exception:
                self._give_up()
                raise
            except BaseException:
                self._owner.waited_in_vain(asked)
                raise
            batch = self._accept(steps, built, asked)
            if batch is not None:
                return batch
        raise StopAsyncIteration

    def _ready(self) -> Steps | None:
        """Give where the next step comes from; None when there is no next step."""
        if os.getpid() != self._pid:
            raise ForkedError("a BatchStream", self._pid)
        if self._stolen_by:
            raise ClosedError(f"this stream was closed when {self._stolen_by}")
        if self._is_ended:
            return None
        steps = self._steps
        if steps is None:
            steps = self._begin()
        if self.until is not None and steps.next_step >= self.until:
            self._end()
            self._owner.complete(self, steps)
            return None
        return steps

    def _begin(self) -> Steps:
        steps = self._steps = self._owner.begin(self)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _drop, steps, self._pid)
        self._finalizer.atexit = False
        # `close` notes the end before it looks for the steps, so one of the two sees it.
        if self._is_ended:
            steps.close()
        return steps

    def _accept(self, steps: Steps, built: Built, asked: float) -> Batch | None:
        step = steps.next_step
        try:
            batch = self._owner.accept(self, step, built, asked)
        except KeyboardInterrupt:
            raise  # the step is not accepted: the next take gives it again, or says that it cannot
        except BaseException:
            self._give_up()
            raise
        steps.next_step = step + 1
        return batch

    def _stalled(self, waited_s: float) -> None:
        steps = self._steps
        if steps is not None:
            self._owner.stalled(steps.next_step, waited_s)

    def read_again(self) -> None:
        """Drop what was read ahead; the next take reads anew where the cursor is. Any thread."""
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()

    def _reads_again(self, steps: Steps) -> bool:
        return self._steps is not steps and not self._is_ended

    # -- ending --------------------------------------------------------------------------

    def steal(self, why: str) -> None:
        """Close this stream because the loader's one cursor went elsewhere."""
        if not self._is_ended:
            self._stolen_by = why
            self.close()

    def close(self) -> None:
        """Stop the reading at once; batches not taken are dropped. Idempotent, any thread.

        A loop over the stream that is under way then ends.
        """
        self._is_ended = True
        steps = self._steps
        self._end()
        # In a forked child the locks may be held by threads that do not exist there.
        if steps is not None and os.getpid() == self._pid:
            steps.close()

    async def aclose(self) -> None:
        """Do as `close`."""
        self.close()

    def _give_up(self) -> None:
        self.close()
        leave_if_ending()

    def _lost(self) -> None:
        """Meet the end of the run before the end of the stream: somebody closed it."""
        ended_by_us = self._is_ended
        self._end()
        if self._stolen_by:
            raise ClosedError(f"this stream was closed when {self._stolen_by}")
        if not ended_by_us:
            leave_if_ending()
            raise ClosedError("the loader was closed while this stream was in use")

    def _end(self) -> None:
        self._is_ended = True
        self._steps = None
        if self._finalizer is not None:
            self._finalizer.detach()

    def __enter__(self) -> BatchStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> BatchStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        until = "" if self.until is None else self.until
        state = "ended" if self._is_ended else "open" if self._steps is not None else "not begun"
        return f"BatchStream(steps {self.start}:{until}, {state})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a BatchStream cannot be pickled; save loader.state_dict() instead")


def _drop(steps: Steps, pid: int) -> None:
    """Have the steps of a dropped stream closed, unless they belong to a parent process."""
    if os.getpid() == pid:
        reap(steps.close)
