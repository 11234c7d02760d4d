"""Samplers of torch: their order, and the same order again."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from headrace.errors import ConfigError, IndexOutOfRangeError
from headrace.rng import derive
from headrace.samplers import Sampler
from headrace.samplers.torch_sampler import TorchBatchSampler, TorchSampler
from headrace.testing.sampler_contract import SamplerContract

DATA = range(23)


def seeded(seed: int) -> torch.Generator:
    """Give a generator with a seed."""
    return torch.Generator().manual_seed(seed)


def epochs(sampler: Sampler, wanted: list[int]) -> list[list[int]]:
    """Give the samples of whole epochs, in the order in which they are asked for."""
    steps = [range(sampler.first_step(e), sampler.first_step(e + 1)) for e in wanted]
    return [sampler.picks(s).sample.tolist() for s in steps]


class GlobalOrder:
    """Draws from torch's global generator, as a sampler that nobody can replay."""

    def __len__(self) -> int:
        return 23

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(23).tolist())


class ByEpoch:
    """Hears of the epoch, and counts how often it is drawn."""

    def __init__(self) -> None:
        self.epoch, self.drawn = -1, 0

    def __len__(self) -> int:
        return 5

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.drawn += 1
        return ((i + self.epoch) % 5 for i in range(5))


class TestRandomSampler(SamplerContract):
    """Without a generator: it is given one."""

    def make(self) -> Sampler:
        return TorchSampler(RandomSampler(DATA), 23, 5, drop_last=False)


class TestOwnGenerator(SamplerContract):
    """With a generator: its state is carried on from epoch to epoch."""

    far_epoch = 12

    def make(self) -> Sampler:
        return TorchSampler(RandomSampler(DATA, generator=seeded(3)), 23, 5)


class TestReplacement(SamplerContract):
    """Draws with replacement."""

    covers = False

    def make(self) -> Sampler:
        return TorchSampler(WeightedRandomSampler([1.0] * 23, 40), 23, 7, drop_last=False)


class TestPlainList(SamplerContract):
    """A list of indices is the same every epoch."""

    def make(self) -> Sampler:
        return TorchSampler(list(DATA), 23, 5, drop_last=False)


class TestBatchSampler(SamplerContract):
    """A batch sampler of torch around a sampler without a generator."""

    def make(self) -> Sampler:
        return TorchBatchSampler(BatchSampler(RandomSampler(DATA), 5, False), 23)


class TestListedBatches(SamplerContract):
    """Batches of any sizes."""

    def make(self) -> Sampler:
        return TorchBatchSampler([[3, 1], [2], [0, 4, 6], [5]], 7)


def test_a_sampler_without_generator_is_given_that_of_the_epoch() -> None:
    """Its order is what torch makes of a generator seeded by stream 109."""
    sampler = RandomSampler(DATA)
    by_headrace = epochs(TorchSampler(sampler, 23, 23, seed=7), [4, 0])

    by_torch = [
        list(RandomSampler(DATA, generator=seeded(derive(7, epoch, 0, 0, 109)))) for epoch in (4, 0)
    ]

    assert by_headrace == by_torch
    assert sampler.generator is None


def test_a_generator_of_its_own_goes_on_as_in_torch() -> None:
    """Epochs asked for in any order are those of one generator that is never reset (S4-20)."""
    reference = RandomSampler(DATA, generator=seeded(3))
    by_torch = [list(reference) for _ in range(15)]
    sampler = TorchSampler(RandomSampler(DATA, generator=seeded(3)), 23, 23)

    wanted = [2, 0, 14, 13, 1, 7, 2]

    assert epochs(sampler, wanted) == [by_torch[epoch] for epoch in wanted]
    assert sampler.resume == "replay"


def test_a_generator_state_crosses_processes_as_json() -> None:
    """The state at an epoch's start is enough, whatever the other process's generator was."""
    sampler = TorchSampler(RandomSampler(DATA, generator=seeded(3)), 23, 5)
    state = json.loads(json.dumps(sampler.epoch_state(6)))
    other = TorchSampler(RandomSampler(DATA, generator=seeded(99)), 23, 5)
    own = epochs(other, [0, 6])

    restored = other.restored(6, state)

    assert epochs(restored, [7, 6, 9]) == epochs(sampler, [7, 6, 9])
    with pytest.raises(ConfigError, match="epoch 6 or later, where the restored state begins"):
        epochs(restored, [5])
    assert epochs(other, [0, 6]) == own


