"""Samples per second, CPU time per sample, and the time to the first batch."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter

import numpy as np
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
    read_ms = _first_read_ms(workload)
    # The interpreter looks once through all that torch imported, for 100 ms, at any moment.
    gc.collect()
    begun = perf_counter()
    peer = make()
    if isinstance(peer, OneCore):
        return _limit(peer, seconds)
    meter = _Meter(seconds)
    peer.feed(1_000_000, meter.take)
    peer.close()
    samples = meter.batches * workload.batch_rows
    first_ms = (meter.first_at - begun) * 1e3
    return {
        "first_batch_ms": first_ms,
        "first_batch_beyond_read_ms": first_ms - read_ms,
        "samples_per_s": samples / (meter.last_at - meter.from_at),
        "cpu_us_per_sample": (meter.cpu_end - meter.cpu_start) / samples * 1e6,
    }


def _first_read_ms(workload: Workload) -> float:
    """Give what a first batch costs without a loader: to open the data and gather random rows.

    The data is mapped anew, so that its pages are touched for the first time, as a loader does.
    """
    rows = np.random.default_rng(0).integers(0, workload.rows, workload.batch_rows)
    begun = perf_counter()
    fresh = type(workload)(workload.folder)
    fresh.gather(rows)
    passed = perf_counter() - begun
    fresh.close()
    return passed * 1e3


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
