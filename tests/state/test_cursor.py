"""One cursor per loader: where each way of iterating starts, after a load, a break or an end.

All loaders here have five steps an epoch: epoch 1 begins at step 5, epoch 2 at step 10.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterable, Iterable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import ClosedError
from tests.state import loaders

WHOLE = {epoch: list(range(5 * epoch, 5 * epoch + 5)) for epoch in range(5)}


def steps(batches: Iterable[hr.Batch]) -> list[int]:
    return [batch.step for batch in batches]


async def steps_awaited(batches: AsyncIterable[hr.Batch]) -> list[int]:
    return [batch.step async for batch in batches]


def at(step: int, **knobs: Any) -> hr.Loader:
    """Give a loader that loaded a state of this step."""
    with loaders.loader() as made:
        for _ in made.stream(steps=step):
            pass
        state = made.state_dict()
    resumed = loaders.loader(**knobs)
    resumed.load_state_dict(state)
    return resumed


# -- after a load ----------------------------------------------------------------------------


def test_a_plain_loop_goes_on_at_the_cursor_once() -> None:
    """The rest of the state's epoch, then whole epochs."""
    with at(7) as made:
        assert [steps(made) for _ in range(3)] == [[7, 8, 9], WHOLE[2], WHOLE[3]]


def test_the_epoch_of_the_state_goes_on_at_the_cursor_once() -> None:
    """`epoch(e)` of the state's epoch is its rest; asked for again it is whole."""
    with at(7) as made:
        assert steps(made.epoch(1)) == [7, 8, 9]
        assert steps(made.epoch(1)) == WHOLE[1]
        assert steps(made.epoch(2)) == WHOLE[2]


def test_what_is_left_of_some_epochs() -> None:
    """`epochs(n)` begins with the rest and ends where n epochs end."""
    with at(7) as made:
        assert [steps(epoch) for epoch in made.epochs(3)] == [[7, 8, 9], WHOLE[2]]
        assert [steps(epoch) for epoch in made.epochs(3)] == []
        assert [steps(epoch) for epoch in made.epochs(4)] == [WHOLE[3]]
    with at(7) as made:
        assert [steps(epoch) for epoch in made.epochs(1)] == []


def test_set_epoch_on_the_epoch_of_the_state_changes_nothing() -> None:
    """The torch habit of `set_epoch(e)` before each loop starts at the cursor, once."""
    with at(7) as made:
        taken = []
        for epoch in (1, 2, 1):
            made.set_epoch(epoch)
            taken.append(steps(made))

    assert taken == [[7, 8, 9], WHOLE[2], WHOLE[1]]


def test_another_epoch_starts_whole() -> None:
    """A later one without a word; it takes the place of the rest."""
    with at(7) as made:
        assert steps(made.epoch(3)) == WHOLE[3]
        assert steps(made.epoch(1)) == WHOLE[1]
    with at(7) as made:
        made.set_epoch(3)
        assert steps(made) == WHOLE[3]


