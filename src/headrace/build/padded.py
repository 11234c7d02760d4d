"""Building padded batches from rows of a stored layout: no Python per sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.builder import Builder, Finish, Hop
from headrace.build.bulk import BulkBuilder
from headrace.build.pages import Pages, names_of, names_of_open
from headrace.build.spread import SpreadBuilder
from headrace.build.step_sizes import StepSizes
from headrace.collate import OFFSETS, Columns
from headrace.collators.padded import PadCollator
from headrace.collators.padding import spread
from headrace.datasets.dataset import BulkDataset
from headrace.datasets.names import check_distinct
from headrace.pick import Picks
from headrace.ring.blocks import BlockPool


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
        ConfigError: The collator is not for these columns, or two would have one name.
    """
    collator.check_layout(dataset.delivered)
    check_distinct(names_of(dataset.delivered))
    pages = Pages(dataset.delivered, collator, pool)
    if dataset.reads_spread and not dataset.waits and dataset.delivered == dataset.layout:
        return SpreadBuilder(dataset, finish, pages, batch_rows, hop)
    return LaidOutBuilder(dataset, finish, pages, pool, batch_rows, hop)


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
        self._sizes = StepSizes(dataset, pages.padding, batch_rows)
        self.names = names_of(dataset.delivered)

    @property
    def step_bytes(self) -> int:
        return self._sizes.step_bytes

    @property
    def typical_bytes(self) -> int:
        return self.step_bytes

    @property
    def beside_bytes(self) -> int:
        return super().typical_bytes + super().beside_bytes

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
        (page,) = self._pages.take(sizes, samples, [0, len(samples)])
        made: dict[str, torch.Tensor] = {}
        for name, value in given.items():
            if name not in offsets:
                made[name] = value
                continue
            spread(value.numpy(), offsets[name][:-1], page.lengths[name], page.values[name])
            made |= zip(names_of_open(name), page.tensors(name), strict=True)
        page.pad(self._pages.pad_values)
        return Columns(tuple(made), tuple(made.values()), columns.num_rows)
