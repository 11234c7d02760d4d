"""A run that goes on from a state is the run that was never interrupted."""

from __future__ import annotations

import functools
import itertools
import json
from typing import Any

import pytest

import headrace as hr
from tests.state import loaders
from tests.state.loaders import DATA, REPLAYING, SEEKING

Taken = list[tuple[dict[str, Any], dict[str, Any]]]


@functools.cache
def uninterrupted(order: str) -> Taken:
    """Give the batches of three epochs, and the state after each."""
    with loaders.loader(order, content_digest=True) as made:
        return list(loaders.run(made))


def rest(state: dict[str, Any], order: str, **knobs: Any) -> Taken:
    """Give what a fresh loader takes from a state on."""
    with loaders.loader(order, content_digest=True, **knobs) as made:
        made.load_state_dict(json.loads(json.dumps(state)))
        return list(loaders.run(made))


def two_epochs(taken: Taken) -> list[int]:
    """Give the numbers of batches taken at each step of the first two epochs."""
    return [count for count in range(1, len(taken)) if taken[count - 1][0]["epoch"] < 2]


@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
def test_a_run_goes_on_from_every_step_of_two_epochs(order: str) -> None:
    """What was taken before a state and what is taken after it join to the uninterrupted run,
    states and digests of content included. (S1-07, S4-74)"""
    whole = uninterrupted(order)

    for count in two_epochs(whole):
        assert rest(whole[count - 1][1], order) == whole[count:]


CHANGES: dict[str, dict[str, Any]] = {
    "no threads": {"workers": 0},
    "one thread, one step ahead": {"workers": 1, "prefetch": 1},
    "many threads, far ahead": {"workers": 5, "prefetch": 64},
    "few bytes": {"workers": 3, "ring_bytes": 1},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("order", ["shuffled", "bucketed-short", "torch-generator"])
def test_a_state_does_not_depend_on_workers_or_prefetch(order: str, change: str) -> None:
    """Loaders with other threads, prefetch or bytes go on alike. (S4-77, S4-39)"""
    whole = uninterrupted(order)

    for count in (2, 5, 8):
        assert rest(whole[count - 1][1], order, **CHANGES[change]) == whole[count:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ["shuffled", "torch-batches"])
async def test_a_state_does_not_depend_on_the_face(order: str, workers: int) -> None:
    """A run of `for` goes on in `async for`. (S1-07)"""
    whole = uninterrupted(order)

    for count in (2, 5, 8):
        async with loaders.loader(order, content_digest=True, workers=workers) as made:
            made.load_state_dict(whole[count - 1][1])
            assert await loaders.run_awaited(made) == whole[count:]


@pytest.mark.parametrize("data", DATA)
def test_every_kind_of_dataset_goes_on(data: str) -> None:
    """Rows, samples, awaited samples and whole batches resume alike, with the same bytes."""
    with loaders.loader(data=data) as made:
        whole = list(loaders.run(made))

    for count in (1, 5, 7):
        with loaders.loader(data=data, workers=1) as made:
            made.load_state_dict(whole[count - 1][1])
            assert list(loaders.run(made)) == whole[count:]
    assert [batch for batch, _ in whole] == [batch for batch, _ in uninterrupted("shuffled")]


@pytest.mark.full
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
async def test_every_order_of_every_dataset_goes_on_whatever_changes(order: str, data: str) -> None:
    """The whole matrix: order, dataset, threads, prefetch and face. (S1-07, S4-74, S4-77)"""
    with loaders.loader(order, data) as made:
        whole = list(loaders.run(made))

    for count, knobs in itertools.product(two_epochs(whole), CHANGES.values()):
        with loaders.loader(order, data, **knobs) as made:
            # A dataset that waits cannot block in a running loop without threads.
            waits = data in ("awaited", "fetched") and not knobs["workers"]
            made.load_state_dict(whole[count - 1][1])
            taken = [] if waits else list(loaders.run(made))
        async with loaders.loader(order, data, **knobs) as made:
            made.load_state_dict(whole[count - 1][1])
            awaited = await loaders.run_awaited(made)
        assert awaited == whole[count:]
        assert waits or taken == whole[count:]


def test_a_state_of_a_state_is_the_state() -> None:
    """Loading a state and asking for it again changes nothing."""
    for order in (*SEEKING, *REPLAYING):
        _, state = uninterrupted(order)[3]

        with loaders.loader(order, content_digest=True) as made:
            made.load_state_dict(state)
            assert made.state_dict() == state


def test_a_loader_goes_back_to_a_state_of_its_own() -> None:
    """The loader that saved a state may load it again, as often as wanted."""
    whole = uninterrupted("shuffled")

    with loaders.loader(content_digest=True) as made:
        assert list(loaders.run(made)) == whole
        for count in (7, 3, 3):
            made.load_state_dict(whole[count - 1][1])
            assert list(loaders.run(made)) == whole[count:]


@pytest.mark.parametrize("step", [0, 7, 249_999_999_999, 250_000_000_000, 10**15])
def test_a_run_over_a_trillion_samples_resumes_at_once(step: int) -> None:
    """At any step of any epoch the next batch is arithmetic away."""

    def made() -> hr.Loader:
        return hr.Loader(loaders.Get(10**12), 4, workers=0)

    with made() as first:
        stream = first.stream(start=step)
        next(stream)
        state = first.state_dict()
        wanted = [loaders.seen(next(stream)) for _ in range(3)]

    with made() as second:
        second.load_state_dict(json.loads(json.dumps(state)))
        assert second.verify(state) == 1
        assert [loaders.seen(batch) for batch in second.stream(steps=3)] == wanted
