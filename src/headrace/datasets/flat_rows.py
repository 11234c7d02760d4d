"""Copies rows of any length out of one flat array, end to end or padded to one width."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.dataset import RaggedColumn
from headrace.datasets.gather import bytes_of, copy_rows
from headrace.datasets.prefix_rows import pad_rows

# A row up to a page is copied under the interpreter lock, in 0.1 us; to let go of it costs as
# much, and a busy thread may keep it for 5 ms. Longer rows let go of it.
PAGE_BYTES = 4096
# Gathering whole windows reads what lies behind short rows. Beyond this share of what is wanted
# the rows are copied one by one.
MOST_OVER_READ = 4


class FlatRows:
    """Rows `flat[start:stop]` of an array, in memory or over a map. Safe from any thread.

    Args:
        flat: `[n, *unit shape]`, C-contiguous.
    """

    def __init__(self, flat: NDArray[Any]) -> None:
        self._flat = flat.reshape(-1).view(np.uint8)
        self._view = memoryview(self._flat.data)
        self._bytes = bytes_of(flat)
        self._unit_bytes = flat.itemsize * int(np.prod(flat.shape[1:], dtype=np.int64))

    def read(self, starts: Indices, stops: Indices, out: RaggedColumn, rows: Indices) -> None:
        """Copy the units `[starts[i], stops[i])` into row `rows[i]` of `out`, which fits them."""
        at = out.offsets[rows] * self._unit_bytes
        self._copy(
            starts * self._unit_bytes,
            stops * self._unit_bytes,
            at,
            out.flat.reshape(-1).view(np.uint8),
        )

    def read_padded(self, starts: Indices, stops: Indices, out: NDArray[Any], value: Any) -> None:
        """Copy the units `[starts[i], stops[i])` into row i and fill up the rest of it.

        Args:
            starts: int64 `[k]`.
            stops: int64 `[k]`; what goes beyond the width is cut off.
            out: `[k, width, *unit shape]`, C-contiguous.
            value: What fills the rest, a number of the dtype.
        """
        if not out.size:
            return
        count, width = out.shape[:2]
        lengths = np.minimum(stops - starts, width)
        into = out.reshape(count, -1).view(np.uint8)
        over_read = count * width > MOST_OVER_READ * int(lengths.sum())
        if over_read or into.shape[1] > self._flat.size:
            out[...] = value
            first = starts * self._unit_bytes
            rows_at = np.arange(count) * into.shape[1]
            self._copy(first, first + lengths * self._unit_bytes, rows_at, into.reshape(-1))
        else:
            self._copy_windows(starts * self._unit_bytes, into)
            pad_rows(lengths, out, value)

    def _copy_windows(self, starts: Indices, into: NDArray[np.uint8]) -> None:
        """Copy as many bytes as a row of `into` has from each start, or up to the end."""
        width = into.shape[1]
        last = self._flat.size - width
        windows = self._bytes.as_strided((last + 1, width), (1, 1))
        copy_rows(windows, np.minimum(starts, last), into)
        if int(starts.max()) > last:
            for row in np.flatnonzero(starts > last).tolist():
                tail = self._flat[int(starts[row]) :]
                into[row, : len(tail)] = tail

    def _copy(self, starts: Indices, stops: Indices, at: Indices, into: NDArray[np.uint8]) -> None:
        """Copy the bytes `[starts[i], stops[i])` to `at[i]` of `into`."""
        starts, stops, at = _merged(starts, stops, at)
        self._touch(starts, stops)
        source, target = self._view, memoryview(into.data)
        for start, stop, first in zip(starts.tolist(), stops.tolist(), at.tolist(), strict=True):
            if stop - start <= PAGE_BYTES:
                target[first : first + stop - start] = source[start:stop]
            else:
                into[first : first + stop - start] = self._flat[start:stop]

    def _touch(self, starts: Indices, stops: Indices) -> None:
        """Have the pages of rows up to a page read, without the interpreter lock.

        Both ends of such a row are all its pages. Those that must come from disk then stall
        nobody else, and the misses of all rows overlap: what this costs the copies gain.
        """
        ends = np.concatenate((starts, stops - 1))
        some = ends[np.concatenate((stops, stops)) > np.concatenate((starts, starts))]
        torch.index_select(self._bytes, 0, torch.from_numpy(some))


def _merged(starts: Indices, stops: Indices, at: Indices) -> tuple[Indices, Indices, Indices]:
    """Make one piece of rows that follow each other here and there."""
    if len(starts) < 2:
        return starts, stops, at
    joins = starts[1:] == stops[:-1]
    joins &= at[1:] - at[:-1] == stops[:-1] - starts[:-1]
    if not joins.any():
        return starts, stops, at
    heads = np.flatnonzero(np.concatenate(([True], ~joins)))
    tails = np.append(heads[1:], len(starts)) - 1
    return starts[heads], stops[tails], at[heads]
