"""Hugging Face datasets: an Arrow table, read by torch's DataLoader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import datasets
import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader
from workload import Columns, Workload
from workloads.pictures import Pictures, cropped
from workloads.vectors import Vectors

from peers.copied import WORKER_PROCESSES, Copied, copy_of, stacked


class Arrow(Copied):
    """S as lists of fixed length in torch's format; J as image files, decoded by a transform."""

    def __init__(self, workload: Workload, seed: int) -> None:
        table: Any = datasets.load_from_disk(str(copy_of(workload, type(self))))
        is_decoded = isinstance(workload, Pictures)
        self.loader: Any = DataLoader(
            table.with_transform(decode) if is_decoded else table.with_format("torch"),
            batch_size=workload.batch_rows,
            shuffle=True,
            drop_last=True,
            collate_fn=collate_pictures if is_decoded else collate_vectors,
            generator=torch.Generator().manual_seed(seed),
            num_workers=WORKER_PROCESSES,
            persistent_workers=True,
        )

    @classmethod
    def write(cls, workload: Workload, folder: Path) -> None:
        if isinstance(workload, Pictures):
            columns = {"image": workload.paths, "label": workload.labels}
            table = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
        else:
            assert isinstance(workload, Vectors)
            flat = pa.array(np.asarray(workload.values).reshape(-1))
            rows = pa.FixedSizeListArray.from_arrays(flat, workload.width)
            table = datasets.Dataset(pa.table({"x": rows}))
        table.save_to_disk(str(folder))

    def batches(self, epochs: int) -> Iterator[Columns]:
        for _ in range(epochs):
            yield from self.loader

    def close(self) -> None:
        # Worker processes end with the iterator that the loader keeps.
        self.loader = None


def decode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Crop a batch of images, which the library has opened."""
    return rows | {"image": [cropped(np.array(image.convert("RGB"))) for image in rows["image"]]}


def collate_pictures(samples: list[dict[str, Any]]) -> Columns:
    """Make a batch of samples."""
    return stacked([(sample["image"], sample["label"]) for sample in samples])


def collate_vectors(samples: list[dict[str, torch.Tensor]]) -> Columns:
    """Make a batch of rows."""
    return (torch.stack([sample["x"] for sample in samples]),)
