"""Rows of a bulk dataset as samples, for what works on one sample at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from headrace.datasets.bounds import as_indices, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Dataset, Layout, Location, RaggedColumn
from headrace.datasets.parts import OverParts
from headrace.datasets.shards import starts_of
from headrace.errors import RowErrors


class _RowSamples(OverParts, Dataset):
    """Rows of a bulk dataset, one dict of tensors each."""

    def __init__(self, base: BulkDataset) -> None:
        self.parts = (base,)
        self._base = base

    def __len__(self) -> int:
        return len(self._base)

    def locate(self, index: int) -> Location | None:
        return self._base.locate(index)

    def fingerprint(self) -> dict[str, Any]:
        return self._base.fingerprint()

    def __repr__(self) -> str:
        return repr(self._base)


class BlockingRowSamples(_RowSamples):
    """Rows read on reader threads."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        rows = Rows(self._base, indices)
        self._base.read_into_blocking(rows.indices, rows.out, rows.numbers)
        return rows.samples()


class WaitingRowSamples(_RowSamples):
    """Rows read on the loop."""

    async def fetch(self, indices: Sequence[int]) -> list[Any]:
        rows = Rows(self._base, indices)
        await self._base.read_into(rows.indices, rows.out, rows.numbers)
        return rows.samples()

    def decode(self, raw: Any) -> Any:
        return raw


def one_row(base: BulkDataset, index: int) -> dict[str, torch.Tensor]:
    """Give one row as a dict of delivered columns, read on the calling thread.

    Raises:
        TypeError: Rows must be awaited.
    """
    if base.waits:
        raise TypeError(f"{base!r}: rows are awaited, so take a batch of a Loader in their place.")
    rows = Rows(base, [check_index(index, len(base), base)])
    try:
        base.read_into_blocking(rows.indices, rows.out, rows.numbers)
    except RowErrors as error:
        raise error.errors[0] from None
    return rows.samples()[0]


class Rows:
    """Memory for some rows of a bulk dataset, and the rows in it as samples.

    Attributes:
        indices: int64 `[k]`, checked.
        numbers: Their rows, 0 to k.
        out: What `read_into` fills.
    """

    def __init__(self, base: BulkDataset, indices: Iterable[int]) -> None:
        self._base = base
        self.indices = as_indices(indices)
        check_indices(self.indices, len(base), base)
        self.numbers = np.arange(len(self.indices))
        self._offsets = {name: starts_of(n) for name, n in base.sizes(self.indices).items()}
        self.out: dict[str, Any] = {
            name: RaggedColumn(array, self._offsets[name]) if name in self._offsets else array
            for name, array in self._fresh(base.layout).items()
        }

    def samples(self) -> list[dict[str, torch.Tensor]]:
        """Give each row as a dict of delivered columns, once `out` is filled."""
        stored = {
            name: torch.from_numpy(into.flat if isinstance(into, RaggedColumn) else into)
            for name, into in self.out.items()
        }
        delivered = stored
        if self._base.delivered != self._base.layout:
            fresh = self._fresh(self._base.delivered)
            delivered = {name: torch.from_numpy(array) for name, array in fresh.items()}
            self._base.deliver(stored, delivered)
        return [
            {name: self._row(name, column, row) for name, column in delivered.items()}
            for row in self.numbers.tolist()
        ]

    def _fresh(self, layout: Layout) -> dict[str, Any]:
        return {
            column.name: np.empty((self._length(column.name), *column.unit_shape), column.dtype)
            for column in layout
        }

    def _length(self, name: str) -> int:
        offsets = self._offsets.get(name)
        return len(self.indices) if offsets is None else int(offsets[-1])

    def _row(self, name: str, column: torch.Tensor, row: int) -> torch.Tensor:
        if name not in self._offsets:
            return column[row]
        start, stop = self._offsets[name][row : row + 2].tolist()
        return column[start:stop]
