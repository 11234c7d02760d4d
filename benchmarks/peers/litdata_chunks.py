"""litdata: chunks on the local disk, read by its own data loader."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import litdata
from workload import Columns, Workload
from workloads import open_workload

from peers.copied import WORKER_PROCESSES, Copied, copy_of, picture, stacked, stored


class Chunks(Copied):
    """Chunks of 64 MB are shuffled, and samples in each, with two worker processes."""

    is_global = False

    def __init__(self, workload: Workload, seed: int) -> None:
        place = str(copy_of(workload, type(self)))
        self.data: Any = Decoding(place, shuffle=True, drop_last=True, seed=seed)
        self.loader: Any = litdata.StreamingDataLoader(
            self.data,
            batch_size=workload.batch_rows,
            shuffle=True,
            drop_last=True,
            collate_fn=stacked,
            num_workers=WORKER_PROCESSES,
            persistent_workers=True,
        )

    @classmethod
    def write(cls, workload: Workload, folder: Path) -> None:
        litdata.optimize(
            fn=partial(sample_of, workload.folder),
            inputs=list(range(workload.rows)),
            output_dir=str(folder),
            chunk_bytes="64MB",
            num_workers=1,
        )

    def batches(self, epochs: int) -> Iterator[Columns]:
        for _ in range(epochs):
            yield from self.loader

    def close(self) -> None:
        # Worker processes end with the iterator that the loader keeps.
        self.loader = self.data = None


def sample_of(folder: Path, row: int) -> dict[str, Any]:
    """Give a sample to be written, in a process of the library."""
    image, label = stored(open_workload(folder), row)
    return {"image": image, "label": label}


class Decoding(litdata.StreamingDataset):
    """Gives images as they are delivered."""

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return picture(sample["image"]), int(sample["label"])
