"""What headrace wants to reach, and whether a run shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intervals import Interval, interval, ratio
from peers import PEERS
from results import Results

# A target is met while the lower end of the interval is no more than this under it.
SLACK = 0.05

Against = Literal["strong", "limit-2", "best overlapped library", "best library"]


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


# By workload: `workers=0` over the strong loop; the defaults over the best overlapped library and
# over the best library of any kind.
TIMES = {
    "T": (1.1, 2.0, 1.3),
    "R": (1.1, 1.5, 1.1),
    "S": (1.8, 2.0, 1.8),
    "V": (1.1, 3.0, 1.1),
    "J": (0.98, 1.0, 1.0),
}

RATES = [
    *(RateTarget(name, "headrace-0", "strong", times[0]) for name, times in TIMES.items()),
    *(
        RateTarget(name, "headrace", "best overlapped library", times[1])
        for name, times in TIMES.items()
    ),
    *(RateTarget(name, "headrace", "best library", times[2]) for name, times in TIMES.items()),
    RateTarget("J", "headrace", "limit-2", 0.97),
]

# By workload: step inflation, and the 99th percentile of the wait for a batch in ms.
TRAINING = {"T": (0.02, 0.3), "R": (0.08, 1.0), "S": (0.03, 0.3), "V": (0.02, 0.3)}

# Of all workloads but J, where a batch is 64 decoded pictures: what a first batch and one at the
# end of an epoch wait for is decoding, as every other does that is taken at full speed.
PROMPT = [("first_batch_beyond_read_ms", 5.0), ("epoch_gap_ms", 1.0)]

EVERYWHERE = [
    ("resume_extra_ms", 5.0),
    ("resume_ratio", 1.1),
    ("state_bytes", 1024.0),
    ("private_over_declared_mib", 64.0),
    # None but for a span of odd length, of which one may come late.
    ("new_blocks_per_batch", 0.001),
]

BOUNDS = [
    *(
        BoundTarget(name, "headrace", metric, bound)
        for name, bounds in TRAINING.items()
        for metric, bound in zip(("inflation", "wait_p99_ms"), bounds, strict=True)
    ),
    *(BoundTarget(name, "headrace", *bound) for name in TRAINING for bound in PROMPT),
    *(BoundTarget(name, "headrace", *bound) for name in TIMES for bound in EVERYWHERE),
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
    if against in ("strong", "limit-2"):
        return against if results.rounds(workload, against, "samples_per_s") else None
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
    if target.against != other:
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
