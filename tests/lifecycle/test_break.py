"""Leaving a loop early and going on: the epoch that comes next, and what is left behind (B23)."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

import headrace as hr
from headrace.threads import reap
from tests.lifecycle.data import (
    KINDS,
    WAITING,
    all_ids,
    all_ids_awaited,
    epoch_of,
    ids_of,
    loader_of,
    steps_of,
)

WORKERS = (0, 1, 4)


def all_reaped() -> None:
    """Wait until everything dropped so far has been closed."""
    done = threading.Event()
    reap(done.set)
    assert done.wait(20)


def counts() -> tuple[int, int]:
    """Threads and open descriptors of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.fixture(params=[(kind, workers) for kind in KINDS for workers in WORKERS], ids=str)
def loader(request: pytest.FixtureRequest) -> hr.Loader:
    """Each kind of data at each number of workers: 25 steps an epoch, read 8 ahead."""
    kind, workers = request.param
    return loader_of(kind, workers=workers, prefetch=8)


@pytest.fixture
def rounds(loader: hr.Loader, full: bool) -> int:
    """Fifty with four workers, or when all is wanted; else a few."""
    return 50 if full or "workers=4" in repr(loader) else 5


def test_fifty_breaks_and_whole_loops(loader: hr.Loader, rounds: int) -> None:
    """Each full loop is a whole epoch in its own order, the one after the epoch left (B23)."""
    with loader:
        after_one: tuple[int, int] | None = None
        for turn in range(rounds):
            left = []
            for batch in loader:
                left.append(ids_of(batch))
                if len(left) == 3:
                    break
            del batch

            assert left == epoch_of(loader, 2 * turn)[:3]
            assert all_ids(loader) == epoch_of(loader, 2 * turn + 1)
            after_one = after_one or counts()

        assert counts() == after_one


async def test_fifty_breaks_and_whole_awaited_loops(loader: hr.Loader, rounds: int) -> None:
    """The same by `async for` (B23)."""
    async with loader:
        after_one: tuple[int, int, int] | None = None
        for turn in range(rounds):
            left = []
            async for batch in loader:
                left.append(ids_of(batch))
                if len(left) == 3:
                    break
            del batch

            assert left == epoch_of(loader, 2 * turn)[:3]
            assert await all_ids_awaited(loader) == epoch_of(loader, 2 * turn + 1)
            after_one = after_one or (*counts(), len(asyncio.all_tasks()))

        assert (*counts(), len(asyncio.all_tasks())) == after_one


def test_the_first_batch_only(loader: hr.Loader) -> None:
    """next(iter(loader)) gives the first batch of one epoch after the other (B23)."""
    with loader:
        firsts = [ids_of(next(iter(loader))) for _ in range(50)]

        assert firsts == [epoch_of(loader, epoch)[0] for epoch in range(50)]
        assert all_ids(loader) == epoch_of(loader, 50)


@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "closed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_break_stops_the_reading(kind: str, is_dropped: bool) -> None:
    """Once a loop is left, only what a thread is in the middle of is still built.

    Step 1 waits at the gate when the loop is left; of the 8 steps that may be read ahead, a
    thread goes on with its span of 2, and the loop, whose reads are cancelled, with none.
    (U-27)
    """
    data = KINDS[kind](100, gated=4)
    with hr.Loader(data, 4, shuffle=False, workers=1, prefetch=8, probe=False) as loader:
        stream = iter(loader)
        assert ids_of(next(stream)) == [0, 1, 2, 3]
        data.gate.arrived_blocking(1)
        if kind in WAITING:
            # The loop reads all 8 steps at once: what does not wait at the gate is there first.
            all_given = threading.Event()
            data.when_given(8 * 4 - {"awaited": 1, "awaited rows": 4}[kind], all_given.set)
            assert all_given.wait(20)
        given = data.given
        if not is_dropped:
            stream.close()
        del stream
        all_reaped()
        if kind in WAITING:
            # A cancellation goes from task to task, a turn of the loop for each.
            loader._engine.wait_idle()

        data.gate.open()
    assert data.given - given <= (0 if kind in WAITING else 2 * 4)


