"""Views are priced by the memory that they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.build.estimated import bytes_in
from headrace.kept import kept_bytes, thrifty

ROWS = np.arange(1000, dtype=np.int64).reshape(100, 10)
FORMS: dict[str, Callable[[Any], Any]] = {"array": np.array, "tensor": torch.tensor}


@pytest.mark.parametrize("form", FORMS)
def test_a_small_part_of_large_memory_is_copied(form: str) -> None:
    """More than twice its own size kept: it gets memory of its own, with the same values (U-23)."""
    whole = FORMS[form](ROWS)

    part = thrifty(whole[3:52])

    assert kept_bytes(part) == 49 * 80
    assert part.tolist() == ROWS[3:52].tolist()
    part[:] = 0
    assert whole.tolist() == ROWS.tolist()


@pytest.mark.parametrize("form", FORMS)
def test_a_large_part_stays_and_costs_the_whole(form: str) -> None:
    """Half or more of what it keeps: not worth a copy, and charged for all of it (U-23)."""
    whole = FORMS[form](ROWS)
    part = whole[::2][:, ::1]

    kept = thrifty(part)

    assert kept is part
    assert kept_bytes(kept) == 8000
    assert bytes_in([torch.tensor(ROWS)[:50]]) == 8000


def test_what_a_collate_function_gives_keeps_no_more_than_twice_its_size() -> None:
    """A batch of slices of one large tensor does not keep it while it waits (U-23)."""
    large = torch.arange(100_000).reshape(100, 1000)

    def collate(samples: list[int]) -> dict[str, torch.Tensor]:
        return {"x": large[: len(samples), :2]}

    with hr.Loader(list(range(8)), 4, collate=collate, probe=False) as loader:
        batch = next(iter(loader))

    assert kept_bytes(batch["x"]) == 4 * 2 * 8
    assert batch["x"].tolist() == [[0, 1], [1000, 1001], [2000, 2001], [3000, 3001]]


def test_what_a_gradient_goes_through_stays() -> None:
    """A copy would be another node of the graph."""
    part = torch.ones(100, requires_grad=True)[:1]

    assert thrifty(part) is part
