"""Frameworks train with the second door, are killed in mid-epoch, and go on in a fresh process.

`make test-ecosystem` runs these in an environment that has the frameworks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
STEPS = 33
SAVED_AFTER_STEPS, KILLED_AT_STEP = 16, 19  # both in the second epoch of 11 steps


def train(program: str, folder: Path, loader: str, *arguments: str, ranks: int = 1) -> int:
    """Run a program in a process of its own; give its exit code."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(launcher if ranks > 1 else []), str(FOLDER / program)]
    command += [str(folder / "saved"), f"--steps-file={folder / 'log'}", f"--loader={loader}"]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def logged(folder: Path, rank: int = 0) -> list[Any]:
    """Give step, ids and loss of each step that a rank began since its program started."""
    lines = (folder / f"log.rank-{rank}").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder for the run with torch's loader."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A folder for the runs with headrace's."""
    folder = tmp_path / "ours"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("program", "way"),
    [
        ("run_lightning.py", "fit"),
        ("run_accelerate.py", "skip"),
        ("run_accelerate.py", "state"),
        ("run_accelerate.py", "alone"),
        ("run_trainer.py", "train"),
    ],
)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    program: str, way: str, theirs: Path, ours: Path
) -> None:
    """Ids and losses are those of an uninterrupted run with torch's loader, to the bit.

    Training is validated in mid-epoch, saved in mid-epoch, killed three steps later while
    batches are read ahead on two threads, and gone on with by a fresh process.
    """
    how = [f"--way={way}", "--num-workers=2"]

    train(program, theirs, "torch", f"--way={way}")
    killed = train(program, ours, "headrace", *how, f"--kill-at-step={KILLED_AT_STEP}")
    begun = logged(ours)
    train(program, ours, "headrace", *how, f"--resume={SAVED_AFTER_STEPS}")

    whole = logged(theirs)
    assert [step for step, _, _ in whole] == list(range(STEPS))
    assert (killed, begun) == (-signal.SIGKILL, whole[:KILLED_AT_STEP])
    assert logged(ours) == whole[SAVED_AFTER_STEPS:]


@pytest.mark.parametrize(
    ("program", "way", "ranks"),
    [("run_lightning.py", "two ranks", 1), ("run_accelerate.py", "state", 2)],
)
def test_two_ranks_share_the_samples_and_go_on_from_the_state_of_one(
    program: str, way: str, ranks: int, theirs: Path, ours: Path
) -> None:
    """Both frameworks make the loader anew with a sampler for each rank, and save rank 0's state.

    Lightning starts the second rank itself, Accelerate is started twice.
    """
    how = [f"--way={way}", "--num-workers=2"]

    train(program, theirs, "torch", f"--way={way}", ranks=ranks)
    train(program, ours, "headrace", *how, ranks=ranks)
    whole = [logged(ours, rank) for rank in range(2)]
    gone_on = {}
    for steps in (8, 12):  # in the middle of the second epoch of six steps, and at its end
        train(program, ours, "headrace", *how, f"--resume={steps}", ranks=ranks)
        gone_on[steps] = [logged(ours, rank) for rank in range(2)]

    assert whole == [logged(theirs, rank) for rank in range(2)]
    first_epoch = [{id for _, ids, _ in log[:6] for id in ids} for log in whole]
    assert first_epoch[0] | first_epoch[1] == set(range(43))
    assert gone_on == {steps: [log[steps:] for log in whole] for steps in (8, 12)}
