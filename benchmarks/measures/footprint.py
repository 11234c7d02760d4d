"""Peak memory over what the process had before the loader."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from peers.peer import Peer
from workload import Columns, Workload

from measures.process import memory

# Reading the memory takes milliseconds, so it is not done for each batch.
READING_EVERY_S = 0.03


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Take batches at full speed and look at the memory now and then.

    Returns:
        Peaks in MiB; "declared_mib" only where the loader declares a budget.
    """
    before = memory()
    begun = perf_counter()
    peer = make()
    readings = []
    next_at = 0.0

    def take(columns: Columns) -> bool:
        nonlocal next_at
        if perf_counter() >= next_at:
            readings.append(memory())
            next_at = perf_counter() + READING_EVERY_S
        return perf_counter() - begun > seconds

    peer.feed(1_000_000, take)
    declared = peer.declared_bytes()
    peer.close()
    peak_private = max(reading.private_bytes for reading in readings)
    found = {
        "peak_pss_mib": max(reading.pss_bytes for reading in readings) / 2**20,
        "private_mib": (peak_private - before.private_bytes) / 2**20,
    }
    return found if declared is None else found | {"declared_mib": declared / 2**20}
