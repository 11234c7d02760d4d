"""How many bytes padded steps hold, from the lengths of their samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.build.estimated import FIRST_GUESS_BYTES
from headrace.collators.padding import Padding
from headrace.datasets.dataset import BulkDataset
from headrace.pick import Picks

_LENGTH_BYTES = np.dtype(np.int64).itemsize
# A longest length that so many samples do not show is rare enough to come as a surprise.
_GUESSED_FROM = 1024


class StepSizes:
    """What padded steps hold, exactly.

    Attributes:
        step_bytes: The most that any step seen so far holds; a guess before the first.
    """

    def __init__(self, dataset: BulkDataset, padding: Padding, batch_rows: int) -> None:
        self._dataset = dataset
        self._padding = padding
        self.step_bytes = self._guess(batch_rows)

    def of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        """Give what each step of a window holds: values, lengths and masks."""
        row_bytes = self._row_bytes(picks.sample, ends[:-1])
        nbytes: list[int] = ((ends[1:] - ends[:-1]) * row_bytes).tolist()
        self.step_bytes = max(self.step_bytes, *nbytes)
        return nbytes

    def _row_bytes(self, samples: NDArray[np.int64], starts: NDArray[np.int64]) -> Any:
        """Give the bytes of a row in each of the steps that start at these samples."""
        nbytes: Any = np.zeros(len(starts), np.int64)
        sizes = self._dataset.sizes(samples)
        for column in self._dataset.delivered:
            if column.is_open:
                lengths = self._padding.lengths(sizes[column.name])
                widths = self._padding.widths(np.maximum.reduceat(lengths, starts))
                nbytes = nbytes + widths * (column.unit_bytes + 1) + _LENGTH_BYTES
            else:
                nbytes = nbytes + column.unit_bytes
        return nbytes

    def _guess(self, batch_rows: int) -> int:
        count = len(self._dataset)
        some = np.linspace(0, count - 1, min(count, _GUESSED_FROM)).astype(np.int64)
        try:
            return batch_rows * int(self._row_bytes(some, np.zeros(1, np.int64))[0])
        except Exception:  # noqa: BLE001 - raised again, at the step that asks for these sizes
            return FIRST_GUESS_BYTES
