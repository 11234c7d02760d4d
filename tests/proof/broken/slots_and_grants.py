"""Claims, fills, takes and byte grants, broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.ring.grants import Grants
from headrace.ring.ring import Ring
from headrace.ring.slots import ABSENT, Slots
from tests.proof.mutant import becomes, does_nothing, mutant


def _without_prefetch(self: Slots[Any]) -> int:
    if self.is_closed:
        return 0
    free = self.max_slots - self.claimed_steps
    return max(free if self.end is None else min(free, self.end - self.next_to_claim), 0)


def _without_end(self: Slots[Any]) -> int:
    return 0 if self.is_closed else max(self.prefetch - self.claimed_steps, 0)


def any_filled(self: Slots[Any]) -> bool:
    return any(value is not ABSENT for value in self._values)


def _take_any(self: Slots[Any]) -> tuple[int, Any]:
    step = next(
        step
        for step in range(self.next_to_take, self.next_to_claim)
        if self._values[step % self.max_slots] is not ABSENT
    )
    value, self._values[step % self.max_slots] = self._values[step % self.max_slots], ABSENT
    self.next_to_take += 1
    return step, value


def _fill_when_closed(self: Slots[Any], step: int, value: Any) -> None:
    self._values[step % self.max_slots] = value


def _fill_ring_when_closed(self: Ring[Any], first: int, values: Any) -> bool:
    with self.lock:
        for step, value in enumerate(values, first):
            self.slots.fill(step, value)
        if self.slots.has_next():
            self._wake_consumer()
        return True


def _set_any_prefetch(self: Ring[Any], steps: int) -> None:
    with self.lock:
        self.slots.prefetch = steps
        self._wake_builders()


def _grant_as(is_next: bool | None, bound_bytes: int | None = None) -> Callable[[Any], Any]:
    def change(original: Any) -> Any:
        def grant(self: Grants, step: int, nbytes: int, wanted_next: bool) -> bool:
            if bound_bytes is not None:
                self.bound_bytes = bound_bytes
            granted: bool = original(
                self, step, nbytes, wanted_next if is_next is None else is_next
            )
            return granted

        return grant

    return change


def _release_oldest(original: Any) -> Any:
    def fill(self: Ring[Any], first: int, values: Any) -> bool:
        is_open: bool = original(self, first, values)
        with self.lock:
            if is_open and self.grants._steps and self.grants._steps[0][0] == first:
                Grants.release(self.grants, first)
        return is_open

    return fill


def _release_if_held(original: Any) -> Any:
    def release(self: Grants, step: int) -> int:
        is_held = bool(self._steps) and self._steps[0][0] == step
        return original(self, step) if is_held else 0

    return release


def _release_uncounted(self: Grants, step: int) -> int:
    return self._steps.popleft()[1]


MUTANTS = (
    mutant(
        "ring", "claims ignore prefetch", (Slots, "claimable_steps", becomes(_without_prefetch))
    ),
    mutant(
        "ring",
        "claims ignore the end of the run",
        (Slots, "claimable_steps", becomes(_without_end)),
    ),
    mutant(
        "ring", "prefetch outgrows the slots", (Ring, "set_prefetch", becomes(_set_any_prefetch))
    ),
    mutant(
        "ring",
        "steps are taken as they are filled",
        (Slots, "has_next", becomes(any_filled)),
        (Slots, "take", becomes(_take_any)),
    ),
    mutant(
        "ring",
        "a closed ring accepts values",
        (Slots, "fill", becomes(_fill_when_closed)),
        (Ring, "fill", becomes(_fill_ring_when_closed)),
    ),
    mutant("ring", "grants ignore the bound", (Grants, "grant", _grant_as(None, 1 << 40))),
    mutant("ring", "the step wanted next is not forced", (Grants, "grant", _grant_as(False))),
    mutant("ring", "every step is forced", (Grants, "grant", _grant_as(True))),
    mutant(
        "ring",
        "bytes go back at the fill and not at the take",
        (Ring, "fill", _release_oldest),
        (Grants, "release", _release_if_held),
    ),
    mutant("ring", "bytes never go back", (Grants, "release", becomes(_release_uncounted))),
    mutant("ring", "closing forgets the grants", (Grants, "release_all", does_nothing)),
)
