"""Slots and grants of which every move is held to the rules, under the lock of their ring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.build.built import Built
from headrace.ring.grants import Grants, Share
from headrace.ring.slots import Slots
from tests.proof.naive_ring import NaiveRing


class WatchedSlots(Slots[Built]):
    """Slots of which every move is held to the rules, under the lock of the ring."""

    def __init__(self, rules: NaiveRing, start: int, prefetch: int, slots: int, end: int | None):
        self.rules = rules
        super().__init__(start, prefetch, slots, end)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "prefetch":
            self.rules.prefetch = value
        super().__setattr__(name, value)

    def claim(self, steps: int) -> range:
        claimed = super().claim(steps)
        for step in claimed:
            self.rules.claim(step)
        return claimed

    def fill(self, step: int, value: Built) -> None:
        super().fill(step, value)
        self.rules.fill(step)

    def take(self) -> tuple[int, Built]:
        step, value = super().take()
        self.rules.take(step)
        return step, value

    def end_at(self, end: int) -> None:
        super().end_at(end)
        end = max([end, self.rules.next_to_take, *(step + 1 for step in self.rules.claimed)])
        self.rules.end = end if self.rules.end is None else min(end, self.rules.end)

    def close(self) -> list[Built]:
        self.rules.close()
        return super().close()


class WatchedGrants(Grants):
    """Grants of which every one is held to the rules."""

    def __init__(
        self, rules: NaiveRing, size_of: Callable[[int], int], share: Share | None
    ) -> None:
        super().__init__(rules.bound_bytes, share)
        self.rules = rules
        self._size_of = size_of

    def grant(self, step: int, nbytes: int, is_next: bool) -> bool:
        is_granted = super().grant(step, nbytes, is_next)
        rules, may_be = self.rules, self.rules.may_grant(step, nbytes)
        rules.must(nbytes == self._size_of(step), f"step {step} claimed for {nbytes} bytes")
        rules.must(may_be or not is_granted, f"step {step} was granted bytes over the bound")
        # A budget that others drew from may refuse, but never the step wanted next.
        must_be = may_be and (self._share is None or step == rules.next_to_take)
        rules.must(is_granted or not must_be, f"step {step} was refused bytes that it may have")
        if is_granted:
            rules.grant(step, nbytes)
        return is_granted

    def release(self, step: int) -> int:
        nbytes = super().release(step)
        for older in [other for other in self.rules.granted if other <= step]:
            self.rules.release(older)
        held = sum(self.rules.granted.values())
        self.rules.must(self.granted_bytes == held, f"{self.granted_bytes} of {held} bytes counted")
        return nbytes
