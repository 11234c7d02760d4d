"""Decoding images of every kind by Pillow; the only file that imports it, at the first image."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exif import UPRIGHT, is_sideways, jpeg_orientation, upright
from headrace.datasets.image_boxes import jpeg_divisor
from headrace.datasets.image_form import ImageForm
from headrace.datasets.image_jpeg import MAGIC
from headrace.errors import FormatError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image

_ORIENTATION_TAG = 0x0112
_LARGEST_16_BIT = 0xFFFF
# 65535 = 255 * 257, so this maps the 8-bit numbers onto the 16-bit ones from end to end.
_STEP_16_BIT = 257


def check_installed() -> None:
    """Refuse to go on without Pillow, without importing it.

    Raises:
        MissingExtraError: It is not installed.
    """
    if importlib.util.find_spec("PIL") is None:
        raise MissingExtraError("image", "Pillow", "Reading images")


def decode(data: bytes, name: str, form: ImageForm) -> NDArray[Any]:
    """Give the pixels `[H, W, C]` of an image, upright; the first frame where it has several.

    The image is open only within this call. Pillow decodes without the GIL.

    Raises:
        FormatError: Pillow cannot decode it, or it holds numbers of no known range.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if data.startswith(MAGIC):
                _draft(image, jpeg_orientation(data), form)
            image.load()
            return upright(_pixels(image, form), _orientation(image, data))
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises nearly any class for a damaged file
        found = _in_words(error) if data else "an empty file"
        raise FormatError(name, f"an image (as {form.mode})", found) from error


def _draft(image: Image.Image, orientation: int, form: ImageForm) -> None:
    """Have a JPEG decoded as simplejpeg decodes it: scaled down, and to gray where wanted."""
    width, height = image.size
    shown = (width, height) if is_sideways(orientation) else (height, width)
    divisor = jpeg_divisor(shown, form.size, form.resize) if form.fast_scaling else 1
    mode = "L" if form.mode in ("gray", "gray16") else None
    image.draft(mode, (width // divisor, height // divisor))


def _orientation(image: Image.Image, data: bytes) -> int:
    if data.startswith(MAGIC):
        return jpeg_orientation(data)
    try:
        found = image.getexif().get(_ORIENTATION_TAG, UPRIGHT)
    except Exception:  # noqa: BLE001 - an image is good though what is said about it is not
        return UPRIGHT
    return found if found in range(1, 9) else UPRIGHT


def _pixels(image: Image.Image, form: ImageForm) -> NDArray[Any]:
    if image.mode.startswith("I"):
        return _from_16_bit(image, form)
    if image.mode == "F":
        raise ValueError("32-bit floats, whose range is not known. Scale them to integers first")
    image = _without_transparency(image, form)
    if form.mode == "rgba":
        return np.array(image.convert("RGBA"))
    if form.mode == "rgb":
        return np.array(image.convert("RGB"))
    gray = np.array(image.convert("L"))[:, :, np.newaxis]
    return gray if form.mode == "gray" else gray * np.uint16(_STEP_16_BIT)


def _without_transparency(image: Image.Image, form: ImageForm) -> Image.Image:
    """Give an image whose colours are those to be seen, where a mode keeps no alpha."""
    from PIL import Image

    if form.mode == "rgba" or not image.has_transparency_data:
        return image
    image = image.convert("RGBA")
    if form.background is not None:
        behind = Image.new("RGBA", image.size, (*form.background, 255))
        image = Image.alpha_composite(behind, image)
    return image.convert("RGB")


def _from_16_bit(image: Image.Image, form: ImageForm) -> NDArray[Any]:
    """Give 16-bit gray as it is, or scaled to 8 bits from end to end, never clipped."""
    values = np.array(image)
    if values.dtype.itemsize > 2 and (values.min() < 0 or values.max() > _LARGEST_16_BIT):
        raise ValueError(f"32-bit integers from {values.min()} to {values.max()}")
    values = values.astype(np.uint16)[:, :, np.newaxis]
    if form.mode == "gray16":
        return values
    scaled = ((values.astype(np.uint32) + _STEP_16_BIT // 2) // _STEP_16_BIT).astype(np.uint8)
    if form.mode == "gray":
        return scaled
    opaque = [np.full_like(scaled, 255)] if form.mode == "rgba" else []
    return np.concatenate([scaled] * 3 + opaque, axis=2)


def _in_words(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "bytes of no known kind"
    return f"damage, or a kind that is not read: {error}"
