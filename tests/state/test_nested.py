"""The states of the user's own objects go into the loader's state, as of what was taken."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
import torch

import headrace as hr
from headrace.build.nested import NestedStates
from headrace.errors import ConfigError, StateError
from tests.state import stateful
from tests.state.stateful import KINDS, Counting, loader, seen

Run = list[tuple[tuple[int, list[int], list[int]], dict[str, Any]]]


def two_epochs(made: hr.Loader) -> Run:
    """Give the batches that are left of two epochs, and the state after each."""
    return [(seen(batch), made.state_dict()) for epoch in made.epochs(2) for batch in epoch]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_stateful_objects_go_on_from_every_step(kind: str, workers: int) -> None:
    """New objects in a new loader give what those of the uninterrupted run gave. (S4-73)"""
    with loader(kind) as made:
        whole = two_epochs(made)

    for count in range(9):
        with loader(kind, workers=workers) as made:
            if count:
                made.load_state_dict(json.loads(json.dumps(whole[count - 1][1])))
            assert two_epochs(made) == whole[count:]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(
    ("kind", "calls"),
    [("samples", 9), ("awaited samples", 9), ("rows", 3), ("collate", 3), ("transform", 3)],
)
def test_what_is_read_ahead_does_not_show_in_the_state(kind: str, calls: int, workers: int) -> None:
    """With eight steps read ahead, the state after three takes counts the calls of three."""
    with loader(kind, workers=workers) as made:
        taken = made.stream()
        for _ in range(3):
            next(taken)

        (nested,) = made.state_dict()["nested"].values()

    assert nested == {"calls": calls}


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_stream_goes_on_from_what_was_taken(kind: str, workers: int) -> None:
    """What the broken stream read ahead is undone: counts go on without a gap."""
    with loader(kind) as made:
        whole = [batch for batch, _ in two_epochs(made)]

    with loader(kind, workers=workers) as made:
        taken = []
        for count in (1, 3, 4):
            taken += [seen(batch) for batch in made.stream(steps=count)]
            broken = made.stream()
            taken.append(seen(next(broken)))
            if len(taken) > 7:
                break

    assert taken[:8] == whole[:8]


@pytest.mark.parametrize("workers", [0, 3])
def test_a_state_of_a_batch_still_held_has_its_own_nested_state(workers: int) -> None:
    """`after=` gives the nested state as of that batch, not of the last one taken."""
    with loader("samples", workers=workers) as made:
        first, *_ = (next(stream) for stream in [made.stream()] for _ in range(4))

        held = made.state_dict(after=first)

    assert (held["next_step"], held["nested"]) == (1, {"dataset": {"calls": 3}})


def test_what_the_user_changes_between_epochs_stays() -> None:
    """Objects are put back only where something was read ahead of the consumer."""
    data = stateful.Samples()
    with hr.Loader(data, 3, workers=2) as made:
        for _ in made:
            pass
        data.state = {"calls": 100}

        counts = [batch["calls"].tolist() for batch in made]

    assert counts == [[101, 102, 103], [104, 105, 106], [107, 108, 109], [110, 111, 112]]


def test_a_state_shares_nothing_with_the_loader() -> None:
    """Neither the user's changes to a state nor the loader's progress show in the other."""
    with loader("rows") as made:
        stream = made.stream()
        next(stream)
        state = made.state_dict()
        kept = json.dumps(state)
        next(stream)
        assert json.dumps(state) == kept

        made.load_state_dict(state)
        state["nested"]["dataset"]["calls"] = 99
        state["dataset"]["columns"].clear()
        assert json.dumps(made.state_dict()) == kept

        other = made.state_dict()
        other["nested"]["dataset"]["calls"] = 99
        other["dataset"]["columns"].clear()
        assert json.dumps(made.state_dict()) == kept


def test_states_are_copied_in_and_out() -> None:
    """Objects may give out and keep one dict that they go on changing."""
    counting = Counting()
    states = NestedStates({"transform": counting})
    given = {"transform": {"calls": 7}}

    states.restore(given)
    counting.count()
    read = states.snapshot()
    counting.count()

    assert given == {"transform": {"calls": 7}}
    assert read == {"transform": {"calls": 8}}


@pytest.mark.parametrize("workers", [0, 3])
def test_stateful_objects_are_called_in_the_order_of_the_rows(workers: int) -> None:
    """Awaited samples come one after another, though each waits for another number of turns."""
    with loader("awaited samples", workers=workers) as made:
        calls = [batch["calls"].tolist() for batch in made]

    assert calls == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]


def test_a_loaded_state_may_be_loaded_again() -> None:
    """An object that keeps and changes what it is given does not change the caller's state."""
    with loader("samples") as made:
        whole = two_epochs(made)
        state = whole[2][1]
        for _ in range(3):
            made.load_state_dict(state)
            assert two_epochs(made) == whole[3:]


def test_states_of_other_objects_are_refused() -> None:
    """A state names the roles that have a state; a loader with others does not fit. (S4-76)"""
    with loader("samples") as made:
        state = made.state_dict()

    roles = ["collate", "dataset", "sample_transform", "transform"]
    with loader("all") as made, pytest.raises(StateError) as refused:
        made.load_state_dict(state)
    assert refused.value.differences == {"nested": (["dataset"], roles)}
    with hr.Loader(stateful.plain(), 3) as made, pytest.raises(StateError) as refused:
        made.load_state_dict({**state, "dataset": made.state_dict()["dataset"]})
    assert refused.value.differences == {"nested": (["dataset"], [])}


