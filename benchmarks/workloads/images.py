"""R: 8,192 raw images of 3 x 224 x 224 uint8, and their labels."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from noise import noise
from workload import Blocks, Columns, File, Rows, Workload, as_columns, mapped, scaled


class Images(Workload):
    """Every pixel is noise; the label of an image is its number."""

    name = "R"
    batch_rows = 64
    check_scale = Fraction(1, 64)
    shape = (3, 224, 224)
    full_rows = 8_192

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.images = mapped(folder / "images.npy")
        self.labels = mapped(folder / "labels.npy")
        self.rows = len(self.labels)

    @classmethod
    def files(cls, scale: Fraction) -> Iterator[File]:
        rows = scaled(cls.full_rows, scale)
        size = int(np.prod(cls.shape))
        yield "images.npy", noise(2000, rows * size).reshape(rows, *cls.shape)
        yield "labels.npy", np.arange(rows)

    def new_blocks(self) -> Blocks:
        images = np.empty((self.batch_rows, *self.shape), np.uint8)
        return images, np.empty(self.batch_rows, np.int64)

    def close(self) -> None:
        self.images = np.empty((0, *self.shape), np.uint8)
        self.labels = np.empty(0, np.int64)

    def gather_into(self, rows: Rows, out: Blocks) -> Columns:
        np.take(self.images, rows, axis=0, out=out[0], mode="clip")
        np.take(self.labels, rows, out=out[1], mode="clip")
        return as_columns(out)

    def gather(self, rows: Rows) -> Columns:
        # As for S: what people write.
        if self.is_tuned:
            return super().gather(rows)
        return as_columns((self.images[rows], self.labels[rows]))

    def identify(self, columns: Columns) -> Rows:
        return columns[1].numpy().astype(np.int64)

    def expected(self, rows: Rows) -> Columns:
        images = np.stack([self.images[row] for row in rows.tolist()])
        return as_columns((images, np.array([self.labels[row] for row in rows.tolist()])))
