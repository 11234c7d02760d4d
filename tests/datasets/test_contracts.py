"""Every bundled dataset, and every composition, against the contract of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from headrace.datasets import Arrays, Concat, Subset, Text, TokenShards, as_dataset
from headrace.datasets.dataset import BulkDataset, Dataset
from headrace.testing.dataset_contract import BulkDatasetContract, DatasetContract
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows

PIXELS = np.arange(7 * 2 * 3, dtype=np.uint8).reshape(7, 2, 3)
LABELS = np.arange(7, dtype=np.int64) * 10
SEQUENCES = [[1, 2, 3], [], [4], [5, 6], [7, 8, 9, 10]]


class TestArrays(BulkDatasetContract):
    def make(self) -> BulkDataset:
        return Arrays({"image": PIXELS, "label": torch.from_numpy(LABELS)})

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"image": PIXELS[index], "label": 10 * index}


class TestBigEndianAndSlicedArrays(BulkDatasetContract):
    def make(self) -> BulkDataset:
        return Arrays(PIXELS[:, :, ::2], LABELS.astype(">i8"))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"0": PIXELS[index][:, ::2], "1": 10 * index}


class TestTokenShards(BulkDatasetContract):
    @pytest.fixture(autouse=True)
    def _shards(self, tmp_path: Path) -> None:
        self.path = tmp_path
        np.save(tmp_path / "a.npy", np.arange(11, dtype=np.uint16))
        np.save(tmp_path / "b.npy", np.arange(100, 109, dtype=np.uint16))

    def make(self) -> BulkDataset:
        return TokenShards(self.path, 3)

    def stored_row(self, index: int) -> Mapping[str, Any]:
        first = 3 * index if index < 3 else 100 + 3 * (index - 3)
        return {"tokens": list(range(first, first + 4))}


class TestTokenShardsWithBadTokens(TestTokenShards):
    bad_indices = (3, 4)

    def make(self) -> BulkDataset:
        return TokenShards(self.path, 3, vocab_size=100)


class TestText(BulkDatasetContract):
    def make(self) -> BulkDataset:
        return Text.from_string("hello, world", 2)

    def stored_row(self, index: int) -> Mapping[str, Any]:
        window = "hello, world"[2 * index : 2 * index + 3]
        return {"tokens": [" ,dehlorw".index(character) for character in window]}


class TestRaggedRows(BulkDatasetContract):
    bad_indices = (2,)

    def make(self) -> BulkDataset:
        return RaggedRows(SEQUENCES, bad=[2])

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"values": SEQUENCES[index], "length": len(SEQUENCES[index])}


class TestAwaitedRows(TestRaggedRows):
    def make(self) -> BulkDataset:
        return AwaitedRows(RaggedRows(SEQUENCES, bad=[2]))


class TestSubsetOfRows(BulkDatasetContract):
    bad_indices = (1,)

    def make(self) -> BulkDataset:
        return as_bulk(Subset(RaggedRows(SEQUENCES, bad=[2]), [4, 2, 0, 0, 1]))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        sequence = SEQUENCES[[4, 2, 0, 0, 1][index]]
        return {"values": sequence, "length": len(sequence)}


class TestConcatOfRows(BulkDatasetContract):
    bad_indices = (2, 7, 12)

    def make(self) -> BulkDataset:
        part = RaggedRows(SEQUENCES, bad=[2])
        return as_bulk(Concat(part, RaggedRows(SEQUENCES, bad=[2]), part))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        sequence = SEQUENCES[index % 5]
        return {"values": sequence, "length": len(sequence)}


class TestConcatOfRowsThatWaitAndRowsThatDoNot(TestConcatOfRows):
    def make(self) -> BulkDataset:
        part = RaggedRows(SEQUENCES, bad=[2])
        return as_bulk(Concat(AwaitedRows(part), part, AwaitedRows(part)))


class TestSelectedColumnsOfAnyRows(BulkDatasetContract):
    def make(self) -> BulkDataset:
        return AwaitedRows(Text.from_string("hello, world", 2)).select("target")

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return TestText().stored_row(index)


class TestSelectedOpenColumn(TestRaggedRows):
    def make(self) -> BulkDataset:
        return RaggedRows(SEQUENCES, bad=[2]).select("values")


class Squares(Dataset):
    """Map style: (i, i * i)."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, int]:
        if not 0 <= index < 6:
            raise IndexError(index)
        return index, index * index


