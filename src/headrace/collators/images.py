"""Line images of one height and any width, with targets as the CTC loss takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.collate import Columns
from headrace.collators.numbers import as_number, whole_numbers
from headrace.collators.padding import Padding
from headrace.collators.sequences import joined, parts
from headrace.errors import CollateError
from headrace.masked import is_masked_array
from headrace.pick import PickKeys
from headrace.rng import SampleRng, Stream, derive_rows
from headrace.stack import Empty, describe

Image = NDArray[np.float32]
Augmentation = Callable[[Image, SampleRng], Any]

PIXEL = np.dtype(np.float32)
PARTS = ("image", "target", "label")


class ImageCollator:
    """Makes batches of planar float32 images that share channels and height.

    A sample is a triple (image, target, label), or a mapping or dataclass that has "image",
    "target" and "label". The image is float32 `[channels, height, width]`, the target a vector
    of whole numbers, which may be empty, and the label a whole number. The batch has

    - "images", float32 `[rows, channels, height, W]`: each image at the left, then the pad
      value. W is the widest, rounded up to `width_multiple`.
    - "widths", int32 `[rows]`: the real widths.
    - "targets", int32 `[sum of target_lengths]`: all targets end to end, and "target_lengths",
      int32 `[rows]`, as `torch.nn.functional.ctc_loss` takes them.
    - "labels" and "indices", int32 `[rows]`; indices are those of the dataset.

    A number that int32 does not hold is an error and never wraps. What changes the shape of an
    image belongs in `sample_transform`, which runs before, and draws from `key.slot_rng()`.

    Args:
        width_multiple: Widths of batches are multiples of this.
        pad_value: What is right of an image.
        augmentation: `f(image, rng)`, which changes a contiguous copy in place. Each row has
            an rng of its own place in the run (stream 1). Called from several threads.

    Raises:
        ConfigError: A knob is out of its range.
    """

    def __init__(
        self,
        width_multiple: int = 1,
        *,
        pad_value: float = 0.0,
        augmentation: Augmentation | None = None,
    ) -> None:
        self._padding = Padding(multiple=width_multiple)
        self._pad_value = as_number("pad_value", pad_value, PIXEL, "images")
        self._augmentation = augmentation

    def __call__(self, samples: Sequence[Any], keys: PickKeys) -> Columns:
        """Collate samples; see the class.

        Raises:
            CollateError: There is none; one is no such sample; two differ in channels or
                height; a number does not fit; or the augmentation changed a shape.
        """
        return self.collate_into(samples, keys, _fresh)

    def collate_into(self, samples: Sequence[Any], keys: PickKeys, empty: Empty) -> Columns:
        """Do as a call does, with the images in memory that `empty` gives."""
        indices = keys.sample
        given, targets, labels = parts(samples, PARTS, indices)
        images = [_as_image(image, index) for image, index in zip(given, indices, strict=True)]
        _check_alike(images, indices)
        tokens, lengths = joined(targets, "target", indices, dims=1)
        widths = np.array([image.shape[2] for image in images], np.int64)
        columns = {
            "widths": whole_numbers(widths, np.int32, "image", indices),
            "targets": whole_numbers(tokens, np.int32, "target", indices, lengths),
            "target_lengths": whole_numbers(lengths, np.int32, "target", indices),
            "labels": whole_numbers(labels, np.int32, "label", indices),
            "indices": whole_numbers(indices, np.int32, "indices", indices),
        }
        batch = self._batch_of(images, int(widths.max()), keys, empty)
        values = (batch, *map(torch.from_numpy, columns.values()))
        return Columns(("images", *columns), values, len(samples))

    def _batch_of(
        self, images: Sequence[Image], widest: int, keys: PickKeys, empty: Empty
    ) -> torch.Tensor:
        shape = (len(images), *images[0].shape[:2], self._padding.widths(widest))
        batch = empty(shape, torch.float32)
        changed: Iterable[Image] = images
        if self._augmentation is not None:
            changed = self._augmented(self._augmentation, images, widest, keys)
        for row, image in zip(batch.numpy(), changed, strict=True):
            width = image.shape[2]
            row[:, :, :width] = image
            row[:, :, width:] = self._pad_value
        return batch

    def _augmented(
        self, augmentation: Augmentation, images: Sequence[Image], widest: int, keys: PickKeys
    ) -> Iterator[Image]:
        """Give each image changed, in memory that the next one takes over."""
        place = (keys.seed, keys.epoch, keys.step_in_epoch, keys.slot)
        states = derive_rows(*place, Stream.AUGMENTATION).tolist()
        channels, height = images[0].shape[:2]
        memory = np.empty(channels * height * widest, PIXEL)
        for image, state, index in zip(images, states, keys.sample, strict=True):
            scratch = memory[: image.size].reshape(image.shape)
            scratch[...] = image
            given = augmentation(scratch, SampleRng(state))
            if scratch.shape != image.shape or not (given is None or given is scratch):
                raise _not_in_place(image, scratch if given is None else given, int(index))
            yield scratch


def _fresh(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _as_image(value: Any, index: int) -> Image:
    image: Any = value
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        is_dense = value.layout is torch.strided
        image = value.detach().cpu().resolve_neg().numpy() if is_dense else None
    is_array = isinstance(image, np.ndarray) and not is_masked_array(image)
    if not is_array or image.dtype != PIXEL or image.ndim != 3:
        raise CollateError(
            f"field 'image': sample {index} gives {describe(value)}, wanted float32 of shape "
            "(channels, height, width). gray8_to_planar and rgb8_to_planar make it of bytes.",
            "image",
            (int(index),),
        )
    planar: Image = image
    return planar


def _check_alike(images: Sequence[Image], indices: NDArray[np.int64]) -> None:
    wanted = images[0].shape[:2]
    odd = next((row for row, image in enumerate(images) if image.shape[:2] != wanted), None)
    if odd is not None:
        named = int(indices[0]), int(indices[odd])
        raise CollateError(
            f"field 'image': sample {named[0]} gives {describe(images[0])} and sample {named[1]} "
            f"gives {describe(images[odd])}. Images of a batch may differ in width only.",
            "image",
            named,
        )


def _not_in_place(image: Image, found: Any, index: int) -> CollateError:
    return CollateError(
        f"augmentation: sample {index} was {describe(image)} and came back as {describe(found)}. "
        "It changes its argument in place and returns nothing; what changes the shape belongs "
        "in sample_transform.",
        "image",
        (index,),
    )
