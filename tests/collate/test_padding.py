"""What padding costs, and means that leave it out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr

LOSSES = [[1.0, 2.0, 3.0], [4.0, 100.0, 100.0]]
MASK = [[True, True, True], [True, False, False]]


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
def test_a_masked_mean_is_over_real_positions(kind: Any) -> None:
    """2.5, and not the plain mean of 35 (S4-35)."""
    mean = hr.masked_mean(kind(LOSSES), kind(MASK))

    assert mean.item() == 2.5
    assert torch.tensor(LOSSES).mean().item() == 35


@pytest.mark.parametrize("padded", [float("nan"), float("inf")])
def test_padded_positions_do_not_count_whatever_they_hold(padded: float) -> None:
    """Neither in the mean nor in its gradient (S4-35)."""
    losses = torch.tensor([1.0, 3.0, padded], requires_grad=True)

    mean = hr.masked_mean(losses, torch.tensor([True, True, False]))
    mean.backward()  # type: ignore[no-untyped-call]

    assert mean.item() == 2
    assert losses.grad is not None
    assert losses.grad.tolist() == [0.5, 0.5, 0]


def test_a_mask_of_rows_counts_whole_rows() -> None:
    """It broadcasts, and so does its count."""
    assert hr.masked_mean(torch.tensor(LOSSES), torch.tensor([[True], [False]])).item() == 2


def test_a_mean_of_nothing_is_refused() -> None:
    """And so is a mask of numbers, which may be weights (S4-34, S4-35)."""
    with pytest.raises(hr.DataError, match=r"no position of \[2\] counts"):
        hr.masked_mean(torch.ones(2), torch.tensor([False, False]))
    with pytest.raises(hr.DataError, match=r"wanted bool, got torch\.int64"):
        hr.masked_mean(torch.ones(2), torch.tensor([1, 0]))


def test_a_mask_of_another_shape_is_refused() -> None:
    """With both shapes; torch's own words name one dimension."""
    values, mask = torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)

    with pytest.raises(
        hr.DataError, match=r"values, \[2, 3, 4\], .* got \[2, 3\]\. .*mask\[\.\.\."
    ):
        hr.masked_mean(values, mask)
    assert hr.masked_mean(values, mask[..., None]).item() == 1


def test_lengths_of_no_batch_are_refused() -> None:
    """Padding is counted by batches, so one list of lengths is none of them."""
    with pytest.raises(hr.ConfigError, match=r"batches: wanted the lengths .*\[lengths\]"):
        hr.padding_stats([3, 4])


def test_similar_lengths_together_pad_less() -> None:
    """Lengths 1, 2, 9, 10 at batch 2: 24 positions against 38, 22 real either way (S4-37)."""
    bucketed = hr.padding_stats([[1, 2], [9, 10]])
    mixed = hr.padding_stats([np.array([1, 10]), torch.tensor([2, 9])])

    assert (bucketed.positions, bucketed.valid, bucketed.batches) == (24, 22, 2)
    assert (mixed.positions, mixed.valid, mixed.batches) == (38, 22, 2)
    assert mixed.padding_share == pytest.approx(16 / 38)


def test_a_multiple_counts_as_padding() -> None:
    """Widths are rounded up; nothing padded is a share of 0."""
    assert hr.padding_stats([[1, 2], [9, 10]], multiple=8).positions == 2 * 8 + 2 * 16
    assert hr.padding_stats([]).padding_share == 0


def test_padding_can_be_planned_without_data() -> None:
    """Epoch by epoch, as the sampler orders it, short batches included (S4-37)."""
    lengths = np.random.default_rng(5).integers(1, 100, 1003)
    for sampler in (hr.Bucketed(lengths, 4, 8, drop_last=False), hr.Shuffled(1003, 4)):
        for epoch in (0, 3):
            with hr.Loader(list(range(1003)), sampler=sampler, workers=0) as loader:
                served = [lengths[batch.indices] for batch in loader.epoch(epoch)]

            assert hr.planned_padding(sampler, lengths, epoch=epoch) == hr.padding_stats(served)


def test_planning_needs_the_length_of_every_sample() -> None:
    """Others would be those of other data."""
    with pytest.raises(hr.ConfigError, match="lengths: wanted 10 lengths, got 9"):
        hr.planned_padding(hr.Sequential(10, 2), [1] * 9)
