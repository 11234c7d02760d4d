"""From samples to the columns of a batch, and the checks on columns that users make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.batch import Batch
from headrace.errors import CollateError, ConfigError
from headrace.kept import thrifty
from headrace.nesting import (
    LEAF,
    ROOT_NAME,
    Nesting,
    check_keys,
    fields_of,
    join,
    level_of,
    parts_of,
)
from headrace.pick import PickKeys
from headrace.stack import Empty, describe, form_of, stack, to_tensor

Indices = Sequence[int] | NDArray[np.int64]

Own = Callable[[Sequence[Any], Indices], Any]
"""Makes a column of the values of one field, given with the dataset index of each."""

OFFSETS = "/offsets"
"""Ends the name of the column that says where the rows of an open column lie."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Named columns of equally many rows: what collation gives and a batch holds.

    A collate function may return one to say `num_rows` itself; its columns are then free in
    their first dimension (targets joined end to end, edges of graphs).

    Attributes:
        names: '/'-joined names, all different.
        values: A tensor `[num_rows, ...]` or a list of `num_rows` host values for each name.
        num_rows: Rows in the batch.
        structure: How the columns nest; None where they are flat.
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]
    num_rows: int
    structure: Nesting | None = None


class Collator(Protocol):
    """Makes the columns of a batch from its samples; pure, and called from several threads.

    Its result is a tensor or array, a nesting of them in tuples, lists and mappings, or Columns;
    see `as_columns`.
    """

    def __call__(self, samples: Sequence[Any], keys: PickKeys, /) -> Any:
        """Collate samples, at least one, in row order.

        `keys` has the pick key of each row: `keys.sample` are the dataset indices, and row r's
        own draws come from `keys[r]`. A function of one argument gets the samples alone.
        """
        ...


def default_collate(
    samples: Sequence[Any],
    indices: Indices,
    empty: Empty | None = None,
    own: Mapping[str, Own] | None = None,
) -> Columns:
    """Stack samples field by field; nothing is lost, cut or narrowed.

    Tuples and lists nest by position ("0", "1"), mappings by key, named tuples and dataclasses
    by field; inner levels join their names with '/'. A sample that does not nest is column "0".
    A list of numbers nests too, one column for each position, as in torch's collation: use an
    array where one column is meant. What becomes of the values is said at `stack`.

    Args:
        samples: One per row, at least one.
        indices: Their dataset indices, for messages.
        empty: Gives the memory of array columns; fresh memory where None.
        own: What makes a column of the values of a field and their indices, by name, in place
            of nesting and stacking them.

    Raises:
        CollateError: Samples differ in keys, lengths, shapes or dtypes, or hold what cannot be
            stacked. It names the field and the indices of two samples that disagree.
    """
    if len(samples) == 0:
        raise CollateError("a batch needs at least one sample, got none.")
    if samples[0] is None and all(sample is None for sample in samples):
        raise CollateError(
            f"sample {int(indices[0])} is None. Is a `return` missing, in the dataset or in "
            "sample_transform?",
            indices=(int(indices[0]),),
        )
    stacked = _Stacked(indices, empty, own or {})
    structure = stacked.collect(samples, "")
    _check_distinct(stacked.names)
    return Columns(tuple(stacked.names), tuple(stacked.columns), len(samples), structure)


class _Stacked:
    """Columns made of samples so far. An object, since a function that calls itself by its own
    name is a cycle, and would keep the columns until the collector happens to run."""

    def __init__(self, indices: Indices, empty: Empty | None, own: Mapping[str, Own]) -> None:
        self.names: list[str] = []
        self.columns: list[Any] = []
        self._indices = indices
        self._empty = empty
        self._own = own

    def collect(self, values: Sequence[Any], name: str) -> Nesting:
        """Make the columns of one field, which all samples have."""
        level = None if name in self._own else level_of(values[0])
        if level is None:
            self.names.append(name or ROOT_NAME)
            self.columns.append(self._column(values, self.names[-1]))
            return LEAF
        kind, keys = level
        check_keys(name, keys)
        _check_level(values, kind, keys, name, self._indices)
        inner = zip(keys, fields_of(values, kind, keys), strict=True)
        return Nesting(kind, keys, tuple(self.collect(v, join(name, key)) for key, v in inner))

    def _column(self, values: Sequence[Any], name: str) -> Any:
        if name in self._own:
            return self._own[name](values, self._indices)
        return stack(values, field=name, indices=self._indices, empty=self._empty)


