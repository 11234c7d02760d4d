"""What memory is left, read from the system's files."""

from __future__ import annotations

import sys

import pytest

from headrace.host_memory import available_bytes

GB = 1_000_000_000
MEMINFO = {"/proc/meminfo": "MemTotal:  32000000 kB\nMemAvailable:   8000000 kB\nCached: 1 kB\n"}
V2 = "/sys/fs/cgroup"
V1 = "/sys/fs/cgroup/memory"

CASES: dict[str, tuple[dict[str, str], int | None]] = {
    "nothing can be read": ({}, None),
    "no group": (MEMINFO, 8_192_000_000),
    "an old kernel without MemAvailable": ({"/proc/meminfo": "MemTotal: 100 kB\n"}, None),
    "version 2 without limit": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": "max\n",
            f"{V2}/job/memory.current": str(GB),
        },
        8_192_000_000,
    ),
    "version 2 with a limit": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": str(4 * GB),
            f"{V2}/job/memory.current": str(3 * GB),
        },
        1 * GB,
    ),
    "file pages that would go first are not held": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": str(4 * GB),
            f"{V2}/job/memory.current": str(3 * GB),
            f"{V2}/job/memory.stat": f"anon 5\ninactive_file {2 * GB}\nactive_file 7\n",
        },
        3 * GB,
    ),
    "the group above is tighter": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/user/job\n",
            f"{V2}/user/job/memory.max": str(6 * GB),
            f"{V2}/user/job/memory.current": str(1 * GB),
            f"{V2}/user/memory.max": str(7 * GB),
            f"{V2}/user/memory.current": str(5 * GB),
        },
        2 * GB,
    ),
    "memory.high counts as a limit": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": "max",
            f"{V2}/job/memory.high": str(2 * GB),
            f"{V2}/job/memory.current": str(GB // 2),
        },
        3 * GB // 2,
    ),
    "more is held than the limit": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/\n",
            f"{V2}/memory.max": str(GB),
            f"{V2}/memory.current": str(2 * GB),
        },
        0,
    ),
    "a container that sees its own group as the root": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/docker/4f5e\n",
            f"{V2}/memory.max": str(2 * GB),
            f"{V2}/memory.current": str(GB),
        },
        GB,
    ),
    "a group outside of what the process sees": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/../../job\n",
            f"{V2}/memory.max": str(2 * GB),
            f"{V2}/memory.current": str(GB),
        },
        GB,
    ),
    "version 1 with a limit": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n",
            f"{V1}/job/memory.limit_in_bytes": str(4 * GB),
            f"{V1}/job/memory.usage_in_bytes": str(3 * GB),
            f"{V1}/job/memory.stat": f"inactive_file 9\ntotal_inactive_file {GB}\n",
        },
        2 * GB,
    ),
    "version 1 without limit": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "4:memory:/job\n",
            f"{V1}/job/memory.limit_in_bytes": "9223372036854771712\n",
            f"{V1}/job/memory.usage_in_bytes": str(3 * GB),
        },
        8_192_000_000,
    ),
    "both versions, as systemd mounts them side by side": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "4:memory:/job\n0::/job\n",
            f"{V1}/job/memory.limit_in_bytes": str(2 * GB),
            f"{V1}/job/memory.usage_in_bytes": str(GB),
        },
        GB,
    ),
    "the machine has less than the group": (
        {
            "/proc/meminfo": "MemAvailable: 1000 kB\n",
            "/proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": str(4 * GB),
            f"{V2}/job/memory.current": "0",
        },
        1_024_000,
    ),
    "a limit without a reading of what is held": (
        {
            **MEMINFO,
            "/proc/self/cgroup": "0::/job\n",
            f"{V2}/job/memory.max": str(GB),
        },
        8_192_000_000,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_available_memory(case: str) -> None:
    """The least of what the machine and every control group can still give (U-08)."""
    files, expected = CASES[case]

    assert available_bytes(files.get) == expected


def test_this_machine_is_measured_where_it_can_be() -> None:
    """The real files of Linux are understood; other systems have none."""
    found = available_bytes()

    if sys.platform == "linux":
        assert found is not None
        assert 1 << 20 < found < 1 << 50
    else:
        assert found is None
