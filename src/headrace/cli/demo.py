"""`headrace demo`: train, be killed, go on in a fresh process, compare every byte."""

from __future__ import annotations

import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import headrace as hr
from headrace.cli import corpus
from headrace.cli.checkpoint import loader_state
from headrace.cli.child import TrainingProcess
from headrace.cli.corpus import Corpus
from headrace.cli.delivery import Delivery, Size
from headrace.cli.display import display, say
from headrace.cli.figures import Figures, Trained, measure
from headrace.cli.job import Job, Scale
from headrace.cli.link import Finished, Opened, Stepped
from headrace.cli.model import ByteModel
from headrace.cli.proof import Proof, compare, compare_losses
from headrace.cli.reference import uninterrupted
from headrace.cli.report import show_figures, show_proof
from headrace.cli.try_next import try_next

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """What came out.

    Attributes:
        job: What was trained.
        corpus: On what.
        is_corpus_reused: Whether the shards were there already.
        first: The process that was killed.
        second: The process that went on.
        proof: What was compared.
        figures: What was measured.
    """

    job: Job
    corpus: Corpus
    is_corpus_reused: bool
    first: Trained
    second: Trained
    proof: Proof
    figures: Figures

    def to_json(self) -> dict[str, Any]:
        """Give the facts and figures, without the single steps."""
        made = asdict(self.corpus)
        return {
            "headrace": hr.__version__,
            "is_identical": self.proof.is_identical,
            "steps": self.job.steps,
            "checkpoint_step": self.second.opened.start,
            "killed_after_steps": len(self.first.steps),
            "exit_codes": [self.first.exit_code, self.second.exit_code],
            "corpus": {
                "files": made["files"],
                "text_bytes": made["text_bytes"],
                "tokens": made["tokens"],
                "shards": made["shards"],
                "is_reused": self.is_corpus_reused,
            },
            "parts": [
                {**asdict(part), "is_identical": part.is_identical} for part in self.proof.parts
            ],
            "verified_steps": self.proof.verified_steps,
            "redone": {**asdict(self.proof.redone), "agrees": self.proof.redone.agrees},
            "figures": asdict(self.figures),
        }


def run(
    scale: Scale,
    *,
    steps: int,
    seed: int,
    workers: int | None,
    folder: Path | None,
    console: Console,
    is_live: bool,
) -> Result:
    """Run the whole demo and say on the console what happens.

    Args:
        scale: How much of everything.
        steps: Training steps.
        seed: Decides order and initial weights.
        workers: Reader threads of every loader, None for the default.
        folder: Where shards and checkpoint are kept; None for a temporary folder.
        console: Where to.
        is_live: Whether progress is drawn over itself, which needs a terminal.
    """
    with _place(folder) as place:
        home = Path(place)
        say(console, f"headrace {hr.__version__}: train, be killed, go on, compare every byte")
        made, is_reused = _corpus(console, home / "shards", scale.text_bytes)
        checkpoint = home / "checkpoint.pt"
        checkpoint.unlink(missing_ok=True)  # of an earlier run: this one begins at step 0
        job = Job(str(home / "shards"), str(checkpoint), scale, steps, seed, workers)
        result = _trained_twice(console, job, made, is_reused, is_live)
    show_proof(console, result.proof)
    show_figures(console, result.figures)
    say(console, "Try next:")
    for what, command in try_next(folder, scale.seq_len):
        say(console, f"  {what}\n    {command}")
    return result


def _place(folder: Path | None) -> AbstractContextManager[str]:
    if folder is None:
        return tempfile.TemporaryDirectory(prefix="headrace-demo-")
    return nullcontext(str(folder))


def _corpus(console: Console, folder: Path, text_bytes: int) -> tuple[Corpus, bool]:
    found = corpus.find(folder, text_bytes)
    made = corpus.build(folder, text_bytes) if found is None else found
    say(
        console,
        f"Text: {made.files:,} source files of Python's standard library, "
        f"{made.text_bytes / _MIB:.1f} MiB, {made.tokens:,} tokens, in {len(made.shards)} shards"
        f"{', found and checked' if found else ''}",
    )
    return made, found is not None


def _trained_twice(
    console: Console, job: Job, made: Corpus, is_reused: bool, is_live: bool
) -> Result:
    """Train up to the kill, then in a fresh process to the end; compare with a whole pass."""
    say(console, _plan(job))
    first, _ = _train(console, job, "first process", is_live, kill_after=job.stop_after)
    saved = loader_state(job.checkpoint)
    say(
        console,
        f"Killed (SIGKILL) after step {len(first.steps) - 1}. The last checkpoint is of step "
        f"{saved['next_step'] - 1}, so {len(first.steps) - saved['next_step']} steps are lost.",
    )
    second, finished = _train(console, job, "fresh process", is_live)
    assert finished is not None
    reference = uninterrupted(job, saved["next_step"], finished.state)
    kept = [*first.steps[: saved["next_step"]], *second.steps]
    delivery = Delivery(
        [Size(step.rows, step.delivered_bytes) for step in kept], saved, finished.state
    )
    proof = Proof(
        compare(delivery, reference.delivery),
        compare_losses(_losses(first), _losses(second)),
        reference.verified_steps,
    )
    alone = reference.delivery.whole().rows / reference.elapsed_s
    return Result(job, made, is_reused, first, second, proof, measure(first, second, alone))


def _plan(job: Job) -> str:
    scale = job.scale
    model = ByteModel(corpus.VOCABULARY, scale.width, scale.hidden)
    return (
        f"Model: a GRU over bytes, {sum(p.numel() for p in model.parameters()):,} parameters; "
        f"{job.steps} steps of {scale.batch_size} windows of {scale.seq_len} bytes"
    )


def _train(
    console: Console, job: Job, title: str, is_live: bool, kill_after: int | None = None
) -> tuple[Trained, Finished | None]:
    """Run one training process to its end or until it is killed."""
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
    peak = None if finished is None else finished.peak_memory_bytes
    return Trained(opened, start_s, steps, exit_code, peak), finished


def _losses(trained: Trained) -> dict[int, float]:
    return {step.step: step.loss for step in trained.steps}
