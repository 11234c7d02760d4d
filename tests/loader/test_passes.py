"""What a pass without batches says, and how far steps and epochs reach."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.name == "headrace" and each.levelno == logging.WARNING
    ]


OPENED: dict[str, Callable[[hr.Loader], Any]] = {
    "a plain pass": list,
    "an epoch": lambda loader: list(loader.epoch(3)),
    "epochs": lambda loader: [list(epoch) for epoch in loader.epochs(2)],
}


@pytest.mark.parametrize("name", OPENED)
def test_a_pass_over_no_batch_is_said_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Twenty rows fill no batch of 32: the log says so, and what to change. (U-28)"""
    with hr.Loader(np.arange(20), 32) as loader:
        assert warned(caplog) == []
        OPENED[name](loader)
        OPENED[name](loader)

    assert warned(caplog) == [
        "an epoch of this loader has no batch, so a loop over it does nothing: 20 samples do not "
        "fill a batch of 32. Pass drop_last=False or a smaller batch_size."
    ]


def test_a_pass_with_batches_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A short batch is a batch."""
    with hr.Loader(np.arange(20), 32, drop_last=False) as loader:
        assert len(list(loader)) == 1

    assert warned(caplog) == []


@pytest.mark.parametrize(
    ("data", "is_hinted"),
    [
        ((np.zeros((9, 2)), np.zeros(9)), True),
        ([torch.zeros(9, 2), np.zeros(9)], True),
        ([np.zeros(9)], True),
        ([np.zeros(9), np.zeros(8)], False),
        ([np.zeros(9)] * 5, False),
        ([np.zeros(()), np.zeros(())], False),
        ([1, 2], False),
        (np.zeros(9), False),
    ],
)
def test_a_list_that_may_be_meant_as_columns_is_named(
    data: Any, is_hinted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Few arrays of equal length are probably columns, which a dict would be."""
    with hr.Loader(data, 32) as loader:
        assert list(loader) == []

    assert ("for columns pass a dict" in warned(caplog)[0]) is is_hinted


def test_epochs_with_nothing_left_say_so(caplog: pytest.LogCaptureFixture) -> None:
    """A second time, or after a look at the last epoch; `set_epoch(0)` begins again."""

    def run(loader: hr.Loader) -> list[int]:
        return [epoch.start for epoch in loader.epochs(2) if list(epoch)]

    with hr.Loader(np.arange(20), 4) as loader:
        assert run(loader) == [0, 5]
        assert warned(caplog) == []
        assert run(loader) == []
        loader.set_epoch(0)
        assert run(loader) == [0, 5]

    assert warned(caplog) == [
        "epochs(2) gives nothing: the loader stands at epoch 2 already. It counts the epochs of "
        "the whole run; set_epoch(0) begins again."
    ]


def test_a_look_by_batch_at_uses_up_no_epoch() -> None:
    """A look by a plain pass does."""
    with hr.Loader(np.arange(20), 4) as loader:
        looked = loader.batch_at(0)
        assert [epoch.start for epoch in loader.epochs(2)] == [0, 5]
    with hr.Loader(np.arange(20), 4) as loader:
        first = next(iter(loader))
        assert [epoch.start for epoch in loader.epochs(2)] == [5]

    assert first.indices.tolist() == looked.indices.tolist()


FAR: dict[str, tuple[str, int, Callable[[hr.Loader, int], Any]]] = {
    "epoch": ("epoch", 2**48, lambda loader, far: loader.epoch(far)),
    "epochs": ("epochs", 2**48, lambda loader, far: loader.epochs(far)),
    "set_epoch": ("epoch", 2**48, lambda loader, far: loader.set_epoch(far)),
    "start of a stream": ("start", 2**53, lambda loader, far: loader.stream(far)),
    "steps of a stream": ("steps", 2**53, lambda loader, far: loader.stream(steps=far)),
    "batch_at": ("step", 2**53, lambda loader, far: loader.batch_at(far)),
    "why": ("step", 2**53, lambda loader, far: loader.why(far)),
    "skip_step": ("step", 2**53, lambda loader, far: loader.skip_step(far)),
}


@pytest.mark.parametrize("name", FAR)
def test_steps_and_epochs_have_an_end(name: str) -> None:
    """Beyond 2^53 and 2^48 they are refused by name; up to there they work."""
    knob, last, call = FAR[name]
    with hr.Loader(np.arange(20), 4) as loader:
        for far in (last + 1, 10**30):
            with pytest.raises(hr.ConfigError, match=rf"^{knob}: wanted an int from 0 to {last}, "):
                call(loader, far)
        call(loader, last)


def test_the_epochs_to_come_end_at_2_to_the_48() -> None:
    """The knob as the method."""
    with pytest.raises(hr.ConfigError, match=r"^epochs: wanted an int from 1 to 281474976710656"):
        hr.Loader(np.arange(20), 4, epochs=2**48 + 1)


def test_the_last_epoch_delivers() -> None:
    """It is in order, like any other."""
    with hr.Loader(np.arange(20), 4) as loader:
        batches = list(loader.epoch(2**48))

    assert [batch.step for batch in batches] == [5 * 2**48 + step for step in range(5)]
    assert sorted(sample for batch in batches for sample in batch.indices.tolist()) == list(
        range(20)
    )


def test_a_short_wait_is_reported_to_a_tenth_of_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bound below a second would read as no wait at all."""
    with hr.Loader(np.arange(20), 4) as loader:
        loader.stalled(0, 0.3)

    assert warned(caplog)[0].startswith("waited 0.3 s for step 0, which begins with sample ")
