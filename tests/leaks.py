"""Finds what a test left behind: threads, tasks, descriptors, child processes.

Cheap while nothing is left: collecting garbage and waiting happen only when something is.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

import psutil

# How long what was cancelled may take to end. Only a failing test ever waits this long.
GRACE_S = 5.0
# Python starts these once per process and keeps them.
KEPT_CHILDREN = ("resource_tracker", "forkserver")


@dataclass(frozen=True)
class Remains:
    """What a process holds at one moment."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]
    children: frozenset[int]

    @classmethod
    def now(cls) -> Remains:
        return cls(frozenset(threading.enumerate()), _descriptors(), _children())


def left_since(before: Remains) -> list[str]:
    """Name what came since `before` and does not end within GRACE_S."""
    if not _named(before, Remains.now()):
        return []
    gc.collect()
    for thread in set(threading.enumerate()) - before.threads:
        thread.join(GRACE_S)
    psutil.wait_procs(
        [psutil.Process(pid) for pid in _children() - before.children if psutil.pid_exists(pid)],
        timeout=GRACE_S,
    )
    gc.collect()
    return _named(before, Remains.now())


def tasks_watched(test: Callable[..., Any]) -> Callable[..., Any]:
    """Give an async test that fails when tasks of its own are left in its loop.

    pytest-asyncio cancels such tasks without a word; other tests are given back as they are.
    """
    if not inspect.iscoroutinefunction(test) or hasattr(test, "hypothesis"):
        return test

    @functools.wraps(test)
    async def watched(*args: Any, **kwargs: Any) -> None:
        before = asyncio.all_tasks()
        await test(*args, **kwargs)
        left = asyncio.all_tasks() - before
        if left:
            _, left = await asyncio.wait(left, timeout=GRACE_S)
        assert not left, f"the test left tasks running: {left}"

    return watched


def _named(before: Remains, after: Remains) -> list[str]:
    return [
        *(f"thread {thread.name!r}" for thread in after.threads - before.threads),
        *(f"descriptor {fd} ({to})" for fd, to in sorted(after.descriptors - before.descriptors)),
        *(f"child process {pid}" for pid in sorted(after.children - before.children)),
    ]


def _descriptors() -> frozenset[tuple[int, str]]:
    """Give open descriptors with what they lead to; the resource tracker's pipe is Python's own."""
    if sys.platform != "linux":
        return frozenset((fd, "") for fd in range(psutil.Process().num_fds()))
    tracker = getattr(resource_tracker._resource_tracker, "_fd", None)
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:
            continue  # the descriptor of this listing itself
    return frozenset(entry for entry in found if entry[0] != tracker)


def _children() -> frozenset[int]:
    return frozenset(pid for pid in _child_pids() if not _is_kept(pid))


def _child_pids() -> list[int]:
    if sys.platform != "linux":
        return [child.pid for child in psutil.Process().children()]
    pids: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as listing:
                pids += map(int, listing.read().split())
        except FileNotFoundError:
            continue  # the thread ended meanwhile
    return pids


def _is_kept(pid: int) -> bool:
    try:
        return any(name in " ".join(psutil.Process(pid).cmdline()) for name in KEPT_CHILDREN)
    except psutil.NoSuchProcess:
        return True
