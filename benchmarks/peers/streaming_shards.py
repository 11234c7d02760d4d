"""MosaicML streaming: MDS shards on the local disk, read by torch's DataLoader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from torch.utils.data import DataLoader
from workload import Columns, Workload
from workloads.pictures import Pictures

from peers.copied import WORKER_PROCESSES, Copied, copy_of, picture, stacked, stored

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    # There is none for a torch without CUDA. The library derives datasets from it that are not
    # used here, and cannot be imported without.
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms.functional"):
        sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None), VisionDataset=object)

import streaming
from streaming.base.util import clean_stale_shared_memory


class Shards(Copied):
    """Its own shuffle, all defaults, and two worker processes, kept between epochs."""

    def __init__(self, workload: Workload, seed: int) -> None:
        clean_stale_shared_memory()
        self.data: Any = Decoding(
            local=str(copy_of(workload, type(self))),
            batch_size=workload.batch_rows,
            shuffle=True,
            shuffle_seed=seed,
        )
        self.loader: Any = DataLoader(
            self.data,
            batch_size=workload.batch_rows,
            drop_last=True,
            collate_fn=stacked,
            num_workers=WORKER_PROCESSES,
            persistent_workers=True,
        )

    @classmethod
    def write(cls, workload: Workload, folder: Path) -> None:
        image = "bytes" if isinstance(workload, Pictures) else "ndarray:uint8:3,224,224"
        columns = {"image": image, "label": "int"}
        with streaming.MDSWriter(out=str(folder), columns=columns, exist_ok=True) as writer:
            for row in range(workload.rows):
                pixels, label = stored(workload, row)
                writer.write({"image": pixels, "label": label})

    def batches(self, epochs: int) -> Iterator[Columns]:
        for _ in range(epochs):
            yield from self.loader

    def close(self) -> None:
        # Worker processes end with the iterator that the loader keeps.
        self.loader = self.data = None
        clean_stale_shared_memory()


class Decoding(streaming.StreamingDataset):
    """Gives images as they are delivered."""

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return picture(sample["image"]), int(sample["label"])
