"""Two ways to read rows of equal bytes: out of maps, or by positioned reads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.gather import RowGather
from headrace.datasets.row_files import RowFiles
from headrace.sources.local import LocalSource
from headrace.sources.mapped import MappedSource
from headrace.threads import at_fork


class RowReader(ABC):
    """Reads rows of some files. Made at the first read; any thread may read."""

    @abstractmethod
    def read(self, indices: Indices, out: NDArray[np.uint8], rows: Indices) -> None:
        """Copy row `indices[i]`, which must be in range, into row `rows[i]` of `out`."""

    def check(self) -> None:
        """Compare the files with what they were, where that is not done at each read."""

    def enter(self) -> None:
        """Note that the calling thread reads from now on."""

    def leave(self) -> None:
        """End what `enter` noted."""

    def close(self) -> None:
        """Let go of the files; reads in progress end as they would have."""


class MappedRows(RowReader):
    """Copies many rows in one gather over the maps of all files."""

    def __init__(self, files: RowFiles) -> None:
        self._files = files
        self._source = MappedSource(files.root)
        # An empty file cannot be mapped, and one without a row is never read.
        used = [number for number, file in enumerate(files.files) if file.rows]
        arrays = [
            self._source.array(
                files.files[number].name,
                np.uint8,
                files.header_bytes,
                files.files[number].rows * files.row_bytes,
            )
            for number in used
        ]
        self._gather = RowGather(arrays, files.row_bytes)
        # Row i of the dataset, if in file f, begins at i * row_bytes + shift[f] of the gather.
        self._shift_bytes = np.zeros(len(files.files), np.int64)
        self._shift_bytes[used] = (
            self._gather.starts_bytes - files.first_row[:-1][used] * files.row_bytes
        )

    def read(self, indices: Indices, out: NDArray[np.uint8], rows: Indices) -> None:
        offsets = indices * self._files.row_bytes
        offsets += self._shift_bytes[self._files.file_of(indices)]
        self._gather.read(offsets, out, rows)

    def check(self) -> None:
        self._source.check()


class PositionedRows(RowReader):
    """Reads each row by its place in the file, neighbours in one system call.

    Nothing is shared between reads but the descriptors, which have no position that a read
    would move, and of which only a few stay open, until the last thread that reads has left.
    """

    def __init__(self, files: RowFiles) -> None:
        self._files = files
        self._reset_child()
        at_fork(self._reset_child)

    def read(self, indices: Indices, out: NDArray[np.uint8], rows: Indices) -> None:
        # In the order of the files, so that each is read once and neighbours meet.
        order = np.argsort(indices, kind="stable")
        number = self._files.file_of(indices[order])
        cuts = np.flatnonzero(np.diff(number, prepend=-1, append=-1)).tolist()
        for first, stop in pairwise(cuts):
            some = order[first:stop]
            self._read_file(int(number[first]), indices[some], out, rows[some])

    def _read_file(
        self, number: int, indices: Indices, out: NDArray[np.uint8], rows: Indices
    ) -> None:
        local = (indices - self._files.first_row[number]).tolist()
        self._source.read_into_blocking(
            self._files.files[number].name,
            [self._files.range_of(row) for row in local],
            [memoryview(out[row].data) for row in rows.tolist()],
        )

    def enter(self) -> None:
        with self._lock:
            self._threads += 1

    def leave(self) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self.close()

    def close(self) -> None:
        # Descriptors close with the last read of the source that is dropped here.
        self._source = LocalSource(self._files.root)

    def _reset_child(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self.close()
