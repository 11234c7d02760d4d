"""Rows of Parquet files by number: which row group holds them, and which are bad."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.datasets.bounds import Indices, check_index, check_indices
from headrace.datasets.dataset import Location, Opened
from headrace.datasets.kept_groups import KeptGroups
from headrace.datasets.parquet_columns import Group, ParquetColumn
from headrace.datasets.parquet_groups import GroupTable
from headrace.datasets.parquet_open import OpenedFiles
from headrace.datasets.parquet_reader import decode_group
from headrace.errors import FormatError, RowErrors
from headrace.sources.files import Files

_OWN = ("_kept", "_pins")


class ParquetTable(Opened):
    """What both kinds of Parquet dataset have. Files are open only while one is decoded.

    Attributes:
        columns: Names of the columns, in the order in which samples have them.
    """

    def __init__(self, opened: OpenedFiles, fills: Mapping[str, Any], kept_bytes: int) -> None:
        self._opened = opened
        self._fills = dict(fills)
        self._kept_bytes = kept_bytes
        self._make_own()
        self.columns = tuple(column.name for column in opened.columns)

    def __len__(self) -> int:
        return self._table.rows

    @property
    def row_group_rows(self) -> int:
        """Rows of the largest row group: the block for `BlockShuffled`."""
        return self._table.most_rows

    @property
    def decoded_groups(self) -> int:
        """How often a row group was decoded since this was made."""
        return self._kept.decoded

    @property
    def decoded_bytes(self) -> int:
        """What the row groups kept now hold; nothing once the last loader is closed."""
        return self._kept.nbytes

    @property
    def _table(self) -> GroupTable:
        return self._opened.table

    def thread_open(self) -> None:
        self._kept.enter()

    def thread_close(self) -> None:
        if self._kept.leave():
            self._pins.forget_pins()

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Give one row as `{column: value}`, its memory its own."""
        try:
            return self._samples(np.array([check_index(index, len(self), self)]))[0]
        except RowErrors as error:
            raise error.errors[0] from None

    def locate(self, index: int) -> Location:
        group, row = self._table.group_of(check_index(index, len(self), self))
        file, number = self._table.place(group)
        return Location(file.name, None, f"row group {number}, row {row}")

    def fingerprint(self) -> dict[str, Any]:
        listed = [[c.name, c.kind, c.dtype, list(c.shape)] for c in self._opened.columns]
        return {
            "kind": "Parquet",
            "samples": len(self),
            "columns": _digest([listed, sorted(self._fills.items())]),
            "files": len(self._table.files),
            "bytes": sum(file.size_bytes for file in self._table.files),
            "names_sizes_rows": self._table.digest(),
        }

    def _samples(self, indices: Indices) -> list[dict[str, Any]]:
        check_indices(indices, len(self), self)
        samples: list[dict[str, Any]] = [{} for _ in indices]
        errors: dict[int, Exception] = {}
        for group, local, positions in self._groups_of(indices, np.arange(len(indices)), errors):
            for name, column in group.items():
                for at, value in zip(positions.tolist(), column.take(local), strict=True):
                    samples[at][name] = value
        if errors:
            raise RowErrors(errors)
        return samples

    def _groups_of(
        self, indices: Indices, rows: Indices, errors: dict[int, Exception]
    ) -> Iterator[tuple[Group, Indices, Indices]]:
        """Give each row group concerned, the rows in it, and where in `indices` they stand.

        Args:
            indices: The rows wanted, checked.
            rows: What to call each of them in `errors`.
            errors: Takes the errors of rows that hold a null or cannot be decoded.
        """
        parts = self._table.by_group(indices)
        for number in self._kept.kept_first(parts):
            local, positions = parts[number]
            try:
                group = self._kept.get(number, partial(self._decode, number, self._opened.columns))
            except Exception as error:  # noqa: BLE001 - told by row, so that it names its sample
                errors |= dict.fromkeys(rows[positions].tolist(), error)
                continue
            for at, null in self._bad_rows(number, group, local).items():
                errors[int(rows[positions[at]])] = null
            yield group, local, positions

    def _decode(self, group: int, columns: Sequence[ParquetColumn]) -> Group:
        file, number = self._table.place(group)
        decoded = decode_group(self._opened.root, file, number, columns, self._fills)
        # Compared after the read: row groups of two versions are then never given in one run.
        self._pins.check(file.name, self._pins.path(file.name))
        return decoded

    def _bad_rows(self, number: int, group: Group, local: Indices) -> dict[int, Exception]:
        """Give the errors of rows that hold a null, by their place in `local`."""
        errors: dict[int, Exception] = {}
        for column in self._opened.columns:
            nulls = group[column.name].nulls
            bad = [] if nulls is None else np.flatnonzero(nulls[local]).tolist()
            for at in bad:
                errors.setdefault(at, self._null_error(number, column, int(local[at])))
        return errors

    def _null_error(self, group: int, column: ParquetColumn, row: int) -> FormatError:
        file, number = self._table.place(group)
        return FormatError(
            f"{file.name}, row group {number}, row {row}",
            f"a value in column {column.name!r} ({column.type})",
            "null",
            f"Say what stands for it: fill_null={{{column.name!r}: ...}}.",
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_own()

    def _make_own(self) -> None:
        """Make what no pickle carries."""
        self._kept = KeptGroups(self._kept_bytes)
        self._pins = Files(self, self._opened.root, follow_links=True)

    def __repr__(self) -> str:
        files, root = len(self._table.files), self._opened.root
        return f"Parquet({root!r}: {files} files, {len(self)} rows, {', '.join(self.columns)})"


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, default=repr).encode()).hexdigest()[:16]
