"""The probe before a run looks at sample_transform too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.pick import PickKey
from tests.loader.kinds import KINDS

counted = [0]


def counting(sample: Any, key: PickKey) -> int:
    counted[0] += 1
    return counted[0]


IMPURE: dict[str, tuple[Callable[[Any, PickKey], Any], str]] = {
    "random": (lambda sample, key: random.random(), "two fetches differ"),
    "numpy": (lambda sample, key: np.random.rand(2), "two fetches differ"),
    "torch": (lambda sample, key: torch.rand(2), "two fetches differ"),
    "unused draw": (
        lambda sample, key: [0, torch.rand(2)][:1],
        "draws from the global generator of torch",
    ),
    "counting": (counting, "two fetches differ"),
}
DATA: dict[str, Callable[[], Any]] = {
    "rows": lambda: {"x": np.arange(20)},
    "samples": lambda: list(range(20)),
    "rows to wait for": lambda: KINDS["awaited rows"](20),
    "samples to wait for": lambda: KINDS["fetch"](20),
}


@pytest.mark.parametrize("name", IMPURE)
@pytest.mark.parametrize("data", DATA)
def test_a_transform_of_samples_that_is_not_pure_is_named(name: str, data: str) -> None:
    """Draws from a global generator, and anything else that differs for one key."""
    transform, said = IMPURE[name]

    with (
        hr.Loader(DATA[data](), 4, sample_transform=transform, probe=True) as loader,
        pytest.raises(hr.PurityError, match=f"^sample_transform of .*, sample 0.*{said}"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("data", [*DATA, *KINDS])
def test_draws_from_the_key_are_pure(data: str) -> None:
    """Every kind of dataset runs with a probed transform; the batches are as without."""

    def run(probe: bool) -> list[list[float]]:
        given = DATA[data]() if data in DATA else KINDS[data](20)
        keyed = None if "batch" in data else draw
        with hr.Loader(given, 4, sample_transform=keyed, probe=probe) as loader:
            return [torch.as_tensor(batch.columns[0]).flatten().tolist() for batch in loader]

    def draw(sample: Any, key: PickKey) -> float:
        return key.rng().next_double()

    assert run(probe=True) == run(probe=False)


def test_an_impure_dataset_below_a_pure_transform_is_named_itself() -> None:
    """The transform is not blamed for what it was given."""

    class Random:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> float:
            return random.random()

    def same(sample: float, key: PickKey) -> float:
        return sample

    with (
        hr.Loader(Random(), 4, sample_transform=same, probe=True) as loader,
        pytest.raises(hr.PurityError, match=r"^Random\(20 samples\), sample 0: two fetches differ"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("knobs", [{"probe": False}, {"pure": False}])
def test_the_probe_of_a_transform_can_be_switched_off(knobs: dict[str, Any]) -> None:
    """By either knob, as that of a dataset."""
    transform = IMPURE["random"][0]

    with hr.Loader(list(range(20)), 4, sample_transform=transform, **knobs) as loader:
        assert len(list(loader)) == 5


def test_the_probe_makes_four_samples() -> None:
    """Two samples, twice each."""
    seen: list[int] = []

    def note(sample: int, key: PickKey) -> int:
        seen.append(key.sample)
        return sample

    with hr.Loader(list(range(20)), 4, workers=0, sample_transform=note, probe=True) as loader:
        next(iter(loader))

    assert seen[:4] == [0, 0, 9, 9]
    assert len(seen) == 8
