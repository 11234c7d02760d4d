"""The check of coverage finds what is wrong, and nothing where nothing is (S4-46, S4-01)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import CoverageError
from headrace.testing import Coverage, check_coverage
from headrace.testing.ragged_rows import RaggedRows
from tests.loader.kinds import KINDS, ByItem, Samples, arrays_of, sample_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_epoch_passes(kind: str) -> None:
    """All samples once, each with its own data, with and without ids (S4-01)."""
    with hr.Loader(KINDS[kind](23), 7, drop_last=False, workers=2) as loader:
        whole = Coverage(rows=23, samples=23, missing=0, alike=0)
        assert check_coverage(loader) == whole
        assert check_coverage(loader, epoch=3, ids="id") == whole
        assert check_coverage(loader, ids=lambda batch: batch["x"].tolist()) == whole


def test_dropped_rows_and_views_are_counted() -> None:
    """What drop_last leaves out is missing, and views of a sample are no repeats (S4-26)."""
    with hr.Loader(ByItem(23), 7, workers=2, probe=False) as loader:
        assert check_coverage(loader, ids="id") == Coverage(21, 21, 2, 0)
    with hr.Loader(ByItem(23), 7, augment=3, drop_last=False, workers=2, probe=False) as loader:
        assert check_coverage(loader, ids="id") == Coverage(69, 23, 0, 0)
    sampler = hr.Bucketed([i % 5 for i in range(23)], 7, 2)
    with hr.Loader(ByItem(23), sampler=sampler, workers=2, probe=False) as loader:
        assert check_coverage(loader, ids="id") == Coverage(21, 21, 2, 0)
        assert loader.samples_dropped == 2


def test_a_dataset_that_ignores_its_index_is_caught() -> None:
    """Every index gives the same sample: by content, and by ids (S4-46, S4-04)."""

    class Constant(ByItem):
        def __getitem__(self, index: int) -> Any:
            return sample_of(0)

    with hr.Loader(Constant(23), 7, workers=2, probe=False) as loader:
        with pytest.raises(CoverageError, match="the data of another one"):
            check_coverage(loader)
        with pytest.raises(CoverageError, match="the id of another one: does the dataset use"):
            check_coverage(loader, ids="id")


def test_a_dataset_that_mixes_two_up_is_caught_by_ids() -> None:
    """Sample 5 is given for 6 too: ids show it, and contents count it."""

    class Twice(ByItem):
        def __getitem__(self, index: int) -> Any:
            return sample_of(5 if index == 6 else index)

    with hr.Loader(Twice(12), 4, workers=2, probe=False) as loader:
        assert check_coverage(loader) == Coverage(rows=12, samples=12, missing=0, alike=1)
        with pytest.raises(CoverageError) as caught:
            check_coverage(loader, ids="id")

    assert caught.value.indices == (5, 6)


def test_equal_data_is_no_fault() -> None:
    """Samples may be alike as long as not all are, and are counted."""
    data = {"label": np.array([0, 1, 0, 1, 1, 0])}
    with hr.Loader(data, 3, workers=1) as loader:
        assert check_coverage(loader) == Coverage(rows=6, samples=6, missing=0, alike=4)


def test_a_dataset_that_threads_mix_up_is_caught() -> None:
    """What is read by readers must be what is read alone."""
    caller = threading.current_thread()

    class Mixed(ByItem):
        def __getitem__(self, index: int) -> Any:
            mixed = index == 7 and threading.current_thread() is not caller
            return sample_of(0 if mixed else index)

    with (
        hr.Loader(Mixed(12), 4, shuffle=False, workers=2, probe=False) as loader,
        pytest.raises(CoverageError, match="step 1 holds other data when it is read alone"),
    ):
        check_coverage(loader)


def test_a_sampler_that_leaves_samples_out_is_caught() -> None:
    """Where all samples are to come, those that do not are named."""
    sampler = [1, 2, 3, 5, 5, 6]
    with hr.Loader(ByItem(8), sampler=[[i] for i in sampler], probe=False) as loader:
        assert check_coverage(loader) == Coverage(rows=6, samples=5, missing=3, alike=0)
        with pytest.raises(CoverageError, match="1 samples came more than 1 times") as caught:
            check_coverage(loader, complete=True)
        assert caught.value.indices == (5,)
    with hr.Loader(ByItem(8), sampler=[[i] for i in (1, 2, 3)], probe=False) as loader:
        with pytest.raises(CoverageError, match="5 samples did not come") as caught:
            check_coverage(loader, complete=True)
        assert caught.value.indices == (0, 4, 5, 6, 7)


def test_rows_of_open_length_and_draws_with_replacement() -> None:
    """Ragged rows are told apart by their values, and a mixture may repeat samples."""
    rows = RaggedRows([[i] * (i % 3) for i in range(9)])
    with hr.Loader(rows, 4, drop_last=False, workers=2) as loader:
        assert check_coverage(loader) == Coverage(rows=9, samples=9, missing=0, alike=2)
    with hr.Loader(
        hr.Arrays(arrays_of(20)), sampler=hr.Mixing([(0, 20)], [1.0], 5, 8), workers=2
    ) as loader:
        found = check_coverage(loader, ids="id")
    assert (found.rows, found.samples + found.missing, found.alike) == (40, 20, 0)


def test_a_sample_with_two_ids_is_caught() -> None:
    """The same index must be the same sample whenever it comes."""
    count = iter(range(1000))

    class Counting(Samples):
        def __getitem__(self, index: int) -> Any:
            return {"id": next(count)}

    with (
        hr.Loader(Counting(4), sampler=[[0, 1], [0, 1]], workers=0, probe=False) as loader,
        pytest.raises(CoverageError, match="read alone"),
    ):
        check_coverage(loader, ids="id")
