"""Loaders that share the bytes of a process: train and validation, in any order (design 3)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.loader
from headrace.budget import Budget

# A batch of 4 rows has 64 KiB; the budget has room for 8 of them (half of what is available).
ROW = 2048
STEP_BYTES = 4 * ROW * 8
ROOM_BYTES = 16 * STEP_BYTES
DATA = np.arange(400 * ROW, dtype=np.int64).reshape(400, ROW)


class Counted(hr.Arrays):
    """Rows that tell how many were read, and when a number of them has been."""

    def __init__(self) -> None:
        super().__init__(DATA)
        self.read = 0
        self._changed = threading.Condition()

    def read_into_blocking(self, indices: Any, out: Any, rows: Any) -> None:
        super().read_into_blocking(indices, out, rows)
        with self._changed:
            self.read += len(indices)
            self._changed.notify_all()

    def wait_for(self, rows: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.read >= rows, 20), self.read


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """A budget of the test's own, in place of the process's."""
    made = Budget(lambda: ROOM_BYTES)
    monkeypatch.setattr(headrace.loader, "process_budget", lambda: made)
    return made


@pytest.fixture
def make(budget: Budget) -> Iterator[Callable[..., hr.Loader]]:
    """Make loaders that are closed after the test."""
    loaders: list[hr.Loader] = []

    def loader(data: Any = None, **knobs: Any) -> hr.Loader:
        settings = {"workers": 1, "prefetch": 32, "shuffle": False} | knobs
        loaders.append(hr.Loader(Counted() if data is None else data, 4, **settings))
        return loaders[-1]

    yield loader
    for each in loaders:
        each.close()
    assert budget.taken_bytes == 0
    assert budget.stats()["budget_shares"] == 0


def held_steps(loader: hr.Loader) -> float:
    return loader._engine._share.taken_bytes / STEP_BYTES


def right(batch: hr.Batch) -> bool:
    return bool((batch[0].numpy() == DATA[batch.indices]).all())


def reading(loader: hr.Loader, steps: int) -> hr.BatchStream:
    """Begin to read, and wait until so many steps have been; nothing is taken."""
    stream = iter(loader)
    assert stream._ready() is not None
    data: Any = loader.dataset
    data.wait_for(4 * steps)
    return stream


@pytest.mark.parametrize("order", [("train", "validation"), ("validation", "train")], ids=str)
def test_what_was_made_first_does_not_matter(
    order: tuple[str, str], make: Callable[..., hr.Loader]
) -> None:
    """Each holds as much as it would had the other been made before it."""
    loaders = {name: make() for name in order}

    streams = reading(loaders["train"], 8), reading(loaders["validation"], 2)

    # Train took what there is; validation has its floor of two, whatever others hold.
    assert held_steps(loaders["train"]) == 8
    assert held_steps(loaders["validation"]) == 2
    del streams


def test_an_idle_loader_lends_the_rest(make: Callable[..., hr.Loader], budget: Budget) -> None:
    """Loaders that were only made hold nothing, so one that reads may have all of it."""
    idle = [make() for _ in range(5)]
    busy = make()

    stream = reading(busy, 8)

    assert held_steps(busy) == 8
    assert [held_steps(each) for each in idle] == [0] * 5
    assert budget.taken_bytes == ROOM_BYTES // 2
    del stream


def test_what_a_stream_held_is_lent_again(make: Callable[..., hr.Loader]) -> None:
    """A stream that was closed or dropped gives its bytes to whoever reads next."""
    first, second = make(), make()
    stream = reading(first, 8)

    stream.close()
    assert held_steps(first) == 0
    other = reading(second, 8)

    assert held_steps(second) == 8
    del other


def test_two_busy_loaders_share_and_both_finish(
    make: Callable[..., hr.Loader], budget: Budget
) -> None:
    """Epochs read side by side stay within the bound and the floors, and miss nothing."""
    loaders = [make() for _ in range(3)]

    for batches in zip(*loaders, strict=True):
        assert all(map(right, batches))
        # The bound, which one may hold whole, and the floors of the two others.
        assert budget.taken_bytes <= ROOM_BYTES // 2 + 2 * 2 * STEP_BYTES

    stats = [loader.stats() for loader in loaders]
    assert [each["batches"] for each in stats] == [100] * 3
    assert [each["ring_forced_steps"] for each in stats] == [0] * 3


def test_a_budget_too_small_for_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no room at all each loader still has its floor, and all epochs come."""
    budget = Budget(lambda: 0)
    monkeypatch.setattr(headrace.loader, "process_budget", lambda: budget)
    loaders = [hr.Loader(Counted(), 4, workers=2, prefetch=8, shuffle=False) for _ in range(2)]

    for batches in zip(*loaders, strict=True):
        assert all(map(right, batches))

    for loader in loaders:
        assert loader.stats()["ring_peak_bytes"] == 2 * STEP_BYTES
        loader.close()


class Wide:
    """The same rows as samples, whose size nobody knows before the first."""

    thread_safe = pure = True

    def __init__(self, row_bytes: int) -> None:
        self._row = np.arange(row_bytes // 8, dtype=np.int64)

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return self._row + index


def test_the_floor_follows_the_size_of_a_step(make: Callable[..., hr.Loader]) -> None:
    """Samples turn out larger than guessed: from the next pass on, two steps are the floor."""
    loader = make(Wide(2 << 20), workers=2, probe=False)
    for _ in itertools.islice(loader, 3):
        pass
    next(iter(loader))

    floor_bytes = loader._engine._share._account.floor_bytes

    assert floor_bytes == 2 * 4 * (2 << 20)
