"""How ranges become system calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.fill import runs, views_after
from headrace.sources.source import ByteRange


def test_adjacent_ranges_are_one_run() -> None:
    """A run goes on as long as each range begins where the one before ends."""
    ranges = [ByteRange(*pair) for pair in [(0, 4), (4, 4), (4, 9), (10, 12), (0, 1), (1, 2)]]

    assert list(runs(ranges)) == [slice(0, 3), slice(3, 4), slice(4, 6)]
    assert list(runs([])) == []


def test_a_run_has_no_more_views_than_one_call_takes() -> None:
    """2,500 adjacent ranges are three calls of at most 1,024."""
    ranges = [ByteRange(position, position + 1) for position in range(2500)]

    assert list(runs(ranges)) == [slice(0, 1024), slice(1024, 2048), slice(2048, 2500)]


@given(st.lists(st.integers(0, 5), max_size=8), st.data())
def test_what_is_left_after_a_partial_read(lengths: list[int], data: st.DataObject) -> None:
    """Whatever a call filled, the views left over are the rest, and none of them is empty."""
    memory = bytearray(range(sum(lengths)))
    views, position = [], 0
    for length in lengths:
        views.append(memoryview(memory)[position : position + length])
        position += length
    done_bytes = data.draw(st.integers(0, len(memory)))

    left = views_after(views, done_bytes)

    assert b"".join(left) == bytes(memory[done_bytes:])
    assert all(view.nbytes for view in left)
