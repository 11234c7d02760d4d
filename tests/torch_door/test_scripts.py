"""Training scripts written for torch run unchanged but for one import."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples"
IMPORT = "from {} import DataLoader"
# Each script with the steps that it trains.
SCRIPTS = {"torch_images.py": 111, "torch_sequences.py": 125, "torch_table.py": 92}


@pytest.fixture(autouse=True)
def threads_of_torch() -> Iterator[None]:
    """Scripts choose how many threads torch computes with."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a script with a loader and gives ids and loss of each step."""

    def run(script: str, module: str, num_workers: int) -> list[dict[str, Any]]:
        text = (FOLDER / script).read_text(encoding="utf-8")
        assert text.count(IMPORT.format("headrace.torch")) == 1
        assert text.count("headrace") == 1
        path = tmp_path / f"{module}.{script}"
        path.write_text(text.replace("headrace.torch", module), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("script", path)
        assert spec is not None
        assert spec.loader is not None
        program = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "script", program)
        spec.loader.exec_module(program)

        log = tmp_path / "log.json"
        program.main([f"--num-workers={num_workers}", f"--log={log}"])
        steps: list[dict[str, Any]] = json.loads(log.read_text(encoding="utf-8"))
        return steps

    return run


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_trains_the_same_with_either_loader(script: str, trained: Any) -> None:
    """Without threads ids and losses are equal to the bit; with threads, the ids are."""
    theirs = trained(script, "torch.utils.data", 0)
    ours = trained(script, "headrace.torch", 0)
    threaded = trained(script, "headrace.torch", 3)

    assert len(theirs) == SCRIPTS[script]
    assert ours == theirs
    assert [step["ids"] for step in threaded] == [step["ids"] for step in theirs]


@pytest.mark.parametrize("script", ["torch_images.py", "torch_sequences.py"])
def test_a_script_without_random_samples_trains_the_same_on_threads(
    script: str, trained: Any
) -> None:
    """Where reading a sample draws nothing, threads change no loss either."""
    assert trained(script, "headrace.torch", 2) == trained(script, "headrace.torch", 0)