class SquaresAtOnce(Squares):
    """With torch's bulk call."""

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[int, int]]:
        return [self[index] for index in indices]


class AwaitedSquares(Dataset):
    """On the loop."""

    def __len__(self) -> int:
        return 6

    async def get(self, index: int) -> tuple[int, int]:
        return Squares()[index]


class FetchedSquares(Dataset):
    """Raw rows on the loop, decoded elsewhere."""

    def __len__(self) -> int:
        return 6

    async def fetch(self, indices: Sequence[int]) -> list[str]:
        return [str(Squares()[index][0]) for index in indices]

    def decode(self, raw: str) -> tuple[int, int]:
        return int(raw), int(raw) ** 2


KINDS: list[Callable[[], Dataset]] = [Squares, SquaresAtOnce, AwaitedSquares, FetchedSquares]


def squared(index: int) -> tuple[int, int]:
    return index, index * index


def total(sample: tuple[int, int]) -> int:
    return sum(sample)


class OfEveryKind(DatasetContract):
    """Runs a contract once for each way of getting samples."""

    @pytest.fixture(autouse=True, params=KINDS)
    def _kind(self, request: pytest.FixtureRequest) -> None:
        self.kind: Callable[[], Dataset] = request.param


class TestSquares(OfEveryKind):
    def make(self) -> Dataset:
        return self.kind()

    def sample(self, index: int) -> Any:
        return squared(index)


class TestSubsetOfSamples(OfEveryKind):
    def make(self) -> Dataset:
        return as_samples(Subset(self.kind(), np.array([5, 1, 1], np.int32)))

    def sample(self, index: int) -> Any:
        return squared([5, 1, 1][index])


class TestConcatOfSamples(OfEveryKind):
    def make(self) -> Dataset:
        return as_samples(Concat(self.kind(), [(100, 0)], Squares()))

    def sample(self, index: int) -> Any:
        return (100, 0) if index == 6 else squared(index if index < 6 else index - 7)


class TestMappedSamples(OfEveryKind):
    def make(self) -> Dataset:
        return self.kind().map(total)

    def sample(self, index: int) -> Any:
        return index + index * index


class TestSelectedParts(OfEveryKind):
    def make(self) -> Dataset:
        return self.kind().select(1)

    def sample(self, index: int) -> Any:
        return {1: index * index}


class TestMappedRows(DatasetContract):
    def make(self) -> Dataset:
        return Text.from_string("hello, world", 2).map(dict)

    def sample(self, index: int) -> Any:
        tokens = torch.tensor(TestText().stored_row(index)["tokens"])
        return {"input": tokens[:-1], "target": tokens[1:]}


class TestMappedAwaitedOpenRows(DatasetContract):
    def make(self) -> Dataset:
        return AwaitedRows(RaggedRows(SEQUENCES)).map(dict)

    def sample(self, index: int) -> Any:
        sequence = torch.tensor(SEQUENCES[index], dtype=torch.int32)
        return {"values": sequence, "length": torch.tensor(len(sequence))}


class TestForeignObject(DatasetContract):
    def make(self) -> Dataset:
        return as_samples(as_dataset(Foreign()))

    def sample(self, index: int) -> Any:
        return squared(index)


class TestTensorDatasetBehindSubset(BulkDatasetContract):
    def make(self) -> BulkDataset:
        tensors = TensorDataset(torch.from_numpy(PIXELS), torch.from_numpy(LABELS))
        return as_bulk(as_dataset(torch.utils.data.Subset(tensors, [6, 0, 3, 3])))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        chosen = [6, 0, 3, 3][index]
        return {"0": PIXELS[chosen], "1": 10 * chosen}


class Foreign:
    """An object that knows nothing of headrace."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, int]:
        return Squares()[index]


def as_bulk(dataset: object) -> BulkDataset:
    assert isinstance(dataset, BulkDataset)
    return dataset


def as_samples(dataset: object) -> Dataset:
    assert isinstance(dataset, Dataset)
    return dataset
