"""Open file descriptors, a bounded number of them, shared by threads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Open:
    """One descriptor and how many threads read from it."""

    descriptor: int
    readers: int = 0


class Descriptors:
    """Keeps the descriptors used last open. Safe from any thread.

    Positioned reads do not move a shared offset, so one descriptor serves many threads at
    once. At most `limit` stay open, or as many as are being read from if that is more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self, path: str, open_: Callable[[], int]) -> Iterator[int]:
        """Give an open descriptor, which stays open until the end of the block.

        Args:
            path: What is open under it.
            open_: Opens it; called where it is not open, outside the lock.
        """
        entry = self._borrow(path) or self._insert(path, open_())
        try:
            yield entry.descriptor
        finally:
            self._give_back(path, entry)

    def close(self) -> None:
        """Close all; those being read from close when that is done."""
        with self._lock:
            idle = [entry for entry in self._open.values() if not entry.readers]
            self._open.clear()
        _close(idle)

    def reset_child(self) -> None:
        """Close what a forked child inherited: its only thread reads from none of them."""
        self._lock = threading.Lock()
        entries, self._open = self._open, OrderedDict()
        _close(entries.values())

    def __len__(self) -> int:
        return len(self._open)

    def __del__(self) -> None:
        _close(self._open.values())

    def _borrow(self, path: str) -> _Open | None:
        with self._lock:
            entry = self._open.get(path)
            if entry is not None:
                self._open.move_to_end(path)
                entry.readers += 1
            return entry

    def _insert(self, path: str, descriptor: int) -> _Open:
        """Keep a new descriptor, unless another thread opened the file meanwhile."""
        with self._lock:
            entry = self._open.get(path)
            spare = [] if entry is None else [_Open(descriptor)]
            if entry is None:
                entry = self._open[path] = _Open(descriptor)
            entry.readers += 1
            spare += self._over_limit()
        _close(spare)
        return entry

    def _give_back(self, path: str, entry: _Open) -> None:
        with self._lock:
            entry.readers -= 1
            # Three cases: kept open; over the bound, as all were being read from; or closed
            # meanwhile, so that this reader, if the last, closes it.
            is_kept = self._open.get(path) is entry
            spare = self._over_limit() if is_kept else [entry] if not entry.readers else []
        _close(spare)

    def _over_limit(self) -> list[_Open]:
        """Take out the idle ones beyond the bound, those used longest ago first."""
        over = len(self._open) - self._limit
        if over <= 0:
            return []
        idle = [path for path, entry in self._open.items() if not entry.readers][:over]
        return [self._open.pop(path) for path in idle]


def _close(entries: Iterable[_Open]) -> None:
    for entry in entries:
        os.close(entry.descriptor)
