"""Steps, epochs and positions: the arithmetic against a walk that goes step by step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.samplers.schedule import FixedSchedule, Schedule

Pieces = list[tuple[int, int, int]]


class Walked(NamedTuple):
    """One step of the walk."""

    epoch: int
    step_in_epoch: int
    position: int
    rows: int
    length: int


def walk(pieces: Pieces, drop_last: bool, repeats: int) -> Iterator[Walked]:
    """Deal out positions as the words of the contract say, one step after another."""

    def cuts(left: int, batch: int) -> bool:
        return left >= batch or (left > 0 and not drop_last)

    step, epoch, into, position, length = 0, -1, 0, 0, 0
    while True:
        batch, samples = [piece[1:] for piece in pieces if piece[0] <= step][-1]
        if not cuts(length - position, batch):
            epoch, into, position, length = epoch + 1, 0, 0, samples * repeats
            if not cuts(length, batch):
                return
        rows = min(batch, length - position)
        yield Walked(epoch, into, position, rows, length)
        step, into, position = step + 1, into + 1, position + rows
        if not cuts(length - position, batch):
            position = length


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Pieces, bool, int]:
    """Pieces that a run of a few hundred steps goes through, with their knobs."""
    samples, step = draw(st.integers(1, 40)), 0
    pieces = [(0, draw(st.integers(1, 12)), samples)]
    for _ in range(draw(st.integers(0, 4))):
        step += draw(st.integers(0, 40))
        samples += draw(st.sampled_from([0, 0, 1, 7]))
        pieces.append((step, draw(st.integers(1, 12)), samples))
    return pieces, draw(st.booleans()), draw(st.integers(1, 3))


@given(schedules())
def test_a_schedule_deals_as_a_walk_does(knobs: tuple[Pieces, bool, int]) -> None:
    """Every step has the epoch, position and rows that going step by step gives it."""
    pieces, drop_last, repeats = knobs
    walked = list(islice(walk(pieces, drop_last, repeats), 250))
    if len(walked) < 250:  # a batch that no epoch fills
        return
    schedule = Schedule(pieces, drop_last, repeats)

    found = []
    for step in range(250):
        [run] = schedule.runs(range(step, step + 1))
        place = (*schedule.locate(step), run.position, schedule.rows_in(step), run.num_positions)
        found.append(Walked(*place))

    assert found == walked


@given(schedules(), st.integers(0, 200), st.integers(0, 50))
def test_runs_cut_only_where_something_changes(
    knobs: tuple[Pieces, bool, int], start: int, count: int
) -> None:
    """Runs cover the steps asked for, and each holds one epoch and one batch size."""
    pieces, drop_last, repeats = knobs
    if len(list(islice(walk(pieces, drop_last, repeats), 251))) < 251:
        return
    schedule = Schedule(pieces, drop_last, repeats)

    step = start
    for run in schedule.runs(range(start, start + count)):
        for into in range(run.num_steps):
            [single] = schedule.runs(range(step, step + 1))
            assert single == run._replace(
                num_steps=1,
                first_step=step,
                step_in_epoch=run.step_in_epoch + into,
                position=run.position + into * run.global_batch,
            )
            step += 1

    assert step == start + count


@given(schedules(), st.integers(0, 60))
def test_epochs_begin_where_their_first_step_says(
    knobs: tuple[Pieces, bool, int], epoch: int
) -> None:
    """`first_step` and `steps_in` agree with `locate`, through all pieces and far behind them."""
    pieces, drop_last, repeats = knobs
    if len(list(islice(walk(pieces, drop_last, repeats), 250))) < 250:
        return
    schedule = Schedule(pieces, drop_last, repeats)

    for e in (epoch, epoch + 10**15):
        first, steps = schedule.first_step(e), schedule.steps_in(e)
        assert steps >= 1
        assert [schedule.locate(first + s) for s in (0, steps - 1)] == [(e, 0), (e, steps - 1)]


@given(st.integers(0, 10**12), st.integers(1, 10**6), st.booleans(), st.integers(0, 10**18))
def test_one_piece_is_a_divmod(n: int, batch: int, drop_last: bool, step: int) -> None:
    """Without changes, epoch and step in epoch are g div S and g mod S (S1-02, S1-27)."""
    schedule = Schedule([(0, batch, n)], drop_last)
    steps = n // batch if drop_last else -(-n // batch)

    assert schedule.steps_in(0) == steps
    if steps:
        assert schedule.locate(step) == divmod(step, steps)


def test_a_new_batch_size_neither_repeats_nor_skips() -> None:
    """The rest of an epoch is cut by the new size; the next epoch is whole."""
    schedule = Schedule([(0, 4, 20), (2, 3, 20)], drop_last=False)

    runs = list(schedule.runs(range(8)))

    assert [(run.epoch, run.position, run.num_steps, run.global_batch) for run in runs] == [
        (0, 0, 2, 4),
        (0, 8, 4, 3),
        (1, 0, 2, 3),
    ]
    assert schedule.steps_in(0) == 6
    assert schedule.steps_in(1) == 7


def test_appended_data_waits_for_the_next_epoch() -> None:
    """The epoch under way keeps its samples; the first one that begins later has them all."""
    schedule = Schedule([(0, 5, 20), (2, 5, 30)])

    assert [schedule.steps_in(epoch) for epoch in range(3)] == [4, 6, 6]


def test_a_batch_too_large_for_the_rest_ends_the_epoch() -> None:
    """With nothing left that fills a batch, the piece begins with a new epoch and its data."""
    schedule = Schedule([(0, 4, 10), (1, 8, 12)])

    assert schedule.steps_in(0) == 1
    assert schedule.locate(1) == (1, 0)
    assert schedule.steps_in(1) == 1
    assert schedule.inside_epochs == (1,)


def test_an_ended_epoch_stays_ended() -> None:
    """A smaller batch does not bring back picks that the larger one has dropped."""
    schedule = Schedule([(0, 4, 10), (2, 1, 10)])

    assert schedule.locate(2) == (1, 0)
    assert schedule.steps_in(1) == 10
    assert schedule.inside_epochs == ()


def test_the_last_of_several_pieces_from_one_step_holds() -> None:
    """A batch size changed twice before a step is taken was changed once."""
    twice = Schedule([(0, 4, 10), (1, 9, 10), (1, 3, 10)], drop_last=False)
    once = Schedule([(0, 4, 10), (1, 3, 10)], drop_last=False)

    assert twice.pieces == once.pieces
    assert list(twice.runs(range(9))) == list(once.runs(range(9)))


def test_epochs_without_steps_are_legal_until_a_step_is_asked_for() -> None:
    """A batch larger than the data gives empty epochs, and no step has a place (C11)."""
    schedule = Schedule([(0, 5, 4)])

    assert [schedule.steps_in(0), schedule.first_step(9), schedule.num_picks] == [0, 0, 0]
    with pytest.raises(
        ValueError, match="batch_size: wanted at most the 4 picks of an epoch, got 5"
    ):
        schedule.locate(0)
    with pytest.raises(ValueError, match="there is no step 0"):
        list(schedule.runs(range(1)))


def test_fixed_epochs_keep_their_steps_when_the_batch_changes() -> None:
    """A schedule of a given number of steps has full batches, each of its piece's size."""
    schedule = FixedSchedule([(0, 4, 10), (3, 6, 10)], steps_per_epoch=5)

    assert [schedule.rows_in(step) for step in range(6)] == [4, 4, 4, 6, 6, 6]
    assert [schedule.locate(step) for step in (4, 5)] == [(0, 4), (1, 0)]
    assert schedule.num_picks == 30
    assert [run.num_steps for run in schedule.runs(range(7))] == [3, 2, 2]


