"""What each framework trains on here, and the log by which runs are compared."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

import headrace as hr

SAMPLES, BATCH_SIZE, EPOCHS = 43, 4, 3  # 11 steps per epoch, the last of 3 samples
VALIDATE_EVERY_STEPS, SAVE_EVERY_STEPS = 3, 4


class Points(Dataset[dict[str, Any]]):
    """Points in a plane, and on which side of a line they lie."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        x = self.x[index]
        return {"x": x, "labels": int(x[0] > x[1]), "id": index}


class Log:
    """A line for each training step, which is on disk when the process is killed.

    Args:
        path: The file.
        kill_at_step: The process ends itself, as by `kill -9`, when this step begins.
    """

    def __init__(self, path: Path, kill_at_step: int | None) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._kill_at_step = kill_at_step

    def add(self, step: int, ids: torch.Tensor, loss: torch.Tensor) -> None:
        """Note what a step trains on, before it changes the model."""
        if step == self._kill_at_step:
            os.kill(os.getpid(), signal.SIGKILL)
        self._file.write(json.dumps([step, ids.tolist(), loss.item()]) + "\n")
        self._file.flush()


def loader_class(name: str) -> Any:
    """Give the class that a program would import."""
    return hr.torch.DataLoader if name == "headrace" else torch.utils.data.DataLoader


def arguments() -> argparse.Namespace:
    """Read the command line that all programs here share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="where checkpoints go")
    parser.add_argument("--steps-file", type=Path, required=True, help="a line per step")
    parser.add_argument("--loader", choices=["torch", "headrace"], required=True)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--way", default="", help="which of several ways of resuming")
    parser.add_argument("--kill-at-step", type=int)
    parser.add_argument("--resume", type=int, metavar="STEPS", help="from the checkpoint after")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return parser.parse_args()
