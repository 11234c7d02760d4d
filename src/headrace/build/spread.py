"""Building padded batches with a dataset that reads rows side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.bad_samples import Substitution
from headrace.build.builder import Builder, Finish, Hop, indices_of
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt
from headrace.build.pages import Page, Pages, names_of
from headrace.build.step_sizes import StepSizes
from headrace.collate import Columns
from headrace.datasets.dataset import BulkDataset, Layout
from headrace.errors import RowErrors
from headrace.pick import Picks
from headrace.plan import Span


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What was read of some steps.

    Attributes:
        pages: The open columns of each step.
        fixed: The others, of all steps: `[rows, *shape]`.
    """

    pages: list[Page]
    fixed: dict[str, NDArray[Any]]

    def values(self, position: int, rows: slice, layout: Layout) -> tuple[torch.Tensor, ...]:
        """Hand out the columns of one step."""
        page = self.pages[position]
        values: list[torch.Tensor] = []
        for column in layout:
            if column.is_open:
                values += page.tensors(column.name)
            else:
                values.append(torch.from_numpy(self.fixed[column.name][rows]))
        return tuple(values)


class SpreadBuilder(Builder):
    """Has a dataset read rows straight to where they are handed out, side by side."""

    joins_steps = True

    def __init__(
        self,
        dataset: BulkDataset,
        finish: Finish,
        pages: Pages,
        batch_rows: int,
        hop: Hop | None = None,
    ) -> None:
        super().__init__(finish, hop)
        self._dataset = dataset
        self._layout = dataset.layout
        self.names = self._names = names_of(dataset.layout)
        self._pages = pages
        self._sizes = StepSizes(dataset, pages.padding, batch_rows)

    @property
    def waits(self) -> bool:
        return False

    @property
    def step_bytes(self) -> int:
        return self._sizes.step_bytes

    @property
    def beside_bytes(self) -> int:
        return 0

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        return self._sizes.of(picks, ends)

    def build_blocking(self, span: Span) -> list[Built]:
        read = self._read(span.picks.sample, span.ends)
        if not isinstance(read, Raised):
            return self.assemble(self._hand_out, span, read)
        if len(span.steps) == 1:
            return [self._build_alone(span, 0, read)]
        return [self._build_alone(span, position) for position in range(len(span.steps))]

    def _build_alone(self, span: Span, position: int, failed: Raised | None = None) -> Built:
        """Build one step by itself, after a fault somewhere in its span."""
        substitution = self.finish.substitution(span, position)
        ends = [0, len(substitution.samples)]
        while True:
            read = failed or self._read(indices_of(substitution.samples), ends)
            failed = None
            if not isinstance(read, Raised):
                return self.assemble(self._hand_out_alone, span, position, read, substitution)
            if not isinstance(read.error, RowErrors):
                return self.finish.failed(span, position, read.error)
            for row, error in sorted(read.error.errors.items()):
                index = substitution.samples[row]
                if not substitution.replace(row, error, self.finish.where(index)):
                    return self.finish.failed(span, position, error, index)

    def _read(self, samples: NDArray[np.int64], ends: list[int]) -> Read | Raised:
        began = self.times.clock()
        read = attempt(self._read_spread, samples, ends)
        self.times.add_read(began)
        return read

    def _read_spread(self, samples: NDArray[np.int64], ends: list[int]) -> Read:
        pages = self._pages.take(self._dataset.sizes(samples), samples, ends)
        fixed = self._pages.take_fixed(len(samples))
        self._dataset.read_spread_blocking(samples, fixed, [page.values for page in pages])
        return Read(pages, fixed)

    def _hand_out(self, span: Span, read: Read) -> list[Built]:
        return [
            self._hand_out_one(span, position, read, position, span.rows(position))
            for position in range(len(span.steps))
        ]

    def _hand_out_alone(
        self, span: Span, position: int, read: Read, substitution: Substitution
    ) -> Built:
        rows = slice(0, len(substitution.samples))
        return self._hand_out_one(span, position, read, 0, rows, substitution)

    def _hand_out_one(
        self,
        span: Span,
        position: int,
        read: Read,
        page: int,
        rows: slice,
        substitution: Substitution | None = None,
    ) -> Built:
        read.pages[page].pad(self._pages.pad_values)
        values = read.values(page, rows, self._layout)
        columns = Columns(self._names, values, rows.stop - rows.start)
        return self.finish.finish(span, position, columns, substitution)
