"""The synthetic line images of the golden files, and what their tests do to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import headrace as hr
from tests.order.vectors import word


@dataclass(frozen=True)
class LineImage:
    """A sample: pixels `[channels, height, width]`, a target of some length, a label."""

    image: NDArray[np.float32]
    target: list[int]
    label: int


@dataclass(frozen=True)
class LineImages:
    """Every pixel, token and label follows from the index."""

    channels: int
    height: int
    num_samples: int
    thread_safe = True

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, i: int) -> LineImage:
        shape = (self.channels, self.height, 3 + (7 * i) % 11)
        k = np.arange(np.prod(shape))
        pixels = (((31 * i + 17 * k) % 256) / 256).astype(np.float32).reshape(shape)
        return LineImage(pixels, [(i + k) % 50 for k in range(i % 4)], i % 10)


def crop(sample: LineImage, key: hr.PickKey) -> LineImage:
    """Drop up to two columns at the left."""
    cut = key.slot_rng().next_int(3)
    return LineImage(sample.image[:, :, cut:], sample.target, sample.label)


def gain(image: NDArray[np.float32], rng: hr.SampleRng) -> None:
    image *= np.float32(0.5) + np.float32(rng.next_single())


def noise(image: NDArray[np.float32], rng: hr.SampleRng) -> None:
    flat = image.reshape(-1)
    for k in range(len(flat)):
        flat[k] += np.float32(rng.next_normal())


def flip_sign(image: NDArray[np.float32], rng: hr.SampleRng) -> None:
    for row in image.reshape(-1, image.shape[-1]):
        if rng.next_int(2) == 1:
            np.negative(row, out=row)


AUGMENTATIONS: dict[str | None, Callable[[NDArray[np.float32], hr.SampleRng], None] | None] = {
    None: None,
    "gain": gain,
    "noise": noise,
    "flip_sign": flip_sign,
}


def collator_of(case: dict[str, Any]) -> hr.ImageCollator:
    """Give the collator of a golden case."""
    return hr.ImageCollator(
        case["width_multiple"],
        pad_value=float(floats([case["pad_value_bits"]])[0]),
        augmentation=AUGMENTATIONS[case["augment"]],
    )


def floats(bits: list[str]) -> NDArray[np.float32]:
    """Give float32 numbers of their bits."""
    return np.array([word(each) for each in bits], np.uint32).view(np.float32)


def bits(numbers: NDArray[np.float32]) -> list[int]:
    """Give the bits of float32 numbers, those of 0.0 for both zeros."""
    found: list[int] = (numbers.reshape(-1) + np.float32(0)).view(np.uint32).tolist()
    return found
