"""How much longer a training step takes beside the loader, and how long it waits for a batch."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from peers.peer import Peer
from workload import Columns, Workload

from measures.training import TrainingStep

# Steps with the loader and steps on a resident batch take turns, so that a change of the
# machine's speed meets both. Both are long enough for the loader's spans to even out.
BLOCK_STEPS = 32


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Train with the loader and on a resident batch in turn.

    Args:
        make: Constructs the peer.
        workload: What it delivers.
        seconds: About how long to train with the loader.
    """
    resident = workload.expected(np.arange(workload.batch_rows))
    training = _Training(resident, seconds)
    peer = make()
    peer.feed(1_000_000, training.take)
    peer.close()
    waits_ms = np.array(training.waits_s) * 1e3
    with_loader, alone = np.array(training.blocks).T
    return {
        "inflation": float(np.median(with_loader / alone) - 1),
        "step_ms": float(np.median(alone)) / BLOCK_STEPS * 1e3,
        "wait_p50_ms": float(np.percentile(waits_ms, 50)),
        "wait_p99_ms": float(np.percentile(waits_ms, 99)),
    }


class _Training:
    """Alternates blocks of steps and keeps their times."""

    def __init__(self, resident: Columns, seconds: float) -> None:
        self.resident = resident
        self.seconds = seconds
        self.step = TrainingStep(resident)
        self.waits_s: list[float] = []
        self.blocks: list[tuple[float, float]] = []
        self._steps = -BLOCK_STEPS  # one block to warm up
        self._block_began = self._asked_at = perf_counter()

    def take(self, columns: Columns) -> bool:
        if self._steps >= 0:
            self.waits_s.append(perf_counter() - self._asked_at)
        self.step(columns)
        self._steps += 1
        if self._steps % BLOCK_STEPS == 0:
            self._end_block()
        self._asked_at = perf_counter()
        return sum(block[0] for block in self.blocks) > self.seconds

    def _end_block(self) -> None:
        with_loader = perf_counter() - self._block_began
        begun = perf_counter()
        for _ in range(BLOCK_STEPS):
            self.step(self.resident)
        if self._steps > 0:
            self.blocks.append((with_loader, perf_counter() - begun))
        self._block_began = perf_counter()
