"""Which part of an image becomes a sample, and what a JPEG may be scaled down by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.datasets.image_boxes import Box, centre_box, jpeg_divisor

SIDES = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("source", "size", "resize", "box"),
    [
        ((375, 500), (224, 224), None, Box(0, 62, 375, 375)),
        ((500, 375), (224, 224), None, Box(62, 0, 375, 375)),
        ((100, 100), (50, 100), None, Box(25, 0, 50, 100)),
        ((100, 300), (50, 100), None, Box(0, 50, 100, 200)),
        ((10, 10), (224, 224), None, Box(0, 0, 10, 10)),
        ((1, 1000), (1000, 1), None, Box(0, 499, 1, 1)),
        ((256, 512), (224, 224), 256, Box(16, 144, 224, 224)),
        ((512, 1024), (224, 224), 256, Box(32, 288, 448, 448)),
        ((512, 512), (112, 224), 256, Box(144, 32, 224, 448)),
    ],
)
def test_the_box_is_the_centre(
    source: tuple[int, int], size: tuple[int, int], resize: int | None, box: Box
) -> None:
    """What a resize of the shorter side and a cut out of the centre would leave (S4-14)."""
    assert centre_box(source, size, resize) == box


@given(SIDES, SIDES, SIDES, SIDES, st.booleans())
def test_a_box_lies_in_its_image(h: int, w: int, tall: int, wide: int, with_resize: bool) -> None:
    """For any sizes, and with equal margins but for a pixel (S4-14)."""
    resize = max(tall, wide) + 7 if with_resize else None

    box = centre_box((h, w), (tall, wide), resize)

    assert box.height >= 1
    assert box.width >= 1
    below, right = h - box.top - box.height, w - box.left - box.width
    assert 0 <= below - box.top <= 1
    assert 0 <= right - box.left <= 1


@given(SIDES, SIDES, SIDES, SIDES)
def test_a_divided_jpeg_still_has_twice_the_wanted_pixels(
    h: int, w: int, tall: int, wide: int
) -> None:
    """The divisor is the largest that leaves so many (S4-14)."""
    divisor = jpeg_divisor((h, w), (tall, wide))

    box = centre_box((h, w), (tall, wide))
    if divisor > 1:
        assert box.height // divisor >= 2 * tall
        assert box.width // divisor >= 2 * wide
    if divisor < 8 and min(h, w) >= 64:
        assert min(box.height // (4 * divisor * tall), box.width // (4 * divisor * wide)) < 1


@pytest.mark.parametrize(
    ("source", "size", "divisor"),
    [
        ((375, 500), (224, 224), 1),
        ((895, 1200), (224, 224), 1),
        ((896, 1200), (224, 224), 2),
        ((3000, 4000), (224, 224), 4),
        ((4000, 3000), (224, 224), 4),
        ((3584, 4000), (224, 224), 8),
        ((9000, 9000), (8, 8), 8),
        ((63, 9000), (1, 1), 1),
        ((9000, 9000), None, 1),
    ],
)
def test_divisors_of_common_sizes(
    source: tuple[int, int], size: tuple[int, int] | None, divisor: int
) -> None:
    """Eighths for photos of 16 megapixels, none for small pictures (S4-14)."""
    assert jpeg_divisor(source, size) == divisor
