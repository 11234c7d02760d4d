"""Copies rows of any length out of one flat array, end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.dataset import RaggedColumn
from headrace.datasets.gather import bytes_of

# A row up to a page is copied under the interpreter lock, in 0.1 us; to let go of it costs as
# much, and a busy thread may keep it for 5 ms. Longer rows let go of it.
PAGE_BYTES = 4096


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
        self._copy(starts, stops, out.offsets[rows], out.flat.reshape(-1).view(np.uint8))

    def _copy(self, starts: Indices, stops: Indices, at: Indices, into: NDArray[np.uint8]) -> None:
        """Copy the units `[starts[i], stops[i])` to unit `at[i]` of the bytes `into`."""
        starts, stops, at = (self._unit_bytes * each for each in _merged(starts, stops, at))
        self._touch(starts, stops)
        source, target = self._view, memoryview(into.data)
        for start, stop, first in zip(starts.tolist(), stops.tolist(), at.tolist(), strict=True):
            if stop - start <= PAGE_BYTES:
                target[first : first + stop - start] = source[start:stop]
            else:
                into[first : first + stop - start] = self._flat[start:stop]

    def _touch(self, starts: Indices, stops: Indices) -> None:
        """Have the pages of rows up to a page read, without the interpreter lock.

        Both ends of such a row are in all its pages. Those that must come from disk then stall
        nobody else, and the misses of all rows overlap: what this costs the copies gain.
        """
        if not self._flat.size:
            return
        ends = np.concatenate((starts, stops))
        ends[len(starts) :] -= 1
        # An empty row may lie before the first byte or behind the last.
        np.maximum(ends, 0, out=ends)
        np.minimum(ends, self._flat.size - 1, out=ends)
        torch.index_select(self._bytes, 0, torch.from_numpy(ends))


def _merged(starts: Indices, stops: Indices, at: Indices) -> tuple[Indices, Indices, Indices]:
    """Make one piece of rows that follow each other here and there."""
    if len(starts) < 2:
        return starts, stops, at
    joins = starts[1:] == stops[:-1]
    if joins.any():
        joins &= at[1:] - at[:-1] == stops[:-1] - starts[:-1]
    if not joins.any():
        return starts, stops, at
    heads = np.flatnonzero(np.concatenate(([True], ~joins)))
    tails = np.append(heads[1:], len(starts)) - 1
    return starts[heads], stops[tails], at[heads]