def test_an_exception_in_the_loop_is_only_that(loader: hr.Loader) -> None:
    """What the loop body raises comes out as it is, and the loader goes on with the next epoch."""

    def train() -> None:
        for batch in loader:
            if batch.step == 2:
                raise ZeroDivisionError

    with loader:
        with pytest.raises(ZeroDivisionError):
            train()

        assert loader.state_dict()["next_step"] == 3
        assert all_ids(loader) == epoch_of(loader, 1)


def test_an_inner_loop_left_early_goes_to_the_next_epoch(loader: hr.Loader) -> None:
    """Each epoch of `epochs` begins at its own first step, however the one before was left."""
    with loader:
        seen = []
        for epoch in loader.epochs(4):
            for batch in epoch:
                seen.append((batch.epoch, ids_of(batch)))
                if batch.step % 25 == batch.epoch:
                    break

        wanted = [(e, ids) for e in range(4) for ids in epoch_of(loader, e)[: e + 1]]
        assert seen == wanted


@pytest.mark.parametrize("taken", [0, 1, 25], ids=["untouched", "begun", "whole"])
def test_dropping_the_generator_of_epochs(loader: hr.Loader, taken: int) -> None:
    """A generator of epochs that is dropped, at any point, leaves the loader usable."""
    with loader:
        generator = loader.epochs(3)
        first = next(generator)
        for _ in range(taken):
            next(first)

        del generator, first

        epoch = 0 if taken == 0 else 1
        assert all_ids(loader) == epoch_of(loader, epoch)


def test_epochs_left_between_two(loader: hr.Loader) -> None:
    """Leaving the outer loop drops what was read across the end of the epoch."""
    with loader:
        for epoch in loader.epochs(3):
            assert all_ids(epoch) == epoch_of(loader, 0)
            break

        assert loader.state_dict()["next_step"] == 25
        assert all_ids(loader) == epoch_of(loader, 1)


def test_a_second_stream_ends_the_first(loader: hr.Loader) -> None:
    """One cursor: the stream that was open says who closed it, the new one is whole."""
    with loader:
        first = loader.epoch(0)
        assert ids_of(next(first)) == epoch_of(loader, 0)[0]

        second = loader.stream(start=30)

        with pytest.raises(hr.ClosedError, match="another stream of this loader was opened"):
            next(first)
        assert ids_of(next(second)) == steps_of(loader, [30])[0]
        with pytest.raises(hr.ClosedError, match="another stream of this loader was opened"):
            next(first)
        assert ids_of(next(second)) == steps_of(loader, [31])[0]


def test_a_stream_ends_once(loader: hr.Loader) -> None:
    """After its last batch a stream says so again and again; leaving a `with` ends one too."""
    with loader, loader.epoch(0) as whole, loader.epoch(1) as left:
        with pytest.raises(hr.ClosedError, match="another stream"):
            next(whole)
        assert len(all_ids(left)) == 25
        assert [next(left, None), next(left, None)] == [None, None]

    assert next(left, None) is None


def test_closing_a_stream_inside_its_loop_ends_the_loop(loader: hr.Loader) -> None:
    """`stream.close()` in the body is a way to stop: the loop ends as if there were no more."""
    with loader:
        seen = []
        stream = loader.epoch(0)
        for batch in stream:
            seen.append(ids_of(batch))
            if len(seen) == 2:
                stream.close()

        assert seen == epoch_of(loader, 0)[:2]


def test_opening_without_taking_moves_nothing(loader: hr.Loader) -> None:
    """Streams that are opened and dropped untouched start nothing and lose nothing."""
    before = counts()

    with loader:
        for _ in range(100):
            loader.epoch(0)
            iter(loader)

        assert counts() == before
        assert all_ids(loader) == epoch_of(loader, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_break_counts_as_what_was_taken(kind: str) -> None:
    """The state after a break is at the batch in hand, whatever was read ahead (B23)."""
    with loader_of(kind, workers=2, prefetch=8) as loader:
        for batch in loader:
            if batch.step == 4:
                break

        state = loader.state_dict()
        assert (state["next_step"], state["epoch"], state["step_in_epoch"]) == (5, 0, 5)
