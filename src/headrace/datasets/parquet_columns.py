"""Columns of a row group in memory, and how rows come out of them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, as_run
from headrace.datasets.dataset import Column, RaggedColumn
from headrace.datasets.flat_rows import FlatRows

Kind = Literal["fixed", "open", "value"]


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """What a column of the files becomes.

    Attributes:
        name: Its name in the schema.
        kind: "fixed": numbers of one shape. "open": lists of these, of any length. "value":
            anything else, one Python object per row.
        type: Its type as Parquet's library writes it.
        dtype: Of the numbers, as numpy writes it; empty for "value".
        shape: Of one row, or of one element of a list.
    """

    name: str
    kind: Kind
    type: str
    dtype: str = ""
    shape: tuple[int, ...] = ()

    @property
    def column(self) -> Column:
        """The column as a layout has it; only where it is no "value"."""
        shape = self.shape if self.kind == "fixed" else (None, *self.shape)
        return Column(self.name, np.dtype(self.dtype), shape)


class GroupColumn(ABC):
    """One column of one row group, decoded.

    Attributes:
        nulls: Which rows hold a null that nothing fills; None where none does.
        nbytes: Memory that it takes.
    """

    nulls: NDArray[np.bool_] | None
    nbytes: int

    @abstractmethod
    def take(self, local: Indices) -> Sequence[Any]:
        """Give the values of some rows, each with memory of its own."""


class LaidOutColumn(GroupColumn):
    """A column whose rows have a layout."""

    @abstractmethod
    def put(self, local: Indices, out: Any, rows: Indices) -> None:
        """Copy some rows into rows of `out`."""


class FixedColumn(LaidOutColumn):
    """Numbers of one shape.

    Args:
        values: `[rows, *shape]`.
        nulls: As of GroupColumn.
    """

    def __init__(self, values: NDArray[Any], nulls: NDArray[np.bool_] | None = None) -> None:
        self._values = values
        self.nulls = nulls
        self.nbytes = values.nbytes

    def take(self, local: Indices) -> Sequence[Any]:
        # Rows of a fresh array; a number comes out of it as one of its dtype.
        return list(self._values[local])

    def put(self, local: Indices, out: Any, rows: Indices) -> None:
        run = as_run(rows)
        if run is None:
            out[rows] = self._values[local]
        else:
            np.take(self._values, local, 0, out=out[run], mode="clip")


class OpenColumn(LaidOutColumn):
    """Lists of numbers.

    Args:
        flat: All elements, `[elements, *shape]`, C-contiguous.
        offsets: int64 `[rows + 1]`: row i is `flat[offsets[i]:offsets[i + 1]]`.
        nulls: As of GroupColumn.
    """

    def __init__(
        self, flat: NDArray[Any], offsets: Indices, nulls: NDArray[np.bool_] | None = None
    ) -> None:
        self._flat = flat
        self._offsets = offsets
        self._rows = FlatRows(flat)
        self.nulls = nulls
        self.nbytes = flat.nbytes + offsets.nbytes

    @property
    def lengths(self) -> Indices:
        """Elements of each row, int64 `[rows]`."""
        return np.diff(self._offsets)

    def take(self, local: Indices) -> Sequence[Any]:
        starts, stops = self._offsets[local].tolist(), self._offsets[local + 1].tolist()
        return [self._flat[a:b].copy() for a, b in zip(starts, stops, strict=True)]

    def put(self, local: Indices, out: Any, rows: Indices) -> None:
        assert isinstance(out, RaggedColumn)
        self._rows.read(self._offsets[local], self._offsets[local + 1], out, rows)


class ValueColumn(GroupColumn):
    """Text, bytes and all else, made into Python objects when asked for.

    Args:
        values: Has `as_py()` for each item, as columns of Parquet's library do.
        nbytes: Memory that they take.
        fill: What takes the place of a null; None where nothing does.
        nulls: As of GroupColumn.
    """

    def __init__(
        self, values: Any, nbytes: int, fill: Any = None, nulls: NDArray[np.bool_] | None = None
    ) -> None:
        self._values = values
        self._fill = fill
        self.nulls = nulls
        self.nbytes = nbytes

    def take(self, local: Indices) -> Sequence[Any]:
        found = (self._values[number].as_py() for number in local.tolist())
        # A list that stands for a null belongs to its sample too, who may append to it.
        return [copy.deepcopy(self._fill) if value is None else value for value in found]


Group = Mapping[str, GroupColumn]
"""The columns of a row group by name."""


def group_bytes(group: Group) -> int:
    """Give what a row group takes in memory."""
    return sum(column.nbytes for column in group.values())
