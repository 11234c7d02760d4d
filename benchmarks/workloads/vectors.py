"""S: 2 M rows of 64 float32."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from noise import noise
from workload import Blocks, Columns, File, Rows, Workload, as_columns, mapped, scaled


class Vectors(Workload):
    """Values in [0, 1); the first of a row is its number."""

    name = "S"
    batch_rows = 1024
    width = 64
    full_rows = 2_097_152

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.values = mapped(folder / "rows.npy")
        self.rows = len(self.values)

    @classmethod
    def files(cls, scale: Fraction) -> Iterator[File]:
        rows = scaled(cls.full_rows, scale)
        bits = noise(1000, rows * cls.width * 4).view(np.uint32)
        values = ((bits >> 8) * np.float32(2**-24)).astype(np.float32).reshape(rows, cls.width)
        values[:, 0] = np.arange(rows)
        yield "rows.npy", values

    def new_blocks(self) -> Blocks:
        return (np.empty((self.batch_rows, self.width), np.float32),)

    def close(self) -> None:
        self.values = np.empty((0, self.width), np.float32)

    def gather_into(self, rows: Rows, out: Blocks) -> Columns:
        # mode="clip" lets numpy write to `out` directly; the default makes a copy first.
        np.take(self.values, rows, axis=0, out=out[0], mode="clip")
        return as_columns(out)

    def gather(self, rows: Rows) -> Columns:
        # What people write. np.take into new memory takes half the time, but is rarely known.
        return super().gather(rows) if self.is_tuned else as_columns((self.values[rows],))

    def identify(self, columns: Columns) -> Rows:
        return columns[0][:, 0].numpy().astype(np.int64)

    def expected(self, rows: Rows) -> Columns:
        return as_columns((np.stack([self.values[row] for row in rows.tolist()]),))
