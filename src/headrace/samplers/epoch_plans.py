"""Plans of whole epochs, for the samplers that cannot do without one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

P = TypeVar("P")

# The epoch that runs and the one before it, of which late steps may still be asked.
_KEPT = 2


class EpochPlans(Generic[P]):
    """The plans of the current and the previous epoch, each made once.

    Any thread may ask; one that asks for a plan that another is making waits for it. At most
    two plans are alive, so going further back makes a plan again. A pickle carries none.

    Attributes:
        lock: Held while a plan is made; hold it to touch what making a plan touches.
    """

    def __init__(self, lock: Lock | None = None) -> None:
        self._plans: dict[Any, P] = {}
        self.lock = Lock() if lock is None else lock

    def get(self, key: Any, make: Callable[[], P]) -> P:
        """Give the plan of a key (an epoch, or an epoch and what else decides its plan)."""
        with self.lock:
            if key not in self._plans:
                # Before making, so that there are never three.
                while len(self._plans) >= _KEPT:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = make()
            # The last asked for goes to the end, so that the other is the one to leave.
            self._plans[key] = plan = self._plans.pop(key)
            return plan

    def __reduce__(self) -> tuple[type[EpochPlans[P]], tuple[()]]:
        return EpochPlans, ()
