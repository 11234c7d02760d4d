"""The named fields of rows that are stored as bytes, and how rows are split into columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from headrace.datasets.arrays import check_dtype, native_dtype
from headrace.datasets.dataset import Column
from headrace.errors import ConfigError

Fields = DTypeLike | Sequence[tuple[str, DTypeLike] | tuple[str, DTypeLike, tuple[int, ...]]]
"""A structured numpy dtype, or a list of (name, dtype) and (name, dtype, shape) without gaps."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a row.

    Attributes:
        dtype: As stored, in any byte order.
        offset_bytes: Where it begins in the row.
        column: What it is delivered as; wider than the stored dtype where that is wanted.
    """

    dtype: np.dtype[Any]
    offset_bytes: int
    column: Column

    @property
    def size_bytes(self) -> int:
        """Bytes of the field."""
        return self.dtype.itemsize * math.prod(self.column.unit_shape)

    def is_whole(self, row_bytes: int) -> bool:
        """Whether a row is this field and nothing else, in the form that is delivered."""
        return (
            self.size_bytes == row_bytes
            and native_dtype(self.dtype) == self.column.dtype
            and self.dtype.isnative
        )


def row_dtype(fields: Fields, knob: str = "fields") -> np.dtype[Any]:
    """Give the structured dtype of a row.

    Raises:
        ConfigError: It is none.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(fields)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ConfigError(
            knob, "a structured dtype, or a list of (name, dtype, shape)", fields, str(error)
        ) from error
    if dtype.names is None or not dtype.itemsize:
        raise ConfigError(knob, "named fields", dtype, "For example [('pixels', 'u1', (28, 28))].")
    return dtype


def fields_of(dtype: np.dtype[Any]) -> tuple[Field, ...]:
    """Give the fields of a row; those of nested ones have '/'-joined names.

    Raises:
        ConfigError: A field holds no numbers, or numbers that torch does not have.
    """
    return tuple(_flattened(dtype, "", 0))


def _flattened(dtype: np.dtype[Any], prefix: str, start_bytes: int) -> Iterator[Field]:
    assert dtype.fields is not None
    for name in dtype.names or ():
        stored, offset_bytes = dtype.fields[name][:2]
        base, shape = stored.subdtype or (stored, ())
        if base.fields is not None and not shape:
            yield from _flattened(base, f"{prefix}{name}/", start_bytes + offset_bytes)
            continue
        check_dtype(f"fields[{prefix + name!r}]", base)
        column = Column(prefix + name, native_dtype(base), shape)
        yield Field(base, start_bytes + offset_bytes, column)


def split_rows(
    rows: torch.Tensor, fields: Sequence[Field], out: Mapping[str, torch.Tensor]
) -> None:
    """Copy the fields of rows into columns of their own, in native byte order.

    Args:
        rows: uint8 `[k, row bytes]`, C-contiguous, on any device.
        fields: Fields of a row; those without a column in `out` are left out.
        out: Field name to `[k, *shape]`, on the same device.
    """
    split = _split_on_cpu if rows.device.type == "cpu" else split_as_bytes
    for field in fields:
        into = out.get(field.column.name)
        if into is not None and into.numel():
            split(rows, field, into)


def _split_on_cpu(rows: torch.Tensor, field: Field, out: torch.Tensor) -> None:
    # numpy reads any alignment and byte order, and never shares the work out among the threads
    # of torch, which belong to the training step.
    np.copyto(out.numpy(), _view_of(rows.numpy(), field))


def _view_of(rows: NDArray[np.uint8], field: Field) -> NDArray[Any]:
    inner = np.empty((1, *field.column.unit_shape), field.dtype).strides[1:]
    return np.ndarray(
        (len(rows), *field.column.unit_shape),
        field.dtype,
        rows,
        field.offset_bytes,
        (rows.shape[1], *inner),
    )


def split_as_bytes(rows: torch.Tensor, field: Field, out: torch.Tensor) -> None:
    """Do as `split_rows` does for one field, by operations that every device has.

    Args:
        rows: As there.
        field: One field.
        out: Its column, with at least one number in it.
    """
    stop_bytes = field.offset_bytes + field.size_bytes
    part = rows[:, field.offset_bytes : stop_bytes]
    # Each half of a complex number has a byte order of its own.
    number_bytes = field.dtype.itemsize // (2 if field.dtype.kind == "c" else 1)
    numbers = part.reshape(len(rows), field.size_bytes // number_bytes, number_bytes)
    if not field.dtype.isnative:
        numbers = numbers.flip(-1)
    stored = torch.from_numpy(np.empty(0, native_dtype(field.dtype))).dtype
    # A copy, since a view as wider numbers must begin where these are aligned.
    values = numbers.reshape(len(rows), field.size_bytes).clone().view(stored)
    out.copy_(values.reshape(out.shape))
