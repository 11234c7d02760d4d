"""What a pass does at each take: draw a key ahead, count what was taken, give up in time."""

from __future__ import annotations

import asyncio
import logging

from headrace.batch import Batch
from headrace.build.built import Built
from headrace.build.calls import Raised
from headrace.errors import BatchTimeoutError
from headrace.inline import InlineRun
from headrace.reader import Run
from headrace.stream import BatchStream, Steps
from headrace.torch.draws import Draws
from headrace.torch.fetch import plain
from headrace.torch.place import Place
from headrace.torch.reading import Reading

logger = logging.getLogger("headrace")

# A take that waits longer than this is reported once in the log, where no time-out is set.
_STALL_S = 30.0


class Course:
    """The owner of a pass's stream; see `headrace.stream.Owner`. It does not hold the pass.

    Args:
        steps: Where finished steps come from, reading already.
        draws: Draws their keys.
        place: Counts what is taken.
        reading: Knows how far keys are drawn ahead, and the line that each reader is at.
        timeout_s: The longest wait for a batch; 0 for no bound.
        expected_end: Where the pass ends by the length of its sampler; None if that has none.
    """

    def __init__(
        self,
        steps: Run | InlineRun,
        draws: Draws,
        place: Place,
        reading: Reading,
        timeout_s: float,
        expected_end: int | None,
    ) -> None:
        self.stall_s = timeout_s or _STALL_S
        self._steps = steps
        self._draws = draws
        self._place = place
        self._timeout_s = timeout_s
        self._reading = reading
        self._expected_end = expected_end
        self._is_awaited = False

    def draw_ahead(self, stream: BatchStream) -> None:
        """Draw the key of one more step, before a take makes room for it.

        Readers claim a step only once the consumer has taken the one that is `ahead_steps`
        before it, so they never come to a step without a key.
        """
        if self._draws.end is not None:
            return
        step = self._steps.next_step
        # At the last step that is expected it is looked whether one more comes, so that a state
        # can tell the end of a pass, which frameworks that count batches never ask for.
        is_last = step + 1 == self._expected_end
        end = self._draws.draw_to(step + 1 + max(self._reading.ahead_steps, is_last))
        if end is not None:
            stream.until = self._steps.end = end
            if isinstance(self._steps, Run):
                self._steps.ring.end_at(end)

    async def in_time(self, stream: BatchStream) -> Batch:
        """Await the next batch, no longer than the time-out."""
        self._is_awaited = True
        try:
            return await asyncio.wait_for(anext(stream), self._timeout_s or None)
        except TimeoutError as error:
            # A time-out of user code is an error of its batch, which comes as a value.
            raise self._too_late() from error
        finally:
            self._is_awaited = False

    def _too_late(self) -> BatchTimeoutError:
        return BatchTimeoutError(self._timeout_s, self._readers())

    def _readers(self) -> str:
        frames = self._reading.engine.top_frames()
        return "; ".join(f"{name} at {line}" for name, line in frames.items())

    # -- what a stream asks of its owner -------------------------------------------------

    def begin(self, stream: BatchStream) -> Steps:
        return self._steps

    def accept(self, stream: BatchStream, step: int, built: Built, asked: float) -> Batch:
        batch = built.batch
        if batch is None:
            assert built.failure is not None
            # A failure is a value here: the pass goes on behind it, as torch's does.
            batch = plain(step, Raised(built.failure))
            built.failure = None
        self._place.take(self._draws.keys.pop(step), step + 1 == self._draws.end)
        return batch

    def waited_in_vain(self, asked: float) -> None:
        """Nothing is counted."""

    def stalled(self, step: int, waited_s: float) -> None:
        if self._timeout_s and not self._is_awaited:
            raise self._too_late()
        if not self._timeout_s:
            readers = self._readers() or "none"
            logger.warning("waited %.1f s for a batch; readers: %s", waited_s, readers)

    def complete(self, stream: BatchStream, steps: Steps) -> None:
        self._place.is_complete = True
        steps.close()
