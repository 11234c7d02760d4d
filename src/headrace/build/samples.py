"""Building from samples: get each one, transform it, collate them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from headrace.build.bad_samples import Substitution, is_data_error
from headrace.build.builder import Finish, Hop, indices_of
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt, attempt_awaited
from headrace.build.estimated import EstimatedBuilder
from headrace.collate import Collator, Columns, as_columns, default_collate
from headrace.collators.images import ImageCollator
from headrace.errors import RowErrors
from headrace.pick import PickKey
from headrace.plan import Span
from headrace.stack import Empty

SampleTransform = Callable[[Any, PickKey], Any]


class Getter:
    """How samples come out of a dataset. Exactly one of the fields is set.

    Attributes:
        one: `__getitem__`, blocking.
        many: `__getitems__`, blocking.
        awaited: `async get`.
        fetch: `async fetch` of raw rows, to be followed by the dataset's `decode`.
    """

    def __init__(self, dataset: Any) -> None:
        self.fetch: Callable[[list[int]], Awaitable[Sequence[Any]]] | None = None
        self.awaited: Callable[[int], Awaitable[Any]] | None = None
        self.many: Callable[[list[int]], Sequence[Any]] | None = None
        self.one: Callable[[int], Any] | None = None
        if hasattr(dataset, "fetch") and hasattr(dataset, "decode"):
            self.fetch = dataset.fetch
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


class SampleBuilder(EstimatedBuilder):
    """Gets samples one by one (or `__getitems__` at once) and collates them by step.

    Args:
        getter: Gives the samples; asked for on the calling thread, since each reader thread may
            have a copy of the dataset of its own.
        here: Gives the dataset that the calling thread has open, to decode by it.
        hop: Runs a blocking call of a waiting build on a reader thread.
        is_serial: Whether awaited samples are got one after another, not all at once.
        empty: Gives the memory of stacked columns; fresh memory where None.
    """

    def __init__(
        self,
        getter: Callable[[], Getter],
        here: Callable[[], Any],
        finish: Finish,
        waits: bool,
        collate: Collator | None = None,
        sample_transform: SampleTransform | None = None,
        hop: Hop | None = None,
        is_serial: bool = False,
        empty: Empty | None = None,
    ) -> None:
        super().__init__(finish, hop)
        # Not a subclass, whose own call would be passed over.
        if type(collate) is ImageCollator and empty is not None:
            collate = partial(collate.collate_into, empty=empty)
        self._is_serial = is_serial
        self._empty = empty
        self._getter = getter
        self._here = here
        self._waits = waits
        self._collate = collate
        self._sample_transform = sample_transform

    @property
    def waits(self) -> bool:
        return self._waits

    def build_blocking(self, span: Span) -> list[Built]:
        getter = self._getter()
        return [self._build_step(getter, span, at) for at in range(len(span.steps))]

    def _build_step(self, getter: Getter, span: Span, position: int) -> Built:
        substitution = self.finish.substitution(span, position)
        while True:
            began = self.times.clock()
            got = self._get(getter, substitution.samples)
            self.times.add_read(began)
            built = self.assemble(self._settle, span, position, substitution, got)
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
            built = await self.assemble_off_loop(self._settle, span, position, substitution, got)
            if built is not None:
                return built

    # -- getting -------------------------------------------------------------------------

    def _get(self, getter: Getter, samples: list[int]) -> list[Any] | Raised:
        """Give a sample, or Raised, for each row; Raised alone where no row is at fault."""
        if getter.many is None:
            assert getter.one is not None
            one = getter.one
            return [attempt(one, index) for index in samples]
        got = attempt(getter.many, list(samples))
        if not isinstance(got, Raised):
            return _of_length(got, samples, "__getitems__")
        if isinstance(got.error, RowErrors):
            return _bad_rows(got.error, samples)
        many = getter.many
        return _blame(got, [_of_length(attempt(many, [i]), [i], "__getitems__") for i in samples])

    async def _get_awaited(self, getter: Getter, samples: list[int]) -> list[Any] | Raised:
        if getter.fetch is None:
            assert getter.awaited is not None
            return await self._attempt_each(getter.awaited, samples)
        began = self.times.clock()
        raw = await attempt_awaited(getter.fetch, list(samples))
        self.times.add_read(began)
        if not isinstance(raw, Raised):
            rows = _of_length(raw, samples, "fetch")
            if isinstance(rows, Raised):
                return rows
            return await self.assemble_off_loop(self._decode_all, rows)
        if isinstance(raw.error, RowErrors):
            return _bad_rows(raw.error, samples)
        # Only bad data can be read again to find its row; a store that is down would be asked
        # once more for each.
        if not is_data_error(raw.error):
            return raw
        alone = await self._attempt_each(getter.fetch, [[i] for i in samples])
        return _blame(
            raw, [_of_length(got, [i], "fetch") for got, i in zip(alone, samples, strict=True)]
        )

    def _decode_all(self, raw: list[Any]) -> list[Any] | Raised:
        """Give the samples of raw rows, on a thread that decodes."""
        here = attempt(self._here)
        if isinstance(here, Raised):
            return here
        return [attempt(here.decode, row) for row in raw]

    async def _attempt_each(
        self, call: Callable[[Any], Awaitable[Any]], arguments: Sequence[Any]
    ) -> list[Any]:
        began = self.times.clock()
        if self._is_serial:
            got = [await attempt_awaited(call, argument) for argument in arguments]
        else:
            async with asyncio.TaskGroup() as tasks:
                made = [tasks.create_task(attempt_awaited(call, each)) for each in arguments]
            got = [task.result() for task in made]
        self.times.add_read(began)
        return got

    # -- collating -----------------------------------------------------------------------

    def _settle(
        self, span: Span, position: int, substitution: Substitution, got: list[Any] | Raised
    ) -> Built | None:
        """Finish a step, fail it, or give None when samples are to be got again."""
        if isinstance(got, Raised):
            return self.finish.failed(span, position, got.error)
        samples = substitution.samples
        if self._sample_transform is not None and not _has_raised(got):
            got = self._transformed(got, span, position, substitution)
        bad = [row for row, sample in enumerate(got) if isinstance(sample, Raised)]
        for row in bad:
            index, error = samples[row], got[row].error
            if not substitution.replace(row, error, self.finish.where(index)):
                return self.finish.failed(span, position, error, index)
        if bad:
            return None
        columns = attempt(self._columns, got, span, position, substitution)
        if isinstance(columns, Raised):
            return self.finish.failed(span, position, columns.error)
        self.count(columns)
        return self.finish.finish(span, position, columns, substitution)

    def _transformed(
        self, got: list[Any], span: Span, position: int, substitution: Substitution
    ) -> list[Any]:
        transform = self._sample_transform
        assert transform is not None
        keys = self.finish.keys(span, position, substitution)
        return [attempt(transform, sample, key) for sample, key in zip(got, keys, strict=True)]

    def _columns(
        self, got: list[Any], span: Span, position: int, substitution: Substitution
    ) -> Columns:
        if self._collate is None:
            return default_collate(got, indices_of(substitution.samples), self._empty)
        keys = self.finish.keys(span, position, substitution)
        return as_columns(self._collate(got, keys), len(got))


def _has_raised(got: list[Any]) -> bool:
    return any(isinstance(sample, Raised) for sample in got)


def _of_length(got: Any, samples: list[int], what: str) -> list[Any] | Raised:
    """Give what user code gave for some samples as a list, one for each."""
    if isinstance(got, Raised):
        return got
    listed: list[Any] | Raised = attempt(list, got)
    if isinstance(listed, Raised) or len(listed) == len(samples):
        return listed
    return Raised(ValueError(f"{what}: wanted {len(samples)} samples, got {len(listed)}"))


def _bad_rows(error: RowErrors, samples: list[int]) -> list[Any]:
    """Give Raised for the rows that are bad, and None for the others."""
    bad = error.errors
    return [Raised(bad[row]) if row in bad else None for row in range(len(samples))]


def _blame(whole: Raised, alone: list[list[Any] | Raised]) -> list[Any] | Raised:
    """Find the rows behind an error of a call for many, by calls for each alone."""
    if not any(isinstance(one, Raised) for one in alone):
        return whole
    return [one if isinstance(one, Raised) else one[0] for one in alone]
