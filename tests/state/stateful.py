"""Objects of users that change with every call, and say where they are by `state_dict`.

Each counts its calls and puts the count into what it gives, so a state that is one call off shows.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import torch

import headrace as hr

SAMPLES = 12


class Counting:
    """Counts calls in a dict that it gives out and takes in without a copy."""

    def __init__(self) -> None:
        self.state = {"calls": 0}

    def count(self) -> int:
        self.state["calls"] += 1
        return self.state["calls"]

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


class Samples(Counting):
    """A dataset by `__getitem__`."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "calls": self.count()}


class AwaitedSamples(Counting):
    """A dataset by `async get`, which would count out of order if called all at once."""

    def __len__(self) -> int:
        return SAMPLES

    async def get(self, index: int) -> dict[str, Any]:
        for _ in range(index % 3):
            await asyncio.sleep(0)
        return {"id": index, "calls": self.count()}


class Rows(hr.Arrays, Counting):
    """A dataset of rows, whose state moves with each read."""

    def __init__(self) -> None:
        Counting.__init__(self)
        super().__init__({"id": np.arange(SAMPLES), "calls": np.zeros(SAMPLES, np.int64)})

    def read_into_blocking(self, indices: Any, out: Any, rows: Any) -> None:
        super().read_into_blocking(indices, out, rows)
        out["calls"][rows] = self.count()


class Collate(Counting):
    def __call__(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        ids = torch.tensor([int(sample["id"]) for sample in samples])
        return {"id": ids, "calls": torch.full_like(ids, self.count())}


class SampleTransform(Counting):
    def __call__(self, sample: dict[str, Any], key: hr.PickKey) -> dict[str, Any]:
        return {**sample, "calls": self.count()}


class SampleFunction(Counting):
    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "calls": self.count()}


class Transform(Counting):
    def __call__(self, batch: hr.Batch, keys: hr.PickKeys) -> dict[str, Any]:
        return {**batch, "calls": batch["id"] * 0 + self.count()}


class AsyncTransform(Counting):
    async def __call__(self, batch: hr.Batch, keys: hr.PickKeys) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {**batch, "calls": batch["id"] * 0 + self.count()}


def split_in_two() -> tuple[Any, Any]:
    """Give two halves of one stateful dataset."""
    data = Samples()
    return hr.Subset(data, range(5)), hr.Subset(data, range(5, SAMPLES))


def plain() -> hr.Arrays:
    """Give a dataset without a state."""
    return hr.Arrays({"id": np.arange(SAMPLES)})


KINDS: dict[str, Any] = {
    "samples": lambda: {"data": Samples()},
    "awaited samples": lambda: {"data": AwaitedSamples()},
    "rows": lambda: {"data": Rows()},
    "samples of a subset": lambda: {"data": hr.Subset(Samples(), range(SAMPLES))},
    "rows of a subset": lambda: {"data": hr.Subset(Rows(), range(SAMPLES))},
    "samples of a part": lambda: {"data": hr.Concat(*split_in_two())},
    "a mapped function": lambda: {"data": plain().map(SampleFunction())},
    "collate": lambda: {"data": plain(), "collate": Collate()},
    "sample transform": lambda: {"data": plain(), "sample_transform": SampleTransform()},
    "transform": lambda: {"data": plain(), "transform": Transform()},
    "async transform": lambda: {"data": plain(), "transform": AsyncTransform()},
    "all": lambda: {
        "data": Samples(),
        "collate": Collate(),
        "sample_transform": SampleTransform(),
        "transform": Transform(),
    },
}
"""Arguments of a loader by which of its objects are stateful."""


def loader(kind: str, **knobs: Any) -> hr.Loader:
    """Give a loader of 12 samples in batches of 3, with fresh stateful objects."""
    return hr.Loader(**{**KINDS[kind](), "batch_size": 3, "workers": 3, "prefetch": 8, **knobs})


def seen(batch: hr.Batch) -> tuple[int, list[int], list[int]]:
    """Give the step of a batch, its ids, and the counts that its objects gave it."""
    return batch.step, batch["id"].tolist(), batch["calls"].tolist()
