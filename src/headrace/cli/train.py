"""The training process of the demo: `python -m headrace.cli.train JOB`. It may die at any step."""

from __future__ import annotations

import sys

import torch

from headrace.cli.checkpoint import load_checkpoint, save_checkpoint
from headrace.cli.corpus import VOCABULARY
from headrace.cli.job import Job, open_loader
from headrace.cli.link import Link
from headrace.cli.model import ByteModel

LEARNING_RATE = 5e-3
# A batch is small: one thread does it about as fast as two, and a core is left for the readers
# and for other programs. It also makes losses the same to the last bit on every run.
TORCH_THREADS = 1


def train(job: Job, model: ByteModel, optimizer: torch.optim.Optimizer, link: Link) -> None:
    """Train from the last checkpoint to the end: a user's loop, but for the three `link` lines."""
    with open_loader(job) as loader:
        start = load_checkpoint(job.checkpoint, model, optimizer, loader)
        link.opened(start)
        for batch in loader.stream(steps=job.steps - start):
            loss = model.loss(batch["input"], batch["target"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if (batch.step + 1) % job.checkpoint_every == 0:
                save_checkpoint(job.checkpoint, model, optimizer, loader)
            link.stepped(batch, loss.item(), loader.stats())
        link.finished(loader.state_dict())


def main() -> None:
    """Do the job that is the only argument of this process."""
    job = Job.from_json(sys.argv[1])
    torch.set_num_threads(TORCH_THREADS)
    torch.manual_seed(job.seed)
    model = ByteModel(VOCABULARY, job.scale.width, job.scale.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    train(job, model, optimizer, Link(sys.stdin, sys.stdout))


if __name__ == "__main__":
    main()
