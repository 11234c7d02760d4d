"""From the bytes of an image file to a sample: decoded, put upright, cut and scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import images
from headrace.datasets import image_jpeg, image_pillow
from headrace.datasets.image_boxes import Size, centre_box
from headrace.datasets.image_form import ImageForm


def decode(data: bytes, name: str, form: ImageForm) -> NDArray[Any]:
    """Give the pixels of an image as it is to be seen, `[H, W, C]`, before it is fitted.

    JPEG files are decoded by simplejpeg where that is installed, and all else by Pillow; both
    give the same pixels.

    Args:
        data: The file.
        name: Its name, for messages.
        form: What is wanted; an image much larger than its `size` may come scaled down.

    Raises:
        FormatError: It is no image, or a damaged one.
    """
    pixels = image_jpeg.decode(data, form)
    return image_pillow.decode(data, name, form) if pixels is None else pixels


def decode_whole(data: bytes, name: str, form: ImageForm) -> NDArray[Any]:
    """Give an image as large as it is, in the order of axes that is wanted."""
    pixels = decode(data, name, form)
    if form.channels == "first":
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))
    return pixels


def decode_into(data: bytes, name: str, form: ImageForm, row: NDArray[Any]) -> None:
    """Fill a row with an image: the centre box of its shape, scaled to its size.

    Args:
        data: The file.
        name: Its name, for messages.
        form: What is wanted, `size` included.
        row: Of `form.shape(form.size)` and `form.dtype`, writable.
    """
    assert form.size is not None
    pixels = decode(data, name, form)
    box = centre_box((pixels.shape[0], pixels.shape[1]), form.size, form.resize)
    part = pixels[box.top : box.top + box.height, box.left : box.left + box.width]
    if form.channels == "first":
        row[...] = _fitted(part, form.size).transpose(2, 0, 1)
    elif part.shape == row.shape:
        row[...] = part
    else:
        images.resize_into(part, row)


def _fitted(part: NDArray[Any], size: Size) -> NDArray[Any]:
    return part if part.shape[:2] == size else images.resize(part, size)
