"""What the demo measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.cli.link import Stepped
from headrace.cli.trained import Trained


@dataclass(frozen=True, slots=True)
class Figures:
    """The demo in numbers, over both training processes.

    Attributes:
        samples_per_s: Trained.
        tokens_per_s: Trained.
        loader_samples_per_s: Delivered by the uninterrupted pass, every byte hashed.
        wait_share: Of the time of the training loop.
        peak_memory_bytes: Of the second process, mapped shards included.
        opened_memory_bytes: Its peak before the first batch: libraries, model, optimizer.
        first_batch_s: From opening the data to the first batch of the run.
        resume_s: From opening data and checkpoint to the first batch after the stop.
        restart_s: The same from the start of the process, imports included.
        first_loss: Mean of the first steps, in nats per byte.
        last_loss: Mean of the last steps.
    """

    samples_per_s: float
    tokens_per_s: float
    loader_samples_per_s: float
    wait_share: float
    peak_memory_bytes: int
    opened_memory_bytes: int
    first_batch_s: float
    resume_s: float
    restart_s: float
    first_loss: float
    last_loss: float


# Losses of single batches scatter; the demo shows the mean of this many.
_AVERAGED_STEPS = 8


def measure(first: Trained, second: Trained, loader_samples_per_s: float) -> Figures:
    """Put the two processes of a run into numbers."""
    steps = [*first.steps, *second.steps]
    loop_s = first.steps[-1].elapsed_s + second.steps[-1].elapsed_s
    assert second.finished is not None
    return Figures(
        samples_per_s=sum(step.rows for step in steps) / loop_s,
        tokens_per_s=sum(step.tokens for step in steps) / loop_s,
        loader_samples_per_s=loader_samples_per_s,
        wait_share=(first.wait_s + second.wait_s) / loop_s,
        peak_memory_bytes=second.finished.peak_memory_bytes,
        opened_memory_bytes=second.opened.memory_bytes,
        first_batch_s=first.first_batch_s,
        resume_s=second.first_batch_s,
        restart_s=second.start_s + second.steps[0].first_wait_s,
        first_loss=_mean_loss(first.steps[:_AVERAGED_STEPS]),
        last_loss=_mean_loss(second.steps[-_AVERAGED_STEPS:]),
    )


def _mean_loss(steps: Sequence[Stepped]) -> float:
    return sum(step.loss for step in steps) / len(steps)
