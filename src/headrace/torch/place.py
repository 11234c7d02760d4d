"""Where a pass stands: what a state of the second door says, and how it is read back."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import StateError

_VERSION = 1


@dataclass(slots=True)
class Place:
    """What the consumer has taken of one pass, and what the pass started from.

    Attributes:
        own: States of generators and samplers where the pass began; see `Starts`.
        process: States of the generators of the process there.
        epochs: What its samplers had been told by `set_epoch`.
        ranks: Which shares of an order its samplers take.
        passes: Passes begun before it.
        base_seed: Seed of the threads.
        seeds_once: Whether only the first pass draws one, as where threads are kept.
        progress: Batches taken, and the CRC-32 over their keys; both at once, since other threads
            may read them.
        is_complete: Whether nothing of the pass is left.
    """

    own: list[str] = field(default_factory=list)
    process: list[str] = field(default_factory=list)
    epochs: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    passes: int = 0
    base_seed: int = 0
    seeds_once: bool = False
    progress: tuple[int, int] = (0, 0)
    is_complete: bool = False

    def take(self, key: Any, is_last: bool = False) -> None:
        """Count a batch."""
        taken, check = self.progress
        self.progress = (taken + 1, zlib.crc32(repr(key).encode(), check))
        self.is_complete = is_last

    def has_taken(self, saved: Place) -> bool:
        """Whether as many batches were taken as a state says, and of the same keys.

        A framework may save one rank's state for all. Of another rank's keys nothing is known.
        """
        if self.ranks != saved.ranks:
            return self.progress[0] == saved.progress[0]
        return self.progress == saved.progress

    def another(self, passes: int) -> Place:
        """Give the place of another pass, with as many before it."""
        return Place(passes=passes, base_seed=self.base_seed, seeds_once=self.seeds_once)

    def to_json(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Give the state of a pass that is under way."""
        taken, check = self.progress
        return {
            "version": _VERSION,
            **facts,
            "passes": self.passes,
            "base_seed": self.base_seed,
            "seeds_once": self.seeds_once,
            "taken": taken,
            "check": check,
            "own": list(self.own),
            "process": list(self.process),
            "epochs": list(self.epochs),
            "ranks": list(self.ranks),
        }


def read_place(state: Any, facts: Mapping[str, Any]) -> Place:
    """Give what a state says.

    Args:
        state: What `to_json` gave, straight or through JSON.
        facts: What the loader is now.

    Raises:
        StateError: It is of another loader, or damaged; every field that differs is named.
    """
    if not isinstance(state, Mapping) or state.get("version") != _VERSION:
        found = state.get("version") if isinstance(state, Mapping) else type(state).__name__
        raise StateError({"version": (found, _VERSION)}, "It is no state of this DataLoader.")
    differ = {
        name: (state.get(name), value) for name, value in facts.items() if state.get(name) != value
    }
    if differ:
        raise StateError(differ, "Make the DataLoader as it was when the state was saved.")
    wrong = {
        name: (state.get(name), kind.__name__)
        for name, kind in _KINDS.items()
        if not isinstance(state.get(name), kind)
    }
    if wrong:
        raise StateError(wrong, "The state is damaged.")
    return Place(
        own=list(state["own"]),
        process=list(state["process"]),
        epochs=list(state["epochs"]),
        ranks=list(state["ranks"]),
        passes=state["passes"],
        base_seed=state["base_seed"],
        seeds_once=state["seeds_once"],
        progress=(state["taken"], state["check"]),
    )


_KINDS = {
    "own": list,
    "process": list,
    "epochs": list,
    "ranks": list,
    "passes": int,
    "base_seed": int,
    "seeds_once": bool,
    "taken": int,
    "check": int,
}
