"""Memory for the padded columns of a span of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.bulk import OWN_STORAGE_BYTES
from headrace.collators.padded import LENGTHS, MASK, PadCollator
from headrace.collators.padding import Lengths, fill_behind, fill_mask
from headrace.datasets.dataset import Layout
from headrace.ring.blocks import ALIGN_BYTES, BlockPool, capacity_for

_BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The open columns of one step, where they are filled and stay.

    Attributes:
        values: By column: `[rows, width, *unit shape]`.
        masks: By column: which positions are real, bool `[rows, width]`.
        lengths: By column: how many of each row are, int64 `[rows]`.
    """

    values: dict[str, NDArray[Any]]
    masks: dict[str, NDArray[np.bool_]]
    lengths: dict[str, Lengths]

    def pad(self, pad_values: Mapping[str, Any]) -> None:
        """Overwrite what is not real, and say in the masks what is."""
        for name, values in self.values.items():
            mask = self.masks[name]
            fill_mask(self.lengths[name], mask)
            fill_behind(values, mask, pad_values[name])

    def tensors(self, name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Give what an open column becomes in the batch."""
        return (
            torch.from_numpy(self.values[name]),
            torch.from_numpy(self.lengths[name]),
            torch.from_numpy(self.masks[name]),
        )


class Pages:
    """Makes pages out of recycled blocks.

    Args:
        layout: The columns.
        collator: What pads the open ones.
        pool: Where blocks come from.

    Attributes:
        padding: The rule for lengths and widths.
        pad_values: What fills each open column, a number of its dtype.
    """

    def __init__(self, layout: Layout, collator: PadCollator, pool: BlockPool) -> None:
        self.padding = collator.padding
        self._open = [column for column in layout if column.is_open]
        self._fixed = [column for column in layout if not column.is_open]
        self.pad_values = {c.name: collator.pad_for(c.name, c.dtype) for c in self._open}
        self._pool = pool

    def take(
        self, sizes: Mapping[str, Lengths], samples: NDArray[np.int64], ends: Sequence[int]
    ) -> list[Page]:
        """Give memory for some steps, values and masks undefined. Views of it keep all of it.

        Args:
            sizes: Length of each sample in each open column.
            samples: Their indices.
            ends: Row at which each step begins, and the end.

        Raises:
            CollateError: A row is too long, or every row of a step is empty.
        """
        pages: list[Page] = []
        cuts: list[tuple[dict[str, NDArray[Any]], str, tuple[int, ...], np.dtype[Any], int]] = []
        need = 0
        for first, end in pairwise(ends):
            page = Page({}, {}, {})
            for column in self._open:
                name, rows = column.name, slice(first, end)
                lengths, width = self.padding.fit(sizes[name][rows], name, samples[rows])
                # Its own, since a dataset may give out what it keeps and a batch is written to.
                page.lengths[name] = lengths.copy()
                shape = end - first, width, *column.unit_shape
                cuts.append((page.values, name, shape, column.dtype, need))
                need += _aligned(math.prod(shape) * column.dtype.itemsize)
                cuts.append((page.masks, name, shape[:2], _BOOL, need))
                need += _aligned(math.prod(shape[:2]))
            pages.append(page)
        memory = self._lend((need,), np.dtype(np.uint8))
        for arrays, name, shape, dtype, place in cuts:
            arrays[name] = np.ndarray(shape, dtype, memory, place)
        return pages

    def take_fixed(self, rows: int) -> dict[str, NDArray[Any]]:
        """Give memory for the columns that are not open, contents undefined."""
        made: dict[str, NDArray[Any]] = {}
        for column in self._fixed:
            shape = rows, *column.unit_shape
            is_small = rows * column.unit_bytes < OWN_STORAGE_BYTES
            made[column.name] = (np.empty if is_small else self._lend)(shape, column.dtype)
        return made

    def _lend(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Give memory of a block of its own, which goes back when the last view has died."""
        block = self._pool.lend(capacity_for(math.prod(shape) * dtype.itemsize))
        memory = block.lease(0, shape, dtype.str)
        block.let_go()
        return memory


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


def names_of(layout: Layout) -> tuple[str, ...]:
    """Name the columns of a padded batch."""
    names: list[str] = []
    for column in layout:
        names += names_of_open(column.name) if column.is_open else (column.name,)
    return tuple(names)


def names_of_open(name: str) -> tuple[str, str, str]:
    """Name what an open column becomes: its values, their lengths and mask."""
    return name, name + LENGTHS, name + MASK
