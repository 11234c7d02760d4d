"""Draws from several ranges of the dataset by share."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from math import isfinite
from operator import add
from typing import Any, Self

import numpy as np

from headrace.config import whole
from headrace.errors import ConfigError
from headrace.pick import Picks
from headrace.rng import SampleRng, SampleRngs, Stream, derive, derive_rows
from headrace.samplers.fingerprints import digest_of_json
from headrace.samplers.schedule import FixedSchedule, Run
from headrace.samplers.scheduled import ScheduledSampler, places_of

# So many sources are listed in a fingerprint, which is to stay below a kilobyte.
_LISTED_SOURCES = 8


class Mixing(ScheduledSampler):
    """Every slot draws a source by its share, then one of the source's samples.

    Draws are independent and with replacement, so a batch may repeat a sample and shares hold
    in expectation: of N draws, a source of share p gets N * p, give or take
    sqrt(N * p * (1 - p)). Sources without samples or without share take no part, and the shares
    of the others are taken relative to their sum. Batches are always full.

    Args:
        sources: Ranges `(start, size)` of sample indices; they may overlap.
        shares: A weight per source, 0 or more; they need not add up to 1.
        batch_size: Rows of a full global batch.
        steps_per_epoch: Steps that make an epoch, since nothing here is ever used up.
        seed: Any integer, taken mod 2^64.

    Raises:
        ConfigError: A knob is out of its range, or no source takes part.
    """

    def __init__(
        self,
        sources: Iterable[tuple[int, int]],
        shares: Iterable[float],
        batch_size: int,
        steps_per_epoch: int,
        seed: int = 42,
    ) -> None:
        self.sources = _ranges(sources)
        self.shares = _weights(shares)
        self.steps_per_epoch = whole("steps_per_epoch", steps_per_epoch)
        self.seed = whole("seed", seed)
        _check(self.sources, self.shares, self.steps_per_epoch)
        # Which sources take part; a row of what follows is one of them.
        self._taking = [i for i, w in enumerate(self.shares) if w > 0 and self.sources[i][1] > 0]
        if not self._taking:
            raise ConfigError("shares", "a source with samples and a share above 0", self.shares)
        self._bounds = _running_shares([self.shares[i] for i in self._taking])
        self._start = np.array([self.sources[i][0] for i in self._taking], np.int64)
        self._size = np.array([self.sources[i][1] for i in self._taking], np.uint64)
        samples = max(start + size for start, size in self.sources)
        super().__init__(self._schedule_of([(0, batch_size, samples)]))

    @classmethod
    def end_to_end(
        cls,
        sizes: Iterable[int],
        shares: Iterable[float],
        batch_size: int,
        steps_per_epoch: int,
        seed: int = 42,
    ) -> Self:
        """Mix sources that lie one behind the other, as in a concatenated dataset."""
        if not isinstance(sizes, Iterable):
            raise ConfigError("sizes", "one size per source", sizes)
        counts = [whole("sizes", size) for size in sizes]
        starts = accumulate(counts, initial=0)
        return cls(
            list(zip(starts, counts, strict=False)), shares, batch_size, steps_per_epoch, seed
        )

    def fingerprint(self) -> dict[str, Any]:
        sources: Any = [[*source, w] for source, w in zip(self.sources, self.shares, strict=True)]
        if len(sources) > _LISTED_SOURCES:
            sources = digest_of_json(sources)
        return {
            "kind": type(self).__name__,
            "num_samples": self.num_samples,
            "global_batch": self.global_batch_size,
            "steps_per_epoch": self.steps_per_epoch,
            "sources": sources,
            "seed": self.seed,
        }

    def draw(self, epoch: int, step_in_epoch: int, slot: int) -> tuple[int, int]:
        """Give the source and the sample of one slot; `picks` does the same for many."""
        rng = SampleRng(derive(self.seed, epoch, step_in_epoch, slot, Stream.MIXING))
        row = bisect_right(self._bounds, rng.next_double())
        source = self._taking[min(row, len(self._taking) - 1)]
        start, size = self.sources[source]
        return source, start + rng.next_int(size)

    def _picks_of(self, run: Run, slots: slice) -> Picks:
        places = places_of(run, slots)
        step_in_epoch = places.step + (run.step_in_epoch - run.first_step)
        place = (self.seed, run.epoch, step_in_epoch, places.slot)
        rngs = SampleRngs(derive_rows(*place, Stream.MIXING))
        # The first source whose running share exceeds the draw, else the last.
        found = np.searchsorted(self._bounds, rngs.next_double(), side="right")
        rows = np.minimum(found, len(self._taking) - 1)
        sample = self._start[rows] + rngs.next_int(self._size[rows])
        return Picks(places.step, places.slot, sample, np.zeros(len(sample), np.int32))

    def _schedule_of(self, pieces: Sequence[tuple[int, int, int]]) -> FixedSchedule:
        schedule = FixedSchedule(pieces, self.steps_per_epoch)
        samples = max(start + size for start, size in self.sources)
        if any(piece.num_samples != samples for piece in schedule.pieces):
            cure = "Give Mixing the new ranges, as a new run."
            raise ConfigError("num_samples", f"{samples}, as the sources say", list(pieces), cure)
        return schedule


def _ranges(sources: Any) -> list[tuple[int, int]]:
    wanted = "one range (start, size) per source"
    if not isinstance(sources, Iterable):
        raise ConfigError("sources", wanted, sources)
    found = []
    for source in sources:
        if not isinstance(source, Sequence | np.ndarray) or len(source) != 2:
            raise ConfigError("sources", wanted, source)
        found.append((whole("sources", source[0]), whole("sources", source[1])))
    return found


def _weights(shares: Any) -> list[float]:
    if not isinstance(shares, Iterable):
        raise ConfigError("shares", "one weight per source", shares)
    given = list(shares)
    try:
        return [float(share) for share in given]
    except (TypeError, ValueError):
        raise ConfigError("shares", "one weight per source, each a number", given) from None


def _check(sources: list[tuple[int, int]], shares: list[float], steps_per_epoch: int) -> None:
    if len(sources) != len(shares):
        raise ConfigError("shares", f"one for each of {len(sources)} sources", shares)
    for start, size in sources:
        if start < 0 or size < 0 or start + size >= 2**63:
            raise ConfigError("sources", "ranges (start, size) below 2^63", (start, size))
    if not (all(share >= 0 for share in shares) and isfinite(_sum(shares))):
        raise ConfigError("shares", "weights of 0 or more with a finite sum", shares)
    if steps_per_epoch < 1:
        raise ConfigError("steps_per_epoch", "1 or more", steps_per_epoch)


def _running_shares(shares: list[float]) -> list[float]:
    # Left to right in float64, first the total and then the sum of the quotients: another
    # association would move a bound by one unit in the last place.
    total = _sum(shares)
    return list(accumulate(share / total for share in shares))


def _sum(shares: list[float]) -> float:
    # Not the builtin, which from Python 3.12 on makes up for what rounding loses.
    return reduce(add, shares, 0.0)
