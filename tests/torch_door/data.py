"""Datasets of every kind that torch's loader takes, and what a pass over one comes to."""

from __future__ import annotations

import math
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

import headrace as hr

SAMPLES = 23


class Point(NamedTuple):
    """A sample with names."""

    x: np.ndarray[Any, Any]
    label: int


# As older code writes them.
Old = namedtuple("Old", ["first", "second"])


class Each(Dataset[Any]):
    """Samples made by a function of the index."""

    def __init__(self, make: Callable[[int], Any], samples: int = SAMPLES) -> None:
        self.make = make
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Many(Each):
    """The same, several at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(index) for index in indices]


class NoMany(Each):
    """One whose `__getitems__` says that it is not there, as torch allows."""

    __getitems__ = None


class ByName(Dataset[Any]):
    """Samples by text, for samplers that give texts."""

    def __init__(self) -> None:
        self.held = {f"name-{index}": index for index in range(SAMPLES)}

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, name: str) -> tuple[str, int]:
        return name, self.held[name]


def pair(index: int) -> Any:
    return torch.full((3,), index, dtype=torch.float32), index


def named(index: int) -> Any:
    return {"x": torch.arange(2) + index, "name": f"sample {index}", "size": index / 2}


def point(index: int) -> Any:
    return Point(np.full((2, 2), index, np.uint8), index)


def old(index: int) -> Any:
    return Old(np.float32(index), np.int16(-index))


def nested(index: int) -> Any:
    return [index, (index + 0.5, {"deep": [np.arange(3) + index, b"bytes"]}), True]


def ordered(index: int) -> Any:
    return OrderedDict(b=index, a=[index, "text"])


def user_dict(index: int) -> Any:
    return UserDict(only=index)


def ragged(index: int) -> Any:
    return torch.zeros(index % 3)


def unlike(index: int) -> Any:
    return [0] * (index % 2 + 1)


def opaque(index: int) -> Any:
    return object()


def none(index: int) -> Any:
    return None


def failing(index: int) -> Any:
    if index == 11:
        raise FileNotFoundError(2, "no such sample", "sample-11")
    return index


def datasets() -> dict[str, Any]:
    """Give one of each kind."""
    x = torch.arange(SAMPLES * 2, dtype=torch.float32).reshape(SAMPLES, 2)
    tensors = TensorDataset(x, torch.arange(SAMPLES))
    return {
        "tensors": tensors,
        "one tensor": TensorDataset(x.half()),
        "subset": Subset(tensors, [5, 1, 1, 22, 7, 9, 3]),
        "concat": ConcatDataset([tensors, Subset(tensors, range(4))]),
        "stack": StackDataset(x=x, y=tensors),
        "list of numbers": list(range(SAMPLES)),
        "list of floats": [index / 4 for index in range(SAMPLES)],
        "list of texts": [f"text {index}" for index in range(SAMPLES)],
        "array": np.arange(SAMPLES * 3, dtype=np.uint8).reshape(SAMPLES, 3),
        "tensor": x,
        "empty": [],
        "pair": Each(pair),
        "many": Many(pair),
        "no many": NoMany(pair),
        "named": Each(named),
        "point": Each(point),
        "old": Many(old),
        "nested": Each(nested),
        "ordered": Each(ordered),
        "user dict": Each(user_dict),
        "ragged": Each(ragged),
        "unlike": Each(unlike),
        "opaque": Each(opaque),
        "none": Each(none),
        "failing": Each(failing),
    }


def same(one: Any, other: Any) -> bool:
    """Whether two batches are equal, types and dtypes included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other) or type(one) is object


def taken(batches: Iterable[Any], most: int = 100) -> list[Any]:
    """Give what an iterator gives, with the class of an error in the place of its batch."""
    iterator = iter(batches)
    given: list[Any] = []
    while len(given) < most:
        try:
            given.append(next(iterator))
        except StopIteration:
            return given
        except Exception as error:
            given.append(type(error))
    return given


Made = Callable[[type[torch.utils.data.DataLoader[Any]]], torch.utils.data.DataLoader[Any]]


def outcome(
    kind: type[torch.utils.data.DataLoader[Any]], make: Made, passes: int = 2
) -> list[Any] | type[BaseException]:
    """Give the passes of a loader made in a process freshly seeded, or the class of its error.

    The last entry is the next draw of the process: what a loader takes from its generator moves
    the training's.
    """
    torch.manual_seed(1234)
    np.random.seed(5)
    try:
        loader = make(kind)
        given = [taken(loader) for _ in range(passes)]
    except Exception as error:
        return type(error)
    return [*given, torch.randint(2**40, ())]


def differ(theirs: Any, ours: Any) -> bool:
    """Whether two outcomes differ; an error of ours may be of a class below torch's."""
    if isinstance(theirs, type):
        return not (isinstance(ours, type) and issubclass(ours, theirs))
    if isinstance(theirs, list):
        return (
            not isinstance(ours, list)
            or len(theirs) != len(ours)
            or any(differ(one, other) for one, other in zip(theirs, ours, strict=True))
        )
    return not same(theirs, ours)


THEIRS = torch.utils.data.DataLoader
OURS = hr.torch.DataLoader
