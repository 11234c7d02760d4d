"""The command line's words: options in, an exit code out. What they do is in other modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headrace import __version__
from headrace.cli.demo import run
from headrace.cli.job import FULL, LEAST_STEPS, QUICK, Scale
from headrace.errors import HeadraceError

FAILED = 1
INTERRUPTED = 130  # as a shell counts Ctrl-C: 128 + SIGINT

app = typer.Typer(
    name="headrace",
    help="Streams training data to the training loop: exact order, exact resume.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit()


@app.callback()
def headrace(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say which."),
    ] = False,
) -> None:
    """Streams training data to the training loop: exact order, exact resume."""


@app.command()
def demo(
    steps: Annotated[
        int | None,
        typer.Option(
            min=LEAST_STEPS,
            help="Training steps in all.",
            show_default=f"{FULL.steps}; {QUICK.steps} with --quick",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Keep the shards here, and use those that are here already."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides order and initial weights.")] = 42,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Reader threads of the loader.", show_default="one per core"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Some seconds instead of a minute.")] = (
        False
    ),
    plain: Annotated[bool, typer.Option("--plain", help="Lines of text, no live display.")] = False,
    report: Annotated[
        Path | None, typer.Option("--json", help="Write what was measured and compared here.")
    ] = None,
) -> None:
    """Train a small model through the loader, kill it half-way, resume it, compare every byte.

    The text is the source of Python's own standard library; nothing is downloaded.
    """
    scale: Scale = QUICK if quick else FULL
    console = Console()
    try:
        result = run(
            scale,
            steps=scale.steps if steps is None else steps,
            seed=seed,
            workers=workers,
            folder=folder,
            console=console,
            is_live=console.is_terminal and not plain,
        )
        if report is not None:
            _write(report, result.to_json())
    except KeyboardInterrupt:
        typer.echo("\nStopped; the training process has ended.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (HeadraceError, OSError) as error:
        typer.echo(f"headrace: {error}", err=True)
        raise typer.Exit(FAILED) from None
    if not result.proof.is_identical:
        raise typer.Exit(FAILED)


def _write(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
