"""Pixels as numbers for a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headrace import images
from headrace.errors import ConfigError


def test_bytes_are_scaled_to_one() -> None:
    """uint8 by 255 and uint16 by 65535 (S4-10)."""
    small = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 3)
    deep = torch.tensor([0, 13107, 65535], dtype=torch.uint16).reshape(1, 1, 3)

    for pixels in (small, deep):
        found = images.to_float(pixels)
        assert found.dtype == torch.float32
        assert found.shape == (3, 1, 1)
        assert torch.allclose(found.flatten(), torch.tensor([0.0, 0.2, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_floats_are_not_divided(dtype: torch.dtype) -> None:
    """Whatever their range, they are taken to be scaled (S4-10)."""
    pixels = torch.tensor([-1.0, 0.5, 255.0], dtype=dtype).reshape(1, 1, 3)

    assert images.to_float(pixels).flatten().tolist() == [-1.0, 0.5, 255.0]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.bool])
def test_integers_of_no_known_range_are_refused(dtype: torch.dtype) -> None:
    """Only the caller knows what to divide them by (S4-10)."""
    with pytest.raises(ConfigError, match="pixels: wanted uint8, uint16 or floats"):
        images.to_float(torch.ones(2, 2, 3, dtype=dtype))


def test_channels_come_first_without_a_copy_of_their_order() -> None:
    """A batch of [N, H, W, C] becomes [N, C, H, W] in channels_last format (S4-10)."""
    pixels = torch.arange(2 * 4 * 5 * 3, dtype=torch.uint8).reshape(2, 4, 5, 3)

    found = images.to_float(pixels)

    assert found.shape == (2, 3, 4, 5)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, pixels.permute(0, 3, 1, 2).to(torch.float32) / 255)
    first = images.to_float(pixels.permute(0, 3, 1, 2).contiguous(), channels="first")
    assert torch.equal(first, found)


def test_channels_are_normalised_one_by_one() -> None:
    """After scaling (S4-10)."""
    pixels = torch.tensor([255, 0], dtype=torch.uint8).reshape(1, 1, 1, 2)

    found = images.to_float(pixels, mean=[0.5, 0.5], std=[0.25, 0.5])

    assert found.flatten().tolist() == [2.0, -1.0]


@pytest.mark.parametrize("knob", ["mean", "std"])
def test_numbers_per_channel_must_fit(knob: str) -> None:
    """Two for three channels would be cut or repeated (S4-10)."""
    with pytest.raises(ConfigError, match=f"{knob}: wanted 3 numbers, one per channel"):
        images.to_float(torch.zeros(1, 4, 4, 3), **{knob: [0.5, 0.5]})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [np.zeros((2, 2, 3)), torch.zeros(2, 2), None])
def test_what_is_no_image_is_refused(wrong: Any) -> None:
    """Tensors with height, width and channels only (S4-10)."""
    with pytest.raises(ConfigError, match=r"wanted a tensor of images, \[..., H, W, C\]"):
        images.to_float(wrong)


def test_a_std_of_0_is_refused() -> None:
    """It would make every pixel infinite (S4-10)."""
    with pytest.raises(ConfigError, match=r"std: wanted no 0, .*got \[0\.5, 0\]"):
        images.to_float(torch.zeros(4, 4, 2), std=[0.5, 0])


def test_the_place_of_the_channels_is_one_of_two() -> None:
    """Another word would count as "first" (S4-10)."""
    channels: Any = "chw"

    with pytest.raises(ConfigError, match="channels: wanted 'last' or 'first', got 'chw'"):
        images.to_float(torch.zeros(4, 4, 2), channels=channels)


def test_a_tensor_is_resized_as_its_array_is() -> None:
    """A sample_transform gets tensors where images have one size (S4-10)."""
    image = np.arange(9 * 7 * 3, dtype=np.uint8).reshape(9, 7, 3)

    found = images.resize(torch.from_numpy(image)[1:, 2:], (4, 4))

    assert np.array_equal(found, images.resize(image[1:, 2:], (4, 4)))


@pytest.mark.parametrize(
    ("pixels", "size", "told"),
    [
        (np.zeros((4, 4, 3)), (2, 2), r"uint16, got 'float64 of shape \(4, 4, 3\)'\. .*to_float"),
        (np.zeros((4, 4), np.uint8), (2, 2), r"of shape \(4, 4\)'\. .*pixels\[:, :, None\]"),
        (torch.zeros(4, 4, 3), (2, 2), r"uint16, got 'float32 of shape \(4, 4, 3\)'"),
        ([[[0]]], (2, 2), r"pixels: wanted a numpy array .*got 'list'.*np\.asarray"),
        (np.zeros((4, 4, 3), np.uint8), 2, r"size: wanted \(height, width\) in pixels, got 2"),
        (np.zeros((4, 4, 3), np.uint8), (2.5, 2), r"size: wanted .* got \(2\.5, 2\)"),
        (np.zeros((4, 4, 3), np.uint8), (0, 2), r"size: wanted .* got \(0, 2\)"),
    ],
)
def test_what_cannot_be_resized_is_refused(pixels: Any, size: Any, told: str) -> None:
    """Floats too, which would come back rounded (S4-10)."""
    with pytest.raises(ConfigError, match=told):
        images.resize(pixels, size)
