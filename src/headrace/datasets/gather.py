"""Copies many rows out of several arrays in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, as_run

# torch counts elements in 64 bits: the view below has (span * row) of them.
LARGEST_VIEW_BYTES = 2**62


# Rows from this size on are worth a look at each before they are copied.
LONG_ROW_BYTES = 1024


class RowGather:
    """Rows of one byte width, anywhere in some arrays, copied by ONE strided view over all.

    The view begins at the lowest array and has a row at every byte up to the end of the
    highest, so a row is addressed by its byte offset and alignment does not matter. Rows in the
    holes between the arrays exist in the view and must never be asked for: the caller checks
    its indices first.

    Attributes:
        starts_bytes: Where each array begins in the view, int64 `[arrays]`.
    """

    def __init__(
        self,
        arrays: Sequence[NDArray[Any]],
        row_bytes: int,
        largest_view_bytes: int = LARGEST_VIEW_BYTES,
    ) -> None:
        addresses = [array.__array_interface__["data"][0] for array in arrays]
        lowest = min(addresses)
        span_bytes = (
            max(address + array.nbytes for address, array in zip(addresses, arrays, strict=True))
            - lowest
        )
        self.row_bytes = row_bytes
        self.starts_bytes: Indices = np.array(addresses, np.int64) - lowest
        self._arrays = tuple(arrays)  # owns the memory of the view
        self._view: torch.Tensor | None = None
        self._firsts: torch.Tensor | None = None
        # Arrays very far apart with very long rows would overflow the view: go one by one.
        if span_bytes * row_bytes < largest_view_bytes:
            self._view = _rows_at_every_byte(lowest, span_bytes, row_bytes)
            self._firsts = self._view[:, 0] if row_bytes >= LONG_ROW_BYTES else None

    def read(self, offsets_bytes: Indices, out: NDArray[Any], rows: Indices) -> None:
        """Copy the row at `offsets_bytes[i]` of the view into row `rows[i]` of `out`.

        Args:
            offsets_bytes: int64 `[k]`, each at least `row_bytes` before the end of an array.
            out: `[*, n]`, C-contiguous, of `row_bytes` a row.
            rows: int64 `[k]`, distinct.
        """
        into = out.view(np.uint8)
        if self._view is None:
            self._read_one_by_one(offsets_bytes, into, rows)
            return
        self._fetch_first(offsets_bytes)
        run = as_run(rows)
        if run is None:
            into[rows] = self._view.numpy()[offsets_bytes]
        else:
            copy_rows(self._view, offsets_bytes, into[run])

    def _fetch_first(self, offsets_bytes: Indices) -> None:
        """Read one byte of every row, so that memory is waited for once and not row by row.

        The processor fetches the rest of a row while it copies the beginning, but looks no rows
        ahead: 64 random rows of 2 KiB took 36 us, and 25 with this (two cores, 1 GB of maps).
        Of rows of 256 bytes it does look ahead.
        """
        if self._firsts is not None:
            if torch.get_num_threads() > 1:
                self._firsts.numpy()[offsets_bytes]
            else:
                torch.index_select(self._firsts, 0, torch.from_numpy(offsets_bytes))

    def _read_one_by_one(
        self, offsets_bytes: Indices, into: NDArray[np.uint8], rows: Indices
    ) -> None:
        order = np.argsort(self.starts_bytes, kind="stable")
        starts = self.starts_bytes[order]
        found = np.searchsorted(starts, offsets_bytes, side="right") - 1
        flat = [self._arrays[i].reshape(-1).view(np.uint8) for i in order.tolist()]
        for array, offset, row in zip(
            found.tolist(), offsets_bytes.tolist(), rows.tolist(), strict=True
        ):
            start = offset - int(starts[array])
            into[row] = flat[array][start : start + self.row_bytes]


def copy_rows(view: torch.Tensor, numbers: Indices, out: NDArray[np.uint8]) -> None:
    """Copy rows of a view whose rows may overlap.

    torch.index_select does it, as it writes straight to its destination and lets go of the
    interpreter lock: a row that must come from disk then stalls only the reading thread. numpy
    would hold the lock for fewer than 500 rows, and np.take would copy the whole view first.
    Where torch would share the rows out among threads (`workers=0`, on the caller's thread),
    numpy does it: the hand-over costs more than the copy, milliseconds while cores are busy.

    Args:
        view: uint8 `[*, n]`.
        numbers: int64 `[k]`, rows of the view, checked by the caller.
        out: uint8 `[k, n]`, C-contiguous.
    """
    if torch.get_num_threads() > 1:
        out[...] = view.numpy()[numbers]
    else:
        torch.index_select(view, 0, torch.from_numpy(numbers), out=torch.from_numpy(out))


class _Memory:
    """Bare memory as numpy reads it; whoever uses it keeps the arrays that own it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def bytes_of(array: NDArray[Any]) -> torch.Tensor:
    """Give the memory of a contiguous array, read-only ones too, as uint8 `[bytes]`.

    Whoever uses the tensor must not write to it and keeps the array alive.
    """
    address = array.__array_interface__["data"][0]
    return _rows_at_every_byte(address, array.nbytes, 1).reshape(-1)


def _rows_at_every_byte(address: int, span_bytes: int, row_bytes: int) -> torch.Tensor:
    # torch has no read-only tensors and warns of read-only arrays, so the memory is declared
    # writable. Nothing writes to it.
    interface = {
        "version": 3,
        "data": (address, False),
        "shape": (max(span_bytes - row_bytes + 1, 0), row_bytes),
        "strides": (1, 1),
        "typestr": "|u1",
    }
    return torch.from_numpy(np.asarray(_Memory(interface)))
