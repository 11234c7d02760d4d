"""From samples to the columns of a batch, and the checks on columns that users make."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.batch import Batch
from headrace.errors import CollateError, ConfigError
from headrace.nesting import LEAF, ROOT_NAME, Nesting, join, level_of, parts_of
from headrace.stack import Empty, cure_for, describe, form_of, stack, to_tensor

Indices = Sequence[int] | NDArray[np.int64]

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
        structure: How the columns nest; None where they are flat.
        num_rows: Rows in the batch.
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]
    structure: Nesting | None
    num_rows: int


class Collator(Protocol):
    """Makes the columns of a batch from its samples; pure, and called from several threads.

    Its result is a tensor or array, a nesting of them in tuples, lists and mappings, or Columns;
    see `as_columns`.
    """

    def __call__(self, samples: Sequence[Any], indices: Indices, /) -> Any:
        """Collate samples, at least one, in row order; `indices` are their dataset indices."""
        ...


def default_collate(
    samples: Sequence[Any], indices: Indices, empty: Empty | None = None
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

    Raises:
        CollateError: Samples differ in keys, lengths, shapes or dtypes, or hold what cannot be
            stacked. It names the field and the indices of two samples that disagree.
    """
    if len(samples) == 0:
        raise CollateError("a batch needs at least one sample, got none.")
    names: list[str] = []
    columns: list[Any] = []

    def collect(values: Sequence[Any], name: str) -> Nesting:
        level = level_of(values[0])
        if level is None:
            names.append(name or ROOT_NAME)
            columns.append(stack(values, field=names[-1], indices=indices, empty=empty))
            return LEAF
        kind, keys = level
        _check_level(values, kind, keys, name, indices)
        rows = [parts_of(value, kind, keys) for value in values]
        inner = tuple(
            collect(list(part), join(name, key))
            for key, part in zip(keys, zip(*rows, strict=True), strict=True)
        )
        return Nesting(kind, keys, inner)

    structure = collect(samples, "")
    _check_distinct(names)
    return Columns(tuple(names), tuple(columns), structure, len(samples))


def as_columns(value: Any, rows: int, what: str = "the collate function") -> Columns:
    """Check what user code gave as a batch and name its columns.

    Arrays become tensors without a copy where torch can share them. A list of host values
    (text, numbers) stays as it is. An open column "x" may have any length beside "x/offsets"
    of `rows + 1`.

    Args:
        value: A tensor, array, nesting of these, Columns or Batch.
        rows: How many rows there must be.
        what: Who made it, for messages.

    Raises:
        CollateError: No tensor among the columns, a column of other length, or a value that is
            no column.
    """
    if isinstance(value, Batch):
        value = Columns(value.names, value.columns, value.structure, value.num_rows)
    if isinstance(value, Columns):
        return _checked(value, rows, what)
    names: list[str] = []
    columns: list[Any] = []

    def collect(part: Any, name: str) -> Nesting:
        level = None if _is_host_list(part) else level_of(part)
        if level is None:
            names.append(name or ROOT_NAME)
            columns.append(_as_column(part, names[-1], what))
            return LEAF
        kind, keys = level
        inner = zip(keys, parts_of(part, kind, keys), strict=True)
        return Nesting(kind, keys, tuple(collect(value, join(name, key)) for key, value in inner))

    structure = collect(value, "")
    _check_distinct(names)
    made = _checked(Columns(tuple(names), tuple(columns), structure, rows), rows, what)
    _check_rows(made, what)
    return made


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


def check_transformed(before_rows: int, columns: Columns) -> None:
    """Check that a batch transform kept the rows, since keys and weights belong to them.

    Raises:
        ConfigError: The row count changed.
    """
    if columns.num_rows != before_rows:
        raise ConfigError(
            "transform",
            f"a batch of {before_rows} rows, as it was given",
            f"{columns.num_rows} rows",
            "Drop or repeat samples in the sampler; set weights in the loss.",
        )


def _check_level(
    values: Sequence[Any],
    kind: type[Any],
    keys: tuple[Hashable, ...],
    name: str,
    indices: Indices,
) -> None:
    """Check that all values nest alike at this level; mappings may differ in key order."""
    wanted = set(keys) if kind is dict else None
    for row, value in enumerate(values):
        if row == 0 or (type(value) is type(values[0]) and _same_keys(value, wanted, keys)):
            continue
        level = level_of(value)
        if level is not None and level[0] is kind and _same_keys(value, wanted, keys):
            continue
        named = (int(indices[0]), int(indices[row]))
        field = f"field {name!r}" if name else "the sample itself"
        raise CollateError(
            f"{field}: sample {named[0]} gives {_describe_level(values[0])} and sample "
            f"{named[1]} gives {_describe_level(value)}. Samples of a batch must nest alike: "
            "pad, use an array, or pass a collate function.",
            name,
            named,
        )


def _same_keys(value: Any, wanted: set[Hashable] | None, keys: tuple[Hashable, ...]) -> bool:
    if wanted is not None:
        return len(value) == len(keys) and set(value) == wanted
    return not isinstance(value, Sequence) or len(value) == len(keys)


def _describe_level(value: Any) -> str:
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


def _is_host_list(value: Any) -> bool:
    """Whether a sequence holds host values and no columns."""
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(v, str | bytes | bytearray | bool | int | float) for v in value)


def _as_column(value: Any, name: str, what: str) -> Any:
    form = form_of(value)
    if _is_host_list(value):
        return value
    if isinstance(form, tuple) and isinstance(value, torch.Tensor | np.ndarray):
        return to_tensor(value)
    if isinstance(value, np.ndarray) and isinstance(form, str):
        return list(value)
    raise CollateError(
        f"{what}: column {name!r} is {describe(value)}, wanted a tensor, an array or a list of "
        f"one value a row. {cure_for(value)}",
        name,
    )


def _checked(columns: Columns, rows: int, what: str) -> Columns:
    if columns.num_rows != rows:
        raise CollateError(f"{what}: wanted {rows} rows, got {columns.num_rows}.")
    if not any(isinstance(value, torch.Tensor) for value in columns.values):
        found = ", ".join(map(repr, columns.names)) or "no column at all"
        raise CollateError(f"{what}: wanted at least one tensor column, found {found}.")
    return columns


def _check_rows(columns: Columns, what: str) -> None:
    for name, value in zip(columns.names, columns.values, strict=True):
        if name + OFFSETS in columns.names:
            continue
        wanted = columns.num_rows + name.endswith(OFFSETS)
        found = _rows_of(value)
        if found != wanted:
            raise CollateError(
                f"{what}: column {name!r} has {'no rows' if found is None else f'{found} rows'}, "
                f"wanted {wanted}. Return headrace.Columns for columns that are not by row.",
                name,
            )


def _rows_of(value: Any) -> int | None:
    if isinstance(value, torch.Tensor):
        return value.shape[0] if value.dim() else None
    return len(value)
