"""Which threads and tasks there are, and what happens where none can be started.

Rows S0-08, S0-42, S1-05, S1-11, S1-12.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headrace as hr
from tests.lifecycle.data import (
    KINDS,
    WAITING,
    all_ids,
    all_ids_awaited,
    epoch_of,
    ids_of,
    loader_of,
)


def ours() -> Counter[str]:
    """Count the threads of headrace by what they are named after."""
    names = [thread.name for thread in threading.enumerate()]
    return Counter(name.rstrip("-0123456789") for name in names if name.startswith("headrace"))


def subject_of(loader: hr.Loader) -> Any:
    dataset: Any = loader.dataset
    return getattr(dataset, "subject", dataset)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("face", ["for", "async for"])
def test_without_workers_there_is_no_thread_and_no_task_of_ours(kind: str, face: str) -> None:
    """workers=0 reads on the consumer's thread, in its task where it has one (S1-05)."""
    loader = loader_of(kind, workers=0)
    before = set(threading.enumerate())
    tasks: list[int] = []

    async def epoch() -> list[list[int]]:
        seen = []
        async for batch in loader:
            seen.append(ids_of(batch))
            tasks.append(len(asyncio.all_tasks()))
        return seen

    with loader:
        seen = all_ids(loader) if face == "for" else asyncio.run(epoch())

        assert seen == epoch_of(loader, 0)
        assert set(threading.enumerate()) == before
        assert subject_of(loader).seen == {threading.current_thread()}
        assert set(tasks) <= {1}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_threads_of_a_loader(kind: str, workers: int) -> None:
    """One stage: readers that block, or one loop and threads that decode for it (S0-42).

    Beside them, one thread for all loaders closes what is dropped.
    """
    with loader_of(kind, workers=workers) as loader:
        assert ours() == {}
        all_ids(loader)
        found = ours()

        wanted = {"headrace-reaper": 1}
        if kind in WAITING:
            assert 0 <= found.pop("headrace-decode", 0) <= workers
            assert found == wanted | {"headrace-loop": 1}
        else:
            assert found == wanted | {"headrace-reader": workers}
        assert not subject_of(loader).seen & {threading.current_thread()}
        all_ids(loader)
        assert ours().total() <= workers + 2
    assert ours() == {}


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_awaited_face_adds_no_task(kind: str, workers: int) -> None:
    """Batches are awaited in the consumer's own task (S0-42)."""
    async with loader_of(kind, workers=workers) as loader:
        async for _ in loader:
            assert asyncio.all_tasks() == {asyncio.current_task()}


def test_three_loaders_share_the_reaper() -> None:
    """It starts with the first loader that reads and ends with the last."""
    loaders = [loader_of("rows", workers=1) for _ in range(3)]
    streams = [iter(loader) for loader in loaders]
    for stream in streams:
        next(stream)

    assert ours()["headrace-reaper"] == 1
    loaders[0].close()
    loaders[2].close()
    assert ours()["headrace-reaper"] == 1
    loaders[1].close()
    assert ours() == {}


@pytest.fixture
def threads_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Let only so many more threads start; then the system has no more."""
    start = threading.Thread.start
    left = [1 << 30]

    def limited(self: threading.Thread) -> None:
        if self.name.startswith("headrace"):
            if left[0] == 0:
                raise RuntimeError("can't start new thread")
            left[0] -= 1
        start(self)

    def limit(count: int) -> None:
        left[0] = count

    monkeypatch.setattr(threading.Thread, "start", limited)
    return limit


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize(("kind", "workers"), [*itertools.product(KINDS, (1, 2, 4))])
def test_where_threads_run_out(
    kind: str, workers: int, count: int, threads_left: Callable[[int], None]
) -> None:
    """With none, or fewer than wanted, the same batches come, and no error (S1-12)."""
    threads_left(count)

    with loader_of(kind, workers=workers) as loader:
        assert all_ids(loader) == epoch_of(loader, 0)
        assert asyncio.run(all_ids_awaited(loader)) == epoch_of(loader, 1)
        # The first thread is the reaper; with a second one there is a reader, or a loop.
        is_read_aside = threading.current_thread() not in subject_of(loader).seen
        assert is_read_aside == (count >= 2)
        assert loader.stats()["workers"] == (workers if count >= 2 else 0)
        for batch in loader:
            ids_of(batch)
            break
        assert ids_of(loader.batch_at(7)) == epoch_of(loader, 0)[7]


@pytest.mark.parametrize("kind", KINDS)
async def test_awaiting_where_threads_run_out(
    kind: str, threads_left: Callable[[int], None]
) -> None:
    """The awaited face, and its close, do without threads too (S1-12)."""
    threads_left(0)

    async with loader_of(kind, workers=2) as loader:
        assert await all_ids_awaited(loader) == epoch_of(loader, 0)
    assert ours() == {}


@pytest.mark.parametrize("kind", WAITING)
def test_any_batch_where_threads_run_out(kind: str, threads_left: Callable[[int], None]) -> None:
    """`batch_at` as the first thing asked for finds its way to the private loop (S1-12)."""
    threads_left(0)

    with loader_of(kind, workers=2) as loader:
        assert ids_of(loader.batch_at(7)) == epoch_of(loader, 0)[7]
        assert all_ids(loader) == epoch_of(loader, 0)


def test_threads_that_run_out_in_the_second_loader(threads_left: Callable[[int], None]) -> None:
    """A loader without threads beside one with them: neither knows of the other (S1-12)."""
    threads_left(3)

    with loader_of("rows", workers=2) as first, loader_of("items", workers=2) as second:
        streams = zip(first, second, strict=True)
        pairs = [(ids_of(one), ids_of(other)) for one, other in streams]

        assert [one for one, _ in pairs] == epoch_of(first, 0)
        assert [other for _, other in pairs] == epoch_of(second, 0)
        assert (first.stats()["workers"], second.stats()["workers"]) == (2, 0)
