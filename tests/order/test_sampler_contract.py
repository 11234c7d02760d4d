"""The contract suite of samplers catches one that does not keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace.pick import Picks
from headrace.samplers import Sampler, Sequential, Shuffled
from headrace.testing.sampler_contract import SamplerContract


class Broken(Shuffled):
    """A shuffled sampler that breaks one rule of the contract."""

    def __init__(self) -> None:
        super().__init__(23, 4, drop_last=False)
        self.asked = 0


class Forgetful(Broken):
    """The second answer differs from the first."""

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        self.asked += 1
        picks = super().picks(steps, slots)
        return Picks(picks.step, picks.slot, (picks.sample + self.asked) % 23, picks.repeat)


class DeafToSlots(Broken):
    """Gives all slots whatever is asked."""

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        return super().picks(steps)


class Miscounting(Broken):
    """Says that all batches are full."""

    def rows_in(self, step: int) -> int:
        return 4


class Overstating(Broken):
    """Counts the picks of full batches only, and delivers more."""

    @property
    def num_picks(self) -> int:
        return 20


class Misplacing(Broken):
    """Says that epochs are a step shorter than they are."""

    def first_step(self, epoch: int) -> int:
        return 5 * epoch


class Repeating(Broken):
    """Gives one sample twice in an epoch."""

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        picks = super().picks(steps, slots)
        return Picks(picks.step, picks.slot, np.maximum(picks.sample, 1), picks.repeat)


class Narrow(Broken):
    """Gives samples as int32."""

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        picks = super().picks(steps, slots)
        narrow: Any = picks.sample.astype(np.int32)
        return Picks(picks.step, picks.slot, narrow, picks.repeat)


class Restless(Broken):
    """Puts into its fingerprint how often it was asked."""

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        self.asked += 1
        return super().picks(steps, slots)

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "asked": self.asked}


class Wordy(Broken):
    """Has a fingerprint that JSON does not give back."""

    def fingerprint(self) -> dict[str, Any]:
        return {"shape": (1, 2)}


@pytest.mark.parametrize(
    ("make", "test"),
    [
        (Forgetful, "test_picks_do_not_depend_on_what_was_asked_before"),
        (Forgetful, "test_any_thread_may_ask"),
        (Forgetful, "test_a_range_of_steps_is_its_steps_one_after_another"),
        (Forgetful, "test_a_far_epoch_starts_at_once"),
        (DeafToSlots, "test_slots_are_a_slice_of_the_global_batch"),
        (Miscounting, "test_rows_in_counts_the_picks_of_a_step"),
        (Overstating, "test_an_epoch_holds_num_picks"),
        (Misplacing, "test_steps_and_epochs_agree"),
        (Repeating, "test_an_epoch_repeats_no_view"),
        (Narrow, "test_the_arrays_have_their_types"),
        (Restless, "test_the_fingerprint_is_json_and_stable"),
        (Wordy, "test_the_fingerprint_is_json_and_stable"),
    ],
)
def test_a_broken_rule_fails_its_test(make: Callable[[], Sampler], test: str) -> None:
    """Each broken sampler fails the test that states its rule."""

    class Suite(SamplerContract):
        def make(self) -> Sampler:
            return make()

    with pytest.raises(AssertionError):
        getattr(Suite(), test)()


def test_the_suite_has_no_rule_that_is_never_broken() -> None:
    """Every test of the suite is failed by some sampler above."""
    rules = {name for name in vars(SamplerContract) if name.startswith("test_")}
    broken = {test for _, test in test_a_broken_rule_fails_its_test.pytestmark[0].args[1]}

    assert rules == broken


def test_a_sound_sampler_passes_every_rule() -> None:
    """The rules hold for a sampler that keeps them."""

    class Suite(SamplerContract):
        def make(self) -> Sampler:
            return Sequential(23, 4)

    for name in [name for name in vars(SamplerContract) if name.startswith("test_")]:
        getattr(Suite(), name)()
