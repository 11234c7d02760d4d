"""V: 200 k sequences of 16 to 512 int32, end to end in one file, padded to a rectangle."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from noise import noise
from workload import Blocks, Columns, File, Rows, Workload, as_columns, mapped, scaled


class Sequences(Workload):
    """The first value of a sequence is its number, all others are noise from 0 on.

    So a mask must come of the lengths: 0 is a value like any other.
    """

    name = "V"
    batch_rows = 64
    shortest = 16
    longest = 512
    full_rows = 196_608

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.flat = mapped(folder / "flat.npy")
        self.offsets = mapped(folder / "offsets.npy")
        self.rows = len(self.offsets) - 1
        self._positions = np.arange(self.longest)

    @classmethod
    def files(cls, scale: Fraction) -> Iterator[File]:
        rows = scaled(cls.full_rows, scale)
        spread = noise(3000, rows * 8).view(np.uint64) % (cls.longest - cls.shortest + 1)
        offsets = np.zeros(rows + 1, np.int64)
        np.cumsum(spread.astype(np.int64) + cls.shortest, out=offsets[1:])
        flat = (noise(3001, int(offsets[-1]) * 4).view(np.uint32) % 50_000).astype(np.int32)
        flat[offsets[:-1]] = np.arange(rows)
        yield "flat.npy", flat
        yield "offsets.npy", offsets

    def new_blocks(self) -> Blocks:
        # Flat, so that a batch of any width is contiguous in it.
        size = self.batch_rows * self.longest
        lengths = np.empty(self.batch_rows, np.int64)
        return np.empty(size, np.int32), lengths, np.empty(size, np.bool_)

    def close(self) -> None:
        self.flat = np.empty(0, np.int32)
        self.offsets = np.zeros(1, np.int64)

    def gather_into(self, rows: Rows, out: Blocks) -> Columns:
        starts, lengths = self.offsets[rows], out[1]
        np.subtract(self.offsets[rows + 1], starts, out=lengths)
        width, flat = int(lengths.max()), self.flat
        shape = (len(rows), width)
        values, mask = (out[column][: len(rows) * width].reshape(shape) for column in (0, 2))
        values.fill(0)
        for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            values[row, :length] = flat[start : start + length]
        np.less(self._positions[:width], lengths[:, None], out=mask)
        return as_columns((values, lengths, mask))

    def identify(self, columns: Columns) -> Rows:
        return columns[0][:, 0].numpy().astype(np.int64)

    def expected(self, rows: Rows) -> Columns:
        sequences = [
            torch.from_numpy(self.flat[self.offsets[row] : self.offsets[row + 1]].copy())
            for row in rows.tolist()
        ]
        values = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        lengths = torch.tensor([len(sequence) for sequence in sequences])
        mask = torch.arange(values.shape[1]) < lengths[:, None]
        return values, lengths, mask
