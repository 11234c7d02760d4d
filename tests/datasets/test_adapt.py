"""What users have becomes one of the three contracts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    IterableDataset,
    StackDataset,
    TensorDataset,
    random_split,
)
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Subset as TorchSubset

from headrace.datasets import Arrays, BatchDataset, BulkDataset, Dataset, as_dataset
from headrace.datasets.access import access_of
from headrace.datasets.adapters import Foreign
from headrace.datasets.dataset import Column
from headrace.errors import ConfigError
from headrace.testing.dataset_reads import get_samples, read_rows


class MapStyle(TorchDataset[tuple[int, int]]):
    """torch's map style, with a count of calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[int, int]:
        self.calls.append(index)
        return index, index * index


class Bulk(MapStyle):
    """With torch's bulk call."""

    def __getitems__(self, indices: list[int]) -> list[tuple[int, int]]:
        self.calls.append(indices)
        return [(index, index * index) for index in indices]


class Get:
    """floDl's style: a blocking get."""

    def __len__(self) -> int:
        return 5

    def get(self, index: int) -> tuple[int, int]:
        return index, index * index


class AsyncGet(Get):
    """Awaited."""

    async def get(self, index: int) -> tuple[int, int]:  # type: ignore[override]
        return index, index * index


class Fetch(Get):
    """Split into fetch and decode."""

    async def fetch(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def decode(self, raw: int) -> tuple[int, int]:
        return raw, raw * raw


class Batches:
    """Whole batches."""

    def __len__(self) -> int:
        return 5

    def get_batch(self, indices: Sequence[int]) -> torch.Tensor:
        return torch.tensor(indices) ** 2


class AsyncBatches(Batches):
    """Whole batches, awaited."""

    async def get_batch(self, indices: Sequence[int]) -> torch.Tensor:  # type: ignore[override]
        return torch.tensor(indices) ** 2


@pytest.mark.parametrize(
    ("given_", "access"),
    [
        (MapStyle(), "one"),
        (Bulk(), "many"),
        (Get(), "one"),
        (AsyncGet(), "get"),
        (Fetch(), "fetch"),
        ([(i, i * i) for i in range(5)], "one"),
        (tuple((i, i * i) for i in range(5)), "one"),
    ],
)
def test_samples_come_the_way_the_object_offers(given_: Any, access: str) -> None:
    """Sync or async, one or many (S0-05, S4-04, S4-06)."""
    dataset = as_dataset(given_)

    assert isinstance(dataset, Dataset)
    assert len(dataset) == 5
    assert access_of(dataset) == access
    assert get_samples(dataset, [3, 0]) == [(3, 9), (0, 0)]


def test_the_bulk_call_is_used_where_present() -> None:
    """One call for a batch, with plain integers (S4-06)."""
    subject = Bulk()

    get_samples(as_dataset(subject), np.array([3, 0]).tolist())  # type: ignore[arg-type]

    assert subject.calls == [[3, 0]]


@pytest.mark.parametrize("given_", [Batches(), AsyncBatches()])
def test_whole_batches_stay_opaque(given_: Any) -> None:
    """Blocking or awaited (S0-06, S4-07)."""
    dataset = as_dataset(given_)

    assert isinstance(dataset, BatchDataset)
    batch = dataset.get_batch([3, 1])
    if asyncio.iscoroutine(batch):
        batch = asyncio.run(batch)
    assert batch.tolist() == [9, 1]


def test_datasets_of_headrace_stay_as_they_are() -> None:
    """No wrapper is put around them."""
    data = Arrays(np.zeros(3))

    assert as_dataset(data) is data


X, Y = torch.arange(12).reshape(6, 2), torch.arange(6)


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        (X.numpy(), [3, 0]),
        (X, [3, 0]),
        ({"0": X, "y": Y}, [3, 0]),
        (TensorDataset(X, Y), [3, 0]),
        (TorchSubset(TensorDataset(X, Y), [5, 3, 1, 0]), [1, 3]),
        (TorchSubset(TorchSubset(TensorDataset(X), [5, 3, 0]), [2, 1]), [1, 0]),
        (ConcatDataset([TensorDataset(X[:2]), TensorDataset(X[2:])]), [3, 0]),
        (random_split(TensorDataset(X), [6, 0], torch.Generator().manual_seed(0))[0], None),
    ],
)
def test_tensors_take_the_fast_path(given_: Any, wanted: list[int] | None) -> None:
    """The same rows as by torch's own indexing, without Python for each."""
    dataset = as_dataset(given_)
    assert isinstance(dataset, BulkDataset)
    if wanted is None:
        wanted = [given_.indices.index(3), given_.indices.index(0)]

    rows = read_rows(dataset, wanted)

    assert [row["0"].tolist() for row in rows] == [[6, 7], [0, 1]]


class Doubled(TensorDataset):
    """Changes what an index gives."""

    def __getitem__(self, index: Any) -> Any:
        return tuple(2 * tensor for tensor in super().__getitem__(index))


