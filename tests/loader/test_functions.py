"""Flags, names and functions are checked when the loader is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr

DATA = np.arange(20)
FLAGS = ["shuffle", "content_digest", "drop_last", "pure", "probe"]


@pytest.mark.parametrize("knob", FLAGS)
@pytest.mark.parametrize("value", ["False", "x", 0, 1, 0.0, []])
def test_a_flag_is_true_or_false(knob: str, value: Any) -> None:
    """Text that reads as False would count as True."""
    knobs: dict[str, Any] = {knob: value}

    with pytest.raises(hr.ConfigError, match=f"^{knob}: wanted True.* False.*, got "):
        hr.Loader(DATA, 4, **knobs)


@pytest.mark.parametrize("knob", FLAGS)
@pytest.mark.parametrize("value", [True, False, np.True_, np.False_])
def test_flags_of_numpy_are_flags(knob: str, value: Any) -> None:
    """They come out of comparisons of arrays."""
    knobs: dict[str, Any] = {knob: value}

    with hr.Loader(DATA, 4, **knobs) as loader:
        assert len(list(loader)) == 5


@pytest.mark.parametrize("names", [[1], [""], "x", 5, [None]])
def test_names_are_texts(names: Any) -> None:
    """None is empty, and one text is no list of them."""
    with pytest.raises(hr.ConfigError, match=r"^names: wanted a list of names, none empty, got"):
        hr.Loader(DATA, 4, names=names)


def one(sample: Any) -> Any:
    return sample


def three(samples: Any, keys: Any, more: Any) -> Any:
    return samples


def nothing() -> None:
    return None


REFUSED: dict[str, tuple[str, Any, str]] = {
    "no transform of samples": ("sample_transform", 5, "a function f(sample, key), got 5."),
    "no collate": ("collate", "x", "a function f(samples, keys), got 'x'."),
    "no transform": ("transform", [], "a function f(batch, pick_keys), got []."),
    "one argument for a sample": (
        "sample_transform",
        lambda sample: sample,
        "a function f(sample, key), got '<lambda>(sample)'.",
    ),
    "one argument for a batch": (
        "transform",
        one,
        "a function f(batch, pick_keys), got 'one(sample)'.",
    ),
    "three arguments for samples": (
        "collate",
        three,
        "a function f(samples, keys), got 'three(samples, keys, more)'.",
    ),
    "no argument for samples": (
        "collate",
        nothing,
        "a function f(samples, keys), got 'nothing()'.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_that_cannot_be_called_is_refused_by_name(name: str) -> None:
    """When the loader is made; the message says what it will be given."""
    knob, given, said = REFUSED[name]
    knobs: dict[str, Any] = {knob: given}

    with pytest.raises(hr.ConfigError) as caught:
        hr.Loader(DATA, 4, **knobs)

    assert str(caught.value).startswith(f"{knob}: wanted {said}")


class Second:
    """Gives the second of two arguments back."""

    def __call__(self, first: Any, second: Any) -> Any:
        return first


TAKEN: dict[str, Callable[..., Any]] = {
    "an object": Second(),
    "a module": torch.nn.Identity(),
    "any arguments": lambda *arguments: arguments[0],
    "an option": lambda first, second, scale=2: first,
    "a part of a function": partial(three, more=1),
    "an option by name": lambda first, second=None, *, third=3: first,
    "one of C": max,
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("knob", ["sample_transform", "collate", "transform"])
def test_whatever_may_take_its_arguments_is_accepted(name: str, knob: str) -> None:
    """Nothing is refused that might work."""
    knobs: dict[str, Any] = {knob: TAKEN[name]}

    with hr.Loader(DATA, 4, **knobs) as loader:
        assert loader.batch_size == 4


@pytest.mark.parametrize("collate", [torch.stack, lambda samples: samples, one])
def test_a_collate_of_samples_alone_is_accepted(collate: Callable[..., Any]) -> None:
    """Keys are for those who want them."""
    with hr.Loader(DATA, 4, collate=collate) as loader:
        assert loader.batch_size == 4


@pytest.mark.parametrize(
    ("knob", "said"),
    [("transform", "transform returned None"), ("collate", "the collate function returned None")],
)
def test_a_forgotten_return_is_named(knob: str, said: str) -> None:
    """A function without one gives None, which is no batch."""
    knobs: dict[str, Any] = {knob: lambda first, second: None}

    with (
        hr.Loader(DATA, 4, **knobs) as loader,
        pytest.raises(hr.SampleError, match=f"{said}: wanted columns. Is its `return` missing"),
    ):
        next(iter(loader))


def test_a_forgotten_return_of_a_sample_is_named() -> None:
    """None is no sample either."""
    with (
        hr.Loader(DATA, 4, shuffle=False, sample_transform=lambda sample, key: None) as loader,
        pytest.raises(hr.SampleError, match=r"sample 0 is None\. Is a `return` missing"),
    ):
        next(iter(loader))


class Whole(hr.BatchDataset):
    """Gives whole batches."""

    def __len__(self) -> int:
        return 8

    def get_batch(self, indices: Sequence[int]) -> Any:
        return torch.tensor(indices)

    def __repr__(self) -> str:
        return "Whole"


@pytest.mark.parametrize("knob", ["sample_transform", "collate"])
def test_a_function_of_samples_is_refused_beside_whole_batches(knob: str) -> None:
    """It would never be called, and an augmentation be left out in silence."""
    knobs: dict[str, Any] = {knob: lambda first, second: first}

    with pytest.raises(hr.ConfigError, match=f"{knob}: wanted None beside Whole.*transform="):
        hr.Loader(Whole(), 4, **knobs)


@pytest.mark.parametrize("knob", ["sample_transform", "collate"])
def test_a_function_of_samples_is_no_coroutine(knob: str) -> None:
    """What it gives would be neither awaited nor a sample."""

    async def waits(first: Any, second: Any) -> Any:
        return first

    knobs: dict[str, Any] = {knob: waits}
    with pytest.raises(hr.ConfigError, match=f"{knob}: wanted a plain function"):
        hr.Loader(DATA, 4, **knobs)
