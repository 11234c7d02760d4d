"""The states of the user's own objects, kept beside the loader's."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Protocol


class Stateful(Protocol):
    """A user object whose state goes into the loader's state."""

    def state_dict(self) -> Mapping[str, Any]:
        """Give JSON facts."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        ...


class NestedStates:
    """Stateful user objects by role, read and put back together.

    States are copied on the way out and in, since objects give out and take in what they go on
    changing. Not thread-safe: one thread or task builds at a time, and nobody builds while
    states are put back.

    Args:
        objects: The objects; none by default.
    """

    def __init__(self, objects: Mapping[str, Stateful] | None = None) -> None:
        self._objects = dict(objects or {})
        self._step: int | None = None
        self._is_inside = False
        self._before: Mapping[str, Any] = {}
        self._last: Mapping[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._objects)

    def snapshot(self) -> Mapping[str, Any]:
        """Read the states; nothing that the objects do later changes what is given."""
        self._last = {role: deepcopy(held.state_dict()) for role, held in self._objects.items()}
        self._is_inside = False
        return self._last

    def restore(self, states: Mapping[str, Any]) -> None:
        """Put states back, unless they are those last read and no step was begun since.

        Objects that nobody built with are left alone, so what the user changes in them between
        two epochs stays.

        Args:
            states: By role; others than those of the objects are left out.
        """
        is_there = all(states[role] is self._last.get(role) for role in self._objects)
        if self._is_inside or not is_there:
            for role, held in self._objects.items():
                held.load_state_dict(deepcopy(states[role]))
        self._last = states
        self._is_inside = False
        self._step = None

    def begin(self, step: int) -> None:
        """Begin a step from the states last read or put back, also when it is begun again."""
        if step == self._step:
            self._is_inside = True
            self.restore(self._before)
        self._step, self._before = step, self._last
        self._is_inside = True
