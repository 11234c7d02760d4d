"""A dataset is opened by whoever calls it, before that, and closed after. (S4-17)"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

import headrace as hr


class Handles:
    """Handles of threads, and which calls found one open."""

    def __init__(self) -> None:
        self.open_threads: set[str] = set()
        self.closed_threads: set[str] = set()
        self.used_threads: set[str] = set()
        self.missed: list[str] = []

    def thread_open(self) -> None:
        self.open_threads.add(threading.current_thread().name)

    def thread_close(self) -> None:
        self.closed_threads.add(threading.current_thread().name)

    def use(self) -> None:
        name = threading.current_thread().name
        self.used_threads.add(name)
        if name not in self.open_threads:
            self.missed.append(name)


class Opened(hr.Dataset):
    """Forty samples, and who opened them."""

    def __init__(self) -> None:
        self.handles = Handles()

    def __len__(self) -> int:
        return 40

    def thread_open(self) -> None:
        self.handles.thread_open()

    def thread_close(self) -> None:
        self.handles.thread_close()


class Decoded(Opened):
    """They come over a loop and are decoded by a handle of the thread."""

    async def fetch(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def decode(self, raw: int) -> int:
        self.handles.use()
        return raw


class Items(Opened):
    """They are got by a handle of the thread."""

    def __getitem__(self, index: int) -> int:
        self.handles.use()
        return index


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("kind", [Decoded, Items])
def test_a_thread_that_calls_a_dataset_has_it_open(kind: Any, workers: int) -> None:
    """`thread_open` comes first on each thread that gets or decodes, `thread_close` last."""
    data = kind()

    with hr.Loader(data, batch_size=4, workers=workers) as loader:
        taken = sum(batch.num_rows for batch in loader)

    handles = data.handles
    assert taken == 40
    assert handles.missed == []
    assert handles.used_threads <= handles.open_threads == handles.closed_threads


seen_calls: list[tuple[str, int]] = []


class Unshared:
    """A foreign object with a client of its loop, which must not be copied away from it."""

    def __len__(self) -> int:
        return 8

    async def open(self) -> None:
        seen_calls.append(("open", id(self)))

    async def aclose(self) -> None:
        seen_calls.append(("aclose", id(self)))

    async def get_batch(self, indices: list[int]) -> Any:
        seen_calls.append(("get_batch", id(self)))
        return {"id": list(indices), "x": hr.default_collate(indices, indices).values[0]}


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_awaited_of_the_object_that_was_opened(workers: int) -> None:
    """The loop calls the very object that it has opened, thread-safe or not."""
    seen_calls.clear()
    data = Unshared()

    with hr.Loader(data, batch_size=4, workers=workers, probe=False) as loader:
        steps = [batch.step for batch in loader]

    assert steps == [0, 1]
    assert seen_calls == [(call, id(data)) for call in ("open", "get_batch", "get_batch", "aclose")]


decoders: dict[int, set[str]] = {}


class Unsafe:
    """A foreign object of which each thread must have its own."""

    def __init__(self) -> None:
        self.state = [0]

    def __len__(self) -> int:
        return 64

    async def fetch(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def decode(self, raw: int) -> int:
        decoders.setdefault(id(self.state), set()).add(threading.current_thread().name)
        return raw


def test_an_object_that_is_not_thread_safe_decodes_on_one_thread_each() -> None:
    """No copy is seen by two decode threads. (S0-08)"""
    decoders.clear()

    with hr.Loader(Unsafe(), batch_size=4, workers=3) as loader:
        for _ in loader:
            pass

    assert decoders
    assert all(len(threads) == 1 for threads in decoders.values())
