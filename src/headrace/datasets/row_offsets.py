"""Where rows of one column begin and end in its flat values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.datasets.bounds import Indices
from headrace.datasets.column_data import ColumnData
from headrace.datasets.shards import starts_of
from headrace.errors import ConfigError


class RowOffsets:
    """Offsets of rows, held as int64 whatever they come as. Safe from any thread.

    Args:
        data: Offsets `[rows + 1]`, or lengths `[rows]`.
        is_lengths: Which of the two.

    Raises:
        ConfigError: An array holds no whole numbers, or none that are offsets or lengths.
        FormatError: A file does.
    """

    def __init__(self, data: ColumnData, is_lengths: bool) -> None:
        self._data = data
        self._is_lengths = is_lengths
        self._found: Indices | None = None
        self._digest: str | None = None
        self._total: int | None = None
        self._offsets()

    def __len__(self) -> int:
        return len(self._data) - (not self._is_lengths)

    @property
    def total(self) -> int:
        """Values of all rows."""
        return int(self._offsets()[-1])

    def of(self, indices: Indices) -> tuple[Indices, Indices]:
        """Give where rows, which must be in range, begin and end: two arrays of int64 `[k]`."""
        offsets = self._offsets()
        return offsets[indices], offsets[indices + 1]

    @property
    def digest(self) -> str:
        """A short digest of all lengths, the same on every machine."""
        if self._digest is None:
            listed = self._offsets().astype("<i8", copy=False)
            self._digest = hashlib.sha256(listed.data).hexdigest()[:16]
        return self._digest

    def wrong(self, wanted: str, found: str, cure: str = "") -> Exception:
        """Give the error for offsets that do not fit the values."""
        return self._data.wrong(wanted, found, cure)

    def _offsets(self) -> Indices:
        if self._found is None:
            numbers = _whole_numbers(self._data)
            found = _summed(self._data, numbers) if self._is_lengths else numbers
            if not self._is_lengths:
                _check_ascending(self._data, numbers)
            # A pickle reads its file again, which must still cut as many values.
            if self._total not in (None, total := int(found[-1])):
                raise self._data.changed(f"{self._total} values", f"{total}")
            self._total, self._found = total, found
        return self._found

    def __getstate__(self) -> dict[str, Any]:
        # Of a file a pickle carries the path only. Sums of lengths in memory are cheap to redo.
        return {**self.__dict__, "_found": None, "_digest": None}


def offsets_by_name(
    open_columns: Mapping[str, ColumnData], offsets: Any, lengths: Any
) -> dict[str, RowOffsets]:
    """Give the offsets of each open column; columns that share theirs share one object.

    Raises:
        ConfigError: Neither or both are given, or a mapping names other columns.
    """
    if (offsets is None) == (lengths is None):
        found = "neither" if offsets is None else "both"
        raise ConfigError("offsets", "either offsets or lengths", found)
    knob, given = ("offsets", offsets) if lengths is None else ("lengths", lengths)
    is_lengths = lengths is not None
    if not isinstance(given, Mapping):
        shared = RowOffsets(ColumnData(knob, given), is_lengths)
        return dict.fromkeys(open_columns, shared)
    if set(given) != set(open_columns):
        raise ConfigError(knob, f"one entry for each of {list(open_columns)}", list(given))
    made: dict[int, RowOffsets] = {}
    for name in open_columns:
        one = given[name]
        if id(one) not in made:
            made[id(one)] = RowOffsets(ColumnData(f"{knob}[{name!r}]", one), is_lengths)
    return {name: made[id(given[name])] for name in open_columns}


def _whole_numbers(data: ColumnData) -> Indices:
    if len(data.shape) != 1 or data.dtype.kind not in "iu":
        raise data.wrong("one dimension of whole numbers", f"{data.dtype} {list(data.shape)}")
    given = data.array()
    # Numbers past 2^63 turn negative here, and are refused as such.
    return np.ascontiguousarray(given.astype(np.int64, copy=data.is_file))


def _summed(data: ColumnData, lengths: Indices) -> Indices:
    if len(lengths) and int(lengths.min()) < 0:
        at = int(np.argmin(lengths))
        raise data.wrong("lengths of 0 or more", f"{lengths[at]} at row {at}")
    return starts_of(lengths)


def _check_ascending(data: ColumnData, offsets: Indices) -> None:
    if not len(offsets) or offsets[0] != 0:
        found = f"{offsets[0]} first" if len(offsets) else "none at all"
        cure = (
            "If they are lengths, say lengths=. Of a slice give offsets - offsets[0], and the "
            "values from offsets[0] on."
        )
        raise data.wrong("offsets [rows + 1] that begin with 0", found, cure)
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(falls):
        at = int(falls[0])
        cure = "Sums held in 32 bits wrap around: sum in 64, or give lengths= in their place."
        raise data.wrong(
            "offsets that never fall", f"{offsets[at + 1]} after {offsets[at]} at row {at}", cure
        )