@pytest.mark.parametrize("step", [-1, -(10**9)])
def test_negative_steps_and_epochs_are_errors(step: int) -> None:
    """There is nothing before step 0 (S1-02, C27)."""
    schedule = Schedule([(0, 2, 10)])

    with pytest.raises(ValueError, match="step: wanted 0 or more"):
        schedule.locate(step)
    with pytest.raises(ValueError, match="epoch: wanted 0 or more"):
        schedule.first_step(step)


def test_steps_are_asked_for_in_a_row() -> None:
    """A range that leaves steps out is refused rather than filled up."""
    with pytest.raises(ValueError, match="consecutive steps"):
        list(Schedule([(0, 2, 10)]).runs(range(0, 6, 2)))


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([], "first is from step 0"),
        ([(1, 2, 3)], "first is from step 0"),
        ([(0, 0, 3)], "batch_size: wanted 1 or more"),
        ([(0, 1, -1)], "num_samples: wanted 0"),
        ([(0, 1, 2**63)], "num_samples: wanted 0"),
        ([(0, 1, 9), (5, 1, 9), (4, 1, 9)], "order of their steps"),
        ([(0, 1, 9), (5, 1, 8)], "never lose samples"),
        ([(0, 5, 4), (3, 2, 4)], "there is no step 3"),
    ],
)
def test_a_schedule_that_cannot_be_is_an_error(pieces: Pieces, said: str) -> None:
    """The message names what is wrong with the pieces."""
    with pytest.raises(ValueError, match=said):
        Schedule(pieces)


def test_a_schedule_that_loses_data_says_what_to_do() -> None:
    """Less data is another run."""
    with pytest.raises(ConfigError, match="start a new run"):
        Schedule([(0, 1, 9), (5, 1, 8)])
