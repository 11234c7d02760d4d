"""What the demo trains, as plain facts that a process hands to the next one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import headrace as hr

LEAST_STEPS = 16
CHECKPOINTS = 8  # in the whole run; the stop comes half-way between two of them


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything.

    Attributes:
        steps: Training steps, unless the user says otherwise.
        text_bytes: Text of the corpus at most.
        seq_len: Tokens of a window.
        batch_size: Windows of a batch.
        width: Size of a byte's embedding.
        hidden: Size of the model's state.
    """

    steps: int
    text_bytes: int
    seq_len: int
    batch_size: int
    width: int
    hidden: int


# A minute on two cores, of which two starts of Python and torch take some seconds.
FULL = Scale(steps=560, text_bytes=24 << 20, seq_len=128, batch_size=16, width=64, hidden=256)
QUICK = Scale(steps=48, text_bytes=1 << 20, seq_len=64, batch_size=16, width=32, hidden=64)


@dataclass(frozen=True, slots=True)
class Job:
    """One training run. Both processes of it, and the uninterrupted pass, get the same.

    Attributes:
        shards: Folder of the token shards.
        checkpoint: File that the training writes and goes on from.
        scale: Sizes of model and batches.
        steps: Training steps in all.
        seed: Of the loader and of the initial weights.
        workers: Reader threads, None for the loader's default.
    """

    shards: str
    checkpoint: str
    scale: Scale
    steps: int
    seed: int
    workers: int | None

    @property
    def checkpoint_every(self) -> int:
        """Steps from one checkpoint to the next."""
        return self.steps // CHECKPOINTS

    @property
    def stop_after(self) -> int:
        """Steps that the first process gets to do: half a checkpoint's way past the middle one."""
        return CHECKPOINTS // 2 * self.checkpoint_every + self.checkpoint_every // 2

    def to_json(self) -> str:
        """Give the job as one argument of a command."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        """Read what `to_json` gave."""
        facts = json.loads(text)
        return Job(**{**facts, "scale": Scale(**facts["scale"])})


def open_loader(job: Job) -> hr.Loader:
    """Give the loader of a job; every process and pass makes it anew from the same facts."""
    data = hr.TokenShards(job.shards, seq_len=job.scale.seq_len)
    return hr.Loader(
        data, job.scale.batch_size, seed=job.seed, workers=job.workers, content_digest=True
    )
