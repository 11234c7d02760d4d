"""Ctrl-C at every single point of a take, of the first one, of the end of an epoch and of close.

Python handles signals between bytecodes, at calls and their returns. `interrupted` raises
KeyboardInterrupt at the n-th such point of a call, for every n until the call gets through.
What must hold after each (B28): no batch is lost without a word, the state says exactly what
the consumer has received, and the loader can be closed.
"""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from asyncio import runners
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import headrace as hr
from headrace.errors import InterruptedTakeError
from headrace.threads import reap
from tests.lifecycle.data import KINDS, all_ids, epoch_of, ids_of, loader_of

T = TypeVar("T")

# Calls below these are left out: exceptions do not come out of finalizers and callbacks, and
# asyncio's runner turns Ctrl-C into a cancellation of the task. Locks of the standard library
# (Condition, Event) are not safe against interrupts, so points are in code of ours only.
_SWALLOWING = ("__del__", "<genexpr>")
_BELOW = {weakref.__file__, runners.__file__}
_OURS = str(Path(hr.__file__).parent)
MOST_POINTS = 3000
WORKERS = (0, 2)


class Point:
    """Raises KeyboardInterrupt at the n-th point of what runs on this thread.

    Attributes:
        is_passed: Whether the point was reached.
    """

    def __init__(self, number: int) -> None:
        self.is_passed = False
        self._left = number

    def __enter__(self) -> Point:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "c_return") or not _is_point(frame):
            return
        self._left -= 1
        if self._left == 0 and not self.is_passed:
            self.is_passed = True
            sys.setprofile(None)
            raise KeyboardInterrupt


def _is_point(frame: types.FrameType | None) -> bool:
    assert frame is not None
    if not frame.f_code.co_filename.startswith(_OURS):
        return False
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_name in _SWALLOWING or frame.f_code.co_filename in _BELOW:
            return False
        frame = frame.f_back
    return True


Points = Callable[[], Iterator[Point]]


@pytest.fixture
def points(full: bool, seed: int) -> Points:
    """Give the points of a call one after the other: all, or every fifth from a random one on.

    The call that gets through without reaching its point is the last.
    """

    def each() -> Iterator[Point]:
        for number in range(1, MOST_POINTS) if full else range(1 + seed % 5, MOST_POINTS, 5):
            point = Point(number)
            yield point
            if not point.is_passed:
                return
        raise AssertionError(f"more than {MOST_POINTS} points")

    return each


def test_points_are_in_our_code(points: Points) -> None:
    """An interrupt is raised at each of two calls, in turn, and then no more."""
    calls = [interrupted(point, lambda: (reap(int), hr.Columns.__name__)) for point in points()]

    assert calls[-1] == (None, "Columns")
    assert set(calls[:-1]) <= {None}


def interrupted(point: Point, call: Callable[[], T]) -> T | None:
    """Give what a call gives, or None if it was interrupted."""
    try:
        with point:
            return call()
    except KeyboardInterrupt:
        return None


def check_the_rest(loader: hr.Loader, stream: hr.BatchStream, seen: list[list[int]]) -> None:
    """Hold state and remaining batches to what was seen, on the same stream or a new one."""
    wanted = epoch_of(loader, 0)
    assert seen == wanted[: len(seen)]
    assert loader.state_dict()["next_step"] == len(seen)
    assert loader.verify(loader.state_dict()) == len(seen)
    try:
        for batch in stream:
            seen.append(ids_of(batch))  # noqa: PERF401 - what came before an error counts
    except InterruptedTakeError:
        # The batch that was on its way is gone: the stream says so, and a new one has it.
        seen += all_ids(loader.stream(steps=len(wanted) - len(seen)))
    assert seen == wanted
    assert loader.verify(loader.state_dict()) == len(seen)


def small(kind: str, workers: int, **knobs: Any) -> hr.Loader:
    """Five batches of two."""
    return loader_of(kind, 10, batch_size=2, workers=workers, prefetch=3, **knobs)


