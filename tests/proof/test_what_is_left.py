"""What outlives a loader, and what must not."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import headrace as hr
from tests.proof.worlds import quiet_collector

ROWS = np.arange(8 * 20_000, dtype=np.int64).reshape(8, 20_000)


@pytest.fixture(autouse=True, scope="module")
def collects_quickly() -> Iterator[None]:
    with quiet_collector():
        yield


def test_a_kept_batch_outlives_its_loader() -> None:
    """The memory of a batch is its own concern: loader and pool may be gone before it."""
    loader = hr.Loader(hr.Arrays(ROWS), batch_size=2, shuffle=False, workers=1)
    batch = next(iter(loader))
    pool = weakref.ref(loader._engine.pool)

    loader.close()
    del loader
    gc.collect()

    assert pool() is None
    assert batch[0].tolist() == ROWS[:2].tolist()


def test_the_last_view_frees_the_memory_of_a_pool_that_is_gone() -> None:
    """A lease keeps memory, and nothing but a lease does."""
    loader = hr.Loader(hr.Arrays(ROWS), batch_size=2, shuffle=False, workers=0)
    column = next(iter(loader))[0]
    pool = weakref.ref(loader._engine.pool)
    memory = weakref.ref(next(iter(loader._engine.pool._refs)).block._raw)

    loader.close()
    del loader
    gc.collect()
    assert pool() is None
    assert memory() is not None
    del column

    assert memory() is None


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_dropped_loader_keeps_nothing(workers: int, is_closed: bool) -> None:
    """Closed or not, with threads or without, a loader that is dropped lets its dataset go."""
    data = hr.Arrays(ROWS)
    gone = weakref.ref(data)
    loader = hr.Loader(data, batch_size=2, workers=workers)
    next(iter(loader))

    if is_closed:
        loader.close()
    del loader, data
    for thread in threading.enumerate():
        if thread.name.startswith("headrace"):
            thread.join()
    gc.collect()

    assert gone() is None
