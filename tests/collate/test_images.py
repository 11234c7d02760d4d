"""Line images of one height and any width, and their targets for the CTC loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import headrace as hr
from tests.collate.keys import keys_of
from tests.collate.line_images import LineImage, LineImages, bits, collator_of
from tests.order.vectors import cases, word


class Backwards(NamedTuple):
    label: int
    target: list[int]
    image: NDArray[np.float32]


def image(width: int, channels: int = 1, height: int = 2, fill: float = 1) -> NDArray[np.float32]:
    return np.full((channels, height, width), fill, np.float32)


def collated(*samples: Any, **knobs: Any) -> dict[str, Any]:
    """Collate samples that have the indices 10, 11, ..."""
    keys = keys_of(range(10, 10 + len(samples)))
    made = hr.ImageCollator(**knobs)(samples, keys)
    return dict(zip(made.names, made.values, strict=True))


def message_of(*samples: Any, **knobs: Any) -> str:
    with pytest.raises(hr.CollateError) as caught:
        collated(*samples, **knobs)
    return str(caught.value)


@pytest.mark.parametrize("case", cases("collate"))
def test_batches_are_the_golden_ones(case: dict[str, Any]) -> None:
    """Bit for bit: padding, multiples, pad value, augmentation (S1-36..40)."""
    data = LineImages(case["channels"], case["height"], 100)
    samples = [data[i] for i in case["samples"]]
    keys = keys_of(case["samples"], word(case["seed"]), case["epoch"], case["step"])

    made = collator_of(case)(samples, keys)

    batch = dict(zip(made.names, made.values, strict=True))
    assert list(batch["images"].shape) == case["shape"]
    assert bits(batch["images"].numpy()) == [word(each) for each in case["images_bits"]]
    for name in ("widths", "targets", "target_lengths", "labels", "indices"):
        assert (batch[name].dtype, batch[name].tolist()) == (torch.int32, case[name])


def test_images_lie_at_the_left() -> None:
    """The width is the widest, rounded up; the rest is the pad value (S1-37, S1-38)."""
    batch = collated((image(3), [7], 1), (image(5), [], 2), width_multiple=4, pad_value=-1)

    assert batch["images"].shape == (2, 1, 2, 8)
    assert batch["images"][0, 0, 1].tolist() == [1, 1, 1, -1, -1, -1, -1, -1]
    assert batch["images"][1, 0, 0].tolist() == [1, 1, 1, 1, 1, -1, -1, -1]
    assert batch["widths"].tolist() == [3, 5]


@pytest.mark.parametrize(
    "sample",
    [
        (image(3), [5, 6], 4),
        [image(3), np.array([5, 6], np.uint8), np.int16(4)],
        {"image": torch.ones(1, 2, 3), "target": torch.tensor([5, 6]), "label": torch.tensor(4)},
        LineImage(image(3), [5, 6], 4),
        Backwards(4, [5, 6], image(3)),
    ],
)
def test_samples_come_in_five_forms(sample: Any) -> None:
    """A tuple, a list, a mapping, a dataclass or a named tuple, of arrays or tensors."""
    batch = collated(sample)

    assert batch["images"].tolist() == image(3)[None].tolist()
    assert (batch["targets"].tolist(), batch["labels"].tolist()) == ([5, 6], [4])


def test_images_share_channels_and_height() -> None:
    """The error names both samples (S1-36)."""
    message = message_of((image(3), [], 0), (image(3), [], 0), (image(4, height=3), [], 0))

    assert message == (
        "field 'image': sample 10 gives float32 of shape (1, 2, 3) and sample 12 gives float32 "
        "of shape (1, 3, 4). Images of a batch may differ in width only."
    )


@pytest.mark.parametrize(
    "odd",
    [
        np.zeros((2, 3), np.float32),
        np.zeros((1, 2, 3), np.uint8),
        np.zeros((1, 2, 3), np.float64),
        torch.zeros(1, 2, 3, dtype=torch.float64),
        torch.zeros(1, 2, 3, dtype=torch.bfloat16),
        torch.zeros(1, 2, 3).to_sparse(),
        np.ma.masked_array(np.zeros((1, 2, 3), np.float32), mask=True),
        [[[0.5]]],
        None,
    ],
)
def test_only_planar_float32_is_an_image(odd: Any) -> None:
    """Anything else names its sample, and what makes an image of bytes (S1-36)."""
    message = message_of((image(3), [], 0), (odd, [], 0))

    assert message.startswith("field 'image': sample 11 gives ")
    assert message.endswith("gray8_to_planar and rgb8_to_planar make it of bytes.")


def test_an_image_may_have_no_width() -> None:
    """Also all of them: no column is then left (S1-37)."""
    some = collated((image(0), [1], 0), (image(2), [2], 0))
    none = collated((image(0), [1], 0), width_multiple=4)

    assert (some["images"].shape, some["widths"].tolist()) == ((2, 1, 2, 2), [0, 2])
    assert none["images"].shape == (1, 1, 2, 0)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ((image(1), [2**31], 0), "field 'target': sample 10 gives 2147483648, which int32"),
        ((image(1), [-(2**31) - 1], 0), "field 'target': sample 10 gives -2147483649, which"),
        ((image(1), [], 2**31), "field 'label': sample 10 gives 2147483648, which int32"),
        ((image(1), [], 0.5), "field 'label': sample 10 gives the float 0.5, wanted whole"),
        ((image(1), [0.5], 0), "field 'target': sample 10 gives numbers of float64, wanted"),
        ((image(1), [[1]], 0), "field 'target': sample 10 gives a list of length 1, wanted a"),
        ((image(1), [], np.array([7])), "field 'label': sample 10 gives int64 of shape (1,)"),
        ((image(1), [], torch.tensor([7])), "field 'label': sample 10 gives int64 of shape (1,)"),
        ((image(1), [], [7, 8]), "field 'label': sample 10 gives a list of length 2, wanted"),
        ((image(1), [], None), "field 'label': sample 10 gives None, wanted whole numbers."),
        ((image(1), [1]), "sample 10 gives a tuple of length 2, wanted 'image', 'target', 'label'"),
        ({"image": image(1)}, "sample 10 gives a mapping with keys ['image'], wanted 'image',"),
    ],
)
def test_numbers_fit_int32_or_are_refused(sample: Any, message: str) -> None:
    """Nothing wraps, and the error names field and sample (S1-39)."""
    assert message_of(sample).startswith(message)


def test_an_index_beyond_int32_is_refused() -> None:
    """It would be another sample's (S1-39)."""
    with pytest.raises(hr.CollateError, match="'indices': sample 2147483648 gives 2147483648"):
        hr.ImageCollator()([(image(1), [], 0)], keys_of([2**31]))


