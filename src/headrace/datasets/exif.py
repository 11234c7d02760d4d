"""How a JPEG was held: the orientation in its Exif part, and turning pixels by it."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

UPRIGHT = 1
_ORIENTATION_TAG = 0x0112
_EXIF = b"Exif\0\0"
# Markers that stand alone, without a length after them (ITU T.81, table B.1).
_ALONE = (0x01, *range(0xD0, 0xD8))
_START_OF_SCAN, _APP1 = 0xDA, 0xE1


def jpeg_orientation(data: bytes) -> int:
    """Give the orientation of a JPEG, 1 to 8; 1 where it says none that can be read."""
    try:
        exif = _exif_part(data)
        return UPRIGHT if exif is None else _orientation(exif)
    except (struct.error, IndexError):
        return UPRIGHT


def is_sideways(orientation: int) -> bool:
    """Whether height and width change places when an image is put upright."""
    return orientation >= 5


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Give pixels `[H, W, C]` as they are to be seen, contiguous (Exif 2.3, 4.6.4).

    Orientation n says where the stored first row and column lie in the picture.
    """
    if is_sideways(orientation):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _exif_part(data: bytes) -> bytes | None:
    """Give the TIFF structure of the Exif segment, walking from marker to marker."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _START_OF_SCAN:
            return None
        if marker == 0xFF or marker in _ALONE:
            at += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker == _APP1 and data.startswith(_EXIF, at + 4):
            return data[at + 4 + len(_EXIF) : at + 2 + length]
        at += 2 + length
    return None


def _orientation(tiff: bytes) -> int:
    """Give the orientation entry of the first directory of a TIFF structure."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return UPRIGHT
    (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
    (entries,) = struct.unpack_from(f"{order}H", tiff, directory)
    for number in range(entries):
        tag, _, _, value = struct.unpack_from(f"{order}HHIH", tiff, directory + 2 + 12 * number)
        if tag == _ORIENTATION_TAG:
            return value if 1 <= value <= 8 else UPRIGHT
    return UPRIGHT
