"""The same small data as every kind of dataset that a loader accepts.

Sample i is `{"id": i, "square": i * i, "x": float32 [i, i + 0.25, i + 0.5]}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import headrace as hr
from headrace.testing.ragged_rows import AwaitedRows

X_OFFSETS = np.array([0.0, 0.25, 0.5], np.float32)


def sample_of(index: int) -> dict[str, Any]:
    """Give sample `index` as one would write it down."""
    return {"id": index, "square": index * index, "x": np.float32(index) + X_OFFSETS}


def arrays_of(num_samples: int) -> dict[str, np.ndarray[Any, Any]]:
    """Give all samples as columns."""
    ids = np.arange(num_samples, dtype=np.int64)
    return {"id": ids, "square": ids * ids, "x": ids.astype(np.float32)[:, None] + X_OFFSETS}


class Samples:
    """What the foreign kinds share: a length, and that threads may share them."""

    thread_safe = True

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples


class ByItem(Samples):
    """Samples one by one, as torch's map-style datasets."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return sample_of(index)


class ByItems(ByItem):
    """Samples of several indices at once, as torch's `__getitems__`."""

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [sample_of(index) for index in indices]


class ByGet(Samples):
    """Awaited samples; those of low index take the most turns of the loop."""

    async def get(self, index: int) -> dict[str, Any]:
        for _ in range(self.num_samples - index):
            await asyncio.sleep(0)
        return sample_of(index)


class ByFetch(Samples):
    """Raw rows from the loop, decoded on reader threads."""

    async def fetch(self, indices: Sequence[int]) -> list[bytes]:
        await asyncio.sleep(0)
        return [str(index).encode() for index in indices]

    def decode(self, raw: bytes) -> dict[str, Any]:
        return sample_of(int(raw))


class ByBatch(Samples):
    """Whole batches."""

    def get_batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        ids = torch.tensor(indices)
        x = ids.float()[:, None] + torch.from_numpy(X_OFFSETS)
        return {"id": ids, "square": ids * ids, "x": x}


class ByAwaitedBatch(Samples):
    """Whole batches from the loop."""

    async def get_batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        await asyncio.sleep(0)
        return ByBatch(self.num_samples).get_batch(indices)


KINDS: dict[str, Callable[[int], Any]] = {
    "arrays": lambda n: hr.Arrays(arrays_of(n)),
    "awaited rows": lambda n: AwaitedRows(hr.Arrays(arrays_of(n))),
    "item": ByItem,
    "items": ByItems,
    "get": ByGet,
    "fetch": ByFetch,
    "batch": ByBatch,
    "awaited batch": ByAwaitedBatch,
}
"""Every kind of dataset, by name: give it a length."""


def expected(samples: Sequence[int]) -> dict[str, Any]:
    """Give the columns of a batch of these samples, as nested lists."""
    rows = [sample_of(index) for index in samples]
    return {
        "id": [row["id"] for row in rows],
        "square": [row["square"] for row in rows],
        "x": [row["x"].tolist() for row in rows],
    }


def columns_of(batch: hr.Batch) -> dict[str, Any]:
    """Give the columns of a batch as nested lists."""
    return {name: column.tolist() for name, column in batch.items()}
