"""Datasets that draw at random, and what of them equals torch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from tests.torch_door.data import OURS, THEIRS, Each, same


def drawn(index: int) -> tuple[int, float, float, float]:
    """Give a sample with draws from every generator of the process."""
    return index, torch.rand(()).item(), float(np.random.random()), random.random()


def test_without_threads_draws_are_those_of_torch() -> None:
    """Random samples are torch's, pass after pass, training draws between them (S4-15)."""

    def passes(kind: Any) -> list[Any]:
        torch.manual_seed(1)
        np.random.seed(2)
        random.seed(3)
        loader = kind(Each(drawn), 4, shuffle=True)
        return [(batch, torch.rand(2)) for _ in range(2) for batch in loader]

    assert same(passes(OURS), passes(THEIRS))


def test_random_samples_are_not_probed() -> None:
    """The second door refuses nothing for being random: tiers and probe are off (S4-15)."""
    loader = OURS(Each(drawn), 4, num_workers=2)

    seen = [value for batch in loader for value in batch[1].tolist()]

    assert len(set(seen)) == 23


def augmented(index: int) -> torch.Tensor:
    """Add noise that the batch decides, wherever it is built."""
    return index + torch.rand(2, generator=torch.thread_safe_generator())


def test_noise_of_the_batch_does_not_depend_on_threads() -> None:
    """`torch.thread_safe_generator` gives each thread one that is seeded for its batch (S4-15)."""
    passes = []
    for threads in ({"num_workers": 1}, {"num_workers": 4, "prefetch_factor": 1}):
        torch.manual_seed(6)
        passes.append(torch.cat(list(OURS(Each(augmented), 4, shuffle=True, **threads))))

    assert torch.equal(*passes)
    assert passes[0].frac().unique().numel() == 46


@pytest.mark.parametrize("kept", [False, True])
def test_noise_of_the_batch_is_the_same_after_a_resume(kept: bool) -> None:
    """Going on in the middle of a pass draws what would have been drawn (B07)."""
    knobs: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": kept}
    loader = OURS(Each(augmented), **knobs)
    list(loader)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = list(iterator)

    resumed = OURS(Each(augmented), **knobs)
    resumed.load_state_dict(state)
    found = list(resumed)
    loader._iterator = resumed._iterator = None

    assert same(found, rest)


def test_noise_of_a_thread_does_not_move_the_training() -> None:
    """Generators of threads are apart from those of the process."""
    torch.manual_seed(6)
    before = torch.get_rng_state()
    wanted = torch.empty((), dtype=torch.int64).random_()

    torch.set_rng_state(before)
    iterator = iter(OURS(Each(augmented), 4, num_workers=3))
    batches = list(iterator)
    after = torch.get_rng_state()

    torch.set_rng_state(before)
    assert wanted == torch.empty((), dtype=torch.int64).random_()
    assert torch.equal(torch.get_rng_state(), after)
    assert len(batches) == 6
    assert hr.torch.get_worker_info() is None
