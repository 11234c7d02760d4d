"""`headrace demo` as a user meets it: whole runs, in processes of their own."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import corpus
from headrace.cli.app import app
from headrace.cli.job import QUICK
from headrace.cli.try_next import try_next
from tests.cli.processes import read_until, run, run_line, started


@dataclass(frozen=True)
class Run:
    """A quick demo that ran to its end."""

    output: str
    report: dict[str, Any]
    scratch: Path


def files_of_ours(scratch: Path) -> list[Path]:
    """Give what is left in a temporary folder; torch's compiler keeps an empty one of its own."""
    return [path for path in scratch.iterdir() if not path.name.startswith("torchinductor")]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Run:
    scratch = tmp_path_factory.mktemp("scratch")
    report = tmp_path_factory.mktemp("report") / "report.json"
    done = run("demo", "--quick", "--json", str(report), scratch=scratch)
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(done.stdout, json.loads(report.read_text()), scratch)


def test_a_killed_run_goes_on_in_a_fresh_process(quick: Run) -> None:
    """The first process dies by SIGKILL between checkpoints, the second ends the run (S4-74)."""
    report = quick.report

    assert report["exit_codes"] == [-signal.SIGKILL, 0]
    assert (report["checkpoint_step"], report["killed_after_steps"], report["steps"]) == (
        24,
        27,
        48,
    )


def test_the_stream_of_both_processes_is_the_whole_stream(quick: Run) -> None:
    """Steps, rows, bytes and digests of each part are those of a pass without a stop."""
    parts = [(part["name"], part["first_step"], part["run"]) for part in quick.report["parts"]]
    sizes = [(name, first, run["steps"], run["delivered_bytes"]) for name, first, run in parts]

    assert sizes == [
        ("checkpointed", 0, 24, 24 * 16 * 64 * 2 * 8),
        ("resumed", 24, 24, 24 * 16 * 64 * 2 * 8),
        ("whole run", 0, 48, 48 * 16 * 64 * 2 * 8),
    ]
    assert all(part["run"] == part["reference"] for part in quick.report["parts"])
    assert quick.report["is_identical"] is True
    assert "The stream is identical." in quick.output


def test_another_process_without_threads_gets_the_same_digest(quick: Run, tmp_path: Path) -> None:
    """The digest that the demo shows is that of the stream, whoever takes it."""
    corpus.build(tmp_path, QUICK.text_bytes)

    data = hr.TokenShards(tmp_path, seq_len=64)
    with hr.Loader(data, 16, seed=42, workers=0, content_digest=True) as loader:
        for _ in loader.stream(0, 48):
            pass
        digest = loader.state_dict()["content"]["digest"]

    assert digest == quick.report["parts"][-1]["run"]["digest"]


def test_steps_done_twice_have_the_same_loss(quick: Run) -> None:
    """What was lost with the first process comes out alike in the second."""
    assert quick.report["redone"] == {"steps": 3, "largest_difference": 0.0, "agrees": True}


def test_the_model_learns(quick: Run) -> None:
    """The loss falls: the batches are text, in an order worth learning from."""
    figures = quick.report["figures"]

    assert figures["first_loss"] > figures["last_loss"] + 1.0


def test_the_report_holds_every_figure(quick: Run) -> None:
    """The JSON file has what the tables show, in units that its names say."""
    report = quick.report

    assert {name: type(value) for name, value in report.items()} == {
        "headrace": str,
        "is_identical": bool,
        "steps": int,
        "checkpoint_step": int,
        "killed_after_steps": int,
        "exit_codes": list,
        "corpus": dict,
        "parts": list,
        "verified_steps": int,
        "redone": dict,
        "figures": dict,
    }
    assert set(report["corpus"]) == {"files", "text_bytes", "tokens", "shards", "is_reused"}
    assert set(report["figures"]) == {
        "samples_per_s",
        "tokens_per_s",
        "loader_samples_per_s",
        "wait_share",
        "peak_memory_bytes",
        "opened_memory_bytes",
        "first_batch_s",
        "resume_s",
        "restart_s",
        "first_loss",
        "last_loss",
    }
    assert all(value > 0 for value in report["figures"].values())
    assert report["figures"]["wait_share"] < 1
    assert report["figures"]["opened_memory_bytes"] < report["figures"]["peak_memory_bytes"]


def test_nothing_is_left_in_the_temporary_folder(quick: Run) -> None:
    """Without --dir all files go when the demo ends."""
    assert files_of_ours(quick.scratch) == []


def test_what_to_try_next_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three commands that the demo prints run as they are, the first one made short here."""
    monkeypatch.chdir(tmp_path)
    longer, look, yours = [command for _, command in try_next(tmp_path / "kept", seq_len=64)]
    corpus.build(tmp_path / "kept" / "shards", QUICK.text_bytes)

    again = run_line(f"{longer} --quick --steps 16", tmp_path)
    looked, loaded = run_line(look, tmp_path), run_line(yours, tmp_path)

    assert (again.returncode, looked.returncode, loaded.returncode) == (0, 0, 0)
    assert "found and checked" in again.stdout
    assert all(f"    {command}\n" in again.stdout for command in (longer, look, yours))
    assert "Batch(step 12345, epoch 3, 4 rows; input: int64 [4, 64]" in looked.stdout
    assert loaded.stdout.count("250 rows") == 4


def test_a_shard_that_changes_during_the_run_is_found(tmp_path: Path) -> None:
    """Other bytes in the same order are no identical stream: the demo says so, and fails."""
    folder = tmp_path / "kept"

    with started("demo", "--quick", "--dir", str(folder), scratch=tmp_path) as demo:
        read_until(demo, "Killed (SIGKILL)")
        for shard in (folder / "shards").glob("*.npy"):
            tokens = np.load(shard, mmap_mode="r+")
            tokens[:] = tokens[::-1].copy()
        output, _ = demo.communicate()

    assert demo.returncode == 1
    assert "DIFFERS" in output


def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    """An interrupted demo leaves no process and no file, and says by its code what happened."""
    with started("demo", "--quick", "--steps", "4000", scratch=tmp_path) as demo:
        read_until(demo, "first process: step")
        (child,) = psutil.Process(demo.pid).children()
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate()

    assert demo.returncode == 130
    assert errors.endswith("\nStopped; the training process has ended.\n")
    assert not child.is_running()
    assert files_of_ours(tmp_path) == []


def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path) -> None:
    """The demo takes nothing away that it did not write."""
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "thesis.txt").write_text("years of work")

    done = CliRunner().invoke(app, ["demo", "--quick", "--dir", str(tmp_path)])

    assert done.exit_code == 1
    assert done.stderr.startswith("headrace: --dir: wanted no files of others in ")
    assert (tmp_path / "shards" / "thesis.txt").read_text() == "years of work"
