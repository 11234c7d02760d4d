"""The command itself: its version, its help, and what it says without its libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from tests.cli.processes import run

WITHOUT = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusal())
from headrace.cli import main
main()
"""


def test_the_command_says_its_version(tmp_path: Path) -> None:
    """`python -m headrace` is the command, where no script is on the path."""
    done = run("--version", scratch=tmp_path)

    assert (done.returncode, done.stdout) == (0, f"headrace {hr.__version__}\n")


@pytest.mark.parametrize("library", ["typer", "rich"])
def test_a_missing_library_is_named_with_its_cure(library: str) -> None:
    """A plain installation has no command line, and says how to get it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(library=library)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == (
        f"The command headrace needs {library}, which is not installed. "
        "Install it with: pip install 'headrace[cli]'\n"
    )


def test_another_missing_module_is_not_blamed_on_the_extra() -> None:
    """A broken installation shows its own error."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(library="headrace.cli.report")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "ModuleNotFoundError: No module named 'headrace.cli.report'" in done.stderr


def test_a_knob_out_of_range_is_refused_at_once() -> None:
    """Wrong use ends with code 2, as for every command."""
    done = CliRunner().invoke(app, ["demo", "--steps", "3"])

    assert done.exit_code == 2
    assert "--steps" in done.stderr
