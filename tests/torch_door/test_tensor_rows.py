"""Batches gathered from tensors in one go, beside those stacked of samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from headrace.torch.tensor_rows import TensorRows
from tests.torch_door.data import OURS, THEIRS, same, taken

X = torch.arange(24, dtype=torch.float64).reshape(12, 2)
Y = torch.arange(12)
DATA = TensorDataset(X, Y)

PLAIN: dict[str, Any] = {
    "tensors": DATA,
    "a subset": Subset(DATA, [11, 3, 3, 0, 7, 5, 6, 1]),
    "a subset of one": Subset(Subset(DATA, [11, 3, 3, 0, 7, 5, 6, 1]), [7, 6, 5, 0, 1, 2]),
    "a view": TensorDataset(X.t().contiguous().t()[::2], Y[6:]),
    "no columns": TensorDataset(torch.zeros(12, 0)),
    "scalars": TensorDataset(Y.bool()),
}
SPECIAL: dict[str, Any] = {
    "with gradients": TensorDataset(X.clone().requires_grad_()),
    "sparse": TensorDataset(X.to_sparse()),
    "conjugated": TensorDataset(torch.complex(X, X).conj()),
    "a parameter": TensorDataset(torch.nn.Parameter(X)),
    "numpy indices": Subset(DATA, torch.arange(6).numpy()),  # type: ignore[arg-type]
    "negative indices": Subset(DATA, [-1, -2, 0, 1, 2, 3]),
    "wrong indices": Subset(DATA, [0, 1, 2, 3, 4, 50]),
}


class Doubled(TensorDataset):
    """A subclass, which may change what an index gives."""

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, ...]:
        return tuple(2 * part for part in super().__getitem__(index))


@pytest.mark.parametrize("name", [*PLAIN, *SPECIAL])
def test_batches_are_those_of_torch(name: str) -> None:
    """Gathered or not, values, types and errors are torch's."""
    data = {**PLAIN, **SPECIAL}[name]

    theirs, ours = taken(THEIRS(data, 4)), taken(OURS(data, 4))

    assert same(theirs, ours)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_tensors_are_gathered(name: str) -> None:
    """Nothing is asked for one by one where a gather does."""
    rows = TensorRows(PLAIN[name], default_collate)

    assert rows.batch([0, 2, 2]) is not None


KEYS: list[Any] = [[0, -1], [0, 12], [], [True, False], [1.0], [2**70], (0, 1), "01", [[0], [1]]]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_special_keys_are_left_to_the_dataset(key: Any) -> None:
    """Only lists of plain indices inside the data are gathered by."""
    assert TensorRows(DATA, default_collate).batch(key) is None


def test_subclasses_and_other_collation_are_left_to_the_dataset() -> None:
    """What users change is called."""
    assert TensorRows(Doubled(X), default_collate).batch([0]) is None
    assert TensorRows(DATA, list).batch([0]) is None


def test_a_users_collation_of_tensors_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch lets users put a function of their own into its table."""

    def summed(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> Any:
        return sum(batch)

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, summed)

    batches = list(OURS(TensorDataset(Y), 4, num_workers=2))

    assert [[part.item() for part in batch] for batch in batches] == [[6], [22], [38]]


def test_a_batch_has_memory_of_its_own() -> None:
    """Writing into a batch changes no data."""
    for batch in OURS(TensorDataset(Y.clone()), 12, num_workers=1):
        batch[0].fill_(-1)

    assert Y.tolist() == list(range(12))
    assert batch[0].tolist() == [-1] * 12