def as_columns(
    value: Any,
    rows: int | None,
    what: str = "the collate function",
    own_parts: bool = False,
) -> Columns:
    """Check what user code gave as a batch and name its columns.

    Tensors stay as they are; arrays become tensors, shared where that is safe. What holds no
    tensor (a list of text, a flag) is one host column, kept as it is. Keys may hold '/', so that
    a transform can return `{**batch, "x": ...}`. An open column "x" may have any length beside
    "x/offsets" of `rows + 1`.

    Args:
        value: A tensor, array, nesting of these, Columns or Batch.
        rows: How many rows there must be; None takes the count of the first tensor.
        what: Who made it, for messages.
        own_parts: Copy columns that are parts of larger memory, since a dataset may give out
            slices of what it keeps.

    Raises:
        CollateError: None, no tensor among the columns, or a column of other length.
    """
    if value is None:
        raise CollateError(f"{what} returned None: wanted columns. Is its `return` missing?")
    if isinstance(value, Batch):
        value = Columns(value.names, value.columns, value.num_rows, value.structure)
    as_column = _as_own_column if own_parts else _as_column
    if isinstance(value, Columns):
        values = tuple(map(as_column, value.values))
        return _checked(replace(value, values=values), rows, what)
    if not _holds_tensor(value):
        raise CollateError(
            f"{what}: wanted at least one tensor column, found {describe_level(value)} without "
            "one. Make tensors of what are numbers: torch.tensor(values)."
        )
    named = _Named(as_column)
    structure = named.collect(value, "")
    _check_distinct(named.names)
    num_rows = _count_rows(named.names, named.columns) if rows is None else rows
    columns = Columns(tuple(named.names), tuple(named.columns), num_rows, structure)
    made = _checked(columns, rows, what)
    _check_rows(made, what)
    return made


class _Named:
    """Columns found in a nested value so far; an object, as `_Stacked` is."""

    def __init__(self, as_column: Callable[[Any], Any]) -> None:
        self.names: list[str] = []
        self.columns: list[Any] = []
        self._as_column = as_column

    def collect(self, part: Any, name: str) -> Nesting:
        """Find the columns of a part."""
        level = level_of(part) if _holds_tensor(part) else None
        if level is None:
            self.names.append(name or ROOT_NAME)
            self.columns.append(self._as_column(part))
            return LEAF
        kind, keys = level
        inner = zip(keys, parts_of(part, kind, keys), strict=True)
        return Nesting(kind, keys, tuple(self.collect(v, join(name, key)) for key, v in inner))


def collate_names(columns: Columns, names: Sequence[str] | None) -> Columns:
    """Give the columns under the user's `names=`; None leaves them as they are.

    Raises:
        ConfigError: The count differs from the columns, or a name occurs twice.
    """
    if names is None:
        return columns
    if len(names) != len(columns.names):
        wanted = f"{len(columns.names)} names, one for each of {list(columns.names)}"
        raise ConfigError("names", wanted, list(names))
    if len(set(names)) != len(names):
        raise ConfigError("names", "names that all differ", list(names))
    return replace(columns, names=tuple(names))


def check_transformed(before_rows: int, after: Columns, free: Collection[str] = ()) -> None:
    """Check that a batch transform kept the rows, since keys and weights belong to them.

    Args:
        before_rows: Rows of the batch that the transform was given.
        after: What it gave, by `as_columns`.
        free: Names of columns that need not go by rows; `free_columns` of the batch given.

    Raises:
        ConfigError: The row count of the batch or of a column changed.
    """
    for name, value in zip(after.names, after.values, strict=True):
        if name not in free and _goes_by_rows(name, value, after.names):
            found = _rows_of(value)
            rows = None if found is None else found - name.endswith(OFFSETS)
            _check_kept(before_rows, rows, f" in column {name!r}")
    _check_kept(before_rows, after.num_rows, "")


def free_columns(batch: Batch) -> frozenset[str]:
    """Name the columns of a batch that do not go by rows (see `Columns`)."""
    return frozenset(
        name
        for name, value in batch.items()
        if _rows_of(value) != batch.num_rows + name.endswith(OFFSETS)
    )


