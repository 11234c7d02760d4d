"""Building padded batches from rows of a stored layout: no Python per sample."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.bad_samples import Substitution
from headrace.build.builder import Builder, Finish, Hop, indices_of
from headrace.build.built import Built
from headrace.build.bulk import BulkBuilder
from headrace.build.calls import Raised, attempt
from headrace.build.pages import Page, Pages, names_of
from headrace.build.samples import FIRST_GUESS_BYTES
from headrace.collate import OFFSETS, Columns
from headrace.collators.padded import LENGTHS, MASK, PadCollator
from headrace.collators.padding import Padding, lay_out
from headrace.datasets.dataset import BulkDataset
from headrace.errors import RowErrors
from headrace.pick import Picks
from headrace.plan import Span
from headrace.ring.blocks import BlockPool

_LENGTH_BYTES = np.dtype(np.int64).itemsize


def padded_builder(
    dataset: BulkDataset,
    collator: PadCollator,
    finish: Finish,
    pool: BlockPool,
    batch_rows: int,
    hop: Hop | None = None,
) -> Builder:
    """Give the builder for a collator that pads the open columns of a bulk dataset.

    Raises:
        ConfigError: The collator is not for these columns.
    """
    collator.check_layout(dataset.delivered)
    if dataset.reads_padded and not dataset.waits and dataset.delivered == dataset.layout:
        pages = Pages(dataset.layout, collator, pool, batch_rows)
        return PaddedBuilder(dataset, finish, pages, hop)
    only_open = tuple(column for column in dataset.delivered if column.is_open)
    pages = Pages(only_open, collator, pool, batch_rows)
    return LaidOutBuilder(dataset, finish, pages, pool, batch_rows, hop)


class PaddedBuilder(Builder):
    """Has a dataset read the rows of each step straight to where they are handed out."""

    joins_steps = True

    def __init__(
        self, dataset: BulkDataset, finish: Finish, pages: Pages, hop: Hop | None = None
    ) -> None:
        super().__init__(finish, hop)
        self._dataset = dataset
        self._pages = pages
        self._names = names_of(dataset.delivered)
        self._sizes = StepSizes(dataset, pages.padding)

    @property
    def waits(self) -> bool:
        return False

    @property
    def step_bytes(self) -> int:
        return self._sizes.step_bytes

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        return self._sizes.of(picks, ends)

    def build_blocking(self, span: Span) -> list[Built]:
        return [self._build_step(span, position) for position in range(len(span.steps))]

    def _build_step(self, span: Span, position: int) -> Built:
        samples = span.picks.sample[span.rows(position)]
        substitution: Substitution | None = None
        while True:
            began = self.times.clock()
            read = attempt(self._read_page, samples)
            self.times.add_read(began)
            if not isinstance(read, Raised):
                return self.assemble(self._hand_out, span, position, read, substitution)
            if not isinstance(read.error, RowErrors):
                return self.finish.failed(span, position, read.error)
            substitution = substitution or self.finish.substitution(span, position)
            for row, error in sorted(read.error.errors.items()):
                index = substitution.samples[row]
                if not substitution.replace(row, error, self.finish.where(index)):
                    return self.finish.failed(span, position, error, index)
            samples = indices_of(substitution.samples)

    def _read_page(self, samples: NDArray[np.int64]) -> Page:
        pages = self._pages
        page = pages.take(self._dataset.sizes(samples), samples)
        self._dataset.read_padded_blocking(samples, page.values, pages.pad_values)
        # The width may be above the length at which rows are cut, where nothing was cut yet.
        most = pages.padding.max_length
        if most is not None:
            for name, pad_value in pages.pad_values.items():
                page.values[name][:, most:] = pad_value
        return page

    def _hand_out(
        self, span: Span, position: int, page: Page, substitution: Substitution | None
    ) -> Built:
        values = tuple(chain.from_iterable(map(page.tensors, page.values)))
        rows = span.rows(position)
        columns = Columns(self._names, values, rows.stop - rows.start)
        return self.finish.finish(span, position, columns, substitution)


class LaidOutBuilder(BulkBuilder):
    """Reads rows end to end, as they are handed out otherwise, and lays each step out anew."""

    def __init__(
        self,
        dataset: BulkDataset,
        finish: Finish,
        pages: Pages,
        pool: BlockPool,
        batch_rows: int,
        hop: Hop | None = None,
    ) -> None:
        super().__init__(dataset, replace(finish, lay_out=LayOut(pages)), pool, batch_rows, hop)
        self._sizes = StepSizes(dataset, pages.padding)

    @property
    def step_bytes(self) -> int:
        return self._sizes.step_bytes

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        return self._sizes.of(picks, ends)


class LayOut:
    """Puts the open columns of a step, which lie end to end, side by side."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def __call__(self, columns: Columns, samples: NDArray[np.int64]) -> Columns:
        given = dict(zip(columns.names, columns.values, strict=True))
        offsets = {name: given.pop(name + OFFSETS).numpy() for name in self._pages.pad_values}
        sizes = {name: np.diff(each) for name, each in offsets.items()}
        page = self._pages.take(sizes, samples)
        made: dict[str, torch.Tensor] = {}
        for name, value in given.items():
            if name not in offsets:
                made[name] = value
                continue
            lay_out(
                value.numpy(),
                offsets[name],
                page.lengths[name],
                page.values[name],
                self._pages.pad_values[name],
            )
            suffixes = ("", LENGTHS, MASK)
            made |= zip((name + each for each in suffixes), page.tensors(name), strict=True)
        return Columns(tuple(made), tuple(made.values()), columns.num_rows)


class StepSizes:
    """What padded steps hold, exactly, from the lengths of their samples.

    Attributes:
        step_bytes: The most that any step seen so far holds; a guess before the first.
    """

    def __init__(self, dataset: BulkDataset, padding: Padding) -> None:
        self.step_bytes: int = FIRST_GUESS_BYTES
        self._dataset = dataset
        self._padding = padding
        self._is_guess = True

    def of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        """Give what each step of a window holds: values, lengths and masks."""
        row_bytes: Any = 0
        sizes = self._dataset.sizes(picks.sample)
        for column in self._dataset.delivered:
            if column.is_open:
                lengths = self._padding.lengths(sizes[column.name])
                widths = self._padding.widths(np.maximum.reduceat(lengths, ends[:-1]))
                row_bytes = row_bytes + widths * (column.unit_bytes + 1) + _LENGTH_BYTES
            else:
                row_bytes = row_bytes + column.unit_bytes
        nbytes: list[int] = ((ends[1:] - ends[:-1]) * row_bytes).tolist()
        most = max(nbytes)
        self.step_bytes = most if self._is_guess else max(self.step_bytes, most)
        self._is_guess = False
        return nbytes
