"""Checks of sample indices, one vectorised pass for a whole read."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import IndexOutOfRangeError

Indices = NDArray[np.int64]


def as_indices(indices: Iterable[int] | NDArray[Any]) -> Indices:
    """Give indices as int64 `[k]`, whatever integers they came as.

    Raises:
        TypeError: They are not whole numbers, or not one-dimensional.
    """
    given = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise TypeError(
            f"indices: wanted one dimension of whole numbers, got {given.dtype} {given.shape}"
        )
    return given.astype(np.int64, copy=False)


def check_indices(indices: Indices, length: int, what: object) -> None:
    """Refuse indices outside `[0, length)`; negative ones never wrap.

    Args:
        indices: int64 `[k]`.
        length: Samples there are.
        what: The dataset, for the message.

    Raises:
        IndexOutOfRangeError: Names the first bad index.
        TypeError: They are no int64 array.
    """
    if not isinstance(indices, np.ndarray) or indices.dtype != np.int64:
        found = getattr(indices, "dtype", type(indices).__name__)
        raise TypeError(f"indices: wanted an int64 array [k], got {found}. Give np.array(indices).")
    # Seen as unsigned a negative index is huge, so one maximum covers both ends.
    if len(indices) and int(indices.view(np.uint64).max()) >= length:
        bad = indices[(indices < 0) | (indices >= length)]
        raise IndexOutOfRangeError(int(bad[0]), length, str(what))


def check_index(index: int, length: int, what: object) -> int:
    """Give one index as an int, refused as `check_indices` does."""
    whole = operator.index(index)
    if not 0 <= whole < length:
        raise IndexOutOfRangeError(whole, length, str(what))
    return whole


def as_run(rows: Indices) -> slice | None:
    """Give distinct rows as a slice where they are a, a + 1, ..., b - 1; else None.

    The engine nearly always asks so, and a slice of a column is a view, hence needs no copy.
    """
    known = _runs.get(id(rows))
    if known is not None and known[0]() is rows:
        return known[1]
    run = _run_of(rows)
    if run is not None and not rows.flags.writeable:
        key = id(rows)
        _runs[key] = weakref.ref(rows, lambda _: _runs.pop(key, None)), run
    return run


# The engine asks with a few read-only arrays of row numbers over and over, and the check costs
# as much as a tenth of a gather of 1,024 rows of 256 bytes.
_runs: dict[int, tuple[weakref.ref[Indices], slice]] = {}


def _run_of(rows: Indices) -> slice | None:
    if not len(rows):
        return slice(0, 0)
    first, last = int(rows[0]), int(rows[-1])
    # Distinct and ascending between these ends leaves room for no other rows.
    if last - first != len(rows) - 1 or np.count_nonzero(rows[1:] < rows[:-1]):
        return None
    return slice(first, last + 1)
