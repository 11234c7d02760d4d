"""From the memory of Arrow's arrays to columns of numpy arrays; knows their methods only."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.parquet_columns import (
    FixedColumn,
    GroupColumn,
    OpenColumn,
    ParquetColumn,
    ValueColumn,
)
from headrace.datasets.shards import starts_of

Nulls = NDArray[np.bool_]


class _Piece(NamedTuple):
    """One piece of a column: its numbers, the lengths of its rows where it is open, its nulls."""

    values: NDArray[Any]
    lengths: Indices | None
    nulls: Nulls


def column_of(chunks: Any, column: ParquetColumn, fill: Any) -> GroupColumn:
    """Give a column of a row group.

    Args:
        chunks: Arrow's chunked array.
        column: What it becomes.
        fill: What takes the place of a null number or value; a null list is then empty. None
            marks the rows that hold a null.
    """
    if column.kind == "value":
        nulls = _nulls_in(chunks) if chunks.null_count and fill is None else None
        return ValueColumn(chunks, chunks.nbytes, fill, nulls)
    make = _fixed if column.kind == "fixed" else _open
    pieces = [make(_plain(chunk), column, fill) for chunk in chunks.chunks]
    whole = pieces[0] if len(pieces) == 1 else _joined(pieces, column)
    bad = whole.nulls if fill is None and whole.nulls.any() else None
    if whole.lengths is None:
        return FixedColumn(whole.values, bad)
    return OpenColumn(whole.values, starts_of(whole.lengths), bad)


def _plain(array: Any) -> Any:
    return array.dictionary_decode() if hasattr(array, "dictionary_decode") else array


def _open(array: Any, column: ParquetColumn, fill: Any) -> _Piece:
    """Give lists. A null list counts as empty; it and one that holds a null are marked."""
    lengths = _filled(array.value_lengths(), 0).astype(np.int64)
    elements = _fixed(array.flatten(), column, fill)
    before = starts_of(elements.nulls)
    ends = starts_of(lengths)
    has_null_inside = before[ends[1:]] > before[ends[:-1]]
    return _Piece(elements.values, lengths, _nulls_in(array) | has_null_inside)


def _fixed(array: Any, column: ParquetColumn, fill: Any) -> _Piece:
    """Give numbers `[rows, *shape]`, a row marked where any of its numbers is null."""
    rows, per_row = len(array), 1
    nulls = np.zeros(rows, np.bool_)
    for size in column.shape:
        nulls |= _nulls_by_row(array, rows, per_row)
        # A list of fixed size has room for its numbers though it is null itself.
        array = array.values.slice(array.offset * size, len(array) * size)
        per_row *= size
    nulls |= _nulls_by_row(array, rows, per_row)
    dtype = np.dtype(column.dtype)
    # Arrow takes no 0 for False.
    numbers = _filled(array, dtype.type(0 if fill is None else fill).item())
    values = np.ascontiguousarray(numbers.astype(dtype, copy=False))
    return _Piece(values.reshape(rows, *column.shape), None, nulls)


def _joined(pieces: list[_Piece], column: ParquetColumn) -> _Piece:
    """Give pieces as one, which may be empty."""
    nothing = np.empty((0, *column.shape), column.dtype)
    no_nulls = np.zeros(0, np.bool_)
    lengths = [np.zeros(0, np.int64), *(p.lengths for p in pieces if p.lengths is not None)]
    return _Piece(
        np.concatenate([nothing, *(piece.values for piece in pieces)]),
        np.concatenate(lengths) if column.kind == "open" else None,
        np.concatenate([no_nulls, *(piece.nulls for piece in pieces)]),
    )


def _nulls_by_row(array: Any, rows: int, per_row: int) -> Nulls:
    """Say for each row whether any of its `per_row` items is null."""
    if not array.null_count or not per_row:
        return np.zeros(rows, np.bool_)
    return np.asarray(_nulls_in(array).reshape(rows, per_row).any(axis=1))


def _nulls_in(array: Any) -> Nulls:
    return np.asarray(array.is_null())


def _filled(array: Any, fill: Any) -> NDArray[Any]:
    """Give numbers, with something in the place of nulls."""
    return np.asarray(array.fill_null(fill) if array.null_count else array)
