"""Which part of an image becomes a sample of a fixed size: whole pixels, arithmetic only."""

from __future__ import annotations

from typing import NamedTuple

Size = tuple[int, int]
"""Height and width in pixels."""

# Decoding at 1/2, 1/4 or 1/8 leaves at least so many times the wanted pixels each way, so that
# the antialiased resize after it still averages several of them.
MARGIN = 2
# Smaller images are decoded whole: there is nothing to win, and their parts do not divide evenly.
LEAST_SIDE = 64


class Box(NamedTuple):
    """A part of an image, in pixels from its top left corner."""

    top: int
    left: int
    height: int
    width: int


def centre_box(source: Size, size: Size, resize: int | None = None) -> Box:
    """Give the centre part that is scaled to a size.

    What comes out is a scaled image whose centre is cut out, worked out in one step: the part
    has the shape of `size`, and pixels that would be cut off are not scaled first.

    Args:
        source: Size of the image.
        size: Size that is wanted.
        resize: What the shorter side is scaled to before the cut; at least either side of
            `size`. None scales so that the image just covers `size`.
    """
    height, width = source
    wanted_height, wanted_width = size
    if resize is not None:
        shorter = min(height, width)
        tall, wide = _scaled(wanted_height, shorter, resize), _scaled(wanted_width, shorter, resize)
    elif height * wanted_width >= width * wanted_height:
        tall, wide = _scaled(wanted_height, width, wanted_width), width
    else:
        tall, wide = height, _scaled(wanted_width, height, wanted_height)
    return Box((height - tall) // 2, (width - wide) // 2, tall, wide)


def jpeg_divisor(source: Size, size: Size | None, resize: int | None = None) -> int:
    """Give by what a JPEG may be scaled down while it is decoded: 1, 2, 4 or 8.

    Args:
        source: Size of the image as it is shown.
        size: Size that is wanted; None wants the image whole.
        resize: As of `centre_box`.
    """
    if size is None or min(source) < LEAST_SIDE:
        return 1
    box = centre_box(source, size, resize)
    spare = min(box.height // (MARGIN * size[0]), box.width // (MARGIN * size[1]))
    return next(divisor for divisor in (8, 4, 2, 1) if divisor <= max(spare, 1))


def _scaled(value: int, by: int, over: int) -> int:
    """Give value * by / over to the nearest whole number, halves up, at least 1."""
    return max(1, (2 * value * by + over) // (2 * over))
