"""Parquet files as a dataset: rows where all columns are numbers, else samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import config
from headrace.datasets.bounds import Indices, as_indices, check_indices
from headrace.datasets.dataset import BulkDataset, Dataset, Layout, Out
from headrace.datasets.parquet_columns import Group, LaidOutColumn, OpenColumn, ParquetColumn
from headrace.datasets.parquet_open import OpenedFiles, lengths_of, open_files
from headrace.datasets.parquet_table import ParquetTable
from headrace.datasets.shard_paths import Paths
from headrace.errors import RowErrors, SourceChangedError

# Room for the row groups that a window of block order reads from: 16 of 16 MB.
KEPT_BYTES = 256 << 20


class ParquetRows(ParquetTable, BulkDataset):
    """Rows of numbers: columns of one shape, and lists of any length as open columns."""

    decodes = True

    def __init__(self, opened: OpenedFiles, fills: Mapping[str, Any], kept_bytes: int) -> None:
        super().__init__(opened, fills, kept_bytes)
        self._lengths = lengths_of(opened, super()._decode)
        self._layout = tuple(column.column for column in opened.columns)

    @property
    def layout(self) -> Layout:
        return self._layout

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        check_indices(indices, len(self), self)
        return {name: lengths[indices] for name, lengths in self._lengths.items()}

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, len(self), self)
        errors: dict[int, Exception] = {}
        for group, local, positions in self._groups_of(indices, rows, errors):
            for name, column in group.items():
                assert isinstance(column, LaidOutColumn)
                column.put(local, out[name], rows[positions])
        if errors:
            raise RowErrors(errors)

    def _decode(self, group: int, columns: Sequence[ParquetColumn]) -> Group:
        """Decode a row group and check its lengths: memory was laid out by those known before."""
        decoded = super()._decode(group, columns)
        start, stop = self._table.starts[group : group + 2].tolist()
        for name, lengths in self._lengths.items():
            column = decoded[name]
            assert isinstance(column, OpenColumn)
            if not np.array_equal(column.lengths, lengths[start:stop]):
                file, number = self._table.place(group)
                found = f"others in column {name!r} of row group {number}"
                raise SourceChangedError(
                    self._opened.root, file.name, "rows of known length", found
                )
        return decoded


class ParquetSamples(ParquetTable, Dataset):
    """Rows of which some columns are text, bytes or nested: samples `{column: value}`.

    Numbers come as numpy scalars and arrays of their own dtype, text as str, bytes as bytes,
    and all else as pyarrow makes it a Python object.
    """

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return self._samples(as_indices(indices))


def Parquet(  # noqa: N802 - named as the datasets are
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    fill_null: Any = None,
    kept_bytes: int = KEPT_BYTES,
) -> ParquetRows | ParquetSamples:
    """Give the rows of Parquet files, which must agree in the columns taken.

    Numbers, and lists of one size of them, become columns of rows. Lists of any length become
    open columns; their lengths are found by one pass over these columns when this is made. With
    any other column (text, bytes, dates, nested) all rows come as samples, one Python dict each:
    leave such columns out where you can.

    A row is read by decoding its row group, and the groups used last are kept decoded. So an
    order of long runs reads each group once per epoch, and a shuffle over all rows decodes a
    group for nearly every row, unless all of them fit into `kept_bytes`:
    `BlockShuffled(len(data), batch_size, block=data.row_group_rows, window=...)`.

    Args:
        paths: A directory (every `.parquet` in it), a file, a pattern, or a list of these.
            Files of a directory or pattern are sorted by the bytes of their path.
        columns: Which columns, in the order of the samples; None takes all. Others are not read.
        fill_null: What takes the place of nulls: one value for all columns of numbers, or a
            mapping of columns to values. A null list is then empty. None makes a row with a null
            a bad sample.
        kept_bytes: What decoded row groups may hold together. Each thread holds the one that it
            reads from beside that.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ConfigError: No file is found, a column is unknown, or a knob is out of its range.
        NotFoundError: A file does not exist.
        FormatError: A file is no Parquet file or has other columns, or none has a row.
    """
    opened = open_files(paths, columns)
    fills = opened.fills(fill_null)
    config.integer("kept_bytes", kept_bytes, 0)
    made = ParquetRows if opened.has_layout else ParquetSamples
    return made(opened, fills, kept_bytes)
