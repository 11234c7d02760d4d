"""The check for leaks itself: it must see what a test leaves, and wait for what is ending."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import leaks


def test_a_thread_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread left waiting for ever is a leak."""
    monkeypatch.setattr(leaks, "GRACE_S", 0.01)
    before, gate = leaks.Remains.now(), threading.Event()
    thread = threading.Thread(target=gate.wait, name="headrace-reader-7")
    thread.start()

    left = leaks.left_since(before)

    gate.set()
    thread.join()
    assert left == ["thread 'headrace-reader-7'"]


def test_a_thread_that_is_ending_is_waited_for() -> None:
    """A thread that was told to stop is no leak."""
    before, gate = leaks.Remains.now(), threading.Event()
    threading.Thread(target=gate.wait).start()

    gate.set()

    assert leaks.left_since(before) == []


def test_an_open_descriptor_is_named(tmp_path: Path) -> None:
    """A file left open is a leak, named with its path."""
    before = leaks.Remains.now()
    fd = os.open(tmp_path / "shard.npy", os.O_CREAT | os.O_RDWR)

    left = leaks.left_since(before)

    os.close(fd)
    assert left == [f"descriptor {fd} ({tmp_path / 'shard.npy'})"]


def test_a_child_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child process left waiting is a leak."""
    monkeypatch.setattr(leaks, "GRACE_S", 0.01)
    before = leaks.Remains.now()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    left = leaks.left_since(before)

    child.communicate(b"\n")
    assert f"child process {child.pid}" in left


async def test_a_task_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task left waiting in the test's loop is a leak."""
    monkeypatch.setattr(leaks, "GRACE_S", 0.01)
    tasks: list[asyncio.Task[None]] = []

    async def leaky() -> None:
        tasks.append(asyncio.create_task(asyncio.Event().wait(), name="lost"))  # type: ignore[arg-type]

    with pytest.raises(AssertionError, match="lost"):
        await leaks.tasks_watched(leaky)()

    tasks[0].cancel()
    await asyncio.wait(tasks)
