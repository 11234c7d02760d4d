"""The time between the last batch of an epoch and the first of the next."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from peers.peer import Peer
from workload import Columns, Workload


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Take two whole epochs at full speed. `seconds` is not used: the data decides."""
    peer = make()
    last_steps = range(workload.steps - 1, workload.steps + 1)
    times: list[float] = []
    step = 0

    def take(columns: Columns) -> bool:
        nonlocal step
        if step in last_steps:
            times.append(perf_counter())
        step += 1
        return step > workload.steps + 1

    peer.feed(2, take)
    peer.close()
    return {"epoch_gap_ms": (times[1] - times[0]) * 1e3}
