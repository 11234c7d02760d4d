"""Rows whose length differs: flat values, and the offsets that cut them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.arrays import Arrays, native_dtype
from headrace.datasets.bounds import Indices, check_index, check_indices
from headrace.datasets.column_data import ColumnData, Values
from headrace.datasets.dataset import BulkDataset, Column, Layout, Location, Out, RaggedColumn
from headrace.datasets.flat_rows import FlatRows
from headrace.datasets.names import wanted_names
from headrace.datasets.row_offsets import RowOffsets, offsets_by_name
from headrace.datasets.spread_rows import SpreadRows
from headrace.errors import ConfigError
from headrace.sources.source import ByteRange

VALUES = "values"
# More columns than these are digested, since a fingerprint has a few hundred bytes.
LISTED_COLUMNS = 4


class Ragged(BulkDataset):
    """Sequences of any length, stored end to end: row i is `values[offsets[i]:offsets[i + 1]]`.

    `Ragged("tokens.npy", "offsets.npy")` has one column, "values". A mapping names several:
    `Ragged({"tokens": t, "types": s}, offsets, fixed={"label": labels})` cuts both by the same
    offsets and adds one label per row. A mapping of offsets gives each column its own.

    Values of files are mapped at the first read; arrays are read where they are, so do not
    change them while a loader runs. Offsets are held in 64 bits and in memory, 8 bytes a row,
    whatever they come as, so lengths are known without a read. The dimensions of the values
    after the first are those of one element: `[n, 80]` holds sequences of 80 numbers each.

    Batches hold the rows end to end, with offsets beside them; pass `collate=PadCollator(...)`
    to have them side by side.

    Args:
        values: One array or `.npy` path, or a mapping of these by column.
        offsets: Where rows begin, and the end: whole numbers `[rows + 1]` that begin with 0,
            never fall, and end with the number of values. Or a mapping of these by column.
        lengths: In place of offsets, the lengths of the rows, `[rows]`.
        fixed: Columns with one entry per row, such as labels.

    Raises:
        ConfigError: Neither or both of offsets and lengths are given, names do not fit together,
            or an array cannot be used.
        NotFoundError: A file does not exist.
        FormatError: A file is no whole `.npy` file, or its contents cannot be used.
    """

    def __init__(
        self,
        values: Values | Mapping[str, Values],
        offsets: Values | Mapping[str, Values] | None = None,
        *,
        lengths: Values | Mapping[str, Values] | None = None,
        fixed: Mapping[str, Values] | None = None,
    ) -> None:
        named = values if isinstance(values, Mapping) else {VALUES: values}
        self._open = {name: ColumnData(f"values[{name!r}]", given) for name, given in named.items()}
        self._fixed = {
            name: ColumnData(f"fixed[{name!r}]", given) for name, given in (fixed or {}).items()
        }
        _check_names(self._open, self._fixed)
        self._offsets = offsets_by_name(self._open, offsets, lengths)
        self._length = _common_length(self._open, self._offsets, self._fixed)
        self._settle()

    def _settle(self) -> None:
        """Derive what follows from the columns."""
        self._layout: Layout = (
            *(_column(name, data, is_open=True) for name, data in self._open.items()),
            *(_column(name, data, is_open=False) for name, data in self._fixed.items()),
        )
        # Columns that share offsets stand together: where rows are is found once for all.
        shared: dict[int, tuple[RowOffsets, list[str]]] = {}
        for name, offsets in self._offsets.items():
            shared.setdefault(id(offsets), (offsets, []))[1].append(name)
        self._cuts = list(shared.values())
        self._ready: _Ready | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def layout(self) -> Layout:
        return self._layout

    def select(self, *names: str) -> Ragged:
        """Give a dataset of some columns, which share this one's memory; only they are read."""
        chosen = wanted_names(names, [column.name for column in self._layout])
        made = copy.copy(self)
        made._open = {name: self._open[name] for name in chosen if name in self._open}
        made._fixed = {name: self._fixed[name] for name in chosen if name in self._fixed}
        made._offsets = {name: self._offsets[name] for name in made._open}
        made._settle()
        columns = {column.name: column for column in made._layout}
        made._layout = tuple(columns[name] for name in chosen)
        return made

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        check_indices(indices, self._length, self)
        found: dict[str, NDArray[np.int64]] = {}
        for offsets, names in self._cuts:
            starts, stops = offsets.of(indices)
            found.update(dict.fromkeys(names, stops - starts))
        return found

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, self._length, self)
        ready = self._opened()
        for offsets, names in self._cuts:
            starts, stops = offsets.of(indices)
            for name in names:
                into = out[name]
                assert isinstance(into, RaggedColumn)
                ready.flat[name].read(starts, stops, into, rows)
        for array in ready.fixed.values():
            array.read_into_blocking(indices, out, rows)

    def read_spread_blocking(
        self,
        indices: Indices,
        fixed: Mapping[str, NDArray[Any]],
        spread: Sequence[Mapping[str, NDArray[Any]]],
    ) -> None:
        check_indices(indices, self._length, self)
        ready = self._opened()
        for offsets, names in self._cuts:
            starts, stops = offsets.of(indices)
            for name in names:
                ready.spread[name].read(starts, stops, [each[name] for each in spread])
        for array in ready.fixed.values():
            array.read_into_blocking(indices, fixed, np.arange(len(indices)))

    def thread_open(self) -> None:
        self._opened()

    def check(self) -> None:
        for data in (*self._open.values(), *self._fixed.values()):
            data.check()

    async def aclose(self) -> None:
        self._ready = None
        for data in (*self._open.values(), *self._fixed.values()):
            data.close()

    def locate(self, index: int) -> Location:
        check_index(index, self._length, self)
        column = self._layout[0]
        data = (self._open if column.is_open else self._fixed)[column.name]
        start, stop = index, index + 1
        if column.is_open:
            starts, stops = self._offsets[column.name].of(np.array([index], np.int64))
            start, stop = int(starts[0]), int(stops[0])
        first, unit_bytes = data.start_bytes, column.unit_bytes
        range_ = ByteRange(first + start * unit_bytes, first + stop * unit_bytes)
        return Location(data.name, range_, f"row {index}")

    def fingerprint(self) -> dict[str, Any]:
        columns = [
            [name, *data.fingerprint(), self._offsets[name].digest]
            for name, data in self._open.items()
        ]
        columns += [[name, *data.fingerprint()] for name, data in self._fixed.items()]
        digest = hashlib.sha256(json.dumps(columns).encode()).hexdigest()[:16]
        return {
            "kind": "Ragged",
            "samples": self._length,
            "columns": columns if len(columns) <= LISTED_COLUMNS else [len(columns), digest],
        }

    def _opened(self) -> _Ready:
        # Two threads may both open at first: one of the two dies unused.
        ready = self._ready
        if ready is None:
            ready = self._ready = _Ready(self._open, self._fixed)
        return ready

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ready": None}

    def __repr__(self) -> str:
        return f"Ragged({', '.join(c.name for c in self._layout)}: {self._length} rows)"


