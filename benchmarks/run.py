"""Measures headrace beside other loaders, in one run on one machine.

    python benchmarks/run.py --quick
    python benchmarks/run.py --rounds 9
    python benchmarks/run.py --workloads S --peers headrace,strong,grain --metrics rate
    python benchmarks/run.py --check

Loaders with many dependencies have environments of their own, which `make bench-peers` makes;
they are measured where `--peers` names them.

Every cell is one peer on one workload in one round, in a fresh process; rounds go through all
peers in turn, each round from another peer on. What is printed are ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from check import check_epochs
from generate import make
from machine import environment, facts, use_cores
from peers import PEERS, Entry
from results import FOLDER as RESULTS
from results import Results
from tables import all_tables, show
from workload import FOLDER as DATA
from workload import Workload
from workloads import WORKLOADS, open_workload

HERE = Path(__file__).resolve().parent

EVERY_ROUND = ("rate", "inflation")
FEW_ROUNDS = ("gap", "memory", "resume", "order", "import")
ROUNDS_OF_FEW = 3

QUICK_PEERS = {
    *("headrace", "headrace-0", "strong", "limit-1"),
    *("torch-index", "torch-2", "nodes-tuned", "grain"),
}
CELL_LIMIT_S = 300
BUSY_LOAD = 0.5


def main() -> int:
    """Do what the arguments say.

    Returns:
        Exit status: 1 when a peer could not be measured or delivered something wrong.
    """
    asked = parse()
    if asked.check:
        return check(asked)
    cores = use_cores(asked.cores)
    results = Results(facts(cores) | settings(asked))
    folders = {name: make(name, scale_of(asked, name), asked.data) for name in asked.workloads}
    warn_if_busy(results.facts["load_at_start"])
    cells = list(plan(asked))
    began = time.monotonic()
    for done, cell in enumerate(cells, 1):
        values = measure(asked, cell, folders[cell.workload], results.failures)
        results.add(cell.round, cell.workload, cell.peer, values)
        tell(f"{time.monotonic() - began:5.0f} s, {done} of {len(cells)}: {cell.name}")
    results.save(asked.output)
    for table in all_tables(results):
        show(table)
    print(*results.failures, f"Written to {asked.output}.", sep="\n")
    return 1 if results.failures else 0


def parse() -> argparse.Namespace:
    """Read the arguments and fill in what `--quick` and `--check` leave out."""
    parser = argparse.ArgumentParser(description="Measure headrace beside other loaders.")
    parser.add_argument("--quick", action="store_true", help="small data, few peers, < 2 minutes")
    parser.add_argument("--check", action="store_true", help="contents and coverage only")
    parser.add_argument("--workloads", type=words, help="default: all; quick: T,S")
    parser.add_argument("--peers", type=words, help="default: all that are installed here")
    parser.add_argument("--metrics", type=words, help="default: all; quick: rate")
    parser.add_argument("--rounds", type=int, help="default 9; quick: 3")
    parser.add_argument("--seconds", type=float, help="of each measurement; 2.5, quick: 0.4")
    parser.add_argument("--scale", type=Fraction, help="of the data; 1, quick: 1/8, check: less")
    parser.add_argument("--cores", type=int, default=2, help="cores that every cell may use")
    parser.add_argument("--tuned", action="store_true", help="the fastest numpy for all peers")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, help="JSON; default: benchmarks/results/")
    asked = parser.parse_args()
    here = {name: entry for name, entry in PEERS.items() if not entry.environment}
    installed = [name for name, entry in here.items() if entry.is_installed]
    quick = [name for name in installed if name in QUICK_PEERS]
    timed = ["T", "S"] if asked.quick and not asked.check else list(WORKLOADS)
    asked.workloads = asked.workloads or timed
    asked.peers = asked.peers or (quick if asked.quick else installed)
    asked.metrics = asked.metrics or (["rate"] if asked.quick else [*EVERY_ROUND, *FEW_ROUNDS])
    asked.rounds = asked.rounds or (3 if asked.quick else 9)
    asked.seconds = asked.seconds or (0.4 if asked.quick else 2.5)
    asked.output = asked.output or RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    if unknown := set(asked.peers) - PEERS.keys():
        parser.error(f"--peers: unknown {sorted(unknown)}, known are {sorted(PEERS)}")
    if unknown := set(asked.workloads) - WORKLOADS.keys():
        parser.error(f"--workloads: unknown {sorted(unknown)}, known are {sorted(WORKLOADS)}")
    return asked


def scale_of(asked: argparse.Namespace, name: str) -> Fraction:
    """Say how much of a workload's data is made."""
    scale: Fraction | None = asked.scale
    if scale is None and asked.check:
        return WORKLOADS[name].check_scale
    return scale or (Fraction(1, 8) if asked.quick else Fraction(1))


def words(text: str) -> list[str]:
    """Split an argument at its commas."""
    return text.split(",")


def check(asked: argparse.Namespace) -> int:
    """Check contents, coverage and shuffle of two epochs of each peer."""
    faults = 0
    with tempfile.TemporaryDirectory() as data:
        for name in asked.workloads:
            folder = make(name, scale_of(asked, name), Path(data))
            for peer in asked.peers:
                if name in PEERS[peer].workloads:
                    fault = fault_of(peer, folder, asked)
                    faults += bool(fault)
                    print(f"{name} {peer}: {f'WRONG: {fault}' if fault else 'right'}")
    return 1 if faults else 0


