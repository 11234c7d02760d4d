"""Where each row of a batch comes from, told without reading it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.datasets.dataset import Location
from headrace.samplers.sampler import Sampler


@dataclass(frozen=True, slots=True)
class PickOrigin:
    """Where one row of a batch came from.

    Attributes:
        step: Global step.
        epoch: Epoch of the step.
        step_in_epoch: Step in that epoch.
        slot: Row in the global batch.
        sample: Dataset index.
        repeat: Which of the `augment` views.
        location: File or object and byte range, where the dataset can tell.
        tier: What serves the bytes: always "source", since this version keeps no copies.
    """

    step: int
    epoch: int
    step_in_epoch: int
    slot: int
    sample: int
    repeat: int
    location: Location | None
    tier: str


def origins_of(
    step: int, sampler: Sampler, locate: Callable[[int], Location | None]
) -> list[PickOrigin]:
    """Give the origin of each row of the batch at a global step."""
    epoch, in_epoch = sampler.locate(step)
    picks = sampler.picks(range(step, step + 1))
    rows = zip(picks.slot.tolist(), picks.sample.tolist(), picks.repeat.tolist(), strict=True)
    return [
        PickOrigin(step, epoch, in_epoch, slot, sample, repeat, locate(sample), "source")
        for slot, sample, repeat in rows
    ]
