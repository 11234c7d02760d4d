"""What headrace wants to reach, and whether a run shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intervals import Interval, interval, ratio
from peers import PEERS
from results import Results

# A target is met while the lower end of the interval is no more than this under it.
SLACK = 0.05

Against = Literal["strong", "best overlapped library", "best library"]


@dataclass(frozen=True, slots=True)
class RateTarget:
    """At least so many times the rate of another peer."""

    workload: str
    peer: str
    against: Against
    at_least: float


@dataclass(frozen=True, slots=True)
class BoundTarget:
    """At most so much of something that is not a rate. `peer` uses its default configuration."""

    workload: str
    peer: str
    metric: str
    at_most: float


RATES = [
    RateTarget("T", "headrace-0", "strong", 1.1),
    RateTarget("S", "headrace-0", "strong", 1.8),
    RateTarget("T", "headrace", "best overlapped library", 2.0),
    RateTarget("S", "headrace", "best overlapped library", 2.0),
    RateTarget("T", "headrace", "best library", 1.3),
    RateTarget("S", "headrace", "best library", 1.8),
]

BOUNDS = [
    BoundTarget(workload, "headrace", metric, bound)
    for workload, inflation in (("T", 0.02), ("S", 0.03))
    for metric, bound in (
        ("inflation", inflation),
        ("wait_p99_ms", 0.3),
        ("epoch_gap_ms", 1.0),
        ("first_batch_ms", 5.0),
        ("resume_extra_ms", 5.0),
        ("resume_ratio", 1.1),
        ("state_bytes", 1024.0),
        ("private_over_declared_mib", 64.0),
    )
] + [
    BoundTarget("T", "headrace", "order_us_per_sample", 0.2),
    BoundTarget("T", "headrace", "library_import_ms", 150.0),
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what a run shows of it.

    Attributes:
        what: The target in words.
        wanted: Its bound.
        found: Median and interval.
        is_met: Whether the run shows it.
    """

    what: str
    wanted: str
    found: Interval
    is_met: bool


def judge(results: Results) -> list[Verdict]:
    """Judge every target that the run has figures for."""
    rates = [verdict for target in RATES if (verdict := _judge_rate(results, target))]
    bounds = [verdict for target in BOUNDS if (verdict := _judge_bound(results, target))]
    return rates + bounds


def rival(results: Results, workload: str, against: Against) -> str | None:
    """Name the peer that a target compares with: of libraries the fastest of this run."""
    if against == "strong":
        return "strong" if results.rounds(workload, "strong", "samples_per_s") else None
    names = [
        name
        for name, entry in PEERS.items()
        if entry.is_rival
        and (entry.kind == "overlapped" or against == "best library")
        and results.rounds(workload, name, "samples_per_s")
    ]
    return max(
        names,
        key=lambda name: results.median(workload, name, "samples_per_s") or 0.0,
        default=None,
    )


def _judge_rate(results: Results, target: RateTarget) -> Verdict | None:
    other = rival(results, target.workload, target.against)
    ours = results.rounds(target.workload, target.peer, "samples_per_s")
    if not ours or other is None:
        return None
    found = ratio(ours, results.rounds(target.workload, other, "samples_per_s"))
    what = f"{target.workload}: {target.peer} over {other}"
    if target.against != "strong":
        what += f" ({target.against})"
    met = found.low >= target.at_least - SLACK
    return Verdict(what, f"at least {target.at_least:g}", found, met)


def _judge_bound(results: Results, target: BoundTarget) -> Verdict | None:
    values = results.rounds(target.workload, target.peer, target.metric)
    if not values:
        return None
    found = interval(list(values.values()))
    what = f"{target.workload}: {target.peer} {target.metric}"
    return Verdict(what, f"at most {target.at_most:g}", found, found.median <= target.at_most)