def fault_of(peer: str, folder: Path, asked: argparse.Namespace) -> str:
    """Say what is wrong with what a peer delivers; "" for nothing.

    In this process, since starting one takes longer than the check; but for peers that have an
    environment of their own.
    """
    entry = PEERS[peer]
    if entry.environment:
        command = [entry.python, HERE / "cell.py", peer, folder, "epochs", 0]
        try:
            run_in_cell([*command, *(["--tuned"] if asked.tuned else [])], asked.cores)
        except subprocess.SubprocessError as fault:
            return reason(fault)
        return ""
    workload = open_workload(folder, asked.tuned)
    try:
        check_here(entry, workload)
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    finally:
        workload.close()
    return ""


def check_here(entry: Entry, workload: Workload) -> None:
    """Check two epochs of a peer.

    Raises:
        WrongDeliveryError: Saying what is wrong.
    """
    adapter = entry.load()
    adapter.prepare(workload)
    peer = adapter(workload, 1)
    try:
        check_epochs(workload, peer)
    finally:
        peer.close()


@dataclass(frozen=True, slots=True)
class Cell:
    """What one process is started for."""

    round: int
    workload: str
    peer: str
    metrics: list[str]

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.workload} {self.peer}, round {self.round}"


def plan(asked: argparse.Namespace) -> Iterator[Cell]:
    """Give the cells in the order they run."""
    for number in range(asked.rounds):
        turn = number % len(asked.peers)
        for workload in asked.workloads:
            for peer in asked.peers[turn:] + asked.peers[:turn]:
                metrics = metrics_of(asked, number, peer)
                if metrics and workload in PEERS[peer].workloads:
                    yield Cell(number, workload, peer, metrics)


def metrics_of(asked: argparse.Namespace, number: int, peer: str) -> list[str]:
    """Say what is measured of a peer in a round."""
    wanted = [metric for metric in asked.metrics if metric in EVERY_ROUND]
    if number < ROUNDS_OF_FEW:
        wanted += [metric for metric in asked.metrics if metric in FEW_ROUNDS]
    return [metric for metric in wanted if applies(metric, peer)]


def applies(metric: str, peer: str) -> bool:
    """Say whether a metric means anything for a peer here."""
    if PEERS[peer].kind == "limit":
        return metric == "rate"
    if metric == "memory":
        return sys.platform == "linux"
    return metric != "order" or peer == "headrace"


def measure(
    asked: argparse.Namespace, cell: Cell, folder: Path, failures: list[str]
) -> dict[str, float]:
    """Run one cell.

    Returns:
        What it found; nothing when it failed, and then `failures` has one more.
    """
    values: dict[str, float] = {}
    entry = PEERS[cell.peer]
    if "import" in cell.metrics:
        values["library_import_ms"] = import_ms(entry, asked.cores)
    in_cell = ",".join(metric for metric in cell.metrics if metric != "import")
    if in_cell:
        command = [entry.python, HERE / "cell.py", cell.peer, folder, in_cell, asked.seconds]
        command += ["--tuned"] if asked.tuned else []
        try:
            values |= json.loads(run_in_cell(command, asked.cores).splitlines()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as fault:
            failures.append(f"{cell.name}: {reason(fault)}")
    if "declared_mib" in values:
        values["private_over_declared_mib"] = values["private_mib"] - values["declared_mib"]
    return values


def run_in_cell(command: Sequence[object], cores: int) -> str:
    """Run a command under the environment of all cells and give what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        env=environment(cores),
        capture_output=True,
        text=True,
        timeout=CELL_LIMIT_S,
        check=True,
    )
    return done.stdout


def import_ms(entry: Entry, cores: int) -> float:
    """Give the time to import a library in a process that has torch.

    The collector's pass over what torch imported falls anywhere, so it is made before.
    """
    program = (
        "import gc, torch; from time import perf_counter as now; gc.collect(); begun = now(); "
        f"import {entry.library}; print((now() - begun) * 1e3)"
    )
    return float(run_in_cell([entry.python, "-c", program], cores).split()[-1])


def settings(asked: argparse.Namespace) -> dict[str, Any]:
    """Give how the run was asked for, to be repeated by others: without places of this machine."""
    places = {"--data", "--output"}
    words = sys.argv[1:]
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in places and before not in places
    ]
    return {
        "command": " ".join(["python benchmarks/run.py", *kept]),
        "rounds": asked.rounds,
        "seconds": asked.seconds,
        "scale": str(asked.scale or (Fraction(1, 8) if asked.quick else 1)),
        "gather": "tuned" if asked.tuned else "plain",
    }


def warn_if_busy(load: float) -> None:
    """Say so where other programs run: threads that wait for a core turn every ratio."""
    if load > BUSY_LOAD:
        print(f"Other programs are running (load {load:.1f}): these figures prove nothing.")


def tell(progress: str) -> None:
    """Say how far the run is, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r{progress:60}", end="", file=sys.stderr, flush=True)


def reason(fault: Exception) -> str:
    """Give the last line that a failed cell wrote."""
    text = getattr(fault, "stderr", None) or str(fault)
    return str(text).strip().splitlines()[-1]


if __name__ == "__main__":
    raise SystemExit(main())
