"""How much memory this process may still take: the machine's, and that of its control groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

ReadText = Callable[[str], str | None]
"""Gives the text of a file, or None where there is none that can be read."""

# Version 1 writes "no limit" as the largest multiple of a page; no machine has a quarter of it.
NO_LIMIT_BYTES = 1 << 61


class _Version(NamedTuple):
    """Where a version of control groups is mounted, and how it names its files."""

    mounts: tuple[str, ...]
    limits: tuple[str, ...]
    current: str
    inactive: str


# memory.high is no hard limit, but beyond it the kernel slows the process down on purpose.
_V2 = _Version(
    mounts=("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
    limits=("memory.max", "memory.high"),
    current="memory.current",
    inactive="inactive_file",
)
_V1 = _Version(
    mounts=("/sys/fs/cgroup/memory",),
    limits=("memory.limit_in_bytes",),
    current="memory.usage_in_bytes",
    inactive="total_inactive_file",
)


def read_text(path: str) -> str | None:
    """Read a small file of the system, or say that it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def available_bytes(read: ReadText = read_text) -> int | None:
    """Give the bytes that can be taken without swapping or meeting a limit.

    The least of the system's MemAvailable and, for each control group that this process is in,
    its limit less what it holds. File pages that the kernel would drop first do not count as
    held: reading shards fills a group with them.

    Returns:
        Bytes, or None where nothing can be measured (macOS).
    """
    found = [_mem_available(read), *_headrooms(read)]
    known = [value for value in found if value is not None]
    return min(known) if known else None


def _mem_available(read: ReadText) -> int | None:
    for line in (read("/proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable" and value.split():
            return _number(value.split()[0], unit_bytes=1024)
    return None


def _headrooms(read: ReadText) -> Iterator[int | None]:
    """Give what is left in every group from this process's own up to the root.

    A container may see its own group as the root of the mount, under a path of the host that
    does not exist here; going up to the root finds it either way.
    """
    for version, group in _groups(read):
        for mount in version.mounts:
            for folder in _upwards(mount, group):
                yield _headroom(version, folder, read)


def _groups(read: ReadText) -> Iterator[tuple[_Version, str]]:
    """Give the groups of this process: lines are `number:controllers:path`, version 2 `0::path`."""
    for line in (read("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield _V2, path
        elif "memory" in controllers.split(","):
            yield _V1, path


def _upwards(mount: str, group: str) -> Iterator[str]:
    parts = [part for part in group.split("/") if part]
    if ".." in parts:  # the group lies outside of what this process may see
        parts = []
    for depth in range(len(parts), -1, -1):
        yield "/".join([mount, *parts[:depth]])


def _headroom(version: _Version, folder: str, read: ReadText) -> int | None:
    limits = [_number(read(f"{folder}/{name}")) for name in version.limits]
    known = [limit for limit in limits if limit is not None and limit < NO_LIMIT_BYTES]
    held = _number(read(f"{folder}/{version.current}"))
    if not known or held is None:
        return None
    inactive = _stat(read(f"{folder}/memory.stat"), version.inactive)
    return max(0, min(known) - max(0, held - inactive))


def _stat(text: str | None, key: str) -> int:
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return _number(value) or 0
    return 0


def _number(text: str | None, unit_bytes: int = 1) -> int | None:
    """Read a number of bytes; "max", nothing and anything else are None."""
    digits = (text or "").strip()
    return int(digits) * unit_bytes if digits.isascii() and digits.isdigit() else None
