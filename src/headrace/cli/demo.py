"""`headrace demo`: train, be killed, go on in a fresh process, compare every byte."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console

import headrace as hr
from headrace.cli import corpus
from headrace.cli.checkpoint import loader_state
from headrace.cli.corpus import Corpus
from headrace.cli.delivery import Delivery, Size
from headrace.cli.display import say
from headrace.cli.figures import measure
from headrace.cli.job import Job, Scale
from headrace.cli.model import ByteModel
from headrace.cli.proof import Proof, compare, compare_losses
from headrace.cli.reference import uninterrupted
from headrace.cli.report import show_figures, show_proof
from headrace.cli.result import Result
from headrace.cli.trained import Trained, train
from headrace.cli.try_next import try_next

_MIB = 1 << 20


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
    first = train(console, job, "first process", is_live, kill_after=job.stop_after)
    saved = loader_state(job.checkpoint)
    say(
        console,
        f"Killed (SIGKILL) after step {len(first.steps) - 1}. The last checkpoint is of step "
        f"{saved['next_step'] - 1}, so {len(first.steps) - saved['next_step']} steps are lost.",
    )
    second = train(console, job, "fresh process", is_live)
    assert second.finished is not None
    end = second.finished.state
    reference = uninterrupted(job, saved["next_step"], end)
    kept = [*first.steps[: saved["next_step"]], *second.steps]
    delivery = Delivery([Size(step.rows, step.delivered_bytes) for step in kept], saved, end)
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


def _losses(trained: Trained) -> dict[int, float]:
    return {step.step: step.loss for step in trained.steps}
