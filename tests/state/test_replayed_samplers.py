"""Samplers of torch and of users: what of them goes into a state, and when none can."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import headrace as hr
from headrace.errors import ConfigError, StateError
from tests.state import loaders

N = 23
DATA = TensorDataset(torch.zeros(N))


class Walk:
    """Goes on with a generator of its own that only it knows, and says where it is."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.sample(range(N), N))

    def state_dict(self) -> dict[str, Any]:
        version, words, gauss = self.random.getstate()
        return {"version": version, "words": words, "gauss": gauss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.setstate((state["version"], tuple(state["words"]), state["gauss"]))


class Cursor(Walk):
    """Hears of epochs, and its state says how far the last one was read."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.yielded = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = random.Random(self.epoch).sample(range(N), N)
        for index in order[self.yielded :]:
            self.yielded += 1
            yield index
        self.yielded = 0

    def state_dict(self) -> dict[str, Any]:
        return {"yielded": self.yielded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.yielded = state["yielded"]


class Secret:
    """Yields another order each time, of which nothing is known."""

    def __init__(self) -> None:
        self.random = random.Random(3)

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.sample(range(N), N))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Each is made by its seed; a resuming process may well have another one.
SAMPLERS: dict[str, Any] = {
    "random": lambda seed: RandomSampler(range(N)),
    "random with a generator": lambda seed: RandomSampler(range(N), generator=generator(seed)),
    "with replacement": lambda seed: RandomSampler(
        range(N), replacement=True, num_samples=30, generator=generator(seed)
    ),
    "weighted": lambda seed: WeightedRandomSampler([1.0, 2.0] * 11, 30, generator=generator(seed)),
    "subset": lambda seed: SubsetRandomSampler(range(0, N, 2), generator=generator(seed)),
    "distributed": lambda seed: DistributedSampler(DATA, num_replicas=2, rank=1),
    "batches": lambda seed: BatchSampler(
        RandomSampler(range(N), generator=generator(seed)), 4, True
    ),
    "stateful": Walk,
    "stateful batches": lambda seed: BatchSampler(Walk(seed), 4, False),
    "hears of epochs": lambda seed: Cursor(),
    "list": lambda seed: list(range(N)),
}


def loader(sampler: Any, **knobs: Any) -> hr.Loader:
    batch_size = None if isinstance(sampler, BatchSampler) else 4
    return hr.Loader(loaders.arrays(N), batch_size, sampler=sampler, workers=2, **knobs)


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_epoch_is_replayed_from_its_start(name: str) -> None:
    """Whatever the generators of the other process were, the state brings its own. (S4-73)"""
    with loader(SAMPLERS[name](5), content_digest=True) as made:
        whole = list(loaders.run(made))

    for count in range(1, len(whole)):
        with loader(SAMPLERS[name](99), content_digest=True) as made:
            made.load_state_dict(json.loads(json.dumps(whole[count - 1][1])))
            assert made.resume == "replay"
            assert list(loaders.run(made)) == whole[count:]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("random", 0),
        ("random with a generator", 1),
        ("batches", 1),
        ("stateful", 1),
        ("hears of epochs", 0),
        ("list", 0),
    ],
)
def test_a_state_has_what_the_epoch_starts_from(name: str, parts: int) -> None:
    """One text for each generator or state of the sampler's own, as of the epoch's start."""
    with loader(SAMPLERS[name](5)) as made:
        states = [state["sampler_epoch"] for _, state in loaders.run(made, epochs=2)]

    assert {len(state) for state in states} == {parts}
    assert all(isinstance(text, str) for state in states for text in state)
    by_epoch = [states[:3], states[-1:]]
    assert all(state == by_epoch[0][0] for state in by_epoch[0])
    assert (by_epoch[0][0] != by_epoch[1][0]) == bool(parts)


def test_a_stateful_sampler_is_as_it_would_be_alone() -> None:
    """Its epochs are those of one object that nobody ever set back."""
    alone = Walk()
    wanted = [list(alone) for _ in range(4)]

    with loader(Walk()) as made:
        made.batch_at(15)
        made.state_dict()
        taken = [[i for batch in made for i in batch.indices.tolist()] for _ in range(4)]

    assert taken == wanted


def test_a_sampler_that_nobody_can_replay_says_so() -> None:
    """`resume` is "none" from the start, states say it, and no loader takes them back. (S0-64)"""
    with loader(Secret()) as made:
        assert made.resume == "none"
        assert [batch.step for batch in made.stream(steps=5)] == [0, 1, 2, 3, 4]
        # Its lists of epochs are gone once others were drawn, and no state needs them.
        made.batch_at(8)
        made.batch_at(14)
        state = made.state_dict()
        assert (state["resume"], state["next_step"]) == ("none", 5)
        acts: list[Any] = [made.load_state_dict, made.verify]
        for act in acts:
            with pytest.raises(StateError, match="give it a generator") as refused:
                act(state)
            assert refused.value.differences == {"resume": ("none", "seek or replay")}
        # The run itself is not harmed.
        assert [batch.step for batch in made.stream(start=18, steps=3)] == [18, 19, 20]


def test_states_of_a_stateful_sampler_must_be_json() -> None:
    """The error comes when the loader is made, not when the first state is saved."""

    class Odd(Walk):
        def state_dict(self) -> dict[str, Any]:
            return {"random": self.random}

    with pytest.raises(ConfigError, match="plain JSON from state_dict of Odd"):
        loader(Odd())


@pytest.mark.parametrize("name", ["random with a generator", "stateful"])
@pytest.mark.parametrize("damage", [[], ["?"], ["AAAA"], ["{}"], ["null"], ["a", "b"]])
def test_damaged_generator_states_are_refused(name: str, damage: list[str]) -> None:
    """Texts that no generator gave, and too few or many of them."""
    with loader(SAMPLERS[name](5)) as made:
        states = [state for _, state in loaders.run(made, epochs=2)]

        for state in (states[2], states[-1]):
            with pytest.raises(StateError) as refused:
                made.load_state_dict({**state, "sampler_epoch": damage})
            assert list(refused.value.differences) == ["sampler_epoch"]


def test_generator_states_of_another_run_are_found_by_the_picks() -> None:
    """Inside an epoch the order check tells that the generator is not the one that ran."""
    with loader(SAMPLERS["random with a generator"](5)) as made:
        ours = [state for _, state in loaders.run(made, epochs=1)][2]
    with loader(SAMPLERS["random with a generator"](6)) as made:
        theirs = [state for _, state in loaders.run(made, epochs=1)][2]

        with pytest.raises(StateError) as refused:
            made.load_state_dict({**ours, "sampler_epoch": theirs["sampler_epoch"]})

    assert list(refused.value.differences) == ["order_check"]


@pytest.mark.parametrize("name", ["random with a generator", "stateful", "distributed"])
def test_samplers_of_another_length_or_kind_are_refused(name: str) -> None:
    """Name and length of the iterable stand in the fingerprint. (S4-76)"""
    with loader(SAMPLERS[name](5)) as made:
        next(made.stream())
        state = made.state_dict()

    with loader(SubsetRandomSampler(range(9))) as made, pytest.raises(StateError) as refused:
        made.load_state_dict(state)

    assert {"sampler/of", "sampler/length"} <= set(refused.value.differences)


@pytest.mark.parametrize("name", ["random with a generator", "stateful"])
def test_a_history_within_one_epoch_needs_no_other(name: str) -> None:
    """The epoch's start in the state is enough to verify it, whatever generators are here."""
    with loader(SAMPLERS[name](5)) as made:
        for _ in made.stream(start=made.sampler.first_step(1), steps=3):
            pass
        state = made.state_dict()

    with loader(SAMPLERS[name](99)) as made:
        assert made.verify(state) == 3


def test_going_back_in_the_same_loader_keeps_its_epochs() -> None:
    """After a load the epochs before are drawn from the loader's own start, if asked for."""
    with loader(SAMPLERS["random with a generator"](5)) as made:
        whole = list(loaders.run(made))
        made.load_state_dict(whole[7][1])
        assert list(loaders.run(made)) == whole[8:]
        made.load_state_dict(whole[2][1])
        assert list(loaders.run(made)) == whole[3:]
