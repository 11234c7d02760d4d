"""Stacking the values of one field: equal dtype and shape, one copy, nothing narrowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.errors import CollateError
from headrace.masked import is_masked_array
from headrace.nesting import HOST_TYPES

Empty = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
"""Gives unset CPU memory for a column: shape and dtype to a C-contiguous tensor."""

TORCH_DTYPES: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.uint16): torch.uint16,
    np.dtype(np.uint32): torch.uint32,
    np.dtype(np.uint64): torch.uint64,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.complex64): torch.complex64,
    np.dtype(np.complex128): torch.complex128,
}
"""Native numpy dtype to the torch dtype of the same values."""

NUMPY_DTYPES = {dtype: native for native, dtype in TORCH_DTYPES.items()}

# Python numbers keep their value: the widths are those of torch's own collation.
PYTHON_DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
# Numpy kinds that no torch dtype holds, to the word for them.
_HOST_KINDS = {"U": "text", "S": "bytes", "M": "dates", "m": "time spans"}

_Form = tuple[torch.dtype, tuple[int, ...], torch.device] | str
"""What must agree within a field: dtype, shape and device, or the word for a host value."""

_CPU = torch.device("cpu")


def stack(
    values: Sequence[Any],
    *,
    field: str = "0",
    indices: Sequence[int] | NDArray[np.int64] | None = None,
    empty: Empty | None = None,
) -> torch.Tensor | list[Any]:
    """Stack one value per row into a column `[rows, *shape]`, or keep them as a list.

    Numbers become tensors of their own dtype: arrays and numpy scalars keep theirs (in native
    byte order), bool, int, float and complex become bool, int64, float64 and complex128, as in
    torch's collation. Text, bytes and dates stay a list. The result never shares memory with
    numeric values; tensors are detached from any graph.

    Args:
        values: One value per row, at least one.
        field: Name of the column, for messages.
        indices: Dataset index of each row, for messages; row numbers where None.
        empty: Gives the memory for rows of arrays and tensors; fresh memory where None.

    Raises:
        CollateError: Values differ in dtype or shape, or are of a type that cannot be stacked.
    """
    form = _common_form(values)
    if form is None:
        raise _mismatch(values, field, indices)
    if isinstance(form, str):
        return list(values)
    dtype, shape, device = form
    if not shape and not isinstance(values[0], torch.Tensor):
        numbers = [v.item() if isinstance(v, torch.Tensor) else v for v in values]
        return torch.from_numpy(np.array(numbers, dtype=NUMPY_DTYPES[dtype]))
    out = None if device != _CPU else (empty or _fresh)((len(values), *shape), dtype)
    if out is not None and all(isinstance(value, np.ndarray) for value in values):
        # Joined along the first dimension: np.stack would first make a view of each value.
        joined = out.numpy().reshape((len(values) * shape[0], *shape[1:]))
        np.concatenate(values, out=joined)
        return out
    try:
        with torch.no_grad():
            return torch.stack([to_tensor(value) for value in values], out=out)
    except RuntimeError as error:  # what `_are_alike` leaves to torch
        if len(set(map(form_of, values))) == 1:
            raise
        raise _mismatch(values, field, indices) from error


def to_tensor(value: Any) -> torch.Tensor:
    """Give a number, an array or a tensor as a tensor of the same dtype.

    A plain, writable, native, C-contiguous array is shared; any other is copied.
    """
    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    # Arrays of other classes may be maps of a file, which a transform must not write to.
    shared = type(value) is np.ndarray and array.dtype.isnative
    if not (shared and array.flags.c_contiguous and array.flags.writeable):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


def _fresh(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _common_form(values: Sequence[Any]) -> _Form | None:
    """Give the form that all values have; None where they differ or one cannot be stacked."""
    first = form_of(values[0])
    kinds = set(map(type, values))
    if len(kinds) == 1 and isinstance(first, tuple):
        return first if _are_alike(values, kinds.pop(), first) else None
    return first if all(form_of(value) == first for value in values) else None


def _are_alike(values: Sequence[Any], kind: type, form: tuple[Any, ...]) -> bool:
    """Whether numeric values of one type have one form, at a tenth of the time of `form_of`."""
    if issubclass(kind, torch.Tensor):
        # Shape and device are compared by torch.stack, faster; it would promote dtypes silently.
        return all(value.dtype is form[0] for value in values)
    if issubclass(kind, np.ndarray):
        dtype, shape = values[0].dtype, values[0].shape
        return all(value.dtype == dtype and value.shape == shape for value in values)
    if issubclass(kind, int):
        return bool(min(values) >= -(2**63) and max(values) < 2**63)
    return True  # the other scalar types have one dtype each


def form_of(value: Any) -> _Form | None:
    """Give what must agree within a field; None for what cannot be a row of a column."""
    if isinstance(value, torch.Tensor):
        plain = not value.is_nested and value.layout is torch.strided and not value.is_quantized
        return (value.dtype, tuple(value.shape), value.device) if plain else None
    if isinstance(value, np.ndarray | np.generic):
        return None if is_masked_array(value) else _array_form(value)
    if isinstance(value, HOST_TYPES):
        return "text" if isinstance(value, str) else "bytes"
    kind = next((kind for kind in PYTHON_DTYPES if isinstance(value, kind)), None)
    if kind is None or (kind is int and not -(2**63) <= value < 2**63):
        return None
    return (PYTHON_DTYPES[kind], (), _CPU)


def _array_form(value: NDArray[Any] | np.generic) -> _Form | None:
    if value.dtype.kind in _HOST_KINDS:
        return _HOST_KINDS[value.dtype.kind]
    dtype = TORCH_DTYPES.get(value.dtype.newbyteorder("="))
    return None if dtype is None else (dtype, value.shape, _CPU)


def _mismatch(
    values: Sequence[Any], field: str, indices: Sequence[int] | NDArray[np.int64] | None
) -> CollateError:
    """Name the first value that does not fit, beside one that it does not fit to."""
    forms = [form_of(value) for value in values]
    odd = next((row for row, form in enumerate(forms) if form is None), None)
    if odd is None:
        odd = next(row for row, form in enumerate(forms) if form != forms[0])
    other = next((row for row, form in enumerate(forms) if form not in (None, forms[odd])), None)
    rows = sorted(row for row in (odd, other) if row is not None)
    named = tuple(row if indices is None else int(indices[row]) for row in rows)
    found = " and ".join(
        f"sample {index} gives {describe(values[row])}"
        for row, index in zip(rows, named, strict=True)
    )
    cure = cure_for(values[odd]) if forms[odd] is None else _cure_between(forms[0], forms[odd])
    return CollateError(f"field {field!r}: {found}. {cure}", field, named)


def _cure_between(one: _Form | None, other: _Form | None) -> str:
    if not isinstance(one, tuple) or not isinstance(other, tuple) or one[2] != other[2]:
        return "Make every sample give the same kind of value, in the dataset or sample_transform."
    if one[0] != other[0]:
        return "No dtype is narrowed or widened: cast in the dataset or in sample_transform."
    return (
        "Crop or pad in sample_transform, give images one size (size= of their dataset), or pass "
        "a collate function that pads (PadCollator for sequences)."
    )


def cure_for(value: Any) -> str:
    """Say what to do about a value that cannot be a row of a column."""
    if value is None:
        return "Use a number that stands for a missing value, or leave the field out."
    if type(value).__module__.partition(".")[0] == "PIL":
        return "Turn the image into an array in sample_transform: np.asarray(image)."
    if is_masked_array(value):
        return "Give the data and the mask as two fields, so that the mask is not lost."
    if isinstance(value, int):
        return "It does not fit int64: give it as np.uint64, or as text."
    if isinstance(value, np.ndarray | np.generic):
        return "torch has no such dtype: convert it in the dataset or in sample_transform."
    return (
        "Rows are made of numbers, arrays, dense tensors and text: convert it in the dataset or "
        "in sample_transform, or pass a collate function."
    )


def describe(value: Any) -> str:
    """Say in a few words what a value is: its type, and what else may differ."""
    if isinstance(value, torch.Tensor) and not value.is_nested:
        place = "" if value.device == _CPU else f" on {value.device}"
        form = "" if value.layout is torch.strided else f" ({value.layout})"
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype} of shape {tuple(value.shape)}{place}{form}"
    if is_masked_array(value):
        return f"a masked array of shape {value.shape}"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} of shape {value.shape}"
    if value is None:
        return "None"
    if type(value) in PYTHON_DTYPES:
        return f"the {type(value).__name__} {value}"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of length {len(value)}"
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
