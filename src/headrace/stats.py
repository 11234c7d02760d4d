"""Counters of a loader: plain numbers that any thread may read."""

from __future__ import annotations

from collections import deque

# Enough waits for a 99th percentile of the recent past.
KEPT_WAITS = 4096


class LoaderStats:
    """What a loader did so far. Written by the consumer's thread, read by any.

    Attributes:
        batches: Batches delivered.
        rows: Rows delivered.
        wait_s: Time that the consumer waited for batches, the first of each stream apart.
        first_wait_s: Time until the first batch of the newest stream.
        bad_samples: Samples survived.
        skipped_steps: Steps passed over by `skip_step`.
        stalls: Takes that waited longer than `stall_warning_s`.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.rows = 0
        self.wait_s = 0.0
        self.first_wait_s = 0.0
        self.bad_samples = 0
        self.skipped_steps = 0
        self.stalls = 0
        self._waits: deque[float] = deque(maxlen=KEPT_WAITS)

    def waited(self, wait_s: float, is_first: bool) -> None:
        """Count one take."""
        if is_first:
            self.first_wait_s = wait_s
        else:
            self.wait_s += wait_s
            self._waits.append(wait_s)

    def wait_percentile_s(self, share: float) -> float:
        """Give a percentile of recent waits, 0.0 when there are none."""
        ranked = sorted(self._waits)
        return ranked[min(len(ranked) - 1, int(len(ranked) * share))] if ranked else 0.0
