"""What the process and its children use: CPU time and memory."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil


def cpu_seconds() -> float:
    """Give the CPU time of all threads of this process and of its living children."""
    children = psutil.Process().children(recursive=True)
    times = [child.cpu_times() for child in children]
    return time.process_time() + sum(t.user + t.system for t in times)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of this process and its children, shared pages divided among those that map them.

    Attributes:
        pss_bytes: All of it, mapped data files too.
        private_bytes: Without pages of files: what the processes wrote, or share as memory.
    """

    pss_bytes: int
    private_bytes: int


def memory() -> Memory:
    """Read the memory in use. Takes milliseconds while much is mapped. Linux only."""
    totals = {"Pss:": 0, "Pss_File:": 0}
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    for process in processes:
        try:
            with open(f"/proc/{process.pid}/smaps_rollup") as lines:
                for line in lines:
                    name, *rest = line.split()
                    if name in totals:
                        totals[name] += int(rest[0]) * 1024
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
    return Memory(totals["Pss:"], totals["Pss:"] - totals["Pss_File:"])
