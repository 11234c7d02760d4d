"""Files of rows of equal bytes, behind a header or not: which holds which row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.datasets.bounds import Indices
from headrace.datasets.shard_paths import common_root, name_in
from headrace.datasets.shards import starts_of
from headrace.errors import FormatError
from headrace.sources.source import ByteRange


@dataclass(frozen=True, slots=True)
class RowFile:
    """One file.

    Attributes:
        name: Relative to the root of the dataset, '/'-separated.
        size_bytes: Size of the file, header included.
        rows: Rows in it.
    """

    name: str
    size_bytes: int
    rows: int


class RowFiles:
    """Rows of all files numbered through.

    Args:
        paths: The files, in order.
        row_bytes: Bytes of a row.
        header_bytes: Bytes before the first row of each file.

    Raises:
        FormatError: A file is shorter than its header, what follows is no whole number of rows,
            or there is no row in any.
    """

    def __init__(self, paths: Sequence[str], row_bytes: int, header_bytes: int) -> None:
        self.root = common_root(paths)
        self.row_bytes = row_bytes
        self.header_bytes = header_bytes
        self.files = tuple(self._measured(path) for path in paths)
        self.first_row = starts_of([file.rows for file in self.files])
        if not len(self):
            raise FormatError(paths[0], f"at least one row of {row_bytes} bytes", "none")

    def __len__(self) -> int:
        return int(self.first_row[-1])

    def file_of(self, indices: Indices) -> Indices:
        """Give the number of the file of each row, which must be in range."""
        # side="right" passes over files without a row, which begin where the next one does.
        return np.searchsorted(self.first_row, indices, side="right") - 1

    def place(self, index: int) -> tuple[RowFile, ByteRange]:
        """Give the file of a row and its bytes there."""
        number = int(self.file_of(np.array([index], np.int64))[0])
        return self.files[number], self.range_of(index - int(self.first_row[number]))

    def range_of(self, row: int) -> ByteRange:
        """Give the bytes of a row that is numbered within its file."""
        start = self.header_bytes + row * self.row_bytes
        return ByteRange(start, start + self.row_bytes)

    def _measured(self, path: str) -> RowFile:
        size_bytes = os.path.getsize(path)
        rows, rest = divmod(size_bytes - self.header_bytes, self.row_bytes)
        if rows < 0 or rest:
            header = f"{self.header_bytes} + " if self.header_bytes else ""
            raise FormatError(
                path,
                f"{header}a whole number of rows of {self.row_bytes} bytes",
                f"{size_bytes} bytes",
                "Is the size of a row right, and the file whole?",
            )
        return RowFile(name_in(self.root, path), size_bytes, rows)
