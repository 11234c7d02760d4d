"""webdataset: 16 tar files, read by two worker processes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import webdataset as wds
from workload import Columns, Workload

from peers.copied import WORKER_PROCESSES, Copied, copy_of, picture, stacked, stored

SHARDS = 16
SHUFFLED_SAMPLES = 1000


class Tars(Copied):
    """Shards are shuffled, and samples in a window of 1,000, as its documentation shows.

    That is no shuffle over all rows, and a stream of tar files cannot give one.
    """

    is_global = False

    def __init__(self, workload: Workload, seed: int) -> None:
        shards = sorted(map(str, copy_of(workload, type(self)).glob("*.tar")))
        samples = wds.WebDataset(shards, shardshuffle=SHARDS, seed=seed, empty_check=False)
        batches = (
            samples.shuffle(SHUFFLED_SAMPLES)
            .map(decode)
            .batched(workload.batch_rows, collation_fn=stacked, partial=False)
        )
        self.loader: Any = wds.WebLoader(
            batches,
            batch_size=None,
            num_workers=WORKER_PROCESSES,
            persistent_workers=True,
        )

    @classmethod
    def write(cls, workload: Workload, folder: Path) -> None:
        for shard in range(SHARDS):
            with tarfile.open(folder / f"{shard:02}.tar", "w") as tar:
                for row in range(shard, workload.rows, SHARDS):
                    image, label = stored(workload, row)
                    add(tar, f"{row:06}.{'jpg' if isinstance(image, bytes) else 'npy'}", image)
                    add(tar, f"{row:06}.cls", str(label).encode())

    def batches(self, epochs: int) -> Iterator[Columns]:
        for _ in range(epochs):
            yield from self.loader

    def close(self) -> None:
        # Worker processes end with the iterator that the loader keeps.
        self.loader = None


def add(tar: tarfile.TarFile, name: str, value: Any) -> None:
    """Add a member."""
    if not isinstance(value, bytes):
        into = io.BytesIO()
        np.save(into, value)
        value = into.getvalue()
    info = tarfile.TarInfo(name)
    info.size = len(value)
    tar.addfile(info, io.BytesIO(value))


def decode(sample: dict[str, Any]) -> tuple[Any, int]:
    """Give the image and the label of a sample."""
    image = sample["jpg"] if "jpg" in sample else np.load(io.BytesIO(sample["npy"]))
    return picture(image), int(sample["cls"])