def test_weights_are_no_place_in_the_data() -> None:
    """A torch module as a transform keeps its parameters to itself and its threads in parallel."""

    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)

        def forward(self, batch: hr.Batch, keys: hr.PickKeys) -> dict[str, Any]:
            return {"id": batch["id"] * self.scale}

    with hr.Loader(stateful.plain(), 3, transform=Scale(), workers=2) as made:
        assert "nested" not in made.state_dict()
        assert made.stats()["workers"] == 2
        assert sorted(torch.cat([batch["id"] for batch in made]).tolist()) == list(range(0, 24, 2))


def test_any_batch_of_a_stateful_run_is_refused() -> None:
    """`batch_at` would have to run all steps before it, so it says what to do instead."""
    with loader("samples") as made, pytest.raises(ConfigError, match=r"Load the state of before"):
        made.batch_at(3)


def test_a_transform_of_another_device_is_snapshotted_at_delivery() -> None:
    """Where batches are transformed at delivery, the count is that of the deliveries."""

    def epoch(made: hr.Loader) -> list[int]:
        return [made.state_dict()["nested"]["transform"]["calls"] for _ in made.epoch(0)]

    with loader("transform", device="meta") as made:
        assert epoch(made) == [1, 2, 3, 4]
        state = made.state_dict()
    with loader("transform", device="meta") as made:
        made.load_state_dict(state)
        assert [made.state_dict()["nested"]["transform"]["calls"] for _ in made] == [5, 6, 7, 8]


class Interrupted(stateful.AwaitedSamples):
    """Waits for ever in one call, the first time, and counts once more when cancelled there."""

    def __init__(self, stops_at: int) -> None:
        super().__init__()
        self.stops_at = stops_at
        self.has_stopped = threading.Event()

    async def get(self, index: int) -> dict[str, Any]:
        if self.state["calls"] == self.stops_at and not self.has_stopped.is_set():
            self.count()
            self.has_stopped.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                self.count()
        return await super().get(index)


async def test_a_cancelled_take_does_not_move_the_objects() -> None:
    """Without threads, a step that was half built when its take was cancelled begins again."""
    with loader("awaited samples") as made:
        whole = [batch for batch, _ in two_epochs(made)]
    data = Interrupted(stops_at=4)

    async with hr.Loader(data, 3, workers=0) as made:
        stream = made.stream()
        taken = [seen(await anext(stream))]
        waiting = asyncio.create_task(anext(stream))
        await asyncio.to_thread(data.has_stopped.wait, 30)
        waiting.cancel()
        await asyncio.wait([waiting])
        taken += [seen(await anext(stream)) for _ in range(7)]

    assert taken == whole


async def test_objects_are_put_back_only_once_nobody_builds() -> None:
    """A broken stream may still be counting; the next one starts after it has ended."""
    with loader("awaited samples") as made:
        whole = [batch for batch, _ in two_epochs(made)]
    data = Interrupted(stops_at=7)

    with hr.Loader(data, 3, workers=2) as made:
        broken = made.stream()
        taken = [seen(next(broken))]
        assert await asyncio.to_thread(data.has_stopped.wait, 30)
        taken += [seen(batch) for batch in made.stream(steps=7)]

    assert taken == whole


def test_an_interrupted_step_begins_again_without_threads() -> None:
    """Ctrl-C in the middle of a step loses neither the step nor the counts."""
    with loader("samples") as made:
        whole = [batch for batch, _ in two_epochs(made)]

    class Interrupting(stateful.Samples):
        is_interrupted = False

        def __getitem__(self, index: int) -> dict[str, Any]:
            sample = super().__getitem__(index)
            if self.state["calls"] == 5 and not self.is_interrupted:
                self.is_interrupted = True
                raise KeyboardInterrupt
            return sample

    with hr.Loader(Interrupting(), 3, workers=0) as made:
        stream = made.stream()
        taken = [seen(next(stream))]
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        taken += [seen(next(stream)) for _ in range(7)]

    assert taken == whole


class Faulty(Counting):
    """A transform whose state cannot be read once it has counted to three."""

    def __call__(self, batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        self.count()
        return batch

    def state_dict(self) -> dict[str, Any]:
        if self.state["calls"] == 3:
            raise RuntimeError("no state today")
        return super().state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_cannot_be_read_fails_its_step(workers: int) -> None:
    """The batches before it arrive, and the error names the step and the user's words."""
    with hr.Loader(stateful.plain(), 3, transform=Faulty(), workers=workers) as made:
        stream = made.epoch(0)
        taken = [next(stream).step, next(stream).step]
        with pytest.raises(RuntimeError, match=r"step 2.*no state today"):
            next(stream)

    assert taken == [0, 1]


def test_a_state_that_cannot_be_loaded_is_the_users_error() -> None:
    """What `load_state_dict` of an object raises comes out of the loader's."""

    class Picky(stateful.Samples):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise KeyError("calls is of another version")

    with hr.Loader(Picky(), 3, workers=0) as made:
        state = made.state_dict()
        with pytest.raises(KeyError, match="another version"):
            made.load_state_dict(state)
