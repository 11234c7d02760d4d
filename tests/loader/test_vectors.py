"""The golden streams, end to end: a whole loader gives the bytes that the vectors name.

The collator of images is a user's here: `collate(samples, keys)` with a draw for each slot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import headrace as hr
from tests.order.vectors import cases, word

AUGMENTATION = 1


@dataclass(frozen=True)
class Image:
    """A sample: pixels `[channels, height, width]`, a target of some length, a label."""

    pixels: NDArray[np.float32]
    target: list[int]
    label: int


@dataclass(frozen=True)
class Images:
    """The synthetic data of the vectors: every pixel follows from the index."""

    channels: int
    height: int
    num_samples: int
    thread_safe = True

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, i: int) -> Image:
        shape = (self.channels, self.height, 3 + (7 * i) % 11)
        k = np.arange(np.prod(shape))
        pixels = (((31 * i + 17 * k) % 256) / 256).astype(np.float32).reshape(shape)
        return Image(pixels, [(i + k) % 50 for k in range(i % 4)], i % 10)


def crop(sample: Image, key: hr.PickKey) -> Image:
    """Drop up to two columns at the left."""
    cut = key.slot_rng().next_int(3)
    return Image(sample.pixels[:, :, cut:], sample.target, sample.label)


def gain(pixels: NDArray[np.float32], rng: hr.SampleRng) -> None:
    pixels *= np.float32(0.5) + np.float32(rng.next_single())


def noise(pixels: NDArray[np.float32], rng: hr.SampleRng) -> None:
    flat = pixels.reshape(-1)
    for k in range(len(flat)):
        flat[k] += np.float32(rng.next_normal())


def flip_sign(pixels: NDArray[np.float32], rng: hr.SampleRng) -> None:
    for row in pixels.reshape(-1, pixels.shape[-1]):
        if rng.next_int(2) == 1:
            np.negative(row, out=row)


AUGMENTATIONS: dict[str | None, Callable[[NDArray[np.float32], hr.SampleRng], None]] = {
    None: lambda pixels, rng: None,
    "gain": gain,
    "noise": noise,
    "flip_sign": flip_sign,
}


@dataclass(frozen=True)
class ImageCollator:
    """Pads to a common width after an augmentation of each image's own copy."""

    width_multiple: int
    pad_value: float
    augment: Callable[[NDArray[np.float32], hr.SampleRng], None]

    def __call__(self, samples: Sequence[Image], keys: hr.PickKeys) -> hr.Columns:
        widths = [sample.pixels.shape[2] for sample in samples]
        padded = -(-max(widths) // self.width_multiple) * self.width_multiple
        shape = (len(samples), *samples[0].pixels.shape[:2], padded)
        images = np.full(shape, self.pad_value, np.float32)
        for sample, image, width, key in zip(samples, images, widths, keys, strict=True):
            scratch = sample.pixels.copy()
            place = (key.seed, key.epoch, key.step_in_epoch, key.slot, AUGMENTATION)
            self.augment(scratch, hr.SampleRng(hr.derive(*place)))
            image[:, :, :width] = scratch
        columns = {
            "images": images,
            "widths": int32(widths),
            "targets": int32([token for sample in samples for token in sample.target]),
            "target_lengths": int32([len(sample.target) for sample in samples]),
            "labels": int32([sample.label for sample in samples]),
            "indices": int32(keys.sample.tolist()),
        }
        values = tuple(torch.from_numpy(column) for column in columns.values())
        return hr.Columns(tuple(columns), values, len(samples))


def int32(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def sampler_of(case: dict[str, Any]) -> hr.Sampler:
    facts = {name: value for name, value in case["sampler"].items() if name != "kind"}
    facts["seed"] = word(facts["seed"])
    match case["sampler"]["kind"]:
        case "shuffled":
            return hr.Shuffled(facts.pop("n"), facts.pop("batch_size"), **facts)
        case "bucketed":
            return hr.Bucketed(**facts)
        case _:
            return hr.Mixing(**facts)


def loader_of(case: dict[str, Any], workers: int, prefetch: int) -> hr.Loader:
    sampler = sampler_of(case)
    pad_value = np.uint32(word(case["pad_value_bits"])).view(np.float32)
    return hr.Loader(
        Images(case["channels"], case["height"], sampler.num_samples),
        sampler=sampler,
        seed=word(case["seed"]),
        sample_transform=crop if case["transform"] == "crop" else None,
        collate=ImageCollator(
            case["width_multiple"], float(pad_value), AUGMENTATIONS[case["augment"]]
        ),
        workers=workers,
        prefetch=prefetch,
    )


def digest_of(batch: hr.Batch) -> str:
    """Give the digest of a batch as the vectors define it, every zero written as 0.0."""
    found = hashlib.sha256(int32(batch["images"].shape).tobytes())
    for column in batch.columns:
        found.update((column.numpy() + 0).tobytes())
    return found.hexdigest()


def described(batches: Iterator[hr.Batch]) -> list[dict[str, Any]]:
    return [
        {
            "g": batch.step,
            "indices": batch["indices"].tolist(),
            "shape": list(batch["images"].shape),
            "widths": batch["widths"].tolist(),
            "sha256": digest_of(batch),
        }
        for batch in batches
    ]


@pytest.mark.parametrize("case", range(len(cases("stream"))))
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_a_loader_gives_the_golden_streams(case: int, workers: int) -> None:
    """To the byte, for any workers and prefetch (S1-01..04, S1-22, S1-42)."""
    golden = cases("stream")[case]
    for prefetch in (1, 3, 8):
        with loader_of(golden, workers, prefetch) as loader:
            found = described(loader.stream(steps=len(golden["steps"])))

        assert found == golden["steps"]


@pytest.mark.parametrize("case", range(len(cases("stream"))))
def test_a_golden_stream_may_be_begun_anywhere(case: int) -> None:
    """From step k on it is the rest, and `batch_at` gives any step alone (S1-06, S1-07)."""
    golden = cases("stream")[case]
    with loader_of(golden, workers=2, prefetch=3) as loader:
        for start in range(len(golden["steps"])):
            rest = described(loader.stream(start, len(golden["steps"]) - start))
            assert rest == golden["steps"][start:]
        alone = described(map(loader.batch_at, reversed(range(len(golden["steps"])))))

    assert alone[::-1] == golden["steps"]
