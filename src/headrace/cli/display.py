"""Shows a training process at work: a live line on a terminal, else a few lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headrace.cli.link import Stepped

# Lines that a plain display writes per run; one per step would hide what matters.
_PLAIN_LINES = 12


def say(console: Console, text: str = "") -> None:
    """Print a line as it is: no markup, no colours, no wrapping of what one may want to copy."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


class Display(Protocol):
    """Told of each training step."""

    def __call__(self, step: Stepped) -> None:
        """Show one step."""
        ...


@contextmanager
def display(console: Console, title: str, steps: int, is_live: bool) -> Iterator[Display]:
    """Give what shows the steps of one process, of `steps` in the whole run."""
    if is_live:
        with _progress(console) as progress:
            task = progress.add_task(title, total=steps, figures="")
            totals = Totals()
            yield lambda step: progress.update(
                task, completed=step.step + 1, figures=totals.figures(step)
            )
    else:
        totals = Totals()
        every = max(1, steps // _PLAIN_LINES)

        def show(step: Stepped) -> None:
            figures = totals.figures(step)
            if (step.step + 1) % every == 0:
                say(console, f"  {title}: step {step.step + 1}/{steps}, {figures}")

        yield show


class Totals:
    """Adds up the steps of one process."""

    def __init__(self) -> None:
        self.tokens = 0

    def figures(self, step: Stepped) -> str:
        """Give the loss, and so far: the pace, and the share of time spent waiting for data."""
        self.tokens += step.tokens
        pace = self.tokens / step.elapsed_s
        wait_share = (step.first_wait_s + step.wait_s) / step.elapsed_s
        return f"loss {step.loss:.3f}, {pace:,.0f} tokens/s, waited {wait_share:.1%}"


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("  {task.description}"),
        BarColumn(bar_width=14),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console,
    )
