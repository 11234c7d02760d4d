"""Which row group of which file holds a row: arithmetic only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.datasets.bounds import Indices
from headrace.datasets.shards import starts_of


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file as it was found.

    Attributes:
        name: Path below the root.
        size_bytes: Of the file.
        group_rows: Rows of each of its row groups.
    """

    name: str
    size_bytes: int
    group_rows: tuple[int, ...]


class GroupTable:
    """Row groups of all files, numbered one after another in the order of the files.

    Attributes:
        files: The files.
        starts: Row at which each group begins, and the end, int64 `[groups + 1]`.
    """

    def __init__(self, files: Sequence[ParquetFile]) -> None:
        self.files = tuple(files)
        self.starts = starts_of([rows for file in files for rows in file.group_rows])
        self._first_group = starts_of([len(file.group_rows) for file in files])

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> int:
        """Rows of all groups."""
        return int(self.starts[-1])

    @property
    def most_rows(self) -> int:
        """Rows of the largest group."""
        return int(np.diff(self.starts).max(initial=0))

    def place(self, group: int) -> tuple[ParquetFile, int]:
        """Give the file of a group, and its number there."""
        file = int(np.searchsorted(self._first_group, group, "right")) - 1
        return self.files[file], group - int(self._first_group[file])

    def group_of(self, index: int) -> tuple[int, int]:
        """Give the group of a row, and the row in it."""
        group = int(np.searchsorted(self.starts, index, "right")) - 1
        return group, index - int(self.starts[group])

    def by_group(self, indices: Indices) -> dict[int, tuple[Indices, Indices]]:
        """Sort rows by their group.

        Returns:
            Number of each group concerned, to the rows in it and where in `indices` they stand.
        """
        if not len(indices):
            return {}
        groups = np.searchsorted(self.starts, indices, "right") - 1
        order = np.argsort(groups, kind="stable")
        marks = np.flatnonzero(np.diff(groups[order], prepend=-1))
        found = {int(groups[part[0]]): part for part in np.split(order, marks[1:])}
        return {group: (indices[part] - self.starts[group], part) for group, part in found.items()}

    def digest(self) -> str:
        """Give a short digest of names, sizes and row counts."""
        listed = "\n".join(
            f"{file.name}\t{file.size_bytes}\t{','.join(map(str, file.group_rows))}"
            for file in self.files
        )
        return hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16]
