"""What a step took, part by part, between two readings of a loader's counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import ConfigError

Reading = Mapping[str, float]
"""What `loader.stats()` gives."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """The consumer's own time, from getting a batch to asking for the next one.

    Attributes:
        step_s: Mean per step, the step of each first batch apart.
        share: Share of the time of a step.
        first_step_s: The step of the newest first batch.
    """

    step_s: float
    share: float
    first_step_s: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the consumer waited for batches.

    Attributes:
        step_s: Mean per step, first batches apart.
        share: Share of the time of a step.
        p50_s: Median of recent waits.
        p99_s: Their 99th percentile.
        first_batch_s: Wait for the newest first batch.
    """

    step_s: float
    share: float
    p50_s: float
    p99_s: float
    first_batch_s: float


@dataclass(frozen=True, slots=True)
class Building:
    """What building a step took, summed over the builders that had a part in it.

    Attributes:
        steps: Steps built, those that nobody has taken yet too.
        read_s: Reading the dataset, or awaiting it, per step.
        assemble_s: Decoding, sample transform, collating, delivering, per step.
        transform_s: The batch transform, where builders run it, per step.
        handover_s: The rest per step: above all, waiting for a thread that assembles.
        steps_per_s: Steps built per second in which anything was being built.
        spans_at_once: Spans in flight in such a second, on average.
    """

    steps: int
    read_s: float
    assemble_s: float
    transform_s: float
    handover_s: float
    steps_per_s: float
    spans_at_once: float

    @property
    def step_s(self) -> float:
        """All four parts of a step."""
        return self.read_s + self.assemble_s + self.transform_s + self.handover_s


@dataclass(frozen=True, slots=True)
class Transfer:
    """What bringing batches to a device took of the consumer's thread.

    Attributes:
        copies: Batches copied. 0 for a host target, where there is nothing to measure.
        copy_s: Mean of the blocking copies. A copy also waits for the work that the device has
            been given before it, and the two are not told apart.
        transform_s: Mean of the batch transform, where it runs on the device.
        share: Share of both of the time of a step.
    """

    copies: int
    copy_s: float
    transform_s: float
    share: float

    @property
    def step_s(self) -> float:
        """Copy and transform of a step."""
        return self.copy_s + self.transform_s


@dataclass(frozen=True, slots=True)
class Measured:
    """Where the time of a step went.

    Attributes:
        steps: Steps measured, first batches apart.
        step_s: Mean time of a step: the consumer's own, waiting, and copying.
        consumer: The consumer's own time.
        waiting: What it waited.
        building: What building took meanwhile, on other threads unless `workers=0`.
        transfer: What copying took.
    """

    steps: int
    step_s: float
    consumer: Consumer
    waiting: Waiting
    building: Building
    transfer: Transfer


def measured(after: Reading, before: Reading | None = None) -> Measured:
    """Give what a step took between two readings.

    Args:
        after: The later reading.
        before: The earlier one; None for the loader's start.

    Raises:
        ConfigError: `before` is not an earlier reading.
    """
    before = before or {}
    if before.get("batches", 0.0) > after["batches"]:
        found = f"one after {before['batches']:.0f} batches, of {after['batches']:.0f} in all"
        raise ConfigError("since", "an earlier stats() of the same loader", found)
    spent = {key: value - before.get(key, 0.0) for key, value in after.items()}
    steps = int(spent["batches"] - spent["first_batches"])
    consumer_s = ratio(spent["consumer_s"], spent["consumer_steps"])
    wait_s = ratio(spent["wait_s"], steps)
    copy_s = ratio(spent["copy_s"], spent["copies"])
    transform_s = ratio(spent["device_transform_s"], spent["copies"])
    step_s = consumer_s + wait_s + copy_s + transform_s
    return Measured(
        steps,
        step_s,
        Consumer(consumer_s, ratio(consumer_s, step_s), after["first_consumer_s"]),
        Waiting(
            wait_s,
            ratio(wait_s, step_s),
            after["wait_p50_s"],
            after["wait_p99_s"],
            after["first_wait_s"],
        ),
        _building(spent),
        Transfer(int(spent["copies"]), copy_s, transform_s, ratio(copy_s + transform_s, step_s)),
    )


def _building(spent: Reading) -> Building:
    steps, building_s = spent["built_steps"], spent["building_s"]
    # What was in flight at the first reading can put a difference below zero.
    read_s, assemble_s, transform_s, handover_s = (
        max(0.0, ratio(spent[key], steps))
        for key in ("read_s", "assemble_s", "transform_s", "handover_s")
    )
    return Building(
        int(steps),
        read_s,
        assemble_s,
        transform_s,
        handover_s,
        ratio(steps, building_s),
        ratio(spent["span_s"], building_s),
    )


def ratio(part: float, whole: float) -> float:
    """Divide, giving 0.0 where there is nothing to divide by."""
    return part / whole if whole else 0.0
