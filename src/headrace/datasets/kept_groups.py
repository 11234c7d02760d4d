"""Decoded row groups: those used last, within a bound of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from headrace.datasets.parquet_columns import Group, group_bytes
from headrace.threads import at_fork


class _Kept:
    """One row group: decoded by the first thread that wants it, while others wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.group: Group | None = None
        self.nbytes = 0


class KeptGroups:
    """Gives decoded row groups. Safe from any thread; several decode at once.

    Args:
        limit_bytes: What decoded groups may hold together. Those that are read from stay alive
            beyond it until that is done, one for each thread.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.decoded = 0
        """How often a row group was decoded."""
        self._reset_child()
        at_fork(self._reset_child)

    @property
    def nbytes(self) -> int:
        """What is kept now."""
        with self._lock:
            return sum(kept.nbytes for kept in self._kept.values())

    def get(self, number: int, decode: Callable[[], Group]) -> Group:
        """Give a row group, decoded now unless it is kept.

        What `decode` raises passes; nothing is kept then.
        """
        with self._lock:
            kept = self._kept.setdefault(number, _Kept())
            self._kept.move_to_end(number)
        with kept.lock:
            group = kept.group
            if group is None:
                group = decode()
                self._keep(kept, group)
        return group

    def kept_first(self, numbers: Iterable[int]) -> list[int]:
        """Give numbers in an order that reads what is kept before it is pushed out."""
        with self._lock:
            return sorted(numbers, key=lambda number: (number not in self._kept, number))

    def enter(self) -> None:
        """Count one more thread that reads."""
        with self._lock:
            self._users += 1

    def leave(self) -> bool:
        """Count one less, let go of all after the last, and say whether it was that."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._kept.clear()
            return not self._users

    def _reset_child(self) -> None:
        """Begin with nothing: a thread that decoded at a fork never ends in the child."""
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._users = 0
        self._lock = threading.Lock()

    def _keep(self, kept: _Kept, group: Group) -> None:
        with self._lock:
            kept.group, kept.nbytes = group, group_bytes(group)
            self.decoded += 1
            total = sum(each.nbytes for each in self._kept.values())
            for number in list(self._kept):
                if total <= self._limit_bytes:
                    return
                # One that is being decoded holds nothing yet.
                if self._kept[number].nbytes:
                    total -= self._kept.pop(number).nbytes
