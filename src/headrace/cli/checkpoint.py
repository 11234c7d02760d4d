"""One file that holds all a training run needs to go on: model, optimizer, loader."""

from __future__ import annotations

import os
from typing import Any

import torch

import headrace as hr


def save_checkpoint(
    path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: hr.Loader
) -> None:
    """Write the checkpoint: whoever is killed at any moment leaves the old file or the new one."""
    partial = f"{path}.partial"
    with open(partial, "wb") as file:
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(),
            },
            file,
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def load_checkpoint(
    path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: hr.Loader
) -> int:
    """Go back to the checkpoint, if there is one.

    Returns:
        The step that comes next.
    """
    if not os.path.exists(path):
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    return int(saved["loader"]["next_step"])


def loader_state(path: str) -> dict[str, Any]:
    """Give the loader's state out of a checkpoint."""
    state: dict[str, Any] = torch.load(path, weights_only=True)["loader"]
    return state
