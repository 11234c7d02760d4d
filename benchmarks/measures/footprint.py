"""Peak memory over what the process had before the loader, and memory made anew once warm."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from peers.peer import Peer
from workload import Columns, Workload

from measures.process import Memory, memory

# Reading the memory takes milliseconds, so it is not done for each batch.
READING_EVERY_S = 0.03
# After this part of the time blocks of every size have been made.
WARM_SHARE = 0.5


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Take batches at full speed and look at the memory now and then.

    Returns:
        Peaks in MiB; "declared_mib" and "new_blocks_per_batch" only where the loader tells.
    """
    before = memory()
    watch = _Watch(make(), seconds)
    watch.peer.feed(1_000_000, watch.take)
    declared = watch.peer.declared_bytes()
    found = watch.found(before)
    watch.peer.close()
    return found if declared is None else found | {"declared_mib": declared / 2**20}


class _Watch:
    """Keeps readings of the memory, and counts blocks from the time on when all is warm."""

    def __init__(self, peer: Peer, seconds: float) -> None:
        self.peer = peer
        self.seconds = seconds
        self._begun = perf_counter()
        self._next_at = 0.0
        self._readings: list[Memory] = []
        self._batches = 0
        self._warm: tuple[int, int | None] | None = None

    def take(self, columns: Columns) -> bool:
        now = perf_counter()
        self._batches += 1
        if now >= self._next_at:
            self._readings.append(memory())
            self._next_at = perf_counter() + READING_EVERY_S
        passed = now - self._begun
        if self._warm is None and passed > self.seconds * WARM_SHARE:
            self._warm = self._batches, self.peer.blocks_made()
        return passed > self.seconds

    def found(self, before: Memory) -> dict[str, float]:
        """Give what was seen, over what there was before."""
        peak_private = max(reading.private_bytes for reading in self._readings)
        peaks = {
            "peak_pss_mib": max(reading.pss_bytes for reading in self._readings) / 2**20,
            "private_mib": (peak_private - before.private_bytes) / 2**20,
        }
        made = self.peer.blocks_made()
        if made is None or self._warm is None or self._warm[1] is None:
            return peaks
        batches = max(1, self._batches - self._warm[0])
        return peaks | {"new_blocks_per_batch": (made - self._warm[1]) / batches}
