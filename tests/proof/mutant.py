"""A rule that is broken on purpose, for the time of some runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Change = tuple[Any, str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Mutant:
    """One broken rule. No source is changed: methods are replaced meanwhile.

    Attributes:
        world: Whose seeds find it: "ring", "blocks" or "loader".
        rule: What is broken, in words.
        changes: `(owner, name, change)`: the attribute becomes `change(what it was)`.
    """

    world: str
    rule: str
    changes: tuple[Change, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the rule meanwhile."""
        before = [(owner, name, vars(owner)[name]) for owner, name, _ in self.changes]
        for owner, name, change in self.changes:
            setattr(owner, name, change(vars(owner)[name]))
        try:
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)

    def __repr__(self) -> str:
        return f"{self.world}: {self.rule}"


def mutant(world: str, rule: str, *changes: Change) -> Mutant:
    return Mutant(world, rule, changes)


def becomes(method: Any) -> Callable[[Any], Any]:
    """Replace a method by another, whatever it was."""
    return lambda original: method


def does_nothing(original: Any) -> Any:
    """Replace a method by one that does nothing."""
    return lambda *args, **kwargs: None


def unguarded(lock: str) -> Callable[[Any], Any]:
    """Replace a constructor by one after which a lock of the object locks nothing."""

    def change(original: Any) -> Any:
        def init(self: Any, *args: Any, **knobs: Any) -> None:
            original(self, *args, **knobs)
            setattr(self, lock, contextlib.nullcontext())

        return init

    return change
