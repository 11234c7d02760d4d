"""Torch's loader and ours, side by side over a table of datasets and arguments."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from tests.torch_door.data import OURS, SAMPLES, THEIRS, Made, datasets, differ, outcome


def lengths_of(data: Any) -> int:
    return max(1, len(data))


ORDERS: dict[str, Any] = {
    "stored": lambda data: {},
    "not shuffled": lambda data: {"shuffle": False},
    "shuffled": lambda data: {"shuffle": True},
    "own generator": lambda data: {
        "shuffle": True,
        "generator": torch.Generator().manual_seed(7),
    },
    "generator unused": lambda data: {"generator": torch.Generator().manual_seed(7)},
    "list": lambda data: {"sampler": list(range(0, len(data), 2))},
    "with replacement": lambda data: {
        "sampler": RandomSampler(range(lengths_of(data)), replacement=True, num_samples=41)
    },
    "shared generator": lambda data: shared_generator(data),
    "subset": lambda data: {"sampler": SubsetRandomSampler(range(min(5, len(data))))},
    "weighted": lambda data: {"sampler": WeightedRandomSampler([1.0] * lengths_of(data), 9)},
    "outside": lambda data: {"sampler": [0, len(data), 1]},
    "negative": lambda data: {"sampler": [-1, -2, 0]},
    "twice": lambda data: {"sampler": SequentialSampler(data), "shuffle": True},
    "batches": lambda data: {
        "batch_sampler": BatchSampler(RandomSampler(range(lengths_of(data))), 3, False)
    },
    "uneven batches": lambda data: {"batch_sampler": [[0], [0, 0, 0], [0, 0]]},
    "an empty batch": lambda data: {"batch_sampler": [[0], [], [0]]},
    "batches and sampler": lambda data: {"batch_sampler": [[0]], "sampler": [0]},
}


def shared_generator(data: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    sampler = RandomSampler(range(lengths_of(data)), generator=generator)
    return {"sampler": sampler, "generator": generator}


DIMENSIONS: dict[str, list[Any]] = {
    "dataset": list(datasets()),
    "order": list(ORDERS),
    "batch_size": ["default", 4, 64, None, 0, -1, 2.0],
    "drop_last": [False, True],
    "threads": [
        {},
        {"num_workers": 1},
        {"num_workers": 3},
        {"num_workers": 3, "prefetch_factor": 1},
        {"num_workers": 2, "prefetch_factor": 5, "in_order": False},
        {"num_workers": 2, "timeout": 60.0, "multiprocessing_context": "spawn"},
    ],
}


def made(chosen: dict[str, Any]) -> tuple[Made, Made]:
    """Give what makes torch's loader and ours; torch's always builds in this process."""

    def make(kind: Any, threads: dict[str, Any]) -> Any:
        data = datasets()[chosen["dataset"]]
        knobs = {**ORDERS[chosen["order"]](data), "drop_last": chosen["drop_last"], **threads}
        if chosen["batch_size"] != "default":
            knobs["batch_size"] = chosen["batch_size"]
        return kind(data, **knobs)

    return (lambda kind: make(kind, {}), lambda kind: make(kind, chosen["threads"]))


def pairwise(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Give combinations in which any two values of two dimensions meet at least once."""
    wanted = {
        pair for values in itertools.product(*map(_places, DIMENSIONS)) for pair in pairs(values)
    }
    while wanted:
        tries = [tuple(rng.choice(_places(name)) for name in DIMENSIONS) for _ in range(20)]
        best = max(tries, key=lambda values: len(pairs(values) & wanted))
        if pairs(best) & wanted:
            wanted -= pairs(best)
            yield {name: DIMENSIONS[name][at] for name, at in zip(DIMENSIONS, best, strict=True)}


def _places(name: str) -> range:
    return range(len(DIMENSIONS[name]))


def pairs(values: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    return {
        (a, one, b, other) for (a, one), (b, other) in itertools.combinations(enumerate(values), 2)
    }


def differences(chosen: Iterable[dict[str, Any]]) -> list[Any]:
    found = []
    for each in chosen:
        make_theirs, make_ours = made(each)
        theirs, ours = outcome(THEIRS, make_theirs), outcome(OURS, make_ours)
        if differ(theirs, ours):
            found.append((each, theirs, ours))
    return found


def test_batches_order_types_and_errors_are_those_of_torch(seed: int) -> None:
    """Any dataset and any arguments give what torch gives, and move its generators alike.

    (S4-18, S4-20, S4-38: sizes, one generator that advances, what excludes what)
    """
    chosen = list(pairwise(random.Random(seed)))

    assert differences(chosen) == []
    assert len(chosen) > 150


@pytest.mark.full
@pytest.mark.parametrize("dataset", DIMENSIONS["dataset"])
def test_the_whole_table_is_that_of_torch(dataset: str) -> None:
    """All arguments together with a dataset give what torch gives."""
    others = {name: values for name, values in DIMENSIONS.items() if name != "dataset"}
    whole = itertools.product(*others.values())
    chosen = [{"dataset": dataset, **dict(zip(others, each, strict=True))} for each in whole]

    assert differences(chosen) == []


def test_the_table_has_rows_of_every_outcome() -> None:
    """The table above compares whole passes, passes with errors in them, and refusals."""
    whole = outcome(THEIRS, lambda kind: kind(datasets()["pair"], batch_size=4))
    broken = outcome(THEIRS, lambda kind: kind(datasets()["failing"], batch_size=4))
    refused = outcome(THEIRS, lambda kind: kind(datasets()["pair"], batch_size=0))

    assert [len(batches) for batches in whole[:2]] == [-(-SAMPLES // 4)] * 2
    assert broken[0][2] is FileNotFoundError
    assert broken[0][3].tolist() == [12, 13, 14, 15]
    assert refused is ValueError
