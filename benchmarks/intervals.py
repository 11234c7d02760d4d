"""Medians, and how sure a ratio of two peers is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A median over rounds with its 90 % bootstrap interval.

    Attributes:
        median: Median over the rounds.
        low: Lower end.
        high: Upper end.
        rounds: How many rounds there were.
    """

    median: float
    low: float
    high: float
    rounds: int


def interval(values: list[float]) -> Interval:
    """Give the median of a list of rounds and the 90 % bootstrap interval of that median.

    The draws are seeded: the same rounds always give the same interval.
    """
    found = np.asarray(values, float)
    draws = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, len(found)))
    medians = np.median(found[draws], axis=1)
    low, high = np.percentile(medians, [5, 95])
    return Interval(float(np.median(found)), float(low), float(high), len(found))


def ratio(ours: dict[int, float], theirs: dict[int, float]) -> Interval:
    """Give the ratio of two peers, paired by round: what a round's speed does, it does to both.

    Args:
        ours: Round to value.
        theirs: The same; rounds that only one of the two has are left out.
    """
    rounds = sorted(ours.keys() & theirs.keys())
    return interval([ours[number] / theirs[number] for number in rounds])
