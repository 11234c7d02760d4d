"""Knobs of the order that cannot work are refused by name when the loader is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch.utils.data import BatchSampler, SequentialSampler, WeightedRandomSampler

import headrace as hr
from headrace import config

DATA = np.arange(100)


@pytest.mark.parametrize("batch_size", [0, -1, True, 2.5, "8", None])
def test_a_batch_size_is_a_whole_number_above_zero(batch_size: Any) -> None:
    """0, a flag and a fraction are none (U-01)."""
    with pytest.raises(hr.ConfigError, match=r"^batch_size: wanted an int >= 1, got"):
        hr.Loader(DATA, batch_size)


@pytest.mark.parametrize("augment", [-3, True, 1.5])
def test_augment_is_a_whole_number(augment: Any) -> None:
    """A negative count, a flag and a fraction are refused."""
    with pytest.raises(hr.ConfigError, match=r"^augment: wanted an int >= 0, got"):
        hr.Loader(DATA, 8, augment=augment)


def test_no_views_count_as_one() -> None:
    """`augment=0` is the plain order (U-15)."""
    with hr.Loader(DATA, 10, augment=0) as none, hr.Loader(DATA, 10) as one:
        assert none.num_picks == one.num_picks == 100


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"batch_size": 7}, "batch_size: wanted 10, as the sampler has, got 7."),
        ({"drop_last": False}, "drop_last: wanted True, as the sampler has, got False."),
        ({"augment": 2}, "augment: wanted 1 beside a sampler of your own, got 2."),
    ],
)
def test_a_knob_that_the_sampler_decides_may_not_contradict_it(
    knobs: dict[str, Any], message: str
) -> None:
    """What would be passed over is refused (U-03, U-25)."""
    with pytest.raises(hr.ConfigError) as caught:
        hr.Loader(DATA, sampler=hr.Shuffled(100, 10), **knobs)

    assert str(caught.value).startswith(message)


def test_a_knob_that_agrees_with_the_sampler_is_welcome() -> None:
    """The same batch size and drop_last may be said twice."""
    sampler = hr.Shuffled(100, 10, drop_last=False)

    with hr.Loader(DATA, 10, sampler=sampler, drop_last=False) as loader:
        assert loader.sampler is sampler


@pytest.mark.parametrize("workers", [-1, 65, 10**6, True, 1.5])
def test_reader_threads_are_64_at_most(workers: Any) -> None:
    """More would take a machine down when they start, so they are refused at once."""
    with pytest.raises(hr.ConfigError, match=r"^workers: wanted an int from 0 to 64, got"):
        hr.Loader(DATA, 8, workers=workers)


def test_a_sampler_of_single_indices_needs_a_batch_size() -> None:
    """Without one its indices would be taken for batches."""
    with pytest.raises(hr.ConfigError) as caught:
        hr.Loader(DATA, sampler=WeightedRandomSampler([1.0] * 100, 50))

    assert str(caught.value) == (
        "batch_size: wanted an int >= 1, since WeightedRandomSampler in epoch 0 gives int and no "
        "batches, got None."
    )
    with hr.Loader(DATA, 10, sampler=WeightedRandomSampler([1.0] * 100, 50)) as loader:
        assert len(list(loader)) == 5


def test_a_batch_size_may_not_contradict_a_batch_sampler() -> None:
    """It is refused when the loader is made; the same size may be said twice."""
    sampler = BatchSampler(SequentialSampler(DATA), 8, drop_last=True)

    with pytest.raises(hr.ConfigError, match=r"^batch_size: wanted 8, as the sampler has, got 4"):
        hr.Loader(DATA, 4, sampler=sampler)
    with hr.Loader(DATA, 8, sampler=sampler) as loader:
        assert len(list(loader)) == 12


@pytest.mark.parametrize(
    ("length", "is_one"), [(100, True), (10_000, False)], ids=["short rows", "long rows"]
)
def test_short_rows_are_read_by_one_thread(
    length: int, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would lose more to each other than they gain; the lengths of open columns count."""
    monkeypatch.setattr(config, "auto_workers", lambda: 3)
    rows = hr.Ragged(np.zeros(20 * length, np.int32), lengths=np.full(20, length))

    with hr.Loader(rows, 16) as loader:
        assert loader.stats()["workers"] == (1 if is_one else 3)
