"""Runs the command as a user does: in a process of its own, its temporary files in one folder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "headrace"]
# Only ends a process that hangs: the demo starts Python and torch three times.
LIMIT_S = 120.0


def environment(scratch: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(scratch), "COLUMNS": "100"}


def run(*arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(scratch),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def run_line(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell in a folder does."""
    return subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@contextmanager
def started(*arguments: str, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the command, to be read from and signalled; end it if it does not end."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        yield process
        process.wait()
        limit.cancel()
        limit.join()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Read the output up to the line that holds the words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the process ended before it wrote {words!r}")
