"""What a batch is made of: bulk calls, data in batches already, and what cannot be collated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import BatchSampler, Dataset, SequentialSampler

from tests.torch_door.data import OURS, THEIRS, Each, Point, same

BOTH = pytest.mark.parametrize("num_workers", [0, 2])


class Bulk(Dataset[int]):
    """A dataset that counts how it is asked."""

    thread_safe = True

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> int:
        raise AssertionError("asked one by one")

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.asked.append(indices)
        return indices


@BOTH
def test_the_bulk_call_is_used_where_present(num_workers: int) -> None:
    """`__getitems__` is asked once for each batch, with its keys as they came (S4-06)."""
    data = Bulk()

    batches = list(OURS(data, 3, num_workers=num_workers))

    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert sorted(data.asked) == [[0, 1, 2], [3, 4, 5], [6]]


class Whole(Dataset[Any]):
    """A dataset that gives batches: by number, or by a list of indices."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> dict[str, Any]:
        rows = np.arange(4) + 4 * key if isinstance(key, int) else np.asarray(key)
        return {"x": rows, "name": "whole", "rows": len(rows)}


@BOTH
def test_data_in_batches_passes_through(num_workers: int) -> None:
    """With batch_size=None nothing is stacked, and arrays become tensors (S4-07)."""
    theirs = list(THEIRS(Whole(), batch_size=None))

    ours = list(OURS(Whole(), batch_size=None, num_workers=num_workers))

    assert same(ours, theirs)
    assert ours[1]["x"].tolist() == [4, 5, 6, 7]
    assert (ours[1]["name"], ours[1]["rows"]) == ("whole", 4)


@BOTH
def test_a_batch_sampler_may_be_the_sampler(num_workers: int) -> None:
    """The dataset is then asked for lists of indices, as torch's guide has it (S4-07)."""
    sampler: Any = BatchSampler(SequentialSampler(range(5)), 2, False)

    batches = list(OURS(Whole(), batch_size=None, sampler=sampler, num_workers=num_workers))

    assert [batch["x"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


def picture(index: int) -> Any:
    return Image.new("L", (2, 2), index)


@BOTH
def test_pictures_are_refused_by_the_default_collation(num_workers: int) -> None:
    """An image of Pillow is no tensor, and torch's own error says so (S4-16)."""
    with pytest.raises(TypeError, match=r"PIL\.Image\.Image"):
        next(iter(OURS(Each(picture), 2, num_workers=num_workers)))


@BOTH
def test_named_tuples_stay_named(num_workers: int) -> None:
    """Types of samples are types of batches, on threads too (S4-16)."""

    def point(index: int) -> Point:
        return Point(np.full(2, index, np.float32), index)

    batch = next(iter(OURS(Each(point), 2, num_workers=num_workers)))

    assert type(batch) is Point
    assert torch.equal(batch.x, torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    assert torch.equal(torch.as_tensor(batch.label), torch.tensor([0, 1]))


@BOTH
def test_a_batch_may_be_nothing(num_workers: int) -> None:
    """A collate function may give anything, None too, and a pass goes on."""
    loader = OURS(range(4), 2, collate_fn=nothing, num_workers=num_workers)

    assert list(loader) == [None, None]


def nothing(samples: list[int]) -> None:
    return None


class Asker:
    """A collate object with a state, as tokenizers have."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def __call__(self, samples: list[int]) -> list[int]:
        self.held[:] = samples
        return list(self.held)


def test_a_collate_object_is_one_for_each_thread() -> None:
    """Its scratch is no more shared than a dataset's, whether or not that is safe."""
    collate = Asker()

    batches = list(OURS(range(400), 4, num_workers=4, collate_fn=collate))

    assert batches == [list(range(first, first + 4)) for first in range(0, 400, 4)]
    assert collate.held == []


class WithCollate(Each):
    """A dataset whose own method collates."""

    def __init__(self) -> None:
        super().__init__(abs, 8)
        self.last = -1

    def __getitem__(self, index: int) -> int:
        self.last = index
        return index

    def collate(self, samples: list[int]) -> tuple[list[int], int]:
        return samples, self.last


def test_a_method_of_the_dataset_collates_with_the_copy_of_its_thread() -> None:
    """Both are copied together, so the method sees what its thread has read."""
    data = WithCollate()

    batches = list(OURS(data, 2, num_workers=3, collate_fn=data.collate))

    assert [(samples, last) for samples, last in batches] == [
        ([first, first + 1], first + 1) for first in range(0, 8, 2)
    ]
    assert data.last == -1
