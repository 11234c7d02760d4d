"""Numpy arrays with a random augmentation that is the same on every machine and after a resume.

    python examples/numpy_arrays.py

The transform draws from the keys of the batch's picks, not from a global generator: the flip and
the shift of a row depend on seed, epoch and sample alone.
"""

from __future__ import annotations

import numpy as np
import torch

import headrace as hr

SHIFT = 2


def augment(batch: hr.Batch, keys: hr.PickKeys) -> dict[str, torch.Tensor]:
    """Flip about half of the images, and move each by up to two pixels: all rows at once."""
    draws = keys.rngs()
    flip = torch.from_numpy(draws.bernoulli(0.5))
    shift = torch.from_numpy(draws.next_int(2 * SHIFT + 1)) - SHIFT
    images = torch.where(flip[:, None, None], batch["image"].flip(-1), batch["image"])
    width = images.shape[-1]
    columns = (torch.arange(width) + shift[:, None]) % width
    moved = images.gather(-1, columns[:, None, :].expand_as(images))
    return {"image": moved.float() / 255, "label": batch["label"]}


def make_loader(workers: int) -> hr.Loader:
    """Give the loader of 1,000 grey images of 28 x 28."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(1000, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, size=1000)
    data = hr.Arrays({"image": images, "label": labels})
    return hr.Loader(data, batch_size=64, seed=7, transform=augment, workers=workers)


def main() -> None:
    total = torch.zeros(10)
    with make_loader(workers=2) as loader, make_loader(workers=0) as again:
        for epoch in range(2):
            for batch, same in zip(loader.epoch(epoch), again.epoch(epoch), strict=True):
                assert torch.equal(batch["image"], same["image"])
                total.index_add_(0, batch["label"], batch["image"].mean(dim=(1, 2)))
        steps = loader.stats()["batches"]

    print(f"{steps:.0f} batches, the same with 2 threads and with none; sum {total.sum():.3f}")


if __name__ == "__main__":
    main()
