"""torch.utils.data.DataLoader, in the three forms that its documentation offers for bulk reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler
from workload import Columns, Rows, Workload

from peers.peer import EpochOrder, Peer


class BulkDataset(Dataset[Columns]):
    """A map-style dataset that reads a whole batch at a time, in either way torch knows."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __len__(self) -> int:
        return self.workload.rows

    def __getitem__(self, rows: Rows) -> Columns:
        return self.workload.gather(rows)

    def __getitems__(self, rows: Sequence[int]) -> Columns:
        return self.workload.gather(np.asarray(rows, np.int64))


class BatchOrder(Sampler[Rows]):
    """Index arrays of whole batches, so that no index becomes a Python number."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.order = EpochOrder(workload, seed)
        self.steps = workload.steps
        self.epoch = -1

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Rows]:
        self.epoch += 1
        return map(self.order.rows, range(self.epoch * self.steps, (self.epoch + 1) * self.steps))


def unchanged(batch: Any) -> Any:
    """Collate nothing: the dataset gives whole batches."""
    return batch


class InProcess(Peer):
    """`batch_size` and `shuffle`, with `__getitems__`, and no worker process."""

    processes = 0

    def __init__(self, workload: Workload, seed: int) -> None:
        self.loader: DataLoader[Columns] | None = DataLoader(
            BulkDataset(workload),
            batch_size=workload.batch_rows,
            shuffle=True,
            drop_last=True,
            collate_fn=unchanged,
            generator=torch.Generator().manual_seed(seed),
            num_workers=self.processes,
            persistent_workers=self.processes > 0,
        )

    def batches(self, epochs: int) -> Iterator[Columns]:
        assert self.loader is not None
        for _ in range(epochs):
            yield from self.loader

    def close(self) -> None:
        # Worker processes end with the iterator that the loader keeps.
        self.loader = None


class TwoProcesses(InProcess):
    """The same with two worker processes, kept between epochs."""

    processes = 2


class IndexBatches(InProcess):
    """`batch_size=None` and a sampler of index arrays: the fastest form in one process."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self.loader = DataLoader(
            BulkDataset(workload),
            batch_size=None,
            sampler=BatchOrder(workload, seed),
            collate_fn=unchanged,
        )
