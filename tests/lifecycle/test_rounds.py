"""A thousand epochs begun and broken off: nothing grows, and nothing is left.

The quick form makes sixty rounds of each case, `--full` a thousand.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import pytest

import headrace as hr
import headrace.loader
import headrace.stats
from headrace.budget import process_budget
from headrace.threads import reap
from tests.lifecycle.data import KINDS, epoch_of, ids_of, loader_of

CASES = [*itertools.product(KINDS, (0, 2), ("for", "async for"))]
LIMIT_S = 20
# numpy keeps small buffers by size, and Python has caches too: what they hold moves by tens of
# kilobytes. A leak of 100 bytes per round is more than this after the rounds of the full form; one
# of a batch is many times that in the quick form.
GROWTH_BYTES = 64 << 10


@dataclass
class Held:
    """What the process holds."""

    threads: int
    descriptors: int
    tasks: int
    blocks: float
    leases: float
    traced_bytes: int

    @classmethod
    def by(cls, loader: hr.Loader, tasks: int) -> Held:
        done = threading.Event()
        if loader.stats()["workers"]:
            reap(done.set)
            assert done.wait(LIMIT_S)
        gc.collect()
        stats = loader.stats()
        return cls(
            threading.active_count(),
            len(os.listdir("/proc/self/fd")),
            tasks,
            stats["blocks_made"],
            stats["leases_out"],
            tracemalloc.get_traced_memory()[0],
        )


@pytest.fixture
def rounds(full: bool) -> int:
    return 1000 if full else 60


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trace memory, with the bounded memories of a loader small enough to be full at once."""
    monkeypatch.setattr(headrace.stats, "KEPT_WAITS", 64)
    monkeypatch.setattr(headrace.loader, "KEPT_CURSORS", 16)
    tracemalloc.start()
    yield
    tracemalloc.stop()


Break = Callable[[], int]


def run(loader: hr.Loader, rounds: int, breaks_at: Break) -> Held:
    """Begin and break off epochs by `for`; give what is held at the end."""
    for _ in range(rounds):
        last = breaks_at()
        for taken, batch in enumerate(loader, 1):
            ids_of(batch)
            if taken == last:
                break
        batch = None
    return Held.by(loader, 0)


async def run_awaiting(loader: hr.Loader, rounds: int, breaks_at: Break) -> Held:
    """Do as `run`, by `async for`; every other round is ended by cancelling its task."""
    for number in range(rounds):
        consumer = asyncio.create_task(_consume(loader, breaks_at() if number % 2 else 1 << 30))
        if number % 2:
            await consumer
            continue
        for _ in range(breaks_at()):
            await asyncio.sleep(0)
        consumer.cancel()
        await asyncio.wait([consumer])
        consumer = None
    await asyncio.sleep(0)
    return Held.by(loader, len(asyncio.all_tasks()))


async def _consume(loader: hr.Loader, last: int) -> None:
    taken = 0
    async for batch in loader:
        ids_of(batch)
        taken += 1
        if taken == last:
            return


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("kind", "workers", "face"), CASES)
def test_epochs_broken_off_leave_nothing(
    kind: str, workers: int, face: str, rounds: int, seed: int
) -> None:
    """Threads, tasks, descriptors, blocks and memory are after all rounds what they were early."""
    random_ = random.Random(seed)

    def breaks_at() -> int:
        return random_.randrange(1, 12)

    def some(count: int) -> Held:
        if face == "for":
            return run(loader, count, breaks_at)
        return asyncio.run(run_awaiting(loader, count, breaks_at))

    # Ten steps an epoch, so that some rounds are whole.
    with loader_of(kind, 40, workers=workers, prefetch=4) as loader:
        some(30)
        early = some(10)
        late = some(rounds)

        assert late.traced_bytes - early.traced_bytes < GROWTH_BYTES
        late.traced_bytes = early.traced_bytes
        # Which sizes of spans are in flight at once is chance, and so is the most of each.
        assert late.blocks - early.blocks <= 4
        late.blocks = early.blocks
        assert late == early
        epoch = loader.state_dict()["epoch"] + bool(loader.state_dict()["step_in_epoch"])
        assert [ids_of(batch) for batch in loader] == epoch_of(loader, epoch)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
@pytest.mark.parametrize(("kind", "workers"), [*itertools.product(KINDS, (0, 2))])
def test_loaders_made_and_left_leave_nothing(
    kind: str, workers: int, is_closed: bool, full: bool, seed: int
) -> None:
    """A loader for each epoch, as some programs make for validation, leaves nothing either."""
    random_ = random.Random(seed)

    def some(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            loader = loader_of(kind, 40, workers=workers, prefetch=4)
            stream = iter(loader)
            for _ in range(random_.randrange(1, 12)):
                next(stream, None)
            if is_closed:
                loader.close()
            del loader, stream
        for thread in threading.enumerate():
            if thread.name.startswith("headrace"):
                thread.join(LIMIT_S)
        gc.collect()
        descriptors = len(os.listdir("/proc/self/fd"))
        return threading.active_count(), descriptors, tracemalloc.get_traced_memory()[0]

    some(20)
    early = some(10)
    late = some(500 if full else 25)

    assert late[:2] == early[:2]
    assert len(process_budget()._dropped) < 20
    assert late[2] - early[2] < GROWTH_BYTES


def test_memory_of_the_process_reaches_a_plateau(full: bool) -> None:
    """Blocks are recycled over epochs broken off: what the process holds does not grow.

    Each batch has 2 MiB, so a block leaked per round would be 100 MiB and more.
    """
    data = {"x": hr.Arrays({"x": _wide()}).columns["x"]}
    process = psutil.Process()
    with hr.Loader(data, 64, workers=2, prefetch=4) as loader:
        sizes = []
        for _ in range(6):
            for _ in range(100 if full else 10):
                for batch in loader:
                    if batch.step % 3 == 2:
                        break
            del batch
            gc.collect()
            sizes.append(process.memory_info().rss)

        assert max(sizes[2:]) - sizes[1] < 48 << 20


def _wide() -> object:
    import numpy as np

    return np.zeros((640, 8192), np.float32)
