"""The most memory that this process ever had."""

from __future__ import annotations

import resource
import sys

_STATUS = "/proc/self/status"


def peak_memory_bytes() -> int:
    """Give the peak of resident memory, mapped files included.

    Linux hands the peak that getrusage gives on from the process that started this one, so there
    the memory map's own peak is read. macOS counts in bytes.
    """
    if sys.platform == "linux":
        with open(_STATUS, encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
