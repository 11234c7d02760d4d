"""Builders around builders: user states, steps that are not built, the time of those that are."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headrace.build.builder import Builder
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt
from headrace.build.nested import NestedStates
from headrace.pick import Picks
from headrace.plan import Span


class Around(Builder):
    """Passes on what it does not change."""

    def __init__(self, inner: Builder) -> None:
        super().__init__(inner.finish)
        self.inner = inner
        self.joins_steps = inner.joins_steps
        self.names = inner.names

    @property
    def waits(self) -> bool:
        return self.inner.waits

    @property
    def step_bytes(self) -> int:
        return self.inner.step_bytes

    @property
    def typical_bytes(self) -> int:
        return self.inner.typical_bytes

    @property
    def beside_bytes(self) -> int:
        return self.inner.beside_bytes

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        return self.inner.bytes_of(picks, ends)


class StatefulBuilder(Around):
    """Snapshots stateful user objects after each step; the snapshot rides in the slot.

    Spans must be single steps, built one after another by one thread or task. A step that is
    built again, since its batch was lost to an interrupt, starts from the same states.

    Args:
        inner: Builds.
        states: The objects.
    """

    def __init__(self, inner: Builder, states: NestedStates) -> None:
        super().__init__(inner)
        self._states = states

    def build_blocking(self, span: Span) -> list[Built]:
        failed = self._begin(span)
        return failed or self._end(span, self.inner.build_blocking(span))

    async def build(self, span: Span) -> list[Built]:
        failed = self._begin(span)
        return failed or self._end(span, await self.inner.build(span))

    def _begin(self, span: Span) -> list[Built] | None:
        begun = attempt(self._states.begin, span.steps.start)
        return [self.finish.failed(span, 0, begun.error)] if isinstance(begun, Raised) else None

    def _end(self, span: Span, built: list[Built]) -> list[Built]:
        states = attempt(self._states.snapshot)
        if isinstance(states, Raised):
            return [self.finish.failed(span, 0, states.error)]
        built[0].nested = states
        return built


class SerialBuilder(Around):
    """Builds one span at a time, whoever asks: `batch_at` may, beside the one reader thread.

    For datasets that must not be read from two threads at once.
    """

    def __init__(self, inner: Builder) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()

    def build_blocking(self, span: Span) -> list[Built]:
        with self._lock:
            return self.inner.build_blocking(span)

    async def build(self, span: Span) -> list[Built]:
        return await self.inner.build(span)


class PlannedBuilder(Around):
    """Fails the steps that have no plan, each when the consumer reaches it."""

    def build_blocking(self, span: Span) -> list[Built]:
        return self._unplanned(span) or self.inner.build_blocking(span)

    async def build(self, span: Span) -> list[Built]:
        return self._unplanned(span) or await self.inner.build(span)

    def _unplanned(self, span: Span) -> list[Built] | None:
        return None if span.failure is None else [self.finish.failed(span, 0, span.failure)]


class TimedBuilder(Around):
    """Counts spans in and out; their parts are counted where they happen."""

    def build_blocking(self, span: Span) -> list[Built]:
        began = self.times.begin()
        try:
            return self.inner.build_blocking(span)
        finally:
            self.times.end(began, len(span.steps))

    async def build(self, span: Span) -> list[Built]:
        began = self.times.begin()
        try:
            return await self.inner.build(span)
        finally:
            self.times.end(began, len(span.steps))


class SkippingBuilder(Around):
    """Leaves out the steps that the user skips.

    Args:
        inner: Builds.
        skips: The steps to leave out.
    """

    def __init__(self, inner: Builder, skips: Collection[int]) -> None:
        super().__init__(inner)
        self._skips = skips

    def build_blocking(self, span: Span) -> list[Built]:
        if self._has_none(span):
            return self.inner.build_blocking(span)
        return [
            Built() if step in self._skips else self.inner.build_blocking(alone)[0]
            for step, alone in _single_steps(span)
        ]

    async def build(self, span: Span) -> list[Built]:
        if self._has_none(span):
            return await self.inner.build(span)
        return [
            Built() if step in self._skips else (await self.inner.build(alone))[0]
            for step, alone in _single_steps(span)
        ]

    def _has_none(self, span: Span) -> bool:
        return not any(step in self._skips for step in span.steps)


def _single_steps(span: Span) -> list[tuple[int, Span]]:
    alone: list[tuple[int, Span]] = []
    for at, step in enumerate(span.steps):
        rows = span.rows(at)
        alone.append(
            (
                step,
                replace(
                    span,
                    steps=range(step, step + 1),
                    picks=span.picks[rows],
                    ends=[0, rows.stop - rows.start],
                    epochs=span.epochs[at : at + 1],
                    first_steps=span.first_steps[at : at + 1],
                    digests=span.digests[at : at + 1],
                ),
            )
        )
    return alone
