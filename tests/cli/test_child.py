"""The two ends of the line between the demo and its training process."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.cli import corpus
from headrace.cli.checkpoint import loader_state
from headrace.cli.child import TrainingProcess
from headrace.cli.job import QUICK, Job
from headrace.cli.link import Finished, Link, Opened, Stepped, from_line, to_line
from headrace.errors import ChildDiedError


def job_in(folder: Path) -> Job:
    return Job(str(folder / "shards"), str(folder / "checkpoint.pt"), QUICK, 16, 42, None)


def test_a_message_comes_out_as_it_went_in() -> None:
    """Every kind of message survives the line."""
    messages = [
        Opened(3, 0.5, 1024),
        Stepped(3, 2.5, 16, 1024, 16384, 0.5, 0.25, 0.125),
        Finished({"next_step": 4}, 2048),
    ]

    assert [from_line(to_line(message)) for message in messages] == messages


def test_a_process_without_an_answer_ends() -> None:
    """When the demo dies, the training does not go on alone."""
    with hr.Loader(hr.Arrays({"target": np.zeros((4, 2))}), 4, workers=0) as loader:
        batch = loader.batch_at(0)
    said = io.StringIO()

    with pytest.raises(SystemExit):
        Link(io.StringIO(""), said).stepped(batch, 2.5, {"first_wait_s": 0.0, "wait_s": 0.0})

    told = from_line(said.getvalue())
    assert isinstance(told, Stepped)
    assert (told.step, told.rows, told.tokens, told.delivered_bytes) == (0, 4, 8, 64)


def test_a_process_is_killed_after_the_very_step(tmp_path: Path) -> None:
    """It does no step more, and its last checkpoint is the one before."""
    corpus.build(tmp_path / "shards", QUICK.text_bytes)
    job = job_in(tmp_path)

    with TrainingProcess(job) as process:
        steps = [m.step for m in process.messages(kill_after=9) if isinstance(m, Stepped)]

    assert steps == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert process.exit_code == -signal.SIGKILL
    assert loader_state(job.checkpoint)["next_step"] == 8


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    """Its last words are in the error, and its exit code."""
    with (
        TrainingProcess(job_in(tmp_path)) as process,
        pytest.raises(ChildDiedError, match=r"exit code 1\. It wrote:") as caught,
    ):
        list(process.messages())

    assert caught.value.exit_code == 1
    assert "NotFoundError: 'shards' is not in " in str(caught.value)