def test_only_a_sampler_with_its_own_generator_has_a_state() -> None:
    """Others need none, and are not given one."""
    sampler = TorchSampler(RandomSampler(DATA), 23, 5)
    state = TorchSampler(RandomSampler(DATA, generator=seeded(3)), 23, 5).epoch_state(0)

    assert sampler.epoch_state(3) == []
    with pytest.raises(ConfigError, match="a state of each of 0 generators, got 1"):
        sampler.restored(3, state)


@pytest.mark.parametrize(
    ("sampler", "resume"),
    [
        (RandomSampler(DATA), "replay"),
        (RandomSampler(DATA, generator=seeded(1)), "replay"),
        (SubsetRandomSampler(DATA), "replay"),
        (SequentialSampler(DATA), "replay"),
        (DistributedSampler(DATA, 2, 0), "replay"),
        (list(DATA), "replay"),
        (np.arange(23), "replay"),
        (GlobalOrder(), "none"),
        (BatchSampler(RandomSampler(DATA), 4, True), "replay"),
        (BatchSampler(GlobalOrder(), 4, True), "none"),
    ],
)
def test_a_sampler_says_whether_it_can_be_resumed(sampler: Any, resume: str) -> None:
    """ "none" where nothing makes it yield an epoch again, and not otherwise (S0-64)."""
    batched = isinstance(sampler, BatchSampler)
    made = TorchBatchSampler(sampler, 23) if batched else TorchSampler(sampler, 23, 4)

    assert made.resume == resume


def test_who_knows_better_may_say_so() -> None:
    """`replayable` overrides what the type shows."""
    assert TorchSampler(GlobalOrder(), 23, 4, replayable=True).resume == "replay"
    assert TorchSampler(list(DATA), 23, 4, replayable=False).resume == "none"


def test_set_epoch_is_called_before_an_epoch_is_drawn() -> None:
    """A sampler that hears of epochs gives each its own, drawn once while it is in use."""
    by_epoch = ByEpoch()
    sampler = TorchSampler(by_epoch, 5, 5)

    assert epochs(sampler, [0, 3, 3, 0]) == [
        [0, 1, 2, 3, 4],
        [3, 4, 0, 1, 2],
        [3, 4, 0, 1, 2],
        [0, 1, 2, 3, 4],
    ]
    assert by_epoch.drawn == 2


def test_the_distributed_sampler_hears_of_epochs() -> None:
    """Its epochs are those of torch after `set_epoch`."""
    reference = DistributedSampler(DATA, 2, 0, seed=1)
    reference.set_epoch(3)
    sampler = TorchSampler(DistributedSampler(DATA, 2, 0, seed=1), 23, 12)

    assert epochs(sampler, [3]) == [list(reference)]
    assert sampler.locate(5) == (5, 0)


def test_another_list_for_the_same_epoch_is_an_error() -> None:
    """A sampler that cannot repeat an epoch that is no longer kept says so, with the cure."""
    sampler = TorchSampler(GlobalOrder(), 23, 23)
    kept = epochs(sampler, [0, 1, 1, 0])

    assert kept[0] == kept[3]
    assert kept[1] == kept[2]
    epochs(sampler, [2, 3])
    with pytest.raises(ConfigError, match=r"whenever epoch 0 is asked for, .*`set_epoch\(epoch\)`"):
        epochs(sampler, [0])


