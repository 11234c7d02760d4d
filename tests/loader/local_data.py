"""The data of the benchmarks at small scale, as a user hands it to a loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import headrace as hr
from tests.loader.kinds import Samples

ROWS = 256


def tokens(folder: Path) -> dict[str, Any]:
    """Windows of 1,024 tokens."""
    np.save(folder / "shard.npy", np.arange(ROWS * 1024 + 1, dtype=np.uint16))
    return {"data": hr.TokenShards(folder / "shard.npy", seq_len=1024), "batch_size": 64}


def vectors(folder: Path) -> dict[str, Any]:
    """Rows of 256 bytes, many in a batch."""
    return {"data": {"x": np.ones((4 * ROWS, 64), np.float32)}, "batch_size": 4 * ROWS}


def images(folder: Path) -> dict[str, Any]:
    """Raw images in a mapped file, and a label each."""
    np.save(folder / "images.npy", np.ones((ROWS, 3, 64, 64), np.uint8))
    mapped = np.load(folder / "images.npy", mmap_mode="r")
    return {"data": {"image": mapped, "label": np.arange(ROWS)}, "batch_size": 64}


def pictures(folder: Path) -> dict[str, Any]:
    """Image files, decoded to one size."""
    pixels = np.random.default_rng(0).integers(0, 256, (16, 12, 16, 3), np.uint8)
    (folder / "class").mkdir()
    for number, each in enumerate(pixels):
        Image.fromarray(each).save(folder / "class" / f"{number:02}.jpg")
    return {"data": hr.ImageFolder(folder, size=(96, 96)), "batch_size": 8}


def sequences(folder: Path) -> dict[str, Any]:
    """Sequences of 16 to 512 tokens, padded."""
    lengths = np.random.default_rng(0).integers(16, 513, ROWS)
    data = hr.Ragged(np.ones(lengths.sum(), np.int32), lengths=lengths)
    return {"data": data, "collate": hr.PadCollator("values"), "batch_size": 64}


class Lines(Samples):
    """Images of one height and any width, with the label of a line."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        widths = np.random.default_rng(0).integers(64, 257, rows)
        self.images = [np.ones((1, 32, width), np.float32) for width in widths]

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], list[int], int]:
        return self.images[index], [index % 7 + 1] * 5, index


def lines(folder: Path) -> dict[str, Any]:
    """Line images, padded to a multiple of 4."""
    return {"data": Lines(ROWS), "collate": hr.ImageCollator(4), "batch_size": 128}


LOCAL: dict[str, Callable[[Path], dict[str, Any]]] = {
    "tokens": tokens,
    "vectors": vectors,
    "images": images,
    "pictures": pictures,
    "sequences": sequences,
    "lines": lines,
}
"""Every workload: give it an empty folder, and its arguments to the loader come back."""
