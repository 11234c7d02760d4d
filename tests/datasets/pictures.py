"""Small pictures of known pixels, as files of every kind."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def pattern(height: int, width: int, seed: int = 0, depth: int = 3) -> NDArray[np.uint8]:
    """Give smooth pixels `[H, W, depth]`, other ones for each seed."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, depth), np.uint8)
    planes = [
        Image.fromarray(np.ascontiguousarray(small[:, :, k])).resize((width, height))
        for k in range(depth)
    ]
    return np.stack([np.asarray(plane) for plane in planes], axis=2)


def encoded(pixels: NDArray[Any], kind: str = "PNG", **options: Any) -> bytes:
    """Give the file of some pixels, `[H, W]`, `[H, W, 1]`, `[H, W, 3]` or `[H, W, 4]`."""
    into = io.BytesIO()
    plain = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    Image.fromarray(plain).save(into, kind, **options)
    return into.getvalue()


def put(path: Path, data: bytes = b"") -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def one_colour(red: int, green: int, blue: int, size: tuple[int, int] = (4, 4)) -> bytes:
    """Give a PNG of one colour, whose pixel values say which picture it is."""
    return encoded(np.full((*size, 3), (red, green, blue), np.uint8))
