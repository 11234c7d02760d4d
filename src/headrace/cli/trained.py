"""One training process from its start to its end, shown on the console."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from headrace.cli.child import TrainingProcess
from headrace.cli.display import display
from headrace.cli.job import Job
from headrace.cli.link import Finished, Opened, Stepped


@dataclass(frozen=True, slots=True)
class Trained:
    """What one training process did.

    Attributes:
        opened: How it began.
        start_s: From the start of the process to the opened loader, imports included.
        steps: What it did.
        finished: What it said at the planned end, if it came to that.
        exit_code: How it ended, the negative number of a signal.
    """

    opened: Opened
    start_s: float
    steps: Sequence[Stepped]
    finished: Finished | None
    exit_code: int

    @property
    def first_batch_s(self) -> float:
        """From opening the data, and loading a checkpoint if there is one, to the first batch."""
        return self.opened.opened_s + self.steps[0].first_wait_s

    @property
    def wait_s(self) -> float:
        """How long the loop waited for batches, the first included."""
        return self.steps[-1].first_wait_s + self.steps[-1].wait_s


def train(
    console: Console, job: Job, title: str, is_live: bool, kill_after: int | None = None
) -> Trained:
    """Run one training process to its end, or until it has done `kill_after` steps of the run.

    Raises:
        ChildDiedError: It ended in another way than it should.
    """
    opened, finished, start_s = Opened(0, 0.0, 0), None, 0.0
    steps: list[Stepped] = []
    with (
        TrainingProcess(job) as process,
        display(console, title, job.steps, is_live) as show,
    ):
        for message in process.messages(kill_after):
            if isinstance(message, Opened):
                opened, start_s = message, time.perf_counter() - process.started
            elif isinstance(message, Stepped):
                steps.append(message)
                show(message)
            else:
                finished = message
        exit_code = process.exit_code
    assert exit_code is not None
    return Trained(opened, start_s, steps, finished, exit_code)
