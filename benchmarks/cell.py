"""Measures one peer on one workload, in this process, and prints what it found as JSON.

`run.py` starts it; it is of no use by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from check import check_epochs, check_first
from measures import footprint, gap, inflation, order, rate, resume
from peers import PEERS
from peers.peer import Peer
from workload import Workload
from workloads import open_workload

SEED = 1


def whole_epochs(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Check two whole epochs. `seconds` is not used."""
    peer = make()
    check_epochs(workload, peer)
    peer.close()
    return {}


Measure = Callable[[Callable[[], Peer], Workload, float], dict[str, float]]

MEASURES: dict[str, Measure] = {
    "rate": rate.measure,
    "inflation": inflation.measure,
    "gap": gap.measure,
    "memory": footprint.measure,
    "resume": resume.measure,
    "order": order.measure,
    "epochs": whole_epochs,
}


def measure(peer: str, folder: Path, metrics: list[str], seconds: float, tuned: bool) -> Any:
    """Measure what is asked for, then check the first batches.

    Returns:
        JSON facts: metric to value.
    """
    adapter = PEERS[peer].load()
    found: dict[str, float] = {}
    workload = open_workload(folder, tuned)
    adapter.prepare(workload)
    torch.zeros(1).sum()  # torch's own first call is not the loader's first batch

    def make() -> Peer:
        return adapter(workload, SEED)

    for metric in metrics:
        found |= MEASURES[metric](make, workload, seconds)
    checked = make()
    check_first(workload, checked)
    checked.close()
    return found


def main() -> None:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("folder", type=Path)
    parser.add_argument("metrics")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--tuned", action="store_true")
    asked = parser.parse_args()
    metrics = asked.metrics.split(",")
    found = measure(asked.peer, asked.folder, metrics, asked.seconds, asked.tuned)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