@pytest.mark.parametrize(
    ("drawn", "length", "said"),
    [
        ([1, 2], 3, "wanted 3 elements from Listed in epoch 0, as its len says, got 2"),
        ([1, 2, 0, 1], 3, "wanted 3 elements from Listed .*, got 'more than 3'"),
        (["a"], 1, "wanted integers as sample indices from Listed in epoch 0"),
        ([1.0], 1, "wanted integers as sample indices"),
        ([2**70], 1, "wanted integers as sample indices"),
    ],
)
def test_a_wrong_list_is_an_error_that_names_the_sampler(
    drawn: list[Any], length: int, said: str
) -> None:
    """Length and type are checked against what the sampler says of itself (S0-64)."""
    sampler = TorchSampler(Listed(drawn, length), 3, 1)

    with pytest.raises(ConfigError, match=said):
        sampler.picks(range(1))


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_outside_the_data_is_named(index: int) -> None:
    """The message has the sampler, the epoch, the position and the length (S0-64)."""
    sampler = TorchSampler([0, 2, index], 3, 1)

    with pytest.raises(IndexOutOfRangeError, match=f"list in epoch 0, position 2: index {index} "):
        sampler.picks(range(1))


def test_a_sampler_without_a_length_is_an_error() -> None:
    """Steps could not be placed in epochs."""
    with pytest.raises(ConfigError, match="Add __len__"):
        TorchSampler(iter([1, 2]), 3, 1)


def test_an_endless_sampler_is_cut_and_named() -> None:
    """One element more than the length is enough to see that it is wrong."""
    endless = Listed(iter(int, 1), 3)

    with pytest.raises(ConfigError, match="got 'more than 3'"):
        TorchSampler(endless, 3, 1).picks(range(1))


def test_batches_of_a_batch_sampler_are_its_own() -> None:
    """Short and long batches come as they are, and slots count inside each."""
    sampler = TorchBatchSampler([[3, 1], [2], [0, 4, 6], [5]], 7)
    picks = sampler.picks(range(1, 5))

    assert picks.sample.tolist() == [2, 0, 4, 6, 5, 3, 1]
    assert picks.step.tolist() == [1, 2, 2, 2, 3, 4, 4]
    assert picks.slot.tolist() == [0, 0, 1, 2, 0, 0, 1]
    assert [sampler.global_batch_size, sampler.num_picks, sampler.steps_in(0)] == [3, 7, 4]


def test_sizes_of_torch_batch_samplers_are_known_without_drawing() -> None:
    """Making one draws nothing from a batch sampler that tells its sizes."""
    inner = ByEpoch()

    full, short = (TorchBatchSampler(BatchSampler(inner, 2, drop), 5) for drop in (True, False))

    assert [full.num_picks, short.num_picks, inner.drawn] == [4, 5, 0]


def test_a_batch_that_is_empty_or_too_large_is_an_error() -> None:
    """Later batches must fit what the first epoch, or `batch_size`, promised."""
    with pytest.raises(ConfigError, match="batches of 1 to 2 indices from list in epoch 0, got 0"):
        TorchBatchSampler([[1, 2], []], 3)
    with pytest.raises(ConfigError, match="batches of 1 to 2 indices from list in epoch 0, got 3"):
        TorchBatchSampler([[1, 2, 0]], 3, batch_size=2)


def test_epochs_without_steps_are_an_error_only_when_asked_for() -> None:
    """A batch larger than the list gives no steps (C11)."""
    sampler = TorchSampler([0, 1], 2, 3)

    assert sampler.steps_in(0) == 0
    with pytest.raises(ValueError, match="there is no step 0"):
        sampler.locate(0)


def test_its_schedule_cannot_change() -> None:
    """A list that the sampler cut for one batch size is not cut again."""
    with pytest.raises(ConfigError, match="TorchSampler"):
        TorchSampler(list(DATA), 23, 5).rescheduled([(0, 4, 23)])


def test_it_travels_to_another_process_with_its_generator() -> None:
    """A pickle keeps the generator's place."""
    sampler = TorchSampler(RandomSampler(DATA, generator=seeded(3)), 23, 23)
    epochs(sampler, [0, 1])

    copy = pickle.loads(pickle.dumps(sampler))

    assert epochs(copy, [2, 0]) == epochs(sampler, [2, 0])


class Listed:
    """Yields a list and claims a length."""

    def __init__(self, drawn: Any, length: int) -> None:
        self.drawn, self.length = drawn, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.drawn)
