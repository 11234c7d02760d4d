"""Image classification as it is written for torch: train, validate, keep checkpoints, go on.

    python examples/torch_images.py

One line is not torch's, the import of DataLoader. The program draws small images of bars, trains
two epochs, stops, and goes on from its checkpoint for a third one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from headrace.torch import DataLoader  # in place of torch.utils.data

SIDE, CLASSES = 16, 4


class Bars(Dataset[tuple[torch.Tensor, int, int]]):
    """Images with the number of their class and their own."""

    def __init__(self, folder: Path, split: str) -> None:
        self.images = np.load(folder / f"{split}-images.npy", mmap_mode="r")
        self.labels = np.load(folder / f"{split}-labels.npy")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        image = torch.tensor(self.images[index], dtype=torch.float32)
        return image.unsqueeze(0) / 255 - 0.5, int(self.labels[index]), index


def draw_images(folder: Path, split: str, count: int, seed: int) -> None:
    """Write grey images with noise and a bright bar: level, upright, or along a diagonal."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 130, size=(count, SIDE, SIDE), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, size=count)
    along = np.arange(3, SIDE - 3)
    for image, label, shift in zip(images, labels, rng.integers(-2, 3, size=count), strict=True):
        across = np.full_like(along, SIDE // 2 + shift)
        up = SIDE - 1 - along
        rows, columns = [(across, along), (along, across), (along, along), (up, along)][label]
        image[rows, columns] = 220
    np.save(folder / f"{split}-images.npy", images)
    np.save(folder / f"{split}-labels.npy", labels)


def make_model() -> nn.Module:
    """Give a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(256, CLASSES),
    )


def turn_some(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn half of the images upside down, which swaps the two diagonals."""
    turned = torch.rand(len(images)) < 0.5
    images = torch.where(turned[:, None, None, None], images.flip(-2), images)
    return images, torch.where(turned & (labels >= 2), 5 - labels, labels)


def accuracy_of(model: nn.Module, loader: Any) -> float:
    """Give the share of images whose class the model knows."""
    model.eval()
    right = 0
    with torch.inference_mode():
        for images, labels, _ in loader:
            right += int((model(images).argmax(dim=1) == labels).sum())
    return right / len(loader.dataset)


def train(folder: Path, epochs: int, num_workers: int, log: list[Any]) -> float:
    """Train until so many epochs are done, going on from a checkpoint; give the accuracy."""
    torch.manual_seed(0)
    order = torch.Generator().manual_seed(1)
    training: Any = DataLoader(
        Bars(folder, "train"),
        batch_size=32,
        shuffle=True,
        drop_last=True,
        num_workers=num_workers,
        generator=order,
    )
    validation: Any = DataLoader(Bars(folder, "val"), batch_size=100, num_workers=num_workers)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    checkpoint = folder / "checkpoint.pt"
    done, accuracy = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        order.set_state(saved["order"])
        torch.set_rng_state(saved["random"])
        done = saved["epochs"]

    for epoch in range(done, epochs):
        model.train()
        for images, labels, ids in training:
            images, labels = turn_some(images, labels)
            loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.append({"ids": ids.tolist(), "loss": loss.item()})
        accuracy = accuracy_of(model, validation)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        state |= {"order": order.get_state(), "random": torch.get_rng_state()}
        torch.save({**state, "epochs": epoch + 1}, checkpoint)
    return accuracy


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--log", type=Path, help="where to write ids and loss of each step")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # the model is tiny
    log: list[Any] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw_images(folder, "train", 1200, seed=2)
        draw_images(folder, "val", 200, seed=3)
        first = train(folder, 2, args.num_workers, log)
        accuracy = train(folder, 3, args.num_workers, log)

    if args.log is not None:
        args.log.write_text(json.dumps(log), encoding="utf-8")
    print(f"accuracy {first:.3f} after two epochs, {accuracy:.3f} after the third")


if __name__ == "__main__":
    main()
