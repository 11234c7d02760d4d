"""J: 4,096 JPEG files of 500 x 375 in 16 folders, decoded, resized and cropped to 224 x 224."""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from noise import noise
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate
from workload import Blocks, Columns, File, Rows, Workload, as_columns, scaled

try:
    from simplejpeg import decode_jpeg
except ImportError:
    decode_jpeg = None

WIDTH, HEIGHT = 500, 375
RESIZE, SIDE = 256, 224
# The middle square that remains where the shorter side becomes 256 and 224 of it are kept.
KEPT = round(HEIGHT * SIDE / RESIZE)
KEPT_TOP, KEPT_LEFT = (HEIGHT - KEPT) // 2, (WIDTH - KEPT) // 2
QUALITY = 95  # gives about 110 KB

# The number of a row is drawn into its picture: 4 x 4 squares, light for the bits that are set.
BITS = 16
SQUARE = 32
LEFT, TOP = (WIDTH - 4 * SQUARE) // 2, (HEIGHT - 4 * SQUARE) // 2


class Pictures(Workload):
    """Folders are classes; names are in the order of the row numbers."""

    name = "J"
    batch_rows = 64
    check_scale = Fraction(1, 32)
    classes = 16
    full_rows = 4_096

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.paths = [str(path) for path in sorted(folder.glob("class-*/*.jpg"))]
        self.rows = len(self.paths)
        self.labels = np.arange(self.rows) // (self.rows // self.classes)

    @classmethod
    def files(cls, scale: Fraction) -> Iterator[File]:
        rows = scaled(cls.full_rows, scale)
        for row in range(rows):
            yield f"class-{row // (rows // cls.classes):02}/{row:06}.jpg", encoded(row)

    def new_blocks(self) -> Blocks:
        pictures = np.empty((self.batch_rows, SIDE, SIDE, 3), np.uint8)
        return pictures, np.empty(self.batch_rows, np.int64)

    def close(self) -> None:
        self.paths.clear()

    def gather_into(self, rows: Rows, out: Blocks) -> Columns:
        for picture, row in zip(out[0], rows.tolist(), strict=True):
            picture[...] = self.picture(row)
        np.take(self.labels, rows, out=out[1], mode="clip")
        return as_columns(out)

    def picture(self, row: int) -> NDArray[np.uint8]:
        """Give a picture as it is delivered, uint8 `[224, 224, 3]`. Safe from any thread."""
        with open(self.paths[row], "rb") as file:
            return cropped(decoded(file.read()))

    def identify(self, columns: Columns) -> Rows:
        middles = (np.arange(4) + 0.5) * SQUARE
        across = np.rint((LEFT + middles - KEPT_LEFT) * SIDE / KEPT).astype(int)
        down = np.rint((TOP + middles - KEPT_TOP) * SIDE / KEPT).astype(int)
        green = columns[0].numpy()[:, down[:, None], across, 1]
        bits = green.reshape(-1, BITS) > 127
        return np.asarray(bits @ (1 << np.arange(BITS)), np.int64)

    def expected(self, rows: Rows) -> Columns:
        pictures = [plain(self.paths[row]) for row in rows.tolist()]
        return torch.stack(pictures), torch.from_numpy(self.labels[rows])


def encoded(row: int) -> bytes:
    """Give the file of a row: coarse colours, fine noise, and the number of the row."""
    coarse = noise(40_000 + row, 48 * 63 * 3).reshape(48, 63, 3)
    fine = noise(50_000 + row, HEIGHT * WIDTH * 3).reshape(HEIGHT, WIDTH, 3) >> 3
    pixels = np.kron(coarse >> 1, np.ones((8, 8, 1), np.uint8))[:HEIGHT, :WIDTH] + fine
    bits = (row >> np.arange(BITS) & 1).astype(np.uint8).reshape(4, 4)
    marks = np.kron(bits * np.uint8(255), np.ones((SQUARE, SQUARE), np.uint8))
    pixels[TOP : TOP + 4 * SQUARE, LEFT : LEFT + 4 * SQUARE] = marks[..., None]
    into = io.BytesIO()
    Image.fromarray(pixels).save(into, "JPEG", quality=QUALITY)
    return into.getvalue()


def decoded(data: bytes) -> NDArray[np.uint8]:
    """Decode by the faster library that is there; both give the same pixels."""
    if decode_jpeg is not None:
        return np.asarray(decode_jpeg(data))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def cropped(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Crop and resize `[375, 500, 3]`, in this order: only what is kept is computed.

    By torch, which takes a quarter of Pillow's time for it.
    """
    part = pixels[KEPT_TOP : KEPT_TOP + KEPT, KEPT_LEFT : KEPT_LEFT + KEPT]
    # Made contiguous by numpy: torch would do it by several threads, which costs more. And one
    # view of it all, by whose strides torch sees that channels come last here and in the result.
    whole = torch.from_numpy(np.ascontiguousarray(part)).view(1, KEPT, KEPT, 3)
    made = interpolate(
        whole.permute(0, 3, 1, 2), size=(SIDE, SIDE), mode="bilinear", antialias=True
    )
    return np.asarray(made.permute(0, 2, 3, 1)[0].numpy(), np.uint8)


@lru_cache(maxsize=256)
def plain(path: str) -> torch.Tensor:
    """Give a picture, decoded by Pillow, for comparison."""
    with Image.open(path) as opened:
        return torch.from_numpy(np.array(cropped(np.array(opened.convert("RGB")))))
