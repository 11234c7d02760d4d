"""What a set of Parquet files holds together, found from their footers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.names import wanted_names
from headrace.datasets.parquet_columns import Group, OpenColumn, ParquetColumn
from headrace.datasets.parquet_groups import GroupTable
from headrace.datasets.parquet_reader import read_footer
from headrace.datasets.shard_paths import Paths, common_root, find_files, name_in
from headrace.errors import ConfigError, FormatError


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """Files and the columns that are taken from them.

    Attributes:
        root: Folder that names are relative to.
        table: Row groups of all files.
        columns: The columns taken, in their order.
    """

    root: str
    table: GroupTable
    columns: tuple[ParquetColumn, ...]

    @property
    def has_layout(self) -> bool:
        """Whether all columns are numbers."""
        return all(column.kind != "value" for column in self.columns)

    def fills(self, fill_null: Any) -> dict[str, Any]:
        """Give what takes the place of nulls, by column.

        Raises:
            ConfigError: A column is unknown, or cannot hold the value.
        """
        known = {column.name: column for column in self.columns}
        if fill_null is None:
            return {}
        if not isinstance(fill_null, Mapping):
            fill_null = {name: fill_null for name, c in known.items() if c.kind != "value"}
        unknown = [name for name in fill_null if name not in known]
        if unknown:
            raise ConfigError("fill_null", f"columns out of {', '.join(known)}", unknown)
        for name, value in fill_null.items():
            _check_fill(known[name], value)
        return dict(fill_null)


def open_files(paths: Paths, columns: Sequence[str] | None) -> OpenedFiles:
    """Give what files hold; see `Parquet`."""
    files = find_files(paths, ".parquet")
    root = common_root(files)
    found = [read_footer(root, name_in(root, file)) for file in files]
    (first, its_columns), *others = found
    taken = _taken(its_columns, columns)
    for file, theirs in others:
        _check_same(taken, theirs, first.name, file.name)
    table = GroupTable([file for file, _ in found])
    if not table.rows:
        raise FormatError(root, "a file with at least one row", f"none in {len(files)} files")
    return OpenedFiles(root, table, taken)


def lengths_of(
    opened: OpenedFiles, decode: Callable[[int, Sequence[ParquetColumn]], Group]
) -> dict[str, NDArray[np.int64]]:
    """Give the length of every row of every open column, int64 `[rows]`, by reading them."""
    columns = [column for column in opened.columns if column.kind == "open"]
    if not columns:
        return {}
    found = {column.name: np.empty(opened.table.rows, np.int64) for column in columns}
    for number in range(len(opened.table)):
        start, stop = opened.table.starts[number : number + 2].tolist()
        for name, column in decode(number, columns).items():
            assert isinstance(column, OpenColumn)
            found[name][start:stop] = column.lengths
    return found


def _taken(
    found: Sequence[ParquetColumn], columns: Sequence[str] | None
) -> tuple[ParquetColumn, ...]:
    known = {column.name: column for column in found}
    if isinstance(columns, str):
        raise ConfigError("columns", "a list of names", columns)
    names = wanted_names(list(known) if columns is None else columns, known)
    return tuple(known[name] for name in names)


def _check_same(
    taken: Sequence[ParquetColumn], found: Sequence[ParquetColumn], first: str, name: str
) -> None:
    theirs = {column.name: column for column in found}
    for column in taken:
        other = theirs.get(column.name)
        if other != column:
            raise FormatError(
                name,
                f"column {column.name!r} of type {column.type}, as in {first}",
                "no such column" if other is None else other.type,
                "Name the columns that all files share: columns=[...].",
            )


def _check_fill(column: ParquetColumn, value: Any) -> None:
    """Refuse a value that the numbers of a column cannot be."""
    if column.kind == "value":
        return
    dtype = np.dtype(column.dtype)
    try:
        is_held = value is not None and (dtype.type(value) == value or value != value)
    except (TypeError, ValueError, OverflowError):
        is_held = False
    if not is_held:
        raise ConfigError("fill_null", f"a value of {column.name!r} ({column.type})", value)
