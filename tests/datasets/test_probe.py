"""The purity probe."""

from __future__ import annotations

import random
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from headrace.datasets.probe import freeze, probe_purity
from headrace.errors import PurityError

Point = namedtuple("Point", ["x", "y"])


@dataclass
class Record:
    """A sample as a dataclass."""

    x: Any
    label: int


class Opaque:
    """Equal to itself alone."""


PURE: list[Callable[[int], Any]] = [
    lambda index: index,
    lambda index: (index, "text", b"bytes", None, True, 1.5, 2j),
    lambda index: {"a": np.arange(index), "b": [torch.ones(index), {"c": index}]},
    lambda index: np.array([np.nan, 1.0], np.float16),
    lambda index: torch.tensor([torch.nan, -torch.nan], dtype=torch.bfloat16),
    lambda index: (float("nan"), complex("nan"), np.float32("nan")),
    lambda index: Point(index, np.array(["a", "b"])),
    lambda index: Record(torch.zeros(0, 3), index),
    lambda index: torch.eye(3).to_sparse(),
    lambda index: torch.zeros(2, dtype=torch.complex64).conj(),
    lambda index: Opaque(),
    lambda index: np.array([Opaque(), np.zeros(2)], object),
    lambda index: np.array(["text", float("nan"), None], object),
    lambda index: np.random.default_rng(index).random(3),
    lambda index: torch.rand(3, generator=torch.Generator().manual_seed(index)),
    lambda index: random.Random(index).random(),
]


@pytest.mark.parametrize("get", PURE)
def test_pure_samples_pass(get: Callable[[int], Any]) -> None:
    """NaN equals NaN; generators of one's own are no global ones (S0-74)."""
    probe_purity(get, [0, 3, 7])


class Counter:
    """Gives something else at each call."""

    def __init__(self, *samples: Any) -> None:
        self.samples = samples
        self.calls = 0

    def __call__(self, index: int) -> Any:
        self.calls += 1
        return self.samples[(self.calls - 1) % len(self.samples)]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (1, 2, "at the sample itself: int of different values"),
        ((1, 2), (1, 3), "at 1: int of different values"),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, "at a/b: str of different values"),
        (np.zeros(2), np.zeros(3), r"first ndarray float64 \(2,\), then ndarray float64 \(3,\)"),
        (np.zeros(2), np.zeros(2, "f4"), "first ndarray float64.*then ndarray float32"),
        (np.zeros(2), torch.zeros(2), "first ndarray.*then Tensor"),
        (np.zeros(1), -np.zeros(1), "different values"),
        (np.array([np.nan]), np.array([1.0]), "different values"),
        (torch.zeros(2), torch.ones(2), r"Tensor torch\.float32 \(2,\) of different values"),
        (0.0, -0.0, "float of different values"),
        ([1], [1, 2], "at the sample itself: first list of 1 parts, then list of 2 parts"),
        ({"a": 1}, {"b": 1}, "first int, then nothing"),
        (np.array(["x"], object), np.array(["y"], object), "object .1,. of different values"),
        (True, 1, "first bool, then int"),
    ],
)
def test_two_fetches_that_differ_are_refused(first: Any, second: Any, message: str) -> None:
    """The error names dataset, index, place and difference, and the cures (S0-74)."""
    with pytest.raises(PurityError, match=message) as caught:
        probe_purity(Counter(first, second), [5], "MyData(10 samples)")

    assert str(caught.value).startswith("MyData(10 samples), sample 5: two fetches differ at")
    assert "sample_transform(sample, key)" in str(caught.value)


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (random.random, "random"),
        (lambda: np.random.rand(), r"numpy\.random"),
        (lambda: torch.rand(1), "torch"),
    ],
)
def test_drawing_from_a_global_generator_is_refused(draw: Callable[[], Any], name: str) -> None:
    """Even where the bytes come out the same (S0-59, S0-74)."""

    def get(index: int) -> int:
        draw()
        return index

    with pytest.raises(PurityError, match=f"sample 5 draws from the global generator of {name}"):
        probe_purity(get, [5])


def test_a_probe_changes_no_draw_of_the_program() -> None:
    """States are put back, also after a refusal."""

    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    def seeded() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seeded()
    wanted = drawn()
    seeded()

    with pytest.raises(PurityError):
        probe_purity(lambda index: drawn()[0], [0, 1])

    assert drawn() == wanted


def test_a_draw_by_another_thread_is_not_held_against_a_dataset() -> None:
    """A generator that moved once only may have been moved by anyone."""
    calls = Counter(*range(2))

    def get(index: int) -> int:
        if calls(index) == 0:
            random.random()
        return index

    probe_purity(get, [3])


def test_memory_that_is_written_again_is_refused() -> None:
    """A sample that a later fetch overwrites would change inside a batch."""
    scratch = np.zeros(3)

    def get(index: int) -> np.ndarray:
        scratch[:] = index
        return scratch

    with pytest.raises(PurityError, match="sample 1: its memory was written again"):
        probe_purity(get, [1, 2])


def test_errors_of_the_dataset_pass() -> None:
    """The probe hides nothing; the generators are put back all the same."""
    with pytest.raises(KeyError):
        probe_purity({}.__getitem__, [0])


def test_a_frozen_sample_is_independent_of_its_memory() -> None:
    """Facts stay when the memory changes."""
    array = np.zeros(2)
    frozen = freeze({"a": array})

    array += 1

    assert frozen != freeze({"a": array})
    assert frozen == freeze({"a": np.zeros(2)})
