"""How a sample nests: the rule that gives its columns their names, and the way back."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import CollateError

SEPARATOR = "/"
ROOT_NAME = "0"  # the column of a sample that does not nest

HOST_TYPES = (str, bytes, bytearray)
"""Sequences that are values: they stay on the host as they are."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """The shape of a nested sample without its values; a tree whose leaves are columns.

    Attributes:
        kind: dict, list, tuple, or a named tuple or dataclass type; None for a leaf.
        keys: Mapping keys, field names or positions of the parts, in column order.
        parts: The nesting of each part.
    """

    kind: type[Any] | None = None
    keys: tuple[Hashable, ...] = ()
    parts: tuple[Nesting, ...] = ()

    def rebuild(self, columns: Sequence[Any]) -> Any:
        """Give the columns in the nested form of one sample.

        Mappings come back as dict and plain sequences as list or tuple. A dataclass is made
        without its `__init__`, since its columns need not pass the checks of one sample.
        """
        return self._rebuild(iter(columns))

    def _rebuild(self, columns: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(columns)
        values = [part._rebuild(columns) for part in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, values, strict=True))
        if self.kind in (list, tuple):
            return self.kind(values)
        if issubclass(self.kind, tuple):
            return self.kind(*values)
        made = object.__new__(self.kind)
        for key, value in zip(self.keys, values, strict=True):
            object.__setattr__(made, str(key), value)
        return made


LEAF = Nesting()


def level_of(value: Any) -> tuple[type[Any], tuple[Hashable, ...]] | None:
    """Give the kind and the keys of the outermost level of a value; None for a leaf.

    Four forms nest: (1) mappings by key, (2) named tuples and (3) dataclasses by field,
    (4) other sequences by position, where text and bytes are leaves.
    """
    if isinstance(value, Mapping):
        return dict, tuple(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value), value._fields
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(field.name for field in dataclasses.fields(value))
    if isinstance(value, Sequence) and not isinstance(value, (*HOST_TYPES, memoryview)):
        return tuple if isinstance(value, tuple) else list, tuple(range(len(value)))
    return None


def parts_of(value: Any, kind: type[Any], keys: tuple[Hashable, ...]) -> list[Any]:
    """Give the parts of a value of this kind, in the order of the keys."""
    if kind is dict:
        return [value[key] for key in keys]
    if issubclass(kind, list | tuple):
        return list(value)
    return [getattr(value, str(key)) for key in keys]


def fields_of(
    values: Sequence[Any], kind: type[Any], keys: tuple[Hashable, ...]
) -> Iterable[Sequence[Any]]:
    """Give, for each key in order, that part of every value; all values have this level."""
    if kind is dict:
        return ([value[key] for value in values] for key in keys)
    if issubclass(kind, list | tuple):
        return zip(*values, strict=True)
    return ([getattr(value, str(key)) for value in values] for key in keys)


def names_in(value: Any, leaves: Container[str] = (), prefix: str = "") -> list[str]:
    """Give the names of the columns that a sample becomes; `leaves` nest no further."""
    level = None if prefix in leaves else level_of(value)
    if level is None:
        return [prefix or ROOT_NAME]
    parts = zip(level[1], parts_of(value, *level), strict=True)
    return [name for key, part in parts for name in names_in(part, leaves, join(prefix, key))]


def join(prefix: str, key: Hashable) -> str:
    """Give the column name of a part."""
    return f"{prefix}{SEPARATOR}{key}" if prefix else str(key)


def check_keys(prefix: str, keys: tuple[Hashable, ...]) -> None:
    """Check that no key of a sample holds the separator, so that names tell the nesting.

    Raises:
        CollateError: One does.
    """
    for key in keys:
        if isinstance(key, str) and SEPARATOR in key:
            raise CollateError(
                f"key {key!r}{f' under {prefix!r}' if prefix else ''} holds {SEPARATOR!r}, which "
                "joins the names of nested columns. Rename it in the dataset or in "
                "sample_transform.",
                field=join(prefix, key),
            )
