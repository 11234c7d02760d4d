"""What holds a run up: a conclusion from measured times, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from headrace.measured import Building, Measured, Reading, Transfer, measured, ratio

# Fewer steps say more about the start than about the run.
FEW_STEPS = 10
# What the benchmarks allow a loader that keeps up with 5 ms steps.
WAITING_SHARE = 0.02

Limit = Literal[
    "consumer", "transfer", "read", "assemble", "transform", "handover", "uneven", "unknown"
]
Advice = Literal["nothing", "more workers", "bulk dataset", "larger prefetch", "measure longer"]


@dataclass(frozen=True, slots=True)
class Setup:
    """How a loader builds, as far as advice depends on it.

    Attributes:
        workers: Threads that build; 0 for the consumer's own.
        prefetch_steps: Steps read ahead at most.
        is_bulk: Whether rows of a stored layout are built without Python per sample.
        is_serial: Whether one builder must make the steps one after another.
        waits: Whether the dataset is read on an event loop.
    """

    workers: int
    prefetch_steps: int
    is_bulk: bool
    is_serial: bool
    waits: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the time of a step goes, and what holds it up.

    `str` gives a table to read, `to_json` the same numbers.

    Attributes:
        measured: The times; everything else follows from them.
        limit: What holds the run up. "uneven": building is fast enough on average, but steps
            come late at times. "unknown": the numbers do not say.
        finding: Why, in measured numbers.
        advice: What to turn.
        suggestion: How, and the number that speaks for it.
    """

    measured: Measured
    limit: Limit
    finding: str
    advice: Advice
    suggestion: str

    def to_json(self) -> str:
        """Give everything as one JSON object; fields as in `Measured` and below it."""
        return json.dumps({"version": 1, **asdict(self)})

    def __str__(self) -> str:
        return "\n".join(
            [
                *_consumer_rows(self.measured),
                _transfer_row(self.measured.transfer),
                *_building_rows(self.measured.building),
                f"limit: {self.limit}. {self.finding}",
                f"advice: {self.advice}. {self.suggestion}",
            ]
        )


def explain(after: Reading, before: Reading | None, setup: Setup) -> Explanation:
    """Tell what held a loader up between two readings of its `stats()`.

    Five cases: (1) too few steps to tell; (2) less than 2 % of the time was waiting, so the
    consumer's side decides; (3) too few steps were built to tell why it waited; (4) building
    gave batches faster than the consumer can use them, yet it waited: they come unevenly;
    (5) building is slower than the consumer, and its largest part decides.

    Args:
        after: The later reading.
        before: The earlier one; None for the loader's start.
        setup: How the loader builds.

    Raises:
        ConfigError: `before` is not an earlier reading.
    """
    times = measured(after, before)
    building = times.building
    other_s = times.step_s - times.waiting.step_s
    if times.steps < FEW_STEPS:
        return _too_few(times, times.steps, "taken")
    if times.waiting.share < WAITING_SHARE:
        return _kept_up(times)
    if building.steps < FEW_STEPS:
        return _too_few(times, building.steps, "built")
    if setup.workers and building.steps_per_s * other_s >= 1:
        return _uneven(times, setup)
    return _held_up(times, setup)


# -- the cases ---------------------------------------------------------------------------


def _too_few(times: Measured, steps: int, verb: str) -> Explanation:
    return Explanation(
        times,
        "unknown",
        f"{steps} steps were {verb} after the first batch, too few to tell.",
        "measure longer",
        f"Explain again after {FEW_STEPS} steps or more.",
    )


def _kept_up(times: Measured) -> Explanation:
    limit: Limit = "consumer"
    if times.transfer.step_s > times.consumer.step_s:
        limit = "transfer"
    other_s = times.step_s - times.waiting.step_s
    return Explanation(
        times,
        limit,
        f"Of {_time(times.step_s)} per step, {_time(times.consumer.step_s)} were the consumer's "
        f"own, {_time(times.transfer.step_s)} copying, {_time(times.waiting.step_s)} "
        f"({_percent(times.waiting.share)}) waiting for batches.",
        "nothing",
        f"Without any waiting a step would still take {_time(other_s)}.",
    )


