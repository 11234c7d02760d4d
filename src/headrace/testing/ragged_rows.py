"""A small bulk dataset with an open column, for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Column, Layout, Location, Out, RaggedColumn
from headrace.errors import DataError, RowErrors


class RaggedRows(BulkDataset):
    """Sequences of numbers in memory: "values" of open length, and their "length".

    Args:
        sequences: One per sample.
        bad: Indices whose row fails.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], bad: Collection[int] = ()) -> None:
        self._sequences = [np.array(sequence, np.int32) for sequence in sequences]
        self._lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        self._bad = frozenset(bad)

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def layout(self) -> Layout:
        return (
            Column("values", np.dtype(np.int32), (None,)),
            Column("length", np.dtype(np.int64)),
        )

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        check_indices(indices, len(self), self)
        return {"values": self._lengths[indices]}

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, len(self), self)
        errors: dict[int, Exception] = {}
        for index, row in zip(indices.tolist(), rows.tolist(), strict=True):
            if index in self._bad:
                errors[row] = DataError(f"sample {index} is bad")
            else:
                self._fill(index, out, row)
        if errors:
            raise RowErrors(errors)

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        self.read_into_blocking(indices, out, rows)

    def _fill(self, index: int, out: Out, row: int) -> None:
        values, length = out["values"], out["length"]
        assert isinstance(values, RaggedColumn)
        assert isinstance(length, np.ndarray)
        start, stop = values.offsets[row : row + 2].tolist()
        values.flat[start:stop] = self._sequences[index]
        length[row] = self._lengths[index]

    def locate(self, index: int) -> Location:
        return Location("memory", None, f"sequence {check_index(index, len(self), self)}")

    def fingerprint(self) -> dict[str, Any]:
        total = int(self._lengths.sum())
        return {"kind": "RaggedRows", "samples": len(self), "values": total}

    def __repr__(self) -> str:
        return f"RaggedRows({len(self)} sequences)"


class AwaitedRows(BulkDataset):
    """Another bulk dataset, read on the event loop only."""

    def __init__(self, inner: BulkDataset) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    @property
    def layout(self) -> Layout:
        return self.inner.layout

    @property
    def delivered(self) -> Layout:
        return self.inner.delivered

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        return self.inner.sizes(indices)

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        self.inner.read_into_blocking(indices, out, rows)

    def deliver(self, stored: Mapping[str, Any], out: Mapping[str, Any]) -> None:
        self.inner.deliver(stored, out)

    def locate(self, index: int) -> Location | None:
        return self.inner.locate(index)

    def fingerprint(self) -> dict[str, Any]:
        return self.inner.fingerprint()

    def __repr__(self) -> str:
        return f"AwaitedRows({self.inner!r})"