@pytest.mark.parametrize(
    "given_",
    [
        Doubled(X),
        TorchSubset(Doubled(X), [3]),
        ConcatDataset([TensorDataset(X), Doubled(X)]),
        TensorDataset(X.to(torch.bfloat16)),
        ConcatDataset([TensorDataset(X), TensorDataset(X.float())]),
    ],
)
def test_what_only_looks_like_tensors_stays_foreign(given_: Any) -> None:
    """Subclasses, dtypes that numpy lacks, columns that differ: torch's own indexing serves."""
    dataset = as_dataset(given_)

    assert isinstance(dataset, Foreign)
    assert len(dataset) == len(given_)


class Stream(IterableDataset[int]):
    """No indices."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


async def numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (Stream(), "Stream, a stream without indices.*Streams are not in this version"),
        (iter([1]), "list_iterator, a stream"),
        ((i for i in range(3)), "generator, a stream"),
        (numbers(), "async_generator, a stream"),
        ("data/shards", r"If it is a path: TokenShards"),
        (b"data", "If it is a path"),
        (Path("data"), r"PosixPath\('data'\)\. If it is a path: TokenShards"),
        (None, "NoneType, which has no __len__"),
        (3, "int, which has no __len__"),
        (MapStyle, "the class MapStyle.*Call it first"),
        ({1, 2}, "wanted a headrace dataset.*__getitem__.*got 'set'"),
        ({"a": [1, 2], "b": [3, 4]}, r"data: wanted a mapping.*as an array: np\.asarray"),
        (
            {"a": 1, "b": 2},
            r"a mapping of names to arrays.*\['a', 'b'\].*list\(mapping",
        ),
    ],
)
def test_what_is_no_dataset_is_refused_saying_what_was_sought(given_: Any, message: str) -> None:
    """The error names what was looked for and what was found."""
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        as_dataset(given_)


def test_a_dataset_of_ours_without_any_way_is_refused() -> None:
    """A subclass must bring one of the four."""

    class Empty(Dataset):
        def __len__(self) -> int:
            return 1

    for check in (access_of, as_dataset):
        with pytest.raises(ConfigError, match="async fetch and decode, async get, __getitems__"):
            check(Empty())


def test_rows_of_ours_without_any_way_are_refused() -> None:
    """A subclass must bring one of the two."""

    class Empty(BulkDataset):
        layout = (Column("x", np.dtype(np.int64)),)

        def __len__(self) -> int:
            return 1

    with pytest.raises(ConfigError, match="data: wanted read_into or read_into_blocking, got 'Em"):
        as_dataset(Empty())


@pytest.mark.parametrize(
    ("given_", "thread_safe", "pure"),
    [
        (MapStyle(), False, False),
        ([1, 2], True, True),
        (range(5), True, True),
        (Doubled(X), False, False),
        (StackDataset(TensorDataset(X)), False, False),
        (TensorDataset(X.to(torch.bfloat16)), True, False),
        (TorchSubset([1, 2], [0]), True, False),
        (ConcatDataset([[1], (2,)]), True, False),
        (ConcatDataset([[1], MapStyle()]), False, False),
    ],
)
def test_objects_are_trusted_only_as_far_as_known(
    given_: Any, thread_safe: bool, pure: bool
) -> None:
    """Unknown objects are neither shared between threads nor taken for pure (S0-08, S0-59)."""
    dataset = as_dataset(given_)

    assert isinstance(dataset, Foreign)
    assert (dataset.thread_safe, dataset.pure) == (thread_safe, pure)


def test_an_object_or_its_user_may_say_more() -> None:
    """`thread_safe` on the object, `pure` on either."""
    subject = MapStyle()
    subject.thread_safe = subject.pure = True  # type: ignore[attr-defined]

    told = as_dataset(subject)
    asked = as_dataset(MapStyle(), pure=True)

    assert isinstance(told, Foreign)
    assert isinstance(asked, Foreign)
    assert (told.thread_safe, told.pure) == (True, True)
    assert (asked.thread_safe, asked.pure) == (False, True)
    assert as_dataset([1], pure=False).pure is False  # type: ignore[union-attr]


class WithLife(MapStyle):
    """Opens and closes what it needs."""

    async def open(self) -> None:
        self.calls.append("open")

    async def aclose(self) -> None:
        self.calls.append("aclose")

    def thread_open(self) -> None:
        self.calls.append("thread_open")

    def thread_close(self) -> None:
        self.calls.append("thread_close")

    def fingerprint(self) -> dict[str, Any]:
        return {"revision": 7}


def test_foreign_objects_may_have_a_lifecycle_and_a_fingerprint() -> None:
    """Where they have the methods of the contract, these are called (S4-17)."""
    subject = WithLife()
    dataset = as_dataset(subject)

    async def live() -> None:
        await dataset.open()
        dataset.thread_open()
        dataset.thread_close()
        await dataset.aclose()

    asyncio.run(live())

    assert subject.calls == ["open", "thread_open", "thread_close", "aclose"]
    assert dataset.fingerprint()["revision"] == 7
    assert dataset.fingerprint()["samples"] == 5


def test_an_open_of_another_meaning_is_left_alone() -> None:
    """A blocking `open(path)` is no lifecycle."""

    class Opens(MapStyle):
        def open(self, path: str) -> None:
            raise AssertionError("not meant")

    asyncio.run(as_dataset(Opens()).open())
