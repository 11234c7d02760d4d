"""The rules of the ring in their plainest form: one thread, nothing to wait for, no machinery.

`delivered` is the oracle for what a consumer gets. `NaiveRing` follows a real ring claim by claim
and says at each step whether the rules allow it. Neither shares a line with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


def delivered(
    steps: range, prefetch: int, bound_bytes: int, sizes: Sequence[int], build: Callable[[int], str]
) -> list[tuple[int, str]]:
    """Simulate a run with one builder that is as eager as it may be, and give what is taken.

    A step whose value begins with "!" is an error: it is delivered, and nothing after it.
    """
    waiting: list[tuple[int, str]] = []
    taken: list[tuple[int, str]] = []
    next_to_build = steps.start
    while not taken or (taken[-1][0] + 1 < steps.stop and not taken[-1][1].startswith("!")):
        held = sum(sizes[step - steps.start] for step, _ in waiting)
        while (
            next_to_build < steps.stop
            and len(waiting) < prefetch
            and (not waiting or held + sizes[next_to_build - steps.start] <= bound_bytes)
        ):
            waiting.append((next_to_build, build(next_to_build)))
            held += sizes[next_to_build - steps.start]
            next_to_build += 1
        if not waiting:
            raise AssertionError("the rules themselves make no progress")
        taken.append(waiting.pop(0))
    return taken


@dataclass
class NaiveRing:
    """What is claimed, filled and granted, as lists.

    Attributes:
        broken: The rules broken so far; kept, since the code under test may swallow an error.
    """

    next_to_take: int
    end: int | None
    prefetch: int
    slots: int
    bound_bytes: int
    claimed: list[int] = field(default_factory=list)
    granted: dict[int, int] = field(default_factory=dict)
    filled: set[int] = field(default_factory=set)
    is_closed: bool = False
    broken: list[str] = field(default_factory=list)

    def must(self, holds: bool, otherwise: str) -> None:
        """Note a broken rule."""
        if not holds:
            self.broken.append(otherwise)

    def may_grant(self, step: int, nbytes: int) -> bool:
        """Whether a step may have its bytes now."""
        fits = sum(self.granted.values()) + nbytes <= self.bound_bytes
        return fits or step == self.next_to_take

    def grant(self, step: int, nbytes: int) -> None:
        self.must(not self.granted or step == max(self.granted) + 1, "grants out of order")
        self.granted[step] = nbytes

    def claim(self, step: int) -> None:
        wanted = self.claimed[-1] + 1 if self.claimed else self.next_to_take
        bound = self.next_to_take + min(self.prefetch, self.slots)
        self.must(not self.is_closed, f"step {step} claimed after the close")
        self.must(step == wanted, f"step {step} claimed, {wanted} is the next")
        self.must(step < bound, f"step {step} claimed, but prefetch ends before {bound}")
        self.must(self.end is None or step < self.end, f"step {step} claimed past the end")
        self.must(step in self.granted, f"step {step} claimed without its bytes")
        self.claimed.append(step)

    def fill(self, step: int) -> None:
        self.must(not self.is_closed, f"step {step} filled after the close")
        self.must(step in self.claimed, f"step {step} filled, but not claimed")
        self.must(step not in self.filled, f"step {step} filled twice")
        self.filled.add(step)

    def take(self, step: int) -> None:
        self.must(step == self.next_to_take, f"took {step}, wanted {self.next_to_take}")
        self.must(step in self.filled, f"step {step} taken before it was filled")
        self.filled.discard(step)
        self.claimed = [other for other in self.claimed if other != step]
        self.next_to_take += 1

    def release(self, step: int) -> None:
        self.must(step not in self.claimed, f"bytes of step {step} released before its take")
        self.must(step in self.granted, f"bytes of step {step} released twice")
        self.granted.pop(step, None)

    def close(self) -> None:
        self.is_closed = True
        self.claimed.clear()
        self.filled.clear()
