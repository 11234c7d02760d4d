"""Rows that are written in pieces, by threads that cannot be stopped."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import BulkDataset, Column, Indices, Layout, Out, RaggedColumn
from headrace.threads import BlockingCalls
from tests.proof.interleave import Interleaving

SAMPLES = 24
ROWS = 3
STEPS_IN_EPOCH = SAMPLES // ROWS
LENGTHS = np.arange(SAMPLES, dtype=np.int64) % 5 + 1


def values_of(index: int) -> list[int]:
    """Give the sequence of one sample."""
    return [1000 * index + at for at in range(index % 5 + 1)]


def values_at(step: int) -> list[int]:
    """Give the sequences of one step of the stored order, one after another."""
    first = step % STEPS_IN_EPOCH * ROWS
    return [value for index in range(first, first + ROWS) for value in values_of(index)]


class LateRows(BulkDataset):
    """Sequences written value by value, with a pause wherever somebody else could come in.

    Attributes:
        writing: Memory being written to, as `(first byte, end)`.
    """

    def __init__(self, play: Interleaving) -> None:
        self.writing: list[tuple[int, int]] = []
        self._play = play

    def __len__(self) -> int:
        return SAMPLES

    @property
    def layout(self) -> Layout:
        return (Column("values", np.dtype(np.int64), (None,)),)

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        return {"values": LENGTHS[indices]}

    def _write(self, indices: Indices, out: Out, rows: Indices) -> None:
        column = out["values"]
        assert isinstance(column, RaggedColumn)
        place = (column.flat.ctypes.data, column.flat.ctypes.data + column.flat.nbytes)
        self.writing.append(place)
        try:
            for index, row in zip(indices.tolist(), rows.tolist(), strict=True):
                self._play.pause(self._play.rng.choice((1, 2, 30)))
                column.flat[column.offsets[row] : column.offsets[row + 1]] = values_of(index)
        finally:
            self.writing.remove(place)


class BlockingLateRows(LateRows):
    """Rows that reader threads write."""

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        self._write(indices, out, rows)


class AwaitedLateRows(LateRows):
    """Rows that threads of their own write while the loop waits."""

    def __init__(self, play: Interleaving) -> None:
        super().__init__(play)
        self._calls = BlockingCalls(play.rng.choice((1, 3)), "late")

    async def aclose(self) -> None:
        await self._calls.aclose()

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        await self._calls.run(self._write, indices, out, rows)
