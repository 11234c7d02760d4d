"""Decoding JPEG by libjpeg-turbo, through simplejpeg; the only file that imports it.

Pillow's wheels hold the same library, so with its slow but exact settings both give the same
pixels, and it does not matter to a stream whether simplejpeg is installed.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from numpy.typing import NDArray

from headrace.datasets.exif import is_sideways, jpeg_orientation, upright
from headrace.datasets.image_boxes import jpeg_divisor
from headrace.datasets.image_form import ImageForm

MAGIC = b"\xff\xd8\xff"

_COLOURS = {"rgb": "RGB", "rgba": "RGBA", "gray": "GRAY"}
_DECODED = ("RGB", "YCbCr", "Gray")
# From here on Pillow warns, and from twice as many on it refuses, since a file of a few bytes
# may claim any size and would have gigabytes made for it (PIL.Image.MAX_IMAGE_PIXELS).
LARGEST_PIXELS = 89_478_485


def decode(data: bytes, form: ImageForm) -> NDArray[Any] | None:
    """Give the pixels `[H, W, C]` of a JPEG, upright; None leaves the file to Pillow.

    That is where simplejpeg is not installed, the file is none of the common kinds of JPEG or
    very large, or anything about it is wrong: Pillow recovers more, and says what it cannot.
    Runs without the GIL.
    """
    simplejpeg = _library()
    colour = _COLOURS.get(form.mode)
    if simplejpeg is None or colour is None or not data.startswith(MAGIC):
        return None
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        if space not in _DECODED or height * width > LARGEST_PIXELS:
            return None
        orientation = jpeg_orientation(data)
        shown = (width, height) if is_sideways(orientation) else (height, width)
        divisor = jpeg_divisor(shown, form.size, form.resize) if form.fast_scaling else 1
        pixels = simplejpeg.decode_jpeg(
            data,
            colour,
            fastdct=False,
            fastupsample=False,
            # The least scale that gives so many pixels is the divisor's.
            min_height=-(-height // divisor),
            min_width=-(-width // divisor),
        )
    except ValueError:
        return None
    return upright(pixels, orientation)


@functools.cache
def _library() -> Any:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None
