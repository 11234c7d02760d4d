"""The plan: which steps a builder makes next, their picks, and the bytes they may hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.pick import Picks
from headrace.ring.ring import Ring
from headrace.samplers.sampler import Sampler
from headrace.state import pick_hashes, step_digests
from headrace.threads import is_interrupt

# Picks are worked out for about this many rows at once: a keyed order costs 60-70 us per call
# and 14 ns per row, so 16,384 rows bring the first part under a quarter of the second, and the
# arrays that it needs still fit a core's own memory.
LOOKAHEAD_ROWS = 16384
# A kept batch keeps its span's block, so a span holds at most this much beyond one batch.
SPAN_BYTES = 4 << 20
MAX_SPAN_STEPS = 8

BytesOf = Callable[[Picks, NDArray[np.int64]], list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Consecutive claimed steps that one builder makes together.

    Attributes:
        steps: Global steps.
        picks: The picks of all steps, in order.
        ends: Row at which each step begins, and the end: `[steps + 1]`.
        epochs: Epoch of each step.
        first_steps: Global step at which the epoch of each step begins.
        digests: Pick digest of each step.
        failure: Why the one step of this span has no picks, or no size.
    """

    steps: range
    picks: Picks
    ends: list[int]
    epochs: list[int]
    first_steps: list[int]
    digests: list[int]
    failure: BaseException | None = None

    @property
    def num_rows(self) -> int:
        """Rows of all steps."""
        return self.ends[-1]

    def rows(self, position: int) -> slice:
        """Give the rows of the step at this position of the span."""
        return slice(self.ends[position], self.ends[position + 1])


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Picks worked out ahead for consecutive steps; a span is a piece of it."""

    steps: range
    picks: Picks
    ends: list[int]
    epochs: list[int]
    first_steps: list[int]
    digests: list[int]
    step_bytes: list[int]
    failure: BaseException | None = None

    @staticmethod
    def failed(step: int, failure: BaseException) -> Window:
        """Give a window of one step that cannot be worked out."""
        steps = range(step, step + 1)
        return Window(steps, Picks.joined([]), [0, 0], [0], [step], [0], [0], failure)

    def span(self, steps: range) -> Span:
        """Cut out some of the steps."""
        a, b = steps.start - self.steps.start, steps.stop - self.steps.start
        base = self.ends[a]
        return Span(
            steps,
            self.picks[base : self.ends[b]],
            [end - base for end in self.ends[a : b + 1]],
            self.epochs[a:b],
            self.first_steps[a:b],
            self.digests[a:b],
            self.failure,
        )


class Order:
    """The sampler as spans see it: pure, with the windows asked last kept for the next call.

    Windows grow 1, 2, 4, ... steps so that the first batch is not delayed. One thread at a
    time asks for windows; another may meanwhile work out the one that follows.

    Args:
        sampler: What is wanted.
        slots: Which slots of the global batch this rank delivers.
        bytes_of: What steps hold, from their picks and row ends.
    """

    def __init__(self, sampler: Sampler, slots: slice, bytes_of: BytesOf) -> None:
        self.sampler = sampler
        self._slots = slots
        self._bytes_of = bytes_of
        self._window: Window | None = None
        self._following: Window | None = None
        self._is_following_wanted = False
        self._ahead_steps = 1
        self._most_steps = max(1, LOOKAHEAD_ROWS // max(1, sampler.global_batch_size))

    def window(self, first: int, end: int | None) -> Window:
        """Give a window that begins at or before `first` and holds it."""
        window = self._window
        if window is not None and first in window.steps:
            return window
        following, self._following = self._following, None
        if following is None or first not in following.steps:
            is_next = window is not None and first == window.steps.stop
            following = self.work_out(self._next_steps(first, end, is_next))
        self._window = following
        self._is_following_wanted = True
        return following

    def following(self, first: int, end: int | None) -> range | None:
        """Give the steps of the window to be worked out beside the current one, once.

        None until half of the current one has been asked for.
        """
        window = self._window
        if not self._is_following_wanted or window is None:
            return None
        steps = window.steps
        if (first - steps.start) * 2 < len(steps) or (end is not None and steps.stop >= end):
            return None
        self._is_following_wanted = False
        return self._next_steps(steps.stop, end, True)

    def put_following(self, window: Window) -> None:
        """Keep a window worked out for the steps that `following` gave."""
        self._following = window

    def _next_steps(self, first: int, end: int | None, is_next: bool) -> range:
        self._ahead_steps = min(self._ahead_steps * 2, self._most_steps) if is_next else 1
        stop = first + self._ahead_steps
        return range(first, stop if end is None else min(stop, end))

    def span(self, step: int) -> Span:
        """Give one step as a span of its own, without touching the kept window."""
        return self.work_out(range(step, step + 1)).span(range(step, step + 1))

    def work_out(self, steps: range) -> Window:
        """Give the window of some steps; pure, from any thread.

        An error of the sampler or of sizes belongs to one step, and those before it must still
        be delivered: the window is then of the first step alone, and has a failure if that one
        cannot be worked out.
        """
        try:
            return self._work_out(steps)
        except BaseException as error:
            # Ctrl-C passes; all else, the end of a program included, is raised at the step.
            if is_interrupt(error):
                raise
            if len(steps) > 1:
                return self.work_out(steps[:1])
            return Window.failed(steps.start, error)

    def _work_out(self, steps: range) -> Window:
        picks = self.sampler.picks(steps, self._slots)
        marks = np.searchsorted(picks.step, np.arange(steps.start, steps.stop + 1))
        epochs, first_steps = self._epochs(steps)
        return Window(
            steps,
            picks,
            marks.tolist(),
            epochs,
            first_steps,
            step_digests(pick_hashes(picks), marks),
            self._bytes_of(picks, marks),
        )

    def _epochs(self, steps: range) -> tuple[list[int], list[int]]:
        epochs: list[int] = []
        first_steps: list[int] = []
        next_first: int | None = -1
        epoch = first = 0
        for step in steps:
            if next_first is not None and step >= next_first:
                epoch, in_epoch = self.sampler.locate(step)
                first = step - in_epoch
                in_all = self.sampler.steps_in(epoch)
                next_first = None if in_all is None else first + in_all
            epochs.append(epoch)
            first_steps.append(first)
        return epochs, first_steps


class Plan:
    """Claims spans for builders, in step order; callable from any thread.

    Its lock is not the ring's: the consumer's take must never wait for the arithmetic of the
    order, only for the few lines that move a slot.

    Args:
        ring: Where the steps go.
        order: Their picks.
        span_steps: The longest span.
    """

    def __init__(self, ring: Ring[Any], order: Order, span_steps: int) -> None:
        self._ring = ring
        self._order = order
        self._span_steps = span_steps
        self._ramp_steps = 1
        self._lock = threading.Lock()

    def claim(self) -> Span | None:
        """Claim the next span, or None when no step can be claimed now."""
        self._work_ahead()
        with self._lock:
            first, claimable, end = self._ring.claimable()
            if not claimable:
                return None
            wanted = min(claimable, self._ramp_steps)
            window = self._order.window(first, end)
            at = first - window.steps.start
            steps = self._ring.claim(window.step_bytes[at : at + wanted])
            if not steps:
                return None
            self._ramp_steps = min(self._ramp_steps * 2, self._span_steps)
            return window.span(steps)

    def _work_ahead(self) -> None:
        """Work out the next window before it is needed, without holding up other claims."""
        with self._lock:
            first, _, end = self._ring.claimable()
            steps = self._order.following(first, end)
        if steps is not None:
            window = self._order.work_out(steps)
            with self._lock:
                self._order.put_following(window)


def span_steps_for(step_bytes: int, prefetch: int, builders: int) -> int:
    """Give the longest span: bounded by bytes, and so that every builder can have one."""
    by_bytes = SPAN_BYTES // max(1, step_bytes)
    by_ring = prefetch // (builders + 1)
    return max(1, min(MAX_SPAN_STEPS, by_bytes, by_ring))