@pytest.fixture(params=[*itertools.product(KINDS, WORKERS)], ids=str)
def case(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Each kind of data, with threads and without."""
    kind, workers = request.param
    return kind, workers


def test_the_first_take(case: tuple[str, int], points: Points) -> None:
    """An interrupt while threads, loop and ring begin leaves a stream that can begin again."""
    for point in points():
        with small(*case) as loader:
            stream = loader.epoch(0)

            first = interrupted(point, lambda stream=stream: next(stream))  # type: ignore[misc]

            check_the_rest(loader, stream, [] if first is None else [ids_of(first)])


def test_a_take(case: tuple[str, int], points: Points) -> None:
    """An interrupt in the middle of a run loses nothing in silence."""
    for point in points():
        with small(*case) as loader:
            stream = loader.epoch(0)
            seen = [ids_of(next(stream)), ids_of(next(stream))]

            third = interrupted(point, lambda stream=stream: next(stream))  # type: ignore[misc]

            check_the_rest(loader, stream, seen if third is None else [*seen, ids_of(third)])


def test_a_take_of_the_last_batch(case: tuple[str, int], points: Points) -> None:
    """The last batch of an epoch is no more lost in silence than any other."""
    for point in points():
        with small(*case) as loader:
            stream = loader.epoch(0)
            seen = [ids_of(next(stream)) for _ in range(4)]

            last = interrupted(point, lambda stream=stream: next(stream))  # type: ignore[misc]

            check_the_rest(loader, stream, seen if last is None else [*seen, ids_of(last)])


def test_a_take_at_the_end_of_an_epoch(case: tuple[str, int], points: Points) -> None:
    """An interrupt between the last batch and the end of the loop loses no epoch."""
    for point in points():
        with small(*case, epochs=2) as loader:
            stream = loader.epoch(0)
            assert len(all_ids(next(stream) for _ in range(5))) == 5

            interrupted(point, lambda stream=stream: next(stream, None))  # type: ignore[misc]

            assert loader.state_dict()["next_step"] == 5
            assert all_ids(loader) == epoch_of(loader, 1)


def test_opening(case: tuple[str, int], points: Points) -> None:
    """An interrupt while a stream is opened leaves the cursor where it was or at its start."""
    for point in points():
        with small(*case) as loader:
            first = loader.epoch(0)
            next(first)

            interrupted(point, lambda loader=loader: iter(loader))  # type: ignore[misc]

            assert loader.state_dict()["next_step"] in (1, 5)
            assert all_ids(loader.epoch(1)) == epoch_of(loader, 1)


def test_closing(case: tuple[str, int], points: Points) -> None:
    """An interrupted close can be repeated, and then nothing is left."""
    for point in points():
        loader = small(*case)
        stream = loader.epoch(0)
        next(stream)

        interrupted(point, loader.close)

        loader.close()
        with pytest.raises(hr.ClosedError):
            iter(loader)


def test_closing_a_stream(case: tuple[str, int], points: Points) -> None:
    """An interrupted close of a stream does not hold up the next one."""
    for point in points():
        with small(*case) as loader:
            stream = loader.epoch(0)
            next(stream)

            interrupted(point, stream.close)

            assert all_ids(loader.epoch(0)) == epoch_of(loader, 0)


def test_saving_and_loading(case: tuple[str, int], points: Points) -> None:
    """An interrupt while a state is loaded leaves the loader before or after it, not between."""
    with small(*case) as source:
        stream = source.epoch(1)
        next(stream)
        state = source.state_dict()
    for point in points():
        with small(*case) as loader:
            next(iter(loader))

            interrupted(point, lambda loader=loader: loader.load_state_dict(state))  # type: ignore[misc]

            at = loader.state_dict()
            assert at["next_step"] in (1, 6)
            assert loader.verify(at) == 1
            rest = all_ids(loader.stream(steps=2))
            wanted = [*epoch_of(loader, 0), *epoch_of(loader, 1)]
            assert rest == wanted[at["next_step"] : at["next_step"] + 2]


def test_making_a_loader(case: tuple[str, int], points: Points) -> None:
    """An interrupt while a loader is made leaves nothing, and the next one works."""
    kind, workers = case
    for point in points():
        loader = interrupted(point, lambda: small(kind, workers))
        if loader is not None:
            loader.close()
    with small(kind, workers) as loader:
        assert all_ids(loader) == epoch_of(loader, 0)


def test_the_reaper_goes_on() -> None:
    """Whatever was interrupted above, things dropped are still closed."""
    import threading

    with small("rows", 2) as loader:
        stream = iter(loader)
        next(stream)
        done = threading.Event()
        reap(done.set)
        assert done.wait(20)
