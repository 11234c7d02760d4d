"""The demo's end of a training process: starts it, hears its steps, kills it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO

from headrace.cli.job import Job
from headrace.cli.link import GO_ON, Message, Stepped, from_line
from headrace.errors import ChildDiedError

# Enough of what a process wrote before it died to name the cause.
_SHOWN_BYTES = 2000


class TrainingProcess:
    """A fresh Python that trains a job from its last checkpoint on. A context manager.

    Leaving the context kills it, if it is not over yet, and waits for its end. It is in a process
    group of its own, so Ctrl-C in the terminal reaches the demo only, which then leaves here.

    Attributes:
        started: When, by `time.perf_counter`.
    """

    def __init__(self, job: Job) -> None:
        self.started = time.perf_counter()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the exit
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.train", job.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            process_group=0,
        )

    def messages(self, kill_after: int | None = None) -> Iterator[Message]:
        """Give what the process says, until it ends.

        Each step is answered before it is given, so that showing it costs the training nothing.

        Args:
            kill_after: Kill the process (SIGKILL) when it has done this many steps of the run.

        Raises:
            ChildDiedError: It ended in another way than it should.
        """
        assert self._process.stdout is not None
        wanted = 0
        for line in self._process.stdout:
            message = from_line(line)
            if isinstance(message, Stepped):
                if message.step + 1 == kill_after:
                    self._process.kill()
                    wanted = -signal.SIGKILL
                else:
                    self._go_on()
            yield message
        exit_code = self._process.wait()
        if exit_code != wanted:
            raise ChildDiedError("the training process", exit_code, self._last_words())

    @property
    def exit_code(self) -> int | None:
        """What it ended with, the negative number of a signal; None while it runs."""
        return self._process.poll()

    def _go_on(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(GO_ON)
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it died meanwhile; the end of its lines says so

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-_SHOWN_BYTES:].decode(errors="replace").strip()

    def __enter__(self) -> TrainingProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            # An answer that the dead process did not read cannot be written at the close either.
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
