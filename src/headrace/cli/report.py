"""What the demo says at its end: what was compared, what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table

from headrace.cli.display import say
from headrace.cli.figures import Figures
from headrace.cli.proof import Part, Proof

_MIB = 1 << 20


def show_proof(console: Console, proof: Proof) -> None:
    """Print the comparison and its outcome."""
    say(console, "Stopped and resumed, held against one pass without a stop:")
    # Narrow, so that digests are whole on a terminal of 80 columns.
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("part", "steps", "bytes", "digest", "without a stop", ""):
        table.add_column(heading, justify="right" if heading == "bytes" else "left")
    for part in proof.parts:
        table.add_row(*_cells(part))
    console.print(table)
    for line in _sentences(proof):
        say(console, f"  {line}")


def _cells(part: Part) -> list[str]:
    return [
        part.name,
        f"{part.first_step}-{part.first_step + part.run.steps - 1}",
        f"{part.run.delivered_bytes:,}",
        part.run.digest,
        part.reference.digest,
        "equal" if part.is_identical else "DIFFERS",
    ]


def _sentences(proof: Proof) -> Iterator[str]:
    redone = proof.redone
    yield (
        "A digest is the sum over all rows of a hash of step, slot, column, dtype, shape and bytes."
    )
    whole = proof.parts[-1].run
    yield f"Compared: {whole.steps} steps, {whole.rows:,} rows, {whole.delivered_bytes:,} bytes."
    yield f"Order: the picks of {proof.verified_steps} steps were worked out again and agree."
    how = "equal to the last bit" if redone.largest_difference == 0 else "equal up to rounding"
    if not redone.agrees:
        how = f"DIFFERENT by up to {redone.largest_difference:.3g}"
    yield f"Losses of the steps done twice ({redone.steps}): {how}."
    yield (
        "The stream is identical."
        if proof.is_identical
        else "The stream DIFFERS. This must not happen: please report it."
    )


def show_figures(console: Console, figures: Figures) -> None:
    """Print the table of figures."""
    say(console, "The run in numbers:")
    table = Table(box=box.SIMPLE, show_header=False)
    for name, value in _lines(figures):
        table.add_row(name, value)
    console.print(table)


def _lines(figures: Figures) -> Iterator[tuple[str, str]]:
    yield "loss, nats per byte", f"{figures.first_loss:.2f} -> {figures.last_loss:.2f}"
    yield "samples/s, training", f"{figures.samples_per_s:,.0f}"
    yield "tokens/s, training", f"{figures.tokens_per_s:,.0f}"
    yield "time the training loop waited for data", f"{figures.wait_share:.2%}"
    yield "samples/s, loader alone, every byte hashed", f"{figures.loader_samples_per_s:,.0f}"
    yield "time to first batch", _ms(figures.first_batch_s)
    yield "time to resume: checkpoint, data, first batch", _ms(figures.resume_s)
    yield "the same from the start of the process, imports too", f"{figures.restart_s:.1f} s"
    yield (
        "peak memory (before the first batch: libraries, model)",
        f"{_mib(figures.peak_memory_bytes)} ({_mib(figures.opened_memory_bytes)})",
    )


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:,.0f} MiB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
