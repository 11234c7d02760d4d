"""Rows out of several arrays by one view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.datasets.gather import LARGEST_VIEW_BYTES, RowGather

LIMITS = pytest.mark.parametrize("limit", [LARGEST_VIEW_BYTES, 0], ids=["one view", "one by one"])


@pytest.fixture(autouse=True, params=[1, 2], ids=["by torch", "by numpy"], scope="module")
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """The caller's thread may use torch's threads or not; both ways copy the same rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@LIMITS
@given(data=st.data())
def test_every_row_is_the_bytes_at_its_offset(limit: int, data: st.DataObject) -> None:
    """Any rows of any arrays, at any alignment, into any rows."""
    memory = np.random.default_rng(data.draw(st.integers(0, 99))).bytes(300)
    row_bytes = data.draw(st.integers(1, 9))
    cuts = sorted(data.draw(st.lists(st.integers(0, 290), min_size=2, max_size=6, unique=True)))
    pieces = [memory[a:b] for a, b in pairwise(cuts) if b - a >= row_bytes]
    arrays = [np.frombuffer(bytearray(piece), np.uint8) for piece in pieces]
    if not arrays:
        return
    places = data.draw(
        st.lists(
            st.sampled_from(range(len(arrays))).flatmap(
                lambda a: st.tuples(st.just(a), st.integers(0, len(arrays[a]) - row_bytes))
            ),
            max_size=6,
        )
    )
    rows = data.draw(st.permutations(range(len(places))))
    gather = RowGather(arrays, row_bytes, limit)
    offsets = np.array([int(gather.starts_bytes[a]) + o for a, o in places], np.int64)
    out = np.zeros((len(places), row_bytes), np.uint8)

    gather.read(offsets, out, np.array(rows, np.int64))

    wanted = {row: pieces[a][o : o + row_bytes] for row, (a, o) in zip(rows, places, strict=True)}
    assert {row: out[row].tobytes() for row in range(len(places))} == wanted


@LIMITS
def test_rows_keep_the_arrays_alive(limit: int) -> None:
    """The view holds the memory that it looks at."""
    gather = RowGather([np.arange(1000, dtype=np.int64)], 8, limit)
    np.zeros(1000, np.int64)[:] = -1  # would take the place of the array, were it gone
    out = np.zeros((1, 1), np.int64)

    gather.read(np.array([8 * 999]), out, np.array([0]))

    assert out.tolist() == [[999]]
