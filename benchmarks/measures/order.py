"""What the order costs: headrace's samplers alone, for spans of 64-row batches."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from peers.peer import Peer
from workload import Workload

BATCH_ROWS = 64
SPAN_STEPS = 16


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Ask for picks span by span. The peer is not used: the order needs no loader."""
    from headrace.samplers import Shuffled

    sampler = Shuffled(workload.rows, BATCH_ROWS, seed=1)
    begun, step = perf_counter(), 0
    while (passed := perf_counter() - begun) < seconds / 4:
        sampler.picks(range(step, step + SPAN_STEPS))
        step += SPAN_STEPS
    return {"order_us_per_sample": passed / (step * BATCH_ROWS) * 1e6}
