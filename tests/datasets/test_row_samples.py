"""One row of any bulk dataset, by its index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.errors import DataError, IndexOutOfRangeError
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows


def values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: column.tolist() for name, column in row.items()}


def test_an_index_gives_one_row_of_any_bulk_dataset() -> None:
    """To look at the data, whatever it is made of: a dict of tensors as batches have them."""
    ragged: Any = hr.Ragged({"x": np.arange(6)}, lengths=np.array([3, 1, 2]))
    windows: Any = hr.Text.from_string("abcabc", 2)
    subset: Any = hr.Subset(ragged, [2, 0])
    both: Any = hr.Concat(ragged, ragged)

    assert values(ragged[2]) == {"x": [4, 5]}
    assert values(subset[1]) == {"x": [0, 1, 2]}
    assert values(both[4]) == {"x": [3]}
    assert values(windows.select("target")[0]) == {"target": [1, 2]}
    assert windows[0]["input"].dtype == torch.int64
    assert [values(row)["x"] for row in ragged] == [[0, 1, 2], [3], [4, 5]]


def test_a_negative_index_is_refused() -> None:
    """It would be another sample than a Loader takes for it (S4-03)."""
    with pytest.raises(IndexOutOfRangeError, match="index -1 is outside"):
        hr.Ragged(np.arange(3), lengths=np.array([3]))[-1]


def test_a_bad_row_raises_its_own_error() -> None:
    """Not RowErrors, which is how rows are told apart inside of a read."""
    with pytest.raises(DataError, match=r"^sample 1 is bad$"):
        RaggedRows([[1], [2]], bad=[1])[1]


def test_a_row_that_must_be_awaited_is_refused_by_name() -> None:
    """No event loop is started for a look."""
    with pytest.raises(TypeError, match="take a batch of a Loader"):
        AwaitedRows(RaggedRows([[1], [2]]))[0]
