"""The command `headrace`. Its libraries come with the extra `cli` and are imported when it runs."""

from __future__ import annotations

import sys

from headrace.errors import MissingExtraError

LIBRARIES = ("typer", "rich")


def main() -> None:
    """Run the command with the arguments of this process, and exit with its code."""
    try:
        from headrace.cli.app import app
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in LIBRARIES:
            raise
        sys.exit(str(MissingExtraError("cli", library, "The command headrace")))
    app()
