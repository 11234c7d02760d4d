"""Every program in examples/ runs as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
# The one line of result that each program ends with, without its figures.
RESULTS = {
    "async_eval.py": "accuracy 0.851 over 10000 rows; meanwhile ",
    "numpy_arrays.py": "30 batches, the same with 2 threads and with none; sum ",
    "torch_dataset.py": "accuracy of the last epoch 1.000; the run began with 'curve 447'",
    "torch_images.py": "accuracy 1.000 after two epochs, 1.000 after the third",
    "torch_sequences.py": "125 batches of similar length; perplexity of new sentences 2.",
    "torch_table.py": "92 steps; error where the target is large 3.83 -> 1.",
    "train_tokens.py": "156 steps, stopped after 117: loss 4.43 -> 1.",
}


def test_every_example_is_run_here() -> None:
    """A new program gets a line of result below."""
    assert {path.name for path in FOLDER.glob("*.py")} == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """It needs no argument, ends with code 0 and one line of result, and warns of nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(RESULTS[name])
    assert done.stdout.count("\n") == 1
