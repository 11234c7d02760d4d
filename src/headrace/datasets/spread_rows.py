"""Copies rows of any length out of one flat array, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.gather import bytes_of

# Gathering whole windows reads what lies behind short rows. Beyond this many times what is
# wanted, the rows are copied one by one.
MOST_OVER_READ = 4
# torch hands rows to other threads where a copy has more elements than this, which costs more
# than the copy; its constant at::internal::GRAIN_SIZE.
GRAIN_ELEMENTS = 32768
# A view costs 1 us to make and 200 bytes to keep; batches come in a few widths.
KEPT_WINDOWS = 64

_WORDS: tuple[type[np.signedinteger[Any]], ...] = (np.int64, np.int32, np.int16, np.int8)


class SpreadRows:
    """Rows `flat[start:stop]` of an array, in memory or over a map. Safe from any thread.

    A row is copied by a window of the full width from its start on, so all rows of a batch are
    one gather that lets go of the interpreter lock, whatever their lengths.

    Args:
        flat: `[n, *unit shape]`, C-contiguous.
    """

    def __init__(self, flat: NDArray[Any]) -> None:
        unit_bytes = flat.itemsize * int(np.prod(flat.shape[1:], dtype=np.int64))
        address: int = flat.__array_interface__["data"][0]
        # In the widest words, of which torch copies most before it calls for other threads.
        self._word: type[np.signedinteger[Any]] = next(
            word
            for word in _WORDS
            if not unit_bytes % np.dtype(word).itemsize and not address % np.dtype(word).itemsize
        )
        self._unit_words = unit_bytes // np.dtype(self._word).itemsize
        self._flat = flat
        self._words = torch.from_numpy(bytes_of(flat).numpy().view(self._word))
        self._windows: dict[int, torch.Tensor] = {}

    def read(self, starts: Indices, stops: Indices, outs: Sequence[NDArray[Any]]) -> None:
        """Copy the units `[starts[i], stops[i])` into a row of its own.

        Args:
            starts: int64 `[k]`.
            stops: int64 `[k]`.
            outs: Arrays `[rows, width, *unit shape]`, filled one after the other; together they
                have k rows. What is behind a row shorter than the width is left undefined.
        """
        if not self._unit_words:
            return  # nothing lies in elements of no size
        places = sum(out.shape[0] * out.shape[1] for out in outs)
        by_windows = places <= MOST_OVER_READ * int((stops - starts).sum())
        last_start = int(starts.max(initial=0))
        if by_windows and last_start < len(self._flat):
            # The first word of every row, so that what the processor and the system have to
            # fetch for them comes at once and not row by row: a tenth of the copies' time.
            torch.index_select(self._words, 0, torch.from_numpy(starts * self._unit_words))
        first = 0
        for out in outs:
            rows = slice(first, first + len(out))
            last_window = len(self._flat) - out.shape[1]
            if not out.size:
                pass
            elif by_windows and last_start <= last_window:
                self._copy_windows(starts[rows], out)
            else:
                self._copy_each(starts[rows], stops[rows], out, last_window if by_windows else -1)
            first = rows.stop

    def _copy_windows(self, starts: Indices, out: NDArray[Any]) -> None:
        windows = self._windows_of(out.shape[1])
        into = torch.from_numpy(out.reshape(len(out), -1).view(self._word))
        wanted = torch.from_numpy(starts)
        if torch.get_num_threads() == 1 or into.numel() <= GRAIN_ELEMENTS:
            torch.index_select(windows, 0, wanted, out=into)
            return
        at_once = max(1, GRAIN_ELEMENTS // windows.shape[1])
        for first in range(0, len(out), at_once):
            rows = slice(first, first + at_once)
            torch.index_select(windows, 0, wanted[rows], out=into[rows])

    def _copy_each(
        self, starts: Indices, stops: Indices, out: NDArray[Any], last_window: int
    ) -> None:
        """Copy row by row, except those that begin up to the last window."""
        whole = starts <= last_window
        if whole.any():
            self._copy_windows(np.where(whole, starts, 0), out)
        width = out.shape[1]
        for row in np.flatnonzero(~whole).tolist():
            start = int(starts[row])
            length = min(int(stops[row]) - start, width)
            out[row, :length] = self._flat[start : start + length]

    def _windows_of(self, width: int) -> torch.Tensor:
        """Give the view that has a row of `width` units at every unit."""
        windows = self._windows.get(width)
        if windows is None:
            if len(self._windows) >= KEPT_WINDOWS:
                self._windows.clear()
            shape = len(self._flat) - width + 1, width * self._unit_words
            windows = self._words.as_strided(shape, (self._unit_words, 1))
            self._windows[width] = windows
        return windows
