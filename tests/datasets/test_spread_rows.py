"""Rows of any length, copied side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.datasets import spread_rows
from headrace.datasets.spread_rows import SpreadRows

DTYPES = ["|b1", "|u1", "<i2", "<f2", "<i4", "<f4", "<i8", "<c8", "<c16"]


def spread(flat: NDArray[Any], bounds: list[tuple[int, int]], cuts: list[int], width: int) -> Any:
    """Give the real part of each row, read into one array per cut."""
    outs = [np.empty((b - a, width, *flat.shape[1:]), flat.dtype) for a, b in pairwise(cuts)]
    starts, stops = np.array(bounds, np.int64).reshape(-1, 2).T.copy()
    SpreadRows(flat).read(starts, stops, outs)
    rows = [row for out in outs for row in out]
    return [row[: b - a] for row, (a, b) in zip(rows, bounds, strict=True)]


@given(st.data(), st.sampled_from([1, 4, 1000]))
def test_rows_hold_what_slices_hold(data: st.DataObject, most_over_read: int) -> None:
    """Any rows, in any order, overlapping, empty, up to either end, in any number of batches."""
    flat = np.arange(data.draw(st.integers(0, 40)), dtype=np.int32)
    ends = st.integers(0, len(flat))
    pairs = data.draw(st.lists(st.tuples(ends, ends)))
    bounds = [(min(pair), max(pair)) for pair in pairs]
    width = max((b - a for a, b in bounds), default=0) + data.draw(st.integers(0, 5))
    cuts = sorted([0, len(bounds), *data.draw(st.lists(st.integers(0, len(bounds)), max_size=3))])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread_rows, "MOST_OVER_READ", most_over_read)
        rows = spread(flat, bounds, cuts, width)

    assert [row.tolist() for row in rows] == [flat[a:b].tolist() for a, b in bounds]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_have_any_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    """Copied word by word, in the widest word that fits; elements may have no size at all."""
    flat = (np.arange(50 * int(np.prod(shape))) % 2).astype(dtype).reshape(50, *shape)
    bounds = [(3, 9), (44, 50), (0, 0), (7, 8)]

    rows = spread(flat, bounds, [0, 2, 4], 6)

    assert [row.tobytes() for row in rows] == [flat[a:b].tobytes() for a, b in bounds]


@pytest.mark.parametrize("shift_bytes", [0, 1, 2, 4])
def test_values_may_begin_at_any_byte(shift_bytes: int) -> None:
    """As in a file whose header has an odd length."""
    memory = np.zeros(8 * 20 + 8, np.uint8)
    flat = memory[shift_bytes : shift_bytes + 160].view(np.int64)
    flat[:] = np.arange(20)

    rows = spread(flat, [(2, 5), (16, 20)], [0, 2], 4)

    assert [row.tolist() for row in rows] == [[2, 3, 4], [16, 17, 18, 19]]


def test_a_row_longer_than_the_width_is_left_out_beyond_it() -> None:
    """Read by windows or one by one."""
    flat = np.arange(10)
    for last in (9, 10):
        out = np.full((2, 2), -1)
        SpreadRows(flat).read(np.array([1, 5]), np.array([4, last]), [out])
        assert out.tolist() == [[1, 2], [5, 6]]


def test_read_only_maps_are_read() -> None:
    """Nothing is written to them."""
    flat = np.arange(100, dtype=np.float32)
    flat.flags.writeable = False

    rows = spread(flat, [(0, 3), (90, 100)], [0, 2], 10)

    assert [row.tolist() for row in rows] == [[0, 1, 2], list(range(90, 100))]


@pytest.mark.parametrize("threads", [1, 2])
def test_large_batches_are_copied_on_the_calling_thread(threads: int) -> None:
    """In pieces that torch does not share out, whatever its number of threads."""
    flat = np.arange(5000, dtype=np.int16)
    bounds = [(start, start + 700 + start % 3) for start in range(0, 4200, 42)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rows = spread(flat, bounds, [0, len(bounds)], 702)
    finally:
        torch.set_num_threads(before)

    assert [row.tolist() for row in rows] == [flat[a:b].tolist() for a, b in bounds]
