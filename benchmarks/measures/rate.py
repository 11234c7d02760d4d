"""Samples per second, CPU time per sample, and the time to the first batch."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from peers.limit import OneCore
from peers.peer import Peer
from workload import Columns, Workload

from measures.process import cpu_seconds

# The first batches fill the stages of a loader, so the rate is taken from what follows.
WARM_SHARE = 0.25


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Take batches as fast as they come, over as many epochs as the time holds.

    Args:
        make: Constructs the peer; part of the time to the first batch.
        workload: What it delivers.
        seconds: How long to measure, after a quarter of that to warm up.
    """
    begun = perf_counter()
    peer = make()
    if isinstance(peer, OneCore):
        return _limit(peer, seconds)
    meter = _Meter(seconds)
    peer.feed(1_000_000, meter.take)
    peer.close()
    samples = meter.batches * workload.batch_rows
    return {
        "first_batch_ms": (meter.first_at - begun) * 1e3,
        "samples_per_s": samples / (meter.last_at - meter.from_at),
        "cpu_us_per_sample": (meter.cpu_end - meter.cpu_start) / samples * 1e6,
    }


def _limit(peer: OneCore, seconds: float) -> dict[str, float]:
    peer.free_run(seconds * WARM_SHARE)
    cpu_start = cpu_seconds()
    samples, passed = peer.free_run(seconds)
    cpu = cpu_seconds() - cpu_start
    return {"samples_per_s": samples / passed, "cpu_us_per_sample": cpu / samples * 1e6}


class _Meter:
    """Counts batches between two readings of the clocks."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.first_at = self.from_at = self.last_at = 0.0
        self.cpu_start = self.cpu_end = 0.0
        self.batches = 0

    def take(self, columns: Columns) -> bool:
        now = self.last_at = perf_counter()
        if not self.first_at:
            self.first_at = now
        if self.from_at:
            self.batches += 1
            if now - self.from_at > self.seconds:
                self.cpu_end = cpu_seconds()
                return True
        elif now - self.first_at > self.seconds * WARM_SHARE:
            self.cpu_start = cpu_seconds()
            self.from_at = perf_counter()
        return False