def _uneven(times: Measured, setup: Setup) -> Explanation:
    waiting = times.waiting
    return Explanation(
        times,
        "uneven",
        f"{_percent(waiting.share)} of the time was waiting, {_pace(times)}: steps came late "
        f"at times, with waits of {_time(waiting.p50_s)} at the median and "
        f"{_time(waiting.p99_s)} at the 99th percentile.",
        "larger prefetch",
        f"Set prefetch above {setup.prefetch_steps} and explain again.",
    )


def _held_up(times: Measured, setup: Setup) -> Explanation:
    parts = _parts(times.building)
    limit = max(parts, key=lambda part: parts[part][1])
    name, part_s = parts[limit]
    advice, suggestion = _advice(limit, times, setup)
    return Explanation(
        times,
        limit,
        f"{_percent(times.waiting.share)} of the time was waiting, {_pace(times)}; {name} is "
        f"the largest part of building, {_time(part_s)} of {_time(times.building.step_s)} per "
        "step.",
        advice,
        suggestion,
    )


def _pace(times: Measured) -> str:
    every_s = ratio(1.0, times.building.steps_per_s)
    return (
        f"building gave a batch every {_time(every_s)}, and the rest of a step takes "
        f"{_time(times.step_s - times.waiting.step_s)}"
    )


def _advice(limit: Limit, times: Measured, setup: Setup) -> tuple[Advice, str]:
    building = times.building
    at_once = f"{building.spans_at_once:.1f} spans were in flight at once"
    if not setup.workers:
        return "more workers", (
            f"Set workers=1 or more and explain again: {_time(building.step_s)} per step are "
            "spent building on the consumer's own thread."
        )
    if limit == "assemble" and not setup.is_bulk:
        return "bulk dataset", (
            "Give the data as a BulkDataset, without collate= and sample_transform=: "
            f"{_time(building.assemble_s)} per step are spent assembling samples one by one."
        )
    if setup.is_serial:
        return "nothing", (
            f"A builder makes the steps one after another here, {_time(building.step_s)} each: "
            "for pure=False, a stateful object, or a dataset that threads cannot share."
        )
    if limit == "read" and setup.waits:
        return "larger prefetch", (
            f"Set prefetch above {setup.prefetch_steps} and explain again: {at_once}."
        )
    return "more workers", f"Set workers above {setup.workers} and explain again: {at_once}."


# -- words -------------------------------------------------------------------------------


def _parts(building: Building) -> dict[Limit, tuple[str, float]]:
    return {
        "read": ("reading", building.read_s),
        "assemble": ("assembling", building.assemble_s),
        "transform": ("transforming", building.transform_s),
        "handover": ("hand-over", building.handover_s),
    }


def _consumer_rows(times: Measured) -> list[str]:
    consumer, waiting = times.consumer, times.waiting
    return [
        f"{times.steps} steps after the first batch, {_time(times.step_s)} each:",
        _row("consumer", consumer.step_s, consumer.share)
        + f"  {_time(consumer.first_step_s)} with the first batch",
        _row("waiting", waiting.step_s, waiting.share)
        + f"  median {_time(waiting.p50_s)}, p99 {_time(waiting.p99_s)}, "
        f"first batch {_time(waiting.first_batch_s)}",
    ]


def _transfer_row(transfer: Transfer) -> str:
    if not transfer.copies:
        return "  transfer      0 copies: batches stay in host memory, so none is measured"
    return (
        _row("transfer", transfer.step_s, transfer.share)
        + f"  {transfer.copies} blocking copies, {_time(transfer.copy_s)} each, "
        f"then {_time(transfer.transform_s)} of transform"
    )


def _building_rows(building: Building) -> list[str]:
    return [
        f"{building.steps} steps built, {_time(building.step_s)} of builders' time each:",
        *(
            _row(name, part_s, ratio(part_s, building.step_s))
            for name, part_s in _parts(building).values()
        ),
        f"  {_digits(building.steps_per_s)} steps/s while building, "
        f"{building.spans_at_once:.1f} spans in flight at once",
    ]


def _row(name: str, part_s: float, share: float) -> str:
    return f"  {name:<12}{_time(part_s):>9}{_percent(share):>9}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{_digits(seconds)} s"
    if seconds >= 1e-3:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds * 1e6)} us"


def _digits(value: float) -> str:
    """Give three digits, or all of those before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
