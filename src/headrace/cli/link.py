"""What the training process tells the demo, a JSON line at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import headrace as hr
from headrace.cli.memory import peak_memory_bytes

GO_ON = "\n"


@dataclass(frozen=True, slots=True)
class Opened:
    """Data and loader are open, a checkpoint is loaded.

    Attributes:
        start: First step to come.
        opened_s: How long that took.
        memory_bytes: Peak of this process so far: imports, model, optimizer.
    """

    start: int
    opened_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """One training step is done.

    Attributes:
        step: Global step.
        loss: Of this step, before its update.
        rows: Of the batch.
        tokens: That the model learned from.
        delivered_bytes: Of all columns of the batch.
        elapsed_s: Since this process opened the data.
        first_wait_s: For the first batch of this process.
        wait_s: For all later batches so far.
    """

    step: int
    loss: float
    rows: int
    tokens: int
    delivered_bytes: int
    elapsed_s: float
    first_wait_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is at its planned end.

    Attributes:
        state: Of the loader.
        peak_memory_bytes: Of this process, mapped shards included.
    """

    state: dict[str, Any]
    peak_memory_bytes: int


Message = Opened | Stepped | Finished
_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in (Opened, Stepped, Finished)}


def to_line(message: Message) -> str:
    """Give a message as a line."""
    return json.dumps([type(message).__name__, asdict(message)]) + "\n"


def from_line(line: str) -> Message:
    """Read what `to_line` gave."""
    kind, facts = json.loads(line)
    return _KINDS[kind](**facts)


class Link:
    """The training process's end. A step is answered before the next one begins.

    So the other end can end this process after a step of its choice; and when the demo itself
    dies the answer fails to come, and this process ends too.
    """

    def __init__(self, answers: TextIO, lines: TextIO) -> None:
        self._answers = answers
        self._lines = lines
        self._began = time.perf_counter()

    def opened(self, start: int) -> None:
        """Say that the first batch can be asked for."""
        opened_s = time.perf_counter() - self._began
        self._began += opened_s
        self._tell(Opened(start, opened_s, peak_memory_bytes()))

    def stepped(self, batch: hr.Batch, loss: float, stats: Mapping[str, float]) -> None:
        """Say what a step was, and wait for leave to do the next."""
        self._tell(
            Stepped(
                step=batch.step,
                loss=loss,
                rows=batch.num_rows,
                tokens=batch["target"].numel(),
                delivered_bytes=sum(column.nbytes for column in batch),
                elapsed_s=time.perf_counter() - self._began,
                first_wait_s=stats["first_wait_s"],
                wait_s=stats["wait_s"],
            )
        )
        if self._answers.readline() != GO_ON:
            raise SystemExit("the demo has ended")

    def finished(self, state: dict[str, Any]) -> None:
        """Say that all is done."""
        self._tell(Finished(state, peak_memory_bytes()))

    def _tell(self, message: Message) -> None:
        self._lines.write(to_line(message))
        self._lines.flush()