class _Ready:
    """The columns, mapped where they are files.

    Attributes:
        flat: Open columns by name, to be read end to end.
        spread: The same, to be read side by side.
        fixed: Fixed columns by name, each a dataset of itself.
    """

    def __init__(self, opened: Mapping[str, ColumnData], fixed: Mapping[str, ColumnData]) -> None:
        self.flat = {name: FlatRows(data.array()) for name, data in opened.items()}
        self.spread = {name: SpreadRows(data.array()) for name, data in opened.items()}
        self.fixed = {name: Arrays({name: data.array()}) for name, data in fixed.items()}


def _column(name: str, data: ColumnData, is_open: bool) -> Column:
    first = (None,) if is_open else ()
    return Column(name, native_dtype(data.dtype), (*first, *data.shape[1:]))


def _check_names(opened: Mapping[str, ColumnData], fixed: Mapping[str, ColumnData]) -> None:
    if not opened:
        raise ConfigError("values", "at least one column", "none")
    both = sorted(set(opened) & set(fixed))
    if both:
        raise ConfigError("fixed", "names that no other column has", both)
    for data in opened.values():
        if not data.dtype.isnative:
            raise data.wrong(
                "values in this machine's byte order",
                f"dtype {data.dtype.str}",
                "Convert them once: values.astype(values.dtype.newbyteorder('=')).",
            )
        if not data.is_contiguous:
            cure = "Give np.ascontiguousarray of them."
            raise data.wrong("values in one piece of memory", "a strided array", cure)


def _common_length(
    opened: Mapping[str, ColumnData],
    offsets: Mapping[str, RowOffsets],
    fixed: Mapping[str, ColumnData],
) -> int:
    """Give the number of rows, which all columns agree on."""
    for name, data in opened.items():
        if offsets[name].total != len(data):
            raise offsets[name].wrong(
                f"offsets that end with the {len(data)} values of {data.name}",
                f"{offsets[name].total}",
                "Do values and offsets belong together?",
            )
    (first, known), *_ = offsets.items()
    counts = {name: len(each) for name, each in offsets.items()}
    counts |= {name: len(data) for name, data in fixed.items()}
    for name, rows in counts.items():
        if rows != len(known):
            raise ConfigError(
                "values",
                "columns of one length",
                f"{first}: {len(known)} rows, {name}: {rows} rows",
            )
    return len(known)
