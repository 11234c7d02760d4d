"""Regression on a table with rare large targets, as it is written for torch.

    python examples/torch_table.py

One line is not torch's, the import of DataLoader. Rare rows are drawn more often, each thread has a
generator of its own for the noise that it adds, and rows to validate on are fetched many at once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import (
    BatchSampler,
    Dataset,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from headrace.torch import DataLoader  # in place of torch.utils.data

COLUMNS = 6


class Table(Dataset[dict[str, Any]]):
    """Rows by index, or several by a list of them; with noise on what is trained on."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, noise: float = 0.0) -> None:
        self.x, self.y, self.noise = x, y, noise
        self.rng = np.random.default_rng(5)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int | list[int]) -> dict[str, Any]:
        x = self.x[index]
        if self.noise:
            x = x + self.noise * torch.from_numpy(self.rng.standard_normal(x.shape, np.float32))
        return {"x": x, "y": self.y[index], "id": index}


def own_noise(worker_id: int) -> None:
    """Give the dataset of a worker a generator of its own."""
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def make_rows(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Give rows whose target is large where two columns are, which is rare."""
    x = torch.randn(count, COLUMNS, generator=torch.Generator().manual_seed(seed))
    return x, x[:, 0] * 0.5 + 4.0 * ((x[:, 1] > 1) & (x[:, 2] > 1))


def error_of_large(model: nn.Module, loader: Any) -> float:
    """Give the mean error over rows with large targets."""
    errors = []
    with torch.inference_mode():
        for batch in loader:
            error = (model(batch["x"]).squeeze(1) - batch["y"]).abs()
            errors.append(error[batch["y"] > 2])
    return torch.cat(errors).mean().item()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--log", type=Path, help="where to write ids and loss of each step")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # the model is tiny
    torch.manual_seed(0)

    x, y = make_rows(1500, seed=1)
    training = Table(x, y, noise=0.05)
    validation = Table(*make_rows(500, seed=2))
    loader: Any = DataLoader(
        training,
        batch_size=64,
        sampler=WeightedRandomSampler(
            torch.where(y > 2, 8.0, 1.0).tolist(),
            num_samples=len(y),
            generator=torch.Generator().manual_seed(3),
        ),
        drop_last=True,
        num_workers=args.num_workers,
        worker_init_fn=own_noise,
        generator=torch.Generator().manual_seed(4),
        persistent_workers=args.num_workers > 0,
        timeout=60 if args.num_workers else 0,
    )
    whole: Any = DataLoader(
        validation,
        batch_size=None,
        sampler=BatchSampler(SequentialSampler(validation), 200, drop_last=False),
    )
    model = nn.Sequential(nn.Linear(COLUMNS, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    before = error_of_large(model, whole)
    log: list[Any] = []
    for _ in range(4):
        for batch in loader:
            loss = functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.append({"ids": batch["id"].tolist(), "loss": loss.item()})
    after = error_of_large(model, whole)

    if args.log is not None:
        args.log.write_text(json.dumps(log), encoding="utf-8")
    print(f"{len(log)} steps; error where the target is large {before:.2f} -> {after:.2f}")


if __name__ == "__main__":
    main()
