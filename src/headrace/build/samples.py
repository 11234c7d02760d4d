"""Building from samples: get each one, transform it, collate them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.bad_samples import Substitution
from headrace.build.builder import Builder, Finish, Hop, indices_of
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt, attempt_awaited
from headrace.collate import Collator, Columns, as_columns, default_collate
from headrace.errors import RowErrors
from headrace.pick import PickKey, PickKeys, Picks
from headrace.plan import Span

SampleTransform = Callable[[Any, PickKey], Any]

# What a step is taken to hold before any has been built.
FIRST_GUESS_BYTES = 1 << 20


class StepEstimate:
    """The 99th percentile of what recent steps held, for byte grants; thread-safe."""

    # Enough for a 99th percentile; a percentile of more would lag behind a change of the data.
    _KEPT_STEPS = 128

    def __init__(self, first_guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._seen: list[int] = []
        self._next = 0
        self._lock = threading.Lock()
        self.step_bytes = first_guess_bytes

    def add(self, nbytes: int) -> None:
        """Count what a finished step holds."""
        with self._lock:
            if len(self._seen) < self._KEPT_STEPS:
                self._seen.append(nbytes)
            else:
                self._seen[self._next] = nbytes
                self._next = (self._next + 1) % self._KEPT_STEPS
            if self._next % 16 == 0 or nbytes > self.step_bytes:
                ranked = sorted(self._seen)
                self.step_bytes = ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)]


class Getter:
    """How samples come out of a dataset. Exactly one of the fields is set.

    Attributes:
        one: `__getitem__`, blocking.
        many: `__getitems__`, blocking.
        awaited: `async get`.
        fetch: `async fetch` of raw rows, to be followed by `decode`.
        decode: Gives the sample of a raw row, blocking.
    """

    def __init__(self, dataset: Any) -> None:
        self.fetch: Callable[[list[int]], Awaitable[Sequence[Any]]] | None = None
        self.decode: Callable[[Any], Any] | None = None
        self.awaited: Callable[[int], Awaitable[Any]] | None = None
        self.many: Callable[[list[int]], Sequence[Any]] | None = None
        self.one: Callable[[int], Any] | None = None
        if hasattr(dataset, "fetch") and hasattr(dataset, "decode"):
            self.fetch, self.decode = dataset.fetch, dataset.decode
        elif asyncio.iscoroutinefunction(getattr(dataset, "get", None)):
            self.awaited = dataset.get
        elif hasattr(dataset, "__getitems__"):
            self.many = dataset.__getitems__
        else:
            self.one = dataset.__getitem__

    @property
    def waits(self) -> bool:
        """Whether samples come over an event loop."""
        return self.fetch is not None or self.awaited is not None


class SampleBuilder(Builder):
    """Gets samples one by one (or `__getitems__` at once) and collates them by step.

    Args:
        getter: Gives the samples; asked for on the calling thread, since each reader thread may
            have a copy of the dataset of its own.
        hop: Runs a blocking call of a waiting build on a reader thread.
        is_serial: Whether awaited samples are got one after another, not all at once.
    """

    def __init__(
        self,
        getter: Callable[[], Getter],
        finish: Finish,
        waits: bool,
        collate: Collator | None = None,
        sample_transform: SampleTransform | None = None,
        hop: Hop | None = None,
        is_serial: bool = False,
    ) -> None:
        super().__init__(finish, hop)
        self._is_serial = is_serial
        self._getter = getter
        self._waits = waits
        self._collate = collate
        self._sample_transform = sample_transform
        self._estimate = StepEstimate()

    @property
    def waits(self) -> bool:
        return self._waits

    @property
    def step_bytes(self) -> int:
        return self._estimate.step_bytes

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        return [self._estimate.step_bytes] * (len(ends) - 1)

    def build_blocking(self, span: Span) -> list[Built]:
        getter = self._getter()
        return [self._build_step(getter, span, at) for at in range(len(span.steps))]

    def _build_step(self, getter: Getter, span: Span, position: int) -> Built:
        substitution = self.finish.substitution(span, position)
        while True:
            got = self._get(getter, substitution.samples)
            built = self._settle(span, position, substitution, got)
            if built is not None:
                return built

    async def build(self, span: Span) -> list[Built]:
        getter = self._getter()
        return [await self._build_step_awaited(getter, span, at) for at in range(len(span.steps))]

    async def _build_step_awaited(self, getter: Getter, span: Span, position: int) -> Built:
        substitution = self.finish.substitution(span, position)
        while True:
            got = await self._get_awaited(getter, substitution.samples)
            # Collating copies megabytes, so it leaves the loop for a reader thread.
            built = await self.off_loop(self._settle, span, position, substitution, got)
            if built is not None:
                return built

    # -- getting -------------------------------------------------------------------------

    def _get(self, getter: Getter, samples: list[int]) -> list[Any]:
        """Give a sample, or Raised, for each row."""
        if getter.many is None:
            assert getter.one is not None
            one = getter.one
            return [attempt(one, index) for index in samples]
        got = attempt(getter.many, list(samples))
        if isinstance(got, Raised):
            return self._spread(getter, got, samples)
        return _of_length(list(got), samples, "__getitems__")

    def _spread(self, getter: Getter, got: Raised, samples: list[int]) -> list[Any]:
        """Find the rows behind an error of a bulk call."""
        if isinstance(got.error, RowErrors):
            return [
                Raised(got.error.errors[row]) if row in got.error.errors else None
                for row in range(len(samples))
            ]
        assert getter.many is not None
        many = getter.many
        alone = [attempt(many, [index]) for index in samples]
        if not any(isinstance(part, Raised) for part in alone):
            return [got] * len(samples)
        return [part if isinstance(part, Raised) else part[0] for part in alone]

    async def _get_awaited(self, getter: Getter, samples: list[int]) -> list[Any]:
        if getter.fetch is not None:
            raw = await attempt_awaited(getter.fetch, list(samples))
            if isinstance(raw, Raised):
                if not isinstance(raw.error, RowErrors):
                    return [raw] * len(samples)
                bad = raw.error.errors
                return [Raised(bad[row]) if row in bad else None for row in range(len(samples))]
            rows = _of_length(list(raw), samples, "fetch")
            return list(await self.off_loop(_decode_all, getter.decode, rows))
        assert getter.awaited is not None
        if self._is_serial:
            return [await attempt_awaited(getter.awaited, i) for i in samples]
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(attempt_awaited(getter.awaited, i)) for i in samples]
        return [task.result() for task in made]

    # -- collating -----------------------------------------------------------------------

    def _settle(
        self, span: Span, position: int, substitution: Substitution, got: list[Any]
    ) -> Built | None:
        """Finish a step, fail it, or give None when samples are to be got again."""
        samples = substitution.samples
        if self._sample_transform is not None:
            self._transform(span, position, samples, got)
        bad = [row for row, sample in enumerate(got) if isinstance(sample, Raised)]
        for row in bad:
            index, error = samples[row], got[row].error
            if not substitution.replace(row, error, self.finish.where(index)):
                return self.finish.failed(span, position, error, index)
        if bad:
            return None
        columns = attempt(self._columns, got, samples, span, position)
        if isinstance(columns, Raised):
            return self.finish.failed(span, position, columns.error)
        self._estimate.add(bytes_in(columns.values))
        return self.finish.finish(span, position, columns, substitution)

    def _transform(self, span: Span, position: int, samples: list[int], got: list[Any]) -> None:
        assert self._sample_transform is not None
        keys: PickKeys = self.finish.keys(span, position)
        for row, sample in enumerate(got):
            if not isinstance(sample, Raised):
                got[row] = attempt(self._sample_transform, sample, keys[row])

    def _columns(self, got: list[Any], samples: list[int], span: Span, position: int) -> Columns:
        if self._collate is None:
            return default_collate(got, indices_of(samples))
        keys = replace(self.finish.keys(span, position), sample=indices_of(samples))
        return as_columns(self._collate(got, keys), len(samples))


def _decode_all(decode: Callable[[Any], Any], rows: list[Any]) -> list[Any]:
    return [attempt(decode, row) for row in rows]


def _of_length(got: list[Any], samples: list[int], what: str) -> list[Any]:
    if len(got) != len(samples):
        error = ValueError(f"{what}: wanted {len(samples)} samples, got {len(got)}")
        return [Raised(error)] * len(samples)
    return got


def bytes_in(values: Sequence[Any]) -> int:
    """Give what columns hold; a host value is taken for 64 bytes."""
    return sum(
        value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 64 * len(value)
        for value in values
    )
