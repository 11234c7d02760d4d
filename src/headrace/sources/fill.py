"""How ranges of a file become system calls: pure decisions about offsets and views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.sources.source import ByteRange

# One call takes at most this many views: IOV_MAX of Linux and macOS.
MAX_VIEWS = 1024


def check_views(ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
    """Check that there is one writable byte view per range, of its length.

    Raises:
        ValueError: A view cannot take its range; nothing has been read.
    """
    if len(ranges) != len(views):
        raise ValueError(f"wanted one buffer per range, got {len(views)} for {len(ranges)}")
    for range_, view in zip(ranges, views, strict=True):
        wanted_bytes = range_.stop - range_.start
        if view.nbytes != wanted_bytes:
            raise ValueError(f"range {range_} wants {wanted_bytes} bytes, got {view.nbytes}")
        if view.readonly or view.itemsize != 1 or not view.c_contiguous:
            raise ValueError(
                f"the buffer of range {range_} must be writable bytes in one piece, got "
                f"format {view.format!r}{', read-only' if view.readonly else ''}. "
                "Use memoryview(array).cast('B')."
            )


def runs(ranges: Sequence[ByteRange]) -> Iterator[slice]:
    """Cut ranges into runs in which each one begins where the one before ends.

    A run is one system call. Ranges are not sorted for it: for random reads of cached files
    that costs more than it saves.
    """
    first = 0
    for position in range(1, len(ranges) + 1):
        is_end = (
            position == len(ranges)
            or ranges[position].start != ranges[position - 1].stop
            or position - first == MAX_VIEWS
        )
        if is_end:
            yield slice(first, position)
            first = position


def views_after(views: Sequence[memoryview], done_bytes: int) -> list[memoryview]:
    """Give what is left to fill once the first `done_bytes` are; empty views are dropped."""
    left: list[memoryview] = []
    for view in views:
        if done_bytes >= view.nbytes:
            done_bytes -= view.nbytes
        else:
            left.append(view[done_bytes:] if done_bytes else view)
            done_bytes = 0
    return left
