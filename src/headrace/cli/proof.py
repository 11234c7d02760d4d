"""Compares a run that was stopped and resumed with one that was not. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cli.delivery import Delivered, Delivery

# Losses of a step done twice come out equal to the last bit, or differ by much more than this:
# by rounding where a library chose another kernel, by whole tenths where the batch was another.
SAME_LOSS = 1e-4


@dataclass(frozen=True, slots=True)
class Part:
    """Some consecutive steps, delivered by two passes.

    Attributes:
        name: Which part of the run.
        first_step: Its first step.
        run: What the stopped and resumed run delivered.
        reference: What the uninterrupted pass delivered.
    """

    name: str
    first_step: int
    run: Delivered
    reference: Delivered

    @property
    def is_identical(self) -> bool:
        """Whether steps, rows, bytes and digest agree."""
        return self.run == self.reference


@dataclass(frozen=True, slots=True)
class Redone:
    """Steps that were lost with the first process and done again by the second.

    Attributes:
        steps: How many.
        largest_difference: Between the two losses of a step, in nats.
    """

    steps: int
    largest_difference: float

    @property
    def agrees(self) -> bool:
        """Whether both processes trained alike; a loss that is no number agrees with nothing."""
        return self.steps > 0 and self.largest_difference <= SAME_LOSS


@dataclass(frozen=True, slots=True)
class Proof:
    """All that was compared.

    Attributes:
        parts: The steps before the checkpoint, those after it, and all of them.
        redone: The steps done twice.
        verified_steps: Steps whose picks were worked out again, without data.
    """

    parts: tuple[Part, ...]
    redone: Redone
    verified_steps: int

    @property
    def is_identical(self) -> bool:
        """Whether nothing differs."""
        return (
            all(part.is_identical for part in self.parts)
            and self.redone.agrees
            and self.verified_steps == self.parts[-1].run.steps
        )


def compare(run: Delivery, reference: Delivery) -> tuple[Part, ...]:
    """Compare a run that was stopped at its cut with a pass that was not stopped."""
    return (
        Part("checkpointed", 0, run.before_cut(), reference.before_cut()),
        Part("resumed", run.cut, run.after_cut(), reference.after_cut()),
        Part("whole run", 0, run.whole(), reference.whole()),
    )


def compare_losses(lost: Mapping[int, float], again: Mapping[int, float]) -> Redone:
    """Compare the losses, by step, of the steps that were done twice."""
    differences = [abs(lost[step] - again[step]) for step in lost.keys() & again.keys()]
    # max() keeps or drops a NaN by its place; the sum shows it always.
    worst = max(differences, default=0.0)
    return Redone(len(differences), worst if sum(differences) >= 0.0 else float("nan"))
