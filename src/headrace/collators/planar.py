"""8-bit pixels as planar float32: plain multiplications and subtractions, the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import config
from headrace.errors import ConfigError

Pixels = NDArray[np.uint8] | bytes | bytearray | memoryview


def gray8_to_planar(
    pixels: Pixels,
    mean: float = 0.0,
    std: float = 1.0,
    *,
    height: int | None = None,
    width: int | None = None,
    row_stride: int | None = None,
) -> NDArray[np.float32]:
    """Give 8-bit gray pixels as float32 `[1, height, width]`: `p * (1 / (255 * std)) - mean / std`.

    Every operation is rounded to float32 by itself, so the bits are the same on every machine.

    Args:
        pixels: An array `[height, width]` with any strides, or bytes of rows one after another.
        mean: Mean of the values `p / 255`.
        std: Their standard deviation, above 0.
        height: Rows of an image given as bytes.
        width: Pixels of a row given as bytes.
        row_stride: Bytes from one row to the next; the width where None.

    Raises:
        ConfigError: Shape, dtype, sizes or std are not so, or there are too few bytes.
    """
    plane = _image(pixels, (), height, width, row_stride)
    planes = np.empty((1, *plane.shape), np.float32)
    _normalize(plane, mean, std, planes[0])
    return planes


def rgb8_to_planar(
    pixels: Pixels,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    *,
    height: int | None = None,
    width: int | None = None,
    row_stride: int | None = None,
) -> NDArray[np.float32]:
    """Give interleaved 8-bit RGB pixels as float32 `[3, height, width]`.

    Each channel is what `gray8_to_planar` gives with its own mean and std.

    Args:
        pixels: An array `[height, width, 3]` with any strides, or bytes of rows.
        mean: Mean of each channel.
        std: Standard deviation of each channel, above 0.
        height: Rows of an image given as bytes.
        width: Pixels of a row given as bytes.
        row_stride: Bytes from one row to the next; three times the width where None.

    Raises:
        ConfigError: As for `gray8_to_planar`, or there are not three means and stds.
    """
    image = _image(pixels, (3,), height, width, row_stride)
    for knob, values in (("mean", mean), ("std", std)):
        if np.shape(values) != (3,):
            raise ConfigError(knob, "three numbers, one for each channel", values)
    planes = np.empty((3, *image.shape[:2]), np.float32)
    for channel in range(3):
        _normalize(image[:, :, channel], mean[channel], std[channel], planes[channel])
    return planes


def _normalize(
    pixels: NDArray[np.uint8], mean: float, std: float, out: NDArray[np.float32]
) -> None:
    mean32, std32 = np.float32(mean), np.float32(std)
    if not std32 > 0 or not np.isfinite(std32):
        raise ConfigError("std", "a number above 0", std)
    scale = np.float32(1) / (np.float32(255) * std32)
    offset = mean32 / std32
    # Two operations, each rounded: one fused multiply-add would give other bits.
    np.multiply(pixels, scale, out=out, dtype=np.float32)
    np.subtract(out, offset, out=out)


def _image(
    pixels: Pixels,
    channels: tuple[int, ...],
    height: int | None,
    width: int | None,
    row_stride: int | None,
) -> NDArray[np.uint8]:
    """Give pixels as an array `[height, width, *channels]`, sharing memory."""
    shown = f"uint8 [height, width{', 3' if channels else ''}]"
    if height is None and width is None and row_stride is None:
        found = np.asarray(pixels)
        if found.dtype != np.uint8 or found.ndim != 2 + len(channels):
            cure = "Bytes need height and width beside them."
            raise ConfigError("pixels", shown, f"{found.dtype} {list(found.shape)}", cure)
        if found.shape[2:] != channels:
            raise ConfigError("pixels", shown, f"{found.dtype} {list(found.shape)}")
        return found
    rows = config.integer("height", height, 0)
    columns = config.integer("width", width, 0)
    row_bytes = columns * (channels[0] if channels else 1)
    stride = config.integer(
        "row_stride", row_bytes if row_stride is None else row_stride, row_bytes
    )
    return _strided(_flat(pixels), (rows, columns, *channels), stride, row_bytes)


def _flat(pixels: Any) -> NDArray[np.uint8]:
    if isinstance(pixels, np.ndarray):
        if pixels.dtype != np.uint8 or not pixels.flags.c_contiguous:
            raise ConfigError("pixels", "contiguous uint8 beside height and width", pixels.dtype)
        return pixels.reshape(-1)
    return np.frombuffer(pixels, np.uint8)


def _strided(
    flat: NDArray[np.uint8], shape: tuple[int, ...], stride: int, row_bytes: int
) -> NDArray[np.uint8]:
    # The last row needs no more than its own pixels.
    need = (shape[0] - 1) * stride + row_bytes if shape[0] else 0
    if len(flat) < need:
        text = f"{need} bytes for {shape[0]} rows of {row_bytes}, {stride} apart"
        raise ConfigError("pixels", text, f"{len(flat)} bytes")
    strides = (stride, *(np.empty(shape[1:], np.uint8).strides))
    made: NDArray[np.uint8] = np.ndarray(shape, np.uint8, flat, 0, strides)
    return made
