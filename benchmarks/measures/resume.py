"""What a resume at 90 % of an epoch costs, in processes of their own."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
from peers.peer import Peer
from workload import Columns, Rows, Workload
from workloads import open_workload

START_AGAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from measures.resume import start
start(*sys.argv[2:5], Path(sys.argv[5]), Path(sys.argv[6]))
"""


def measure(make: Callable[[], Peer], workload: Workload, seconds: float) -> dict[str, float]:
    """Run to 90 % of an epoch, save, and start again in fresh processes, with and without state.

    Each start constructs the loader, restores the state if there is one, and takes a batch.
    `seconds` is not used: the data decides.

    Returns:
        Nothing for a peer that has no state.

    Raises:
        AssertionError: The first batch after the resume is not the one that was next.
    """
    peer = make()
    if not peer.can_resume:
        return {}
    saved, following = _run_to(peer, workload, workload.steps * 9 // 10)
    adapter = f"{type(peer).__module__}:{type(peer).__name__}"
    tuned = "tuned" if workload.is_tuned else ""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        state.write_bytes(saved)
        place = [adapter, tuned, str(workload.folder)]
        resumed_ms, rows = _start_again([*place, str(state)], Path(folder) / "rows.npy")
        fresh_ms, _ = _start_again([*place, "/nonexistent"], Path(folder) / "rows.npy")
    if not np.array_equal(rows, following):
        raise AssertionError("the first batch after the resume is not the one that was next")
    return {
        "resume_extra_ms": resumed_ms - fresh_ms,
        "resume_ratio": resumed_ms / fresh_ms,
        "state_bytes": float(len(saved)),
    }


def start(adapter: str, tuned: str, data: str, state: Path, rows: Path) -> None:
    """Start a loader, print the milliseconds to its first batch, and write the rows of that."""
    module, name = adapter.split(":")
    made = getattr(importlib.import_module(module), name)
    workload = open_workload(Path(data), is_tuned=bool(tuned))
    saved = state.read_bytes() if state.exists() else None
    begun = perf_counter()
    peer = made(workload, 1)
    if saved is not None:
        peer.restore(saved)

    def take(columns: Columns) -> bool:
        print((perf_counter() - begun) * 1e3)
        np.save(rows, workload.identify(columns))
        return True

    peer.feed(2, take)
    peer.close()


def _run_to(peer: Peer, workload: Workload, steps: int) -> tuple[bytes, Rows]:
    saved = b""
    following = np.empty(0, np.int64)
    taken = 0

    def take(columns: Columns) -> bool:
        nonlocal saved, following, taken
        taken += 1
        if taken == steps:
            saved = peer.state()
        elif taken > steps:
            following = workload.identify(columns)
        return taken > steps

    peer.feed(2, take)
    peer.close()
    return saved, following


def _start_again(arguments: list[str], rows: Path) -> tuple[float, Rows]:
    root = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-c", START_AGAIN, root, *arguments, str(rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1]), np.load(rows)
