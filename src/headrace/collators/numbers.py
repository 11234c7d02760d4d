"""Numbers that must fit a dtype: what does not is refused and never wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.errors import CollateError, ConfigError
from headrace.stack import describe

Indices = Sequence[int] | NDArray[np.int64]


def as_number(knob: str, value: Any, dtype: np.dtype[Any], column: str) -> Any:
    """Give a number in a dtype.

    Floating dtypes round as always. Whole ones hold the number itself or refuse it.

    Raises:
        ConfigError: It is no number, or does not fit.
    """
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(value).astype(dtype)
        fits = bool(np.isfinite(made) == np.isfinite(value))
        fits = fits and (dtype.kind in "fc" or bool(made == value))
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ConfigError(knob, f"a number that {dtype} holds, for column {column!r}", value)
    return made[()]


def whole_numbers(
    values: Any, dtype: Any, field: str, indices: Indices | None = None
) -> NDArray[Any]:
    """Give whole numbers in another integer dtype.

    Args:
        values: One number per row (Python, numpy or one-element tensors), or an integer array.
        dtype: An integer dtype.
        field: Name of the column, for messages.
        indices: Dataset index of each number, for messages.

    Raises:
        CollateError: A value is no whole number, or does not fit.
    """
    found = values if isinstance(values, np.ndarray) else _as_array(values)
    if found.dtype.kind not in "iu" and found.size:
        row = next((r for r, value in enumerate(values) if not _is_whole(value)), 0)
        raise _refused(f"gives {describe(values[row])}, wanted a whole number", field, indices, row)
    ends = np.iinfo(dtype)
    if found.size and not (int(found.min()) >= ends.min and int(found.max()) <= ends.max):
        row = int(np.argmax(found)) if int(found.max()) > ends.max else int(np.argmin(found))
        text = f"gives {int(found[row])}, which {np.dtype(dtype)} does not hold"
        raise _refused(text, field, indices, row)
    return found.astype(dtype)


def _as_array(values: Sequence[Any]) -> NDArray[Any]:
    plain = [value.item() if _has_one(value) else value for value in values]
    try:
        return np.array(plain)
    except ValueError:  # parts of several shapes
        return np.empty(len(plain), object)


def _has_one(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and not value.shape


def _is_whole(value: Any) -> bool:
    plain = value.item() if _has_one(value) else value
    return isinstance(plain, int | np.integer) and not isinstance(plain, bool)


def _refused(text: str, field: str, indices: Indices | None, row: int) -> CollateError:
    if indices is None:
        return CollateError(f"field {field!r}: {text}.", field)
    index = int(indices[row])
    return CollateError(f"field {field!r}: sample {index} {text}.", field, (index,))
