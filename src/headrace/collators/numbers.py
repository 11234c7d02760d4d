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
    given = np.asarray(value)
    fits = not given.ndim and given.dtype.kind in ("biufc" if dtype.kind == "c" else "biuf")
    if fits:
        with np.errstate(all="ignore"):
            made = given.astype(dtype)
        fits = bool(np.isfinite(made) == np.isfinite(given))
        fits = fits and (dtype.kind in "fc" or bool(made == given))
    if not fits:
        raise ConfigError(knob, f"a number that {dtype} holds, for column {column!r}", value)
    return made[()]


def whole_numbers(
    values: Any,
    dtype: Any,
    field: str,
    indices: Indices,
    lengths: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Give whole numbers in another integer dtype.

    Args:
        values: An array of numbers, or one number per row: Python's, numpy's, or tensors of one.
        dtype: An integer dtype.
        field: Name of the column, for messages.
        indices: Dataset index of each row, for messages.
        lengths: How many of the numbers belong to each row; one where None.

    Raises:
        CollateError: A value is no whole number, or does not fit.
    """
    found = values if isinstance(values, np.ndarray) else _as_array(values)
    ends = np.iinfo(dtype)
    if found.dtype.kind not in "iu" and found.size:
        at = 0 if found is values else _first_odd(values)
        what = f"numbers of {found.dtype}" if found is values else describe(values[at])
        problem = f"{what}, wanted whole numbers"
    elif found.size and not (int(found.min()) >= ends.min and int(found.max()) <= ends.max):
        at = int(found.argmax() if int(found.max()) > ends.max else found.argmin())
        problem = f"{int(found[at])}, which {np.dtype(dtype)} does not hold"
    else:
        return found.astype(dtype)
    row = at if lengths is None else int(np.searchsorted(lengths.cumsum(), at, side="right"))
    index = int(indices[row])
    raise CollateError(f"field {field!r}: sample {index} gives {problem}.", field, (index,))


def _as_array(values: Sequence[Any]) -> NDArray[Any]:
    plain = [value.item() if _has_one(value) else value for value in values]
    try:
        made = np.array(plain)
    except ValueError:  # parts of several shapes
        made = None
    # One number each, so no part may be a vector, not even of one number.
    return np.empty(len(plain), object) if made is None or made.ndim != 1 else made


def _has_one(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and not value.shape


def _first_odd(values: Sequence[Any]) -> int:
    return next((row for row, value in enumerate(values) if not _is_whole(value)), 0)


def _is_whole(value: Any) -> bool:
    plain = value.item() if _has_one(value) else value
    return isinstance(plain, int | np.integer) and not isinstance(plain, bool)