def test_an_earlier_epoch_starts_whole_with_a_warning() -> None:
    """Loops over all epochs that know nothing of the resume are told what they do."""
    with at(7) as made:
        with pytest.warns(UserWarning, match="epoch 0 starts again .* loaded state is in epoch 1"):
            first = made.epoch(0)
        assert steps(first) == WHOLE[0]
        assert steps(made.epoch(1)) == WHOLE[1]
    with at(7) as made:
        with pytest.warns(UserWarning, match="epoch 0 starts again .* loaded state is in epoch 1"):
            made.set_epoch(0)
        assert steps(made) == WHOLE[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.set_epoch(0)
            assert steps(made.epoch(0)) == WHOLE[0]


def test_a_stream_goes_on_at_the_cursor() -> None:
    """`stream()` crosses the ends of epochs from where the state was."""
    with at(7) as made:
        assert steps(made.stream(steps=5)) == [7, 8, 9, 10, 11]
        assert steps(made.stream(steps=2)) == [12, 13]
        assert steps(made.stream(start=3, steps=2)) == [3, 4]


@pytest.mark.parametrize("step", [5, 10])
def test_a_state_at_the_end_of_an_epoch_is_the_start_of_the_next(step: int) -> None:
    """No way of iterating meets an empty rest. (B04)"""
    epoch = step // 5
    with at(step) as made:
        assert steps(made) == WHOLE[epoch]
    with at(step) as made:
        assert steps(made.epoch(epoch)) == WHOLE[epoch]
    with at(step) as made:
        assert [steps(each) for each in made.epochs(epoch + 2)] == [WHOLE[epoch], WHOLE[epoch + 1]]
    with at(step) as made:
        made.set_epoch(epoch)
        assert steps(made) == WHOLE[epoch]


def test_a_state_of_a_fresh_loader_is_a_fresh_start() -> None:
    """Loaded, it changes nothing."""
    with at(0) as made:
        assert [steps(epoch) for epoch in made.epochs(2)] == [WHOLE[0], WHOLE[1]]


@pytest.mark.parametrize("workers", [0, 2])
async def test_awaited_loops_start_where_the_others_do(workers: int) -> None:
    """`async for` over the loader, an epoch, epochs and a stream."""
    async with at(7, workers=workers) as made:
        assert [await steps_awaited(made) for _ in range(2)] == [[7, 8, 9], WHOLE[2]]
    async with at(7, workers=workers) as made:
        assert await steps_awaited(made.epoch(1)) == [7, 8, 9]
        assert await steps_awaited(made.epoch(1)) == WHOLE[1]
    async with at(7, workers=workers) as made:
        assert [await steps_awaited(each) for each in made.epochs(3)] == [[7, 8, 9], WHOLE[2]]
    async with at(7, workers=workers) as made:
        assert await steps_awaited(made.stream(steps=4)) == [7, 8, 9, 10]


def test_a_load_in_the_middle_of_a_loop_closes_it() -> None:
    """The loop that was under way ends with an error that says why."""
    with loaders.loader() as made:
        stream = iter(made)
        next(stream)
        state = made.state_dict()
        next(stream)

        made.load_state_dict(state)

        with pytest.raises(ClosedError, match="closed when a state was loaded"):
            next(stream)
        assert steps(made) == [1, 2, 3, 4]


# -- after a break ---------------------------------------------------------------------------


def test_after_a_break_a_plain_loop_begins_the_next_whole_epoch() -> None:
    """What was left of the epoch is not made up for."""
    with loaders.loader() as made:
        for batch in made:
            if batch.step == 2:
                break
        assert made.state_dict()["next_step"] == 3
        assert steps(made) == WHOLE[1]


def test_a_break_at_the_last_batch_is_the_end_of_the_epoch() -> None:
    """The next loop is the next epoch, not the one after."""
    with loaders.loader() as made:
        for batch in made:
            if batch.step == 4:
                break
        assert steps(made) == WHOLE[1]


def test_after_a_resume_and_a_break_the_next_epoch_is_whole() -> None:
    """The offset holds once, also where its loop was broken off. (B02)"""
    with at(7) as made:
        for _ in made:
            break
        assert steps(made) == WHOLE[2]


def test_leaving_an_epoch_early_goes_to_the_next() -> None:
    """`epochs(n)` gives the other epochs whole."""
    with loaders.loader() as made:
        taken: list[list[int]] = []
        for epoch in made.epochs(3):
            taken.append([])
            for batch in epoch:
                taken[-1].append(batch.step)
                if batch.step == 6:
                    break

    assert taken == [WHOLE[0], [5, 6], WHOLE[2]]


def test_a_stream_after_a_break_goes_on_where_it_was_left() -> None:
    """`stream()` is the way to go on in mid-epoch in the same process."""
    with loaders.loader() as made:
        for batch in made:
            if batch.step == 2:
                break
        assert steps(made.stream(steps=3)) == [3, 4, 5]


# -- one cursor ------------------------------------------------------------------------------


def test_opening_another_stream_closes_the_first() -> None:
    """The first says so at its next take, once and for all."""
    with loaders.loader() as made:
        first = made.epoch(0)
        assert next(first).step == 0
        second = made.epoch(2)

        for _ in range(2):
            with pytest.raises(ClosedError, match="closed when another stream of this loader"):
                next(first)
        assert steps(second) == WHOLE[2]


async def test_opening_another_stream_ends_a_take_that_waits() -> None:
    """A consumer that waits in another task is told, not left waiting."""

    class Never:
        def __len__(self) -> int:
            return 20

        async def get(self, index: int) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    async with hr.Loader(Never(), 4, workers=2) as made:
        waiting = asyncio.create_task(anext(made.epoch(0)))
        await asyncio.sleep(0)
        made.epoch(1)
        with pytest.raises(ClosedError, match="closed when another stream of this loader"):
            await waiting


def test_a_stream_that_was_opened_has_moved_the_cursor() -> None:
    """Its start is where the run is, before its first batch too."""
    with loaders.loader() as made:
        stream = made.epoch(3)
        assert made.state_dict()["next_step"] == 15
        assert next(stream).step == 15
        made.set_epoch(1)
        assert made.state_dict()["next_step"] == 16


def test_any_batch_of_the_run_leaves_the_cursor_alone() -> None:
    """`batch_at` and `why` between takes change neither the state nor the stream."""
    with loaders.loader(content_digest=True) as made:
        whole = list(loaders.run(made))
    with loaders.loader(content_digest=True) as made:
        taken = []
        for one in loaders.run(made):
            taken.append(one)
            for step in (0, 3, 12, 10**6):
                assert made.batch_at(step).step == step
                assert made.why(step)[0].step == step
            assert made.state_dict() == one[1]

    assert taken == whole


@pytest.mark.parametrize("data", ["arrays", "get", "awaited", "batches"])
def test_any_batch_is_the_one_that_the_run_delivers(data: str) -> None:
    """At every step, in a loader that has not begun, and after the run."""
    with loaders.loader(data=data) as made:
        before = [loaders.seen(made.batch_at(step)) for step in range(15)]
        whole = [batch for batch, _ in loaders.run(made)]
        after = [loaders.seen(made.batch_at(step)) for step in range(15)]

    assert before == whole == after


def test_an_ended_stream_does_not_move_the_cursor() -> None:
    """Asking it again, closing it, and dropping it are no jumps."""
    with loaders.loader() as made:
        stream = made.epoch(0)
        assert steps(stream) == WHOLE[0]
        assert steps(stream) == []
        stream.close()
        del stream
        assert made.state_dict()["next_step"] == 5
        assert made.state_dict()["history"]["from_step"] == 0


# -- a start given by number -----------------------------------------------------------------


@pytest.mark.parametrize("order", [*loaders.SEEKING, *loaders.REPLAYING])
def test_a_stream_from_any_step_is_the_run_from_there(order: str) -> None:
    """`stream(start=k)` gives what an uninterrupted run gives from k, for all k. (S1-07)"""
    with loaders.loader(order) as made:
        whole = [batch for batch, _ in loaders.run(made)]

    for start in range(11):
        with loaders.loader(order) as made:
            rest = [loaders.seen(batch) for batch in made.stream(start, len(whole) - start)]
            assert rest == whole[start:]
