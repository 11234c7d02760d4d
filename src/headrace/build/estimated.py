"""Builders of steps whose bytes show only once they are built."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.builder import Builder, Finish, Hop
from headrace.collate import Columns
from headrace.kept import kept_bytes
from headrace.pick import Picks

# What a step is taken to hold before any has been built.
FIRST_GUESS_BYTES = 1 << 20


class StepEstimate:
    """The 99th percentile of what recent steps held, for byte grants; thread-safe."""

    # Enough for a 99th percentile; a percentile of more would lag behind a change of the data.
    _KEPT_STEPS = 128

    def __init__(self, first_guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._seen: list[int] = []
        self._next = 0
        self._lock = threading.Lock()
        self.step_bytes = first_guess_bytes

    def add(self, nbytes: int) -> None:
        """Count what a finished step holds."""
        with self._lock:
            if len(self._seen) < self._KEPT_STEPS:
                self._seen.append(nbytes)
            else:
                self._seen[self._next] = nbytes
                self._next = (self._next + 1) % self._KEPT_STEPS
            if self._next % 16 == 0 or nbytes > self.step_bytes:
                ranked = sorted(self._seen)
                self.step_bytes = ranked[min(len(ranked) - 1, len(ranked) * 99 // 100)]


class EstimatedBuilder(Builder):
    """A builder that expects of each step what recent ones held."""

    def __init__(self, finish: Finish, hop: Hop | None = None) -> None:
        super().__init__(finish, hop)
        self._estimate = StepEstimate()

    @property
    def step_bytes(self) -> int:
        return self._estimate.step_bytes

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        return [self._estimate.step_bytes] * (len(ends) - 1)

    def count(self, columns: Columns) -> None:
        """Learn from the columns of a finished step."""
        self._estimate.add(bytes_in(columns.values))


def bytes_in(values: Sequence[Any]) -> int:
    """Give what columns keep alive, views all of their memory; a host value counts 64 bytes."""
    return sum(
        _tensor_bytes(value) if isinstance(value, torch.Tensor) else 64 * len(value)
        for value in values
    )


def _tensor_bytes(value: torch.Tensor) -> int:
    own_bytes = value.numel() * value.element_size()
    return max(own_bytes, kept_bytes(value)) if value.layout is torch.strided else own_bytes
