"""Indices are checked in one pass, in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.datasets.bounds import as_indices, as_run, check_index, check_indices
from headrace.errors import IndexOutOfRangeError


@given(st.lists(st.integers(-(2**62), 2**62)), st.integers(0, 2**62))
def test_the_first_index_outside_is_named(indices: list[int], length: int) -> None:
    """The vectorised check finds what a loop finds (S4-03)."""
    bad = [index for index in indices if not 0 <= index < length]

    if not bad:
        check_indices(as_indices(indices), length, "data")
        return
    with pytest.raises(IndexOutOfRangeError) as caught:
        check_indices(as_indices(indices), length, "data")

    assert (caught.value.index, caught.value.length) == (bad[0], length)


def test_the_message_names_dataset_index_and_length() -> None:
    """The reader of the error knows what to change."""
    with pytest.raises(IndexError, match=r"^data: index -1 is outside \[0, 10\)\.$"):
        check_indices(np.array([3, -1]), 10, "data")


@pytest.mark.parametrize("indices", [[0, 1], np.array([0, 1], np.int32), np.array([0.0])])
def test_indices_of_another_kind_are_refused(indices: Any) -> None:
    """With what to write, in place of an error from within."""
    with pytest.raises(TypeError, match=r"wanted an int64 array \[k\], got .*np\.array\(indices\)"):
        check_indices(indices, 10, "data")


@pytest.mark.parametrize("index", [-1, 3, 2**70])
def test_a_single_index_is_checked_alike(index: int) -> None:
    """Also one that no 64-bit word holds."""
    with pytest.raises(IndexOutOfRangeError):
        check_index(index, 3, "data")


def test_a_numpy_integer_is_an_index() -> None:
    """Whole numbers of any type are taken; others are not."""
    assert check_index(np.int32(2), 3, "data") == 2  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        check_index(1.0, 3, "data")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32, np.int64])
def test_indices_of_any_width_become_64_bits(dtype: type[np.integer]) -> None:
    """So sums and products of them do not wrap (B11)."""
    assert as_indices(np.array([1, 2], dtype)).dtype == np.int64
    assert as_indices([]).dtype == np.int64


def test_indices_that_are_no_whole_numbers_are_refused() -> None:
    """Neither fractions, nor masks, nor tables."""
    for given_ in (np.array([0.5]), np.array([True, False]), np.array([[1]])):
        with pytest.raises(TypeError, match="whole numbers"):
            as_indices(given_)


@given(st.lists(st.integers(0, 12), unique=True))
def test_rows_are_a_run_only_if_one_after_another(rows: list[int]) -> None:
    """A slice stands for exactly the rows given, in their order."""
    run = as_run(np.array(rows, np.int64))

    if run is None:
        assert rows != list(range(rows[0], rows[0] + len(rows)))
    else:
        assert rows == list(range(run.start, run.stop))
