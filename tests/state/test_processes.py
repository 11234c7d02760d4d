"""States carry a run over to other processes, also from one that was killed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.state import loaders
from tests.state.loaders import REPLAYING, SEEKING
from tests.state.processes import Taken, killed, trained

HASHED = {"content_digest": True}


def whole_run(order: str, data: str = "arrays") -> Taken:
    with loaders.loader(order, data, **HASHED) as made:
        return list(loaders.run(made))


def test_a_fresh_process_goes_on_from_every_step_of_two_epochs() -> None:
    """Every order, every step, in a process that never saw the first part. (S1-07, S4-74)"""
    whole = {order: whole_run(order) for order in (*SEEKING, *REPLAYING)}
    points = [(order, count) for order in whole for count in range(11)]
    knobs = itertools.cycle([{"workers": 0}, {"workers": 2, "prefetch": 9}, {"prefetch": 1}])
    faces = itertools.cycle(["for", "async for", "for", "for", "async for"])

    jobs: list[dict[str, Any]] = [
        {
            "loader": {"order": order, **HASHED, **next(knobs)},
            "state": whole[order][count - 1][1] if count else None,
            "face": next(faces),
        }
        for order, count in points
    ]

    for (order, count), rest in zip(points, trained(*jobs), strict=True):
        assert rest == whole[order][count:], (order, count)


@pytest.mark.parametrize("order", ["shuffled", "torch-generator"])
def test_a_run_killed_twice_in_mid_epoch_is_the_run_that_was_not(order: str) -> None:
    """Killed hard in epoch 0, gone on, killed in epoch 1, gone on: the same ids, the same bytes
    and the same final state as without. (S4-74)"""
    job = {"loader": {"order": order, "data": "get", "prefetch": 8, **HASHED}}

    first = killed(job, after=3)
    second = killed({**job, "state": first[-1][1]}, after=4)
    (third,) = trained({**job, "state": second[-1][1]})

    assert [*first, *second, *third] == whole_run(order, "get")
    assert (first[-1][0]["epoch"], second[-1][0]["epoch"]) == (0, 1)


@pytest.mark.full
@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
@pytest.mark.parametrize("knobs", [{"workers": 0}, {"workers": 3, "prefetch": 16}])
def test_any_run_may_be_killed_at_any_step(order: str, knobs: dict[str, Any]) -> None:
    """A chain of processes, each killed after another number of steps. (S4-74)"""
    job = {"loader": {"order": order, **HASHED, **knobs}}
    taken: Taken = []

    for after in (1, 2, 3, 4):
        state = taken[-1][1] if taken else None
        taken += killed({**job, "state": state}, after)
    (rest,) = trained({**job, "state": taken[-1][1]})

    assert [*taken, *rest] == whole_run(order)
