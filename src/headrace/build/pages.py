"""Memory for the padded columns of one step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.bulk import OWN_STORAGE_BYTES
from headrace.collators.padded import LENGTHS, MASK, PadCollator
from headrace.collators.padding import Lengths
from headrace.datasets.dataset import Layout
from headrace.datasets.prefix_rows import fill_mask
from headrace.ring.blocks import ALIGN_BYTES, BlockPool, capacity_for

_BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The columns of one step, where they are filled and stay; views of them keep their block.

    Attributes:
        values: By column: `[rows, *shape]`, or `[rows, width, *unit shape]` where it is open.
        lengths: By open column: how many elements of each row count, int64 `[rows]`.
        masks: By open column: which positions count, bool `[rows, width]`.
    """

    values: dict[str, NDArray[Any]]
    lengths: dict[str, Lengths]
    masks: dict[str, NDArray[np.bool_]]

    def tensors(self, name: str) -> tuple[torch.Tensor, ...]:
        """Give what a column becomes in the batch: one tensor, or three where it is open."""
        values = torch.from_numpy(self.values[name])
        if name not in self.lengths:
            return (values,)
        return values, torch.from_numpy(self.lengths[name]), torch.from_numpy(self.masks[name])


class Pages:
    """Makes pages out of recycled blocks.

    Args:
        layout: The columns.
        collator: What pads the open ones.
        pool: Where blocks come from.
        batch_rows: Rows of a full batch, which decide what a small column is.

    Attributes:
        padding: The rule for lengths and widths.
        pad_values: What fills each open column, a number of its dtype.
    """

    def __init__(
        self, layout: Layout, collator: PadCollator, pool: BlockPool, batch_rows: int
    ) -> None:
        self.padding = collator.padding
        self.pad_values = {c.name: collator.pad_for(c.name, c.dtype) for c in layout if c.is_open}
        self._layout = layout
        self._pool = pool
        # A kept label must not keep the block of its batch.
        self._small = {
            c.name
            for c in layout
            if not c.is_open and c.unit_bytes * batch_rows < OWN_STORAGE_BYTES
        }

    def take(self, sizes: Mapping[str, Lengths], samples: NDArray[np.int64]) -> Page:
        """Give memory for some samples: lengths and masks filled in, values undefined.

        Args:
            sizes: Length of each sample in each open column.
            samples: Their indices.

        Raises:
            CollateError: A row is too long, or every row of a column is empty.
        """
        lengths: dict[str, Lengths] = {}
        wanted: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for column in self._layout:
            name = column.name
            shape: tuple[int, ...] = (len(samples),)
            if column.is_open:
                lengths[name], width = self.padding.fit(sizes[name], name, samples)
                shape = (len(samples), width)
                wanted[name + MASK] = shape, _BOOL
            wanted[name] = (*shape, *column.unit_shape), column.dtype
        values = self._cut(wanted)
        masks = {name: values.pop(name + MASK) for name in lengths}
        for name, mask in masks.items():
            fill_mask(lengths[name], mask)
        return Page(values, lengths, masks)

    def _cut(
        self, wanted: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """Cut arrays out of one block, which goes back when the last of their views has died."""
        places: dict[str, int] = {}
        need = 0
        for name, (shape, dtype) in wanted.items():
            if name not in self._small:
                places[name] = need
                need += -(-math.prod(shape) * dtype.itemsize // ALIGN_BYTES) * ALIGN_BYTES
        block = self._pool.lend(capacity_for(need))
        memory = block.lease(0, (need,), "|u1")
        block.let_go()
        return {
            name: np.ndarray(shape, dtype, memory, places[name])
            if name in places
            else np.empty(shape, dtype)
            for name, (shape, dtype) in wanted.items()
        }


def names_of(layout: Layout) -> tuple[str, ...]:
    """Name the columns of a batch, those of open columns included."""
    names: list[str] = []
    for column in layout:
        suffixes = ("", LENGTHS, MASK) if column.is_open else ("",)
        names += [column.name + suffix for suffix in suffixes]
    return tuple(names)
