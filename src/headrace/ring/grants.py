"""Byte grants: what the steps in flight may hold, decided at claim and in step order."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Share(Protocol):
    """What a process-wide budget lends to one ring."""

    def try_take(self, nbytes: int) -> bool:
        """Take bytes if they fit."""
        ...

    def take_forced(self, nbytes: int) -> None:
        """Take bytes whether they fit or not; counted."""
        ...

    def give_back(self, nbytes: int) -> None:
        """Return bytes taken before."""
        ...


class Grants:
    """Bytes granted to claimed steps, by step.

    A grant is made before any read of the step. A step that does not fit waits, and nothing
    behind it is claimed; only the step wanted next is granted whatever its size, so there is
    always progress. Not safe from several threads: the ring adds the lock.

    Attributes:
        bound_bytes: What all granted steps together may hold.
        granted_bytes: What they hold now.
        peak_bytes: The most they have held.
        forced_steps: Steps granted over the bound because the consumer wanted them next.
    """

    def __init__(self, bound_bytes: int, share: Share | None = None) -> None:
        self.bound_bytes = bound_bytes
        self.granted_bytes = 0
        self.peak_bytes = 0
        self.forced_steps = 0
        self._share = share
        self._steps: deque[tuple[int, int]] = deque()

    def grant(self, step: int, nbytes: int, is_next: bool) -> bool:
        """Grant bytes to the next step in order, or say that it must wait.

        Args:
            step: The step, one above the last granted.
            nbytes: What it will hold.
            is_next: Whether the consumer wants this very step next.
        """
        fits = self.granted_bytes + nbytes <= self.bound_bytes
        if fits and (self._share is None or self._share.try_take(nbytes)):
            pass
        elif is_next:
            self.forced_steps += 1
            if self._share is not None:
                self._share.take_forced(nbytes)
        else:
            return False
        self.granted_bytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self.granted_bytes)
        self._steps.append((step, nbytes))
        return True

    def release(self, step: int) -> int:
        """Give back the grant of the step just taken; return its bytes.

        Those of older steps go with it: an interrupt may fall between a take and its release.

        Raises:
            ValueError: The step holds no grant.
        """
        if not self._steps or self._steps[0][0] > step:
            raise ValueError(f"step {step} holds no grant")
        released_bytes = 0
        while self._steps and self._steps[0][0] <= step:
            released_bytes += self._steps.popleft()[1]
        self.granted_bytes -= released_bytes
        if self._share is not None:
            self._share.give_back(released_bytes)
        return released_bytes

    def release_all(self) -> None:
        """Give back every grant, when the ring closes."""
        if self._steps:
            self.release(self._steps[-1][0])
