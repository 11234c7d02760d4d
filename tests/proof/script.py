"""What a seed decides of a run of steps."""

from __future__ import annotations

import random
from dataclasses import dataclass

STEPS_IN_EPOCH = 7
ROWS = 2


@dataclass(frozen=True)
class Script:
    """What a seed decides of one run."""

    steps: range
    has_end: bool
    prefetch: int
    slots: int
    span_steps: int
    sizes: tuple[int, ...]
    builders: int
    is_on_loop: bool
    face: str
    bad_step: int | None
    dies_at: int | None
    takes: int
    forsakes_a_loop: bool
    stall_s: float
    disturbances: tuple[str, ...]

    @classmethod
    def draw(cls, rng: random.Random) -> Script:
        start, count, slots = rng.randrange(5), rng.randrange(1, 17), rng.randrange(1, 9)
        # Sizes from nothing to three times the bound, so that single steps must be forced.
        largest = rng.choice((5, 5, 30, 100, 300))
        steps = range(start, start + count)
        kinds = ("close", "prefetch", "drop", "end")
        return cls(
            steps=steps,
            has_end=rng.random() < 0.7,
            prefetch=rng.randrange(1, slots + 1),
            slots=slots,
            span_steps=rng.choice((1, 2, 4)),
            sizes=tuple(rng.randrange(largest + 1) for _ in steps),
            builders=rng.randrange(1, 4),
            is_on_loop=rng.random() < 0.35,
            face=rng.choice(("blocking", "blocking", "awaited", "both")),
            bad_step=rng.choice(steps) if rng.random() < 0.15 else None,
            dies_at=rng.choice(steps) if rng.random() < 0.2 else None,
            takes=count if rng.random() < 0.7 else rng.randrange(count + 1),
            stall_s=rng.choice((0.5, 30.0, 30.0)),
            forsakes_a_loop=rng.random() < 0.1,
            disturbances=tuple(kind for kind in kinds if rng.random() < 0.2),
        )

    def size(self, step: int) -> int:
        return self.sizes[(step - self.steps.start) % len(self.sizes)]

    def value(self, step: int) -> str:
        """Say what a step holds: its epoch and samples, worked out as one would by hand."""
        if step == self.bad_step:
            return f"!{step}"
        first = step % STEPS_IN_EPOCH * ROWS
        return f"epoch {step // STEPS_IN_EPOCH}: {list(range(first, first + ROWS))}"
