"""Rows of one value up to a length and another from there on: masks and padding."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.gather import copy_rows


class PrefixRows:
    """Gathers rows whose first `length` units are `inside` and the others `outside`.

    One table holds `capacity` units of each, one kind behind the other. The row of a length is
    the window that begins so many units before the second kind, so all rows of a batch are one
    gather from a few KB: a comparison of each element with its length costs three times that.

    Args:
        inside: Bytes of a unit before the length.
        outside: Bytes of a unit from the length on, as many.
        capacity: Units of the widest row.
    """

    def __init__(self, inside: bytes, outside: bytes, capacity: int) -> None:
        self._capacity = capacity
        self._unit_bytes = len(inside)
        table = bytearray(inside * capacity + outside * capacity)
        self._table = torch.frombuffer(table, dtype=torch.uint8)

    def read(self, lengths: Indices, out: NDArray[np.uint8]) -> None:
        """Fill the rows of `out`.

        Args:
            lengths: int64 `[k]`, in units, each from 0 to the width.
            out: `[k, width * unit bytes]`, C-contiguous, no wider than the capacity.
        """
        width_bytes = out.shape[1]
        windows = self._table.as_strided((self._capacity + 1, width_bytes), (self._unit_bytes, 1))
        copy_rows(windows, self._capacity - lengths, out)


def prefix_rows(inside: bytes, outside: bytes, width: int) -> PrefixRows:
    """Give PrefixRows for some width; those used last are kept."""
    # Widths differ by batch: one table serves all up to the next power of two.
    return _kept(inside, outside, 1 << max(width - 1, 0).bit_length())


@lru_cache(maxsize=16)
def _kept(inside: bytes, outside: bytes, capacity: int) -> PrefixRows:
    return PrefixRows(inside, outside, capacity)


def fill_mask(lengths: Indices, mask: NDArray[np.bool_]) -> None:
    """Make each row of a mask true up to its length.

    Args:
        lengths: int64 `[k]`, each from 0 to the width.
        mask: `[k, width]`, C-contiguous, filled by this.
    """
    if mask.size:
        prefix_rows(b"\1", b"\0", mask.shape[1]).read(lengths, mask.view(np.uint8))


def pad_rows(lengths: Indices, rows: NDArray[Any], value: Any) -> None:
    """Overwrite each row from its length on.

    By bit operations over all, in place of a fill per row: no Python per row, and no branch on
    what was there, not-a-number included.

    Args:
        lengths: int64 `[k]`, each from 0 to the width.
        rows: `[k, width, *unit]`, C-contiguous.
        value: What to write, a number of the dtype of `rows`.
    """
    if not rows.size:
        return
    count, width = rows.shape[:2]
    flat = rows.reshape(count, -1).view(np.uint8)
    unit_bytes = flat.shape[1] // width
    scratch = np.empty_like(flat)
    prefix_rows(b"\xff" * unit_bytes, bytes(unit_bytes), width).read(lengths, scratch)
    np.bitwise_and(flat, scratch, out=flat)
    unit = np.full(rows.shape[2:], value, rows.dtype).tobytes()
    if any(unit):
        prefix_rows(bytes(unit_bytes), unit, width).read(lengths, scratch)
        np.bitwise_or(flat, scratch, out=flat)
