"""Runs `child.py` in processes of their own, to their end or until they are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Only ends a child that hangs; a child takes about two seconds to import torch.
LIMIT_S = 90.0

Taken = list[tuple[dict[str, Any], dict[str, Any]]]


def trained(*jobs: dict[str, Any]) -> list[Taken]:
    """Give what a fresh process takes in each of some jobs: batches, and the state after each."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.state.child"],
        input=json.dumps(jobs) + "\n",
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    parts: list[Taken] = [[]]
    for line in map(json.loads, done.stdout.splitlines()):
        if line is None:
            parts.append([])
        else:
            parts[-1].append(tuple(line))
    return parts[:-1]


def killed(job: dict[str, Any], after: int) -> Taken:
    """Give the first batches of a process that is killed hard once it has announced them.

    The process is in the middle of its next steps then: reading ahead, or at a batch.
    """
    command = [sys.executable, "-m", "tests.state.child"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as child:
        limit = threading.Timer(LIMIT_S, child.kill)
        limit.start()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps([job]) + "\n")
        child.stdin.flush()
        taken = [tuple(json.loads(child.stdout.readline())) for _ in range(after)]
        child.kill()
        child.wait()
        limit.cancel()
        limit.join()
    assert child.returncode == -9
    return taken
