"""Rows of one value up to a length and another from there on: masks and padding."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.gather import copy_rows

# Rows wider than this are filled one by one: the call is then a small part of the work.
WIDE_BYTES = 16 << 10


class PrefixRows:
    """Gathers rows whose first `length` units are `inside` and the others `outside`.

    One table holds a row of each, one behind the other. The row of a length is the window that
    begins so many units before the second, so all rows of a batch are one gather from a few KB:
    to compare each element with its length takes three times as long.

    Args:
        inside: Bytes of a unit before the length.
        outside: Bytes of a unit from the length on, as many.
        width: Units of a row.
    """

    def __init__(self, inside: bytes, outside: bytes, width: int) -> None:
        unit_bytes = len(inside)
        table = torch.frombuffer(bytearray(inside * width + outside * width), dtype=torch.uint8)
        self._width = width
        self._windows = table.as_strided((width + 1, width * unit_bytes), (unit_bytes, 1))

    def read(self, lengths: Indices, out: NDArray[np.uint8]) -> None:
        """Fill the rows of `out`.

        Args:
            lengths: int64 `[k]`, in units, each from 0 to the width.
            out: `[k, width * unit bytes]`, C-contiguous.
        """
        copy_rows(self._windows, self._width - lengths, out)


# Widths differ by batch; a table takes 32 KiB at most.
_prefix_rows = lru_cache(maxsize=64)(PrefixRows)


class _Scratch(threading.local):
    """Memory of the calling thread that is used again: fresh memory would cost page faults."""

    # A batch of 64 rows of 512 int32 takes 128 KiB. Larger ones are made and dropped.
    KEPT_BYTES = 4 << 20

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)
        self._last: NDArray[np.uint8] = np.empty((0, 0), np.uint8)

    def like(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Give an array of the shape of `rows`, contents undefined, until the next call."""
        if rows.shape == self._last.shape:
            return self._last
        if rows.size > self.KEPT_BYTES:
            return np.empty_like(rows)
        if rows.size > self._kept.size:
            self._kept = np.empty(rows.size, np.uint8)
        self._last = self._kept[: rows.size].reshape(rows.shape)
        return self._last


_scratch = _Scratch()


def fill_mask(lengths: Indices, mask: NDArray[np.bool_]) -> None:
    """Make each row of a mask true up to its length and false from there on.

    Args:
        lengths: int64 `[k]`, each from 0 to the width.
        mask: `[k, width]`, C-contiguous; all of it is written.
    """
    if not mask.size:
        return
    width = mask.shape[1]
    if width <= WIDE_BYTES:
        _prefix_rows(b"\1", b"\0", width).read(lengths, mask.view(np.uint8))
        return
    for row, length in zip(mask, lengths.tolist(), strict=True):
        row[:length] = True
        row[length:] = False


def pad_rows(lengths: Indices, rows: NDArray[Any], value: Any) -> None:
    """Overwrite each row from its length on.

    Args:
        lengths: int64 `[k]`, each from 0 to the width.
        rows: `[k, width, *unit]`, C-contiguous.
        value: What to write, a number of the dtype of `rows`.
    """
    if not rows.size:
        return
    flat = rows.reshape(len(rows), -1).view(np.uint8)
    if flat.shape[1] <= WIDE_BYTES:
        _pad_by_bits(lengths, flat, rows.shape[1], _bytes_of(value, rows))
        return
    for row, length in zip(rows, lengths.tolist(), strict=True):
        row[length:] = value


def _bytes_of(value: Any, rows: NDArray[Any]) -> bytes:
    """Give a unit full of a value as bytes."""
    if isinstance(value, int | np.integer) and value == 0:
        return bytes(rows[0, 0].nbytes)
    return np.full(rows.shape[2:], value, rows.dtype).tobytes()


def _pad_by_bits(lengths: Indices, flat: NDArray[np.uint8], width: int, padding: bytes) -> None:
    """Clear the bits behind each length and set those of the unit, for all rows at once."""
    ones, zeros = b"\xff" * len(padding), bytes(len(padding))
    scratch = _scratch.like(flat)
    _prefix_rows(ones, zeros, width).read(lengths, scratch)
    np.bitwise_and(flat, scratch, out=flat)
    if padding != zeros:
        _prefix_rows(zeros, padding, width).read(lengths, scratch)
        np.bitwise_or(flat, scratch, out=flat)
