"""A trillion samples and a million epochs cost what a few rows do."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from headrace.samplers import BlockShuffled, Mixing, Sampler, Sequential, Shuffled

TRILLION = 10**12

MAKERS: dict[str, Callable[[], Sampler]] = {
    "sequential": lambda: Sequential(TRILLION, 64),
    "keyed": lambda: Shuffled(TRILLION, 64),
    "views": lambda: Shuffled(TRILLION, 64, augment=8),
    "blocks": lambda: BlockShuffled(TRILLION, 64, block=4096, window=64),
    "mixing": lambda: Mixing.end_to_end([TRILLION, 5], [3, 1], 64, steps_per_epoch=10**9),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_far_step_needs_no_table(name: str) -> None:
    """Memory for a step of epoch 10^6 stays below 2 MiB, from the making on (S1-30)."""
    tracemalloc.start()
    try:
        sampler = MAKERS[name]()
        first = sampler.first_step(10**6) + 12_345_678

        picks = sampler.picks(range(first, first + 4))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert sampler.locate(first) == (10**6, 12_345_678)
    assert len(picks) == 256
    assert peak_bytes < 2 * 2**20


@pytest.mark.parametrize("name", MAKERS)
def test_a_far_step_is_the_same_however_it_is_reached(name: str) -> None:
    """The batch at a far step hangs on the seed and the step alone (S1-03, S1-06, S1-23)."""
    sampler, other = MAKERS[name](), MAKERS[name]()
    first = sampler.first_step(10**6) - 2
    other.picks(range(100))

    reached = [other.picks(range(step, step + 1)).sample.tolist() for step in (first + 3, first)]

    whole = sampler.picks(range(first, first + 4)).sample.tolist()
    assert reached == [whole[-64:], whole[:64]]
    assert all(0 <= sample < sampler.num_samples for sample in whole)


@pytest.mark.parametrize("name", ["sequential", "keyed", "blocks"])
def test_a_far_window_repeats_nothing(name: str) -> None:
    """Some thousand neighbouring picks of a far epoch are different samples."""
    sampler = MAKERS[name]()
    first = sampler.first_step(10**6) + 10**9

    samples = sampler.picks(range(first, first + 64)).sample.tolist()

    assert len(set(samples)) == 64 * 64


def test_what_is_kept_of_many_epochs_is_bounded() -> None:
    """Fifty epochs with tables, one after another, hold the tables of a few: below 10 MiB."""
    sampler = Shuffled(2**28, 64)
    tracemalloc.start()
    try:
        for epoch in range(50):
            first = sampler.first_step(epoch)
            sampler.picks(range(first, first + 1))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held_bytes < 10 * 2**20
