"""What a scan of a folder left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.datasets.path_table import PathTable


@dataclass(frozen=True, slots=True)
class IgnoredEntry:
    """One entry of a folder that is no sample.

    Attributes:
        name: Path below the root, with '/' between its parts.
        reason: Why it is none, in a few words.
    """

    name: str
    reason: str


class Ignored:
    """The entries that were left out, in the order of the scan; kept as arrays."""

    def __init__(self, entries: list[IgnoredEntry]) -> None:
        self._names = PathTable(entry.name for entry in entries)
        self._reasons = tuple(dict.fromkeys(entry.reason for entry in entries))
        numbers = {reason: number for number, reason in enumerate(self._reasons)}
        self._codes = np.array([numbers[entry.reason] for entry in entries], np.uint8)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[IgnoredEntry]:
        for name, code in zip(self._names, self._codes.tolist(), strict=True):
            yield IgnoredEntry(name, self._reasons[code])

    @property
    def counts(self) -> dict[str, int]:
        """How many entries were left out for each reason."""
        return dict(Counter(self._reasons[code] for code in self._codes.tolist()))

    def __repr__(self) -> str:
        listed = ", ".join(f"{count} {reason}" for reason, count in self.counts.items())
        return f"Ignored({listed})"
