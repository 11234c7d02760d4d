"""Every sample once per epoch, in an order that the seed and the epoch decide."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.config import whole
from headrace.errors import ConfigError
from headrace.rng import SampleRng, SampleRngs, Stream, derive
from headrace.rng.words import GAMMA
from headrace.samplers.epoch_plans import EpochPlans
from headrace.samplers.permutation import keyed_permutation
from headrace.samplers.positions import PositionSampler
from headrace.samplers.schedule import Schedule

UNIFORM_MAX = 2**22
"""Most picks of an epoch in uniform order: two tables of 32 MiB, and about a second to make one."""


class Shuffled(PositionSampler):
    """Every sample once per epoch (`augment` times, spread over it), in a new order each epoch.

    `order="keyed"` is the keyed permutation: no table, no start-up, any step of any epoch at
    once, up to 2^63 picks. Its orders of fewer than about 100 picks are not all equally likely;
    `order="uniform"` is a Fisher-Yates shuffle, whose orders are, for up to 2^22 picks.

    Args:
        num_samples: Samples of the dataset.
        batch_size: Rows of a full global batch.
        seed: Any integer, taken mod 2^64.
        drop_last: Leave out the picks that fill no whole batch; other ones in each epoch.
        augment: Views of each sample per epoch.
        order: "keyed" or "uniform".

    Raises:
        ConfigError: A knob is out of its range.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int = 42,
        *,
        drop_last: bool = True,
        augment: int = 1,
        order: Literal["keyed", "uniform"] = "keyed",
    ) -> None:
        if order not in ("keyed", "uniform"):
            raise ConfigError("order", '"keyed" or "uniform"', order)
        self.seed = whole("seed", seed)
        self.order = order
        self._plans: EpochPlans[NDArray[np.int64]] = EpochPlans()
        super().__init__(num_samples, batch_size, drop_last, augment)

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "seed": self.seed, "order": self.order}

    def _order(self, epoch: int, length: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.order == "keyed":
            key = derive(self.seed, epoch, 0, 0, Stream.ORDER)
            return keyed_permutation(length, key).take(positions)
        state = derive(self.seed, epoch, 0, 0, Stream.UNIFORM)
        plan = self._plans.get((epoch, length), lambda: fisher_yates(length, state))
        return plan[positions]

    def _schedule_of(self, pieces: Any) -> Schedule:
        schedule = super()._schedule_of(pieces)
        picks = schedule.pieces[-1].num_samples * self.augment
        if self.order == "uniform" and picks > UNIFORM_MAX:
            cure = 'The keyed order is even enough here: order="keyed".'
            raise ConfigError("order", f"at most {UNIFORM_MAX} picks for uniform", picks, cure)
        return schedule


def fisher_yates(n: int, state: int) -> NDArray[np.int64]:
    """Give the numbers below n in an order of which all are equally likely.

    For i from n - 1 down to 1, place i is swapped with place `next_int(i + 1)` of one rng.
    """
    order = np.arange(n, dtype=np.int64)
    # Swapped through a memoryview: three times as quick as a list of as many objects.
    places, draws = order.data, _draws(n, state).data
    for i, j in zip(range(n - 1, 0, -1), draws, strict=True):
        places[i], places[j] = places[j], places[i]
    return order


def _draws(n: int, state: int) -> NDArray[np.int64]:
    """Give `next_int(i + 1)` for i from n - 1 down to 1, all drawn from one rng."""
    sizes = np.arange(n, 1, -1, dtype=np.uint64)
    # The k-th word of an rng depends on k alone, so every draw can be a row.
    states = np.uint64(state) + np.uint64(GAMMA) * np.arange(len(sizes), dtype=np.uint64)
    rows = SampleRngs(states)
    draws = rows.next_int(sizes)
    # A draw that took a second word moves all later ones: once in 2^64 / n times, so plainly.
    if np.any(rows.state != states + np.uint64(GAMMA)):
        rng = SampleRng(state)
        draws = np.array([rng.next_int(size) for size in range(n, 1, -1)], np.int64)
    return draws