def test_the_ctc_loss_takes_a_batch() -> None:
    """Targets end to end in int32, with their lengths (S1-39)."""
    batch = collated((image(6), [1, 2, 2], 0), (image(4), [3], 0))
    scores = torch.randn(6, 2, 5).log_softmax(2).requires_grad_()

    loss = torch.nn.functional.ctc_loss(
        scores, batch["targets"], batch["widths"], batch["target_lengths"]
    )
    loss.backward()  # type: ignore[no-untyped-call]

    assert torch.isfinite(loss)


def test_the_augmentation_changes_a_copy() -> None:
    """The sample keeps its pixels; the copy is contiguous, and one row's only (S1-40)."""
    wide = np.arange(12, dtype=np.float32).reshape(1, 2, 6)
    samples: list[Any] = [(wide[:, :, ::2], [], 0), (image(2), [], 0)]
    before = wide.copy()
    seen: list[tuple[Any, ...]] = []

    def halve(scratch: NDArray[np.float32], rng: hr.SampleRng) -> None:
        seen.append((scratch.shape, scratch.flags.c_contiguous, scratch.dtype.name))
        scratch /= 2

    batch = collated(*samples, augmentation=halve)

    assert (wide == before).all()
    assert seen == [((1, 2, 3), True, "float32"), ((1, 2, 2), True, "float32")]
    assert batch["images"][:, 0, 0].tolist() == [[0, 1, 2], [0.5, 0.5, 0]]


def test_each_row_draws_of_its_own_place() -> None:
    """Derived of seed, epoch, step, slot and stream 1, whatever other rows draw (S1-40)."""
    drawn: list[int] = []
    keys = keys_of([5, 5, 8], seed=-1, epoch=2, step=3)

    def draw(scratch: NDArray[np.float32], rng: hr.SampleRng) -> None:
        drawn.append(rng.next_u64())
        rng.next_u64()

    hr.ImageCollator(augmentation=draw)([(image(1), [], 0)] * 3, keys)

    wanted = [hr.SampleRng(hr.derive(-1, 2, 3, slot, 1)).next_u64() for slot in range(3)]
    assert drawn == wanted


def give_narrower(scratch: NDArray[np.float32], rng: hr.SampleRng) -> Any:
    return scratch[:, :, 1:]


def reshape(scratch: NDArray[np.float32], rng: hr.SampleRng) -> None:
    scratch.shape = (1, 3, 2)


@pytest.mark.parametrize(
    ("augmentation", "found"), [(give_narrower, "(1, 2, 2)"), (reshape, "(1, 3, 2)")]
)
def test_the_augmentation_cannot_change_the_shape(augmentation: Any, found: str) -> None:
    """Such work belongs in sample_transform, and the error says so (S1-41)."""
    message = message_of((image(3), [], 0), augmentation=augmentation)

    assert message == (
        f"augmentation: sample 10 was float32 of shape (1, 2, 3) and came back as float32 of "
        f"shape {found}. It changes its argument in place and returns nothing; what changes the "
        "shape belongs in sample_transform."
    )


def test_no_batch_is_made_of_nothing() -> None:
    """As in every collation."""
    with pytest.raises(hr.CollateError, match="at least one sample"):
        hr.ImageCollator()([], keys_of([]))


@pytest.mark.parametrize("multiple", [0, -1, 1.5, True])
def test_a_multiple_is_at_least_one(multiple: Any) -> None:
    """It is refused where the collator is made."""
    with pytest.raises(hr.ConfigError, match="multiple"):
        hr.ImageCollator(multiple)


@pytest.mark.parametrize("value", ["0", None, 1j])
def test_a_pad_value_is_a_number(value: Any) -> None:
    """It is refused where the collator is made."""
    with pytest.raises(hr.ConfigError, match="pad_value"):
        hr.ImageCollator(pad_value=value)
