"""8-bit pixels as planar float32, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from tests.collate.line_images import bits, floats
from tests.order.vectors import cases, word


def converted(case: dict[str, Any], pixels: Any, **sizes: Any) -> list[int]:
    mean, std = floats(case["mean_bits"]).tolist(), floats(case["std_bits"]).tolist()
    if case["kind"] == "gray8":
        return bits(hr.gray8_to_planar(pixels, mean[0], std[0], **sizes))
    return bits(hr.rgb8_to_planar(pixels, mean, std, **sizes))


@pytest.mark.parametrize("case", cases("image"))
def test_bytes_become_the_golden_planes(case: dict[str, Any]) -> None:
    """Two roundings per pixel, constants in float32, rows a stride apart (S1-46..48, C10)."""
    sizes = {name: case[name] for name in ("height", "width", "row_stride")}

    found = converted(case, bytes.fromhex(case["bytes"]), **sizes)

    assert found == [word(each) for each in case["out_bits"]]


@pytest.mark.parametrize("case", cases("image"))
def test_arrays_of_any_strides_become_the_golden_planes(case: dict[str, Any]) -> None:
    """An array knows its own stride; a mirrored one is read mirrored (S1-46..48)."""
    channels = () if case["kind"] == "gray8" else (3,)
    row_bytes = case["width"] * (3 if channels else 1)
    rows = np.zeros((case["height"], max(case["row_stride"], row_bytes)), np.uint8)
    given = np.frombuffer(bytes.fromhex(case["bytes"]), np.uint8)
    rows.reshape(-1)[: len(given)] = given
    image = rows[:, :row_bytes].reshape(case["height"], case["width"], *channels)

    found = converted(case, np.ascontiguousarray(image[::-1])[::-1])

    assert found == [word(each) for each in case["out_bits"]]


def test_planes_have_the_channel_first() -> None:
    """Also for gray, since batches are made of `[channels, height, width]` (S1-46, S1-47)."""
    gray = hr.gray8_to_planar(np.array([[0, 255]], np.uint8))
    colour = hr.rgb8_to_planar(np.array([[[255, 0, 51]]], np.uint8))

    assert (gray.shape, gray.tolist()) == ((1, 1, 2), [[[0, 1]]])
    assert (colour.shape, colour.dtype.name) == ((3, 1, 1), "float32")
    assert colour[:, 0, 0].tolist() == [1, 0, np.float32(51) * (np.float32(1) / np.float32(255))]


@pytest.mark.parametrize(
    ("pixels", "sizes", "message"),
    [
        (bytes(6), {"height": 2, "width": 3, "row_stride": 2}, "row_stride: wanted an int >= 3"),
        (bytes(6), {"height": 2, "width": 4}, "wanted 8 bytes for 2 rows of 4, 4 apart, got '6"),
        (
            bytes(10),
            {"height": 2, "width": 3, "row_stride": 8},
            "11 bytes for 2 rows of 3, 8",
        ),
        (bytes(6), {"width": 3}, "height: wanted an int >= 0, got None"),
        (bytes(6), {"height": 2}, "width: wanted an int >= 0, got None"),
        (bytes(6), {}, "Bytes need height and width"),
        (
            np.zeros((2, 3), np.float32),
            {},
            "wanted uint8 \\[height, width\\], got 'float32",
        ),
        (np.zeros((2, 3, 3), np.uint8), {}, "pixels: wanted uint8 \\[height, width\\]"),
        (np.zeros((2, 6), np.uint8)[:, ::2], {"height": 2, "width": 3}, "contiguous uint8"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    pixels: Any, sizes: dict[str, int], message: str
) -> None:
    """A short stride or too few bytes are no image (S1-48)."""
    with pytest.raises(hr.ConfigError, match=message):
        hr.gray8_to_planar(pixels, **sizes)


def test_the_last_row_needs_no_more_than_its_pixels() -> None:
    """What a stride leaves behind it may be missing (S1-48)."""
    found = hr.gray8_to_planar(bytes([1, 2, 9, 3, 4]), height=2, width=2, row_stride=3)

    assert (found * 255).round().tolist() == [[[1, 2], [3, 4]]]


@pytest.mark.parametrize(("mean", "std"), [((0, 0), (1, 1, 1)), ((0, 0, 0), (1,)), (0, 1)])
def test_colour_has_three_means_and_stds(mean: Any, std: Any) -> None:
    """One for each channel (S1-47)."""
    with pytest.raises(hr.ConfigError, match="three numbers, one for each channel"):
        hr.rgb8_to_planar(np.zeros((1, 1, 3), np.uint8), mean, std)


@pytest.mark.parametrize("std", [0.0, -1.0, float("nan"), float("inf")])
def test_a_std_is_above_zero(std: float) -> None:
    """Anything else gives no numbers."""
    with pytest.raises(hr.ConfigError, match="std: wanted a number above 0"):
        hr.gray8_to_planar(np.zeros((1, 1), np.uint8), 0, std)


def test_an_image_of_three_channels_is_interleaved() -> None:
    """Planar bytes are not taken for it (S1-47)."""
    with pytest.raises(hr.ConfigError, match="uint8 \\[height, width, 3\\]"):
        hr.rgb8_to_planar(np.zeros((3, 4, 5), np.uint8))
