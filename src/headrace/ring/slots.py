"""The rules of a step-addressed ring, without locks or waiting."""

from __future__ import annotations

from typing import Generic, TypeVar

from headrace.errors import ClosedError

T = TypeVar("T")


class _Absent:
    """Marks a slot that holds nothing, since None may be a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class Slots(Generic[T]):
    """Where the value of each step waits for its turn.

    Steps are claimed in order, filled in any order and taken in order. A step lives in slot
    `step % max_slots`, so it may be claimed only while `step < next_to_take + prefetch`; the
    number of slots is fixed, only the bound `prefetch` moves. Not safe from several threads:
    the ring adds the lock.

    Attributes:
        next_to_claim: The first step that nobody has claimed.
        next_to_take: The step that the consumer gets next.
        end: First step that will never be claimed; None for an endless run.
    """

    def __init__(self, start: int, prefetch: int, max_slots: int, end: int | None = None) -> None:
        if not 1 <= prefetch <= max_slots:
            raise ValueError(f"prefetch: wanted 1 to {max_slots} (max_slots), got {prefetch}")
        self.next_to_claim = start
        self.next_to_take = start
        self.end = end
        self.prefetch = prefetch
        self.max_slots = max_slots
        self.is_closed = False
        self._values: list[T | _Absent] = [ABSENT] * max_slots

    @property
    def claimed_steps(self) -> int:
        """Steps claimed and not yet taken, being built or waiting."""
        return self.next_to_claim - self.next_to_take

    @property
    def is_exhausted(self) -> bool:
        """Whether the last step has been taken."""
        return self.end is not None and self.next_to_take >= self.end

    def claimable_steps(self) -> int:
        """Give how many steps may be claimed now."""
        if self.is_closed:
            return 0
        free = self.prefetch - self.claimed_steps
        if self.end is not None:
            free = min(free, self.end - self.next_to_claim)
        return max(free, 0)

    def claim(self, steps: int) -> range:
        """Claim the next steps; each must then be filled.

        Raises:
            ValueError: More than `claimable_steps()`.
        """
        if not 0 <= steps <= self.claimable_steps():
            raise ValueError(f"cannot claim {steps} steps, {self.claimable_steps()} are claimable")
        claimed = range(self.next_to_claim, self.next_to_claim + steps)
        self.next_to_claim += steps
        return claimed

    def fill(self, step: int, value: T) -> None:
        """Put the value of a claimed step where the consumer will look for it.

        Raises:
            ClosedError: The ring closed while the value was made; the caller still owns it.
            ValueError: The step is not claimed, or already filled.
        """
        if self.is_closed:
            raise ClosedError(f"the ring closed before step {step} was filled")
        if not self.next_to_take <= step < self.next_to_claim:
            raise ValueError(
                f"step {step} is not claimed: wanted [{self.next_to_take}, {self.next_to_claim})"
            )
        slot = step % self.max_slots
        if self._values[slot] is not ABSENT:
            raise ValueError(f"step {step} is already filled")
        self._values[slot] = value

    def has_next(self) -> bool:
        """Whether the step wanted next is filled."""
        return self._values[self.next_to_take % self.max_slots] is not ABSENT

    def take(self) -> tuple[int, T]:
        """Take the step wanted next; `has_next` must be true."""
        step = self.next_to_take
        slot = step % self.max_slots
        value = self._values[slot]
        if isinstance(value, _Absent):
            raise ValueError(f"step {step} is not filled")
        self._values[slot] = ABSENT
        self.next_to_take = step + 1
        return step, value

    def end_at(self, end: int) -> None:
        """Let no step from `end` on be claimed; steps claimed already stay."""
        end = max(end, self.next_to_claim)
        self.end = end if self.end is None else min(self.end, end)

    def close(self) -> list[T]:
        """Refuse all later claims and fills and give back what was not taken."""
        self.is_closed = True
        left: list[T] = []
        for slot, value in enumerate(self._values):
            if not isinstance(value, _Absent):
                left.append(value)
                self._values[slot] = ABSENT
        return left