def _check_kept(wanted: int, found: int | None, where: str) -> None:
    if found != wanted:
        raise ConfigError(
            "transform",
            f"{wanted} rows{where}, as many as it was given",
            found,
            "Drop or repeat samples in the sampler, or weigh them in the loss.",
        )


def _check_level(
    values: Sequence[Any],
    kind: type[Any],
    keys: tuple[Hashable, ...],
    name: str,
    indices: Indices,
) -> None:
    """Check that all values nest alike at this level; mappings may differ in key order."""
    if len(set(map(type, values))) == 1 and _same_keys(values, kind, keys):
        return
    for row, value in enumerate(values):
        level = level_of(value)
        if level is not None and level[0] is kind and _same_keys([value], kind, keys):
            continue
        named = (int(indices[0]), int(indices[row]))
        field = f"field {name!r}" if name else "the sample itself"
        raise CollateError(
            f"{field}: sample {named[0]} gives {describe_level(values[0])} and sample "
            f"{named[1]} gives {describe_level(value)}. Samples of a batch must nest alike: "
            "use an array, or pass a collate function (PadCollator for sequences).",
            name,
            named,
        )


def _same_keys(values: Sequence[Any], kind: type[Any], keys: tuple[Hashable, ...]) -> bool:
    if kind is dict:
        wanted = set(keys)
        return all(value.keys() == wanted for value in values)
    return not issubclass(kind, list | tuple) or set(map(len, values)) == {len(keys)}


def describe_level(value: Any) -> str:
    """Say in a few words what a sample is: its keys or its length, or what else it is."""
    level = level_of(value)
    if level is not None and level[0] is dict:
        return f"a mapping with keys {list(level[1])}"
    if level is not None:
        return f"a {type(value).__name__} of length {len(level[1])}"
    return describe(value)


def _check_distinct(names: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CollateError(f"field {twice!r} occurs twice: keys must differ as text.", twice)


def _holds_tensor(value: Any) -> bool:
    """Whether there is a tensor or an array anywhere in a nested value."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return True
    level = level_of(value)
    return level is not None and any(map(_holds_tensor, parts_of(value, *level)))


def _as_column(value: Any) -> Any:
    value = thrifty(value)
    if not isinstance(value, np.ndarray):
        return value
    return to_tensor(value) if isinstance(form_of(value), tuple) else list(value)


def _as_own_column(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.base is not None:
        value = value.copy()
    column = _as_column(value)
    if isinstance(column, torch.Tensor) and column.layout is torch.strided:
        own_bytes = column.numel() * column.element_size()
        return column if column.untyped_storage().nbytes() == own_bytes else column.clone()
    return column


def _checked(columns: Columns, rows: int | None, what: str) -> Columns:
    if rows is not None and columns.num_rows != rows:
        raise CollateError(f"{what}: wanted {rows} rows, got {columns.num_rows}.")
    if not any(isinstance(value, torch.Tensor) for value in columns.values):
        found = ", ".join(map(repr, columns.names)) or "no column at all"
        raise CollateError(f"{what}: wanted at least one tensor column, found {found}.")
    return columns


def _check_rows(columns: Columns, what: str) -> None:
    for name, value in zip(columns.names, columns.values, strict=True):
        if not _goes_by_rows(name, value, columns.names):
            continue
        wanted = columns.num_rows + name.endswith(OFFSETS)
        found = _rows_of(value)
        if found != wanted:
            raise CollateError(
                f"{what}: column {name!r} has {'no' if found is None else found} rows, wanted "
                f"{wanted}. Return headrace.Columns for columns that do not go by rows.",
                name,
            )


def _goes_by_rows(name: str, value: Any, names: Sequence[str]) -> bool:
    """Whether a column has a length to check: a single host value or an open column has none."""
    return isinstance(value, torch.Tensor | list | tuple) and name + OFFSETS not in names


def _count_rows(names: Sequence[str], columns: Sequence[Any]) -> int:
    """Rows of the first tensor that goes by rows; 0 where there is none."""
    for name, value in zip(names, columns, strict=True):
        if isinstance(value, torch.Tensor) and _goes_by_rows(name, value, names):
            return (_rows_of(value) or 0) - name.endswith(OFFSETS)
    return 0


def _rows_of(value: Any) -> int | None:
    """Rows of a tensor or list; None for what has none."""
    if isinstance(value, torch.Tensor):
        return value.size(0) if value.dim() else None
    return len(value) if isinstance(value, list | tuple) else None
