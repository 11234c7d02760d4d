"""Streams and loaders that nobody closes: dropped, in cycles, under locks, by any thread."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import random
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import psutil
import pytest

import headrace as hr
from headrace.budget import process_budget
from headrace.reader import Run
from headrace.threads import join_all, reap, start_thread
from tests.lifecycle.data import KINDS, all_ids, all_ids_awaited, epoch_of, ids_of, loader_of

WORKERS = (0, 2)
CASES = [*itertools.product(KINDS, WORKERS)]
LIMIT_S = 20


def all_reaped() -> None:
    """Wait until everything dropped so far has been closed."""
    done = threading.Event()
    reap(done.set)
    assert done.wait(LIMIT_S)


def ours() -> list[threading.Thread]:
    """Give the threads of headrace that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("headrace")]


def all_gone() -> bool:
    """Whether garbage takes our threads with it.

    A collection does nothing while another thread is in the middle of one, so it is repeated.
    """
    return any(gc.collect() is not None and not join_all(ours(), 0.2) for _ in range(50))


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Leave what is imported out of the many collections here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged about what was dropped."""
    with caplog.at_level(logging.WARNING):
        yield
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_a_dropped_loader_goes_at_once(kind: str, workers: int) -> None:
    """The last reference is enough, without the collector: loader, engine and threads go.

    The blocks go with the engine. asyncio's cancelled tasks may keep the data in a cycle.
    """
    gc.collect()
    gc.disable()
    try:
        before = set(ours())
        loader = loader_of(kind, workers=workers)
        assert ids_of(next(iter(loader))) == epoch_of(loader, 0)[0]
        threads = [thread for thread in ours() if thread not in before]
        watched = [weakref.ref(loader), weakref.ref(loader._engine)]
        data = weakref.ref(loader.dataset)

        del loader

        assert not join_all(threads, LIMIT_S)
        assert [ref() for ref in watched] == [None, None]
    finally:
        gc.enable()
    gc.collect()
    assert data() is None


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_a_loader_that_gave_single_batches_goes_at_once(kind: str, workers: int) -> None:
    """The loop that `batch_at` began ends with the loader, though no stream was ever opened."""
    before = set(ours())
    loader = loader_of(kind, workers=workers)
    assert ids_of(loader.batch_at(7)) == epoch_of(loader, 0)[7]
    threads = [thread for thread in ours() if thread not in before]

    del loader

    assert not join_all(threads, LIMIT_S)


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_a_dropped_stream_goes_at_once(kind: str, workers: int) -> None:
    """A stream dies with its last reference and takes what was read ahead with it."""
    with loader_of(kind, workers=workers, prefetch=8) as loader:
        stream = iter(loader)
        next(stream)
        watched = weakref.ref(stream)

        del stream
        all_reaped() if workers else None

        assert watched() is None
        assert loader._engine._share.taken_bytes == 0
        assert all_ids(loader) == epoch_of(loader, 1)


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_a_stream_keeps_its_loader(kind: str, workers: int) -> None:
    """A stream of a loader that nobody names any more goes on to its end."""
    stream = iter(loader_of(kind, workers=workers))

    gc.collect()

    assert len(all_ids(stream)) == 25


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_a_batch_keeps_nothing_but_its_memory(kind: str, workers: int) -> None:
    """A batch outlives loader, data and threads, and stays whole."""
    loader = loader_of(kind, workers=workers)
    wanted = epoch_of(loader, 0)[0]
    batch = next(iter(loader))
    dataset: Any = loader.dataset
    watched = weakref.ref(getattr(dataset, "subject", dataset))

    del loader, dataset
    join_all(ours(), LIMIT_S)
    gc.collect()

    assert watched() is None
    assert ids_of(batch) == wanted
    assert batch.pick_keys.sample.tolist() == wanted


@pytest.mark.parametrize("what", ["loader", "stream", "both"])
@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_cycles_are_collected(kind: str, workers: int, what: str) -> None:
    """Loaders and streams in reference cycles, as in tracebacks, go with the collector."""
    before = len(psutil.Process().open_files())
    for _ in range(5):
        loader = loader_of(kind, workers=workers)
        stream: Any = loader.epoch(0)
        next(stream)
        cycle: list[Any] = {"loader": [loader], "stream": [stream], "both": [loader, stream]}[what]
        cycle.append(cycle)
        del loader, stream, cycle

    assert all_gone()
    assert len(psutil.Process().open_files()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_dropping_while_reads_wait(kind: str) -> None:
    """A stream dropped while its reads wait for ever does not keep the loader from going on."""
    data = KINDS[kind](100, gated=0)
    with hr.Loader(data, 4, shuffle=False, workers=2, probe=False) as loader:
        stream = loader.epoch(0)
        start_thread(partial(loader.begin, stream), "begin").join(LIMIT_S)
        data.gate.arrived_blocking(1)

        del stream
        data.gate.open()

        assert all_ids(loader.stream(start=3, steps=2)) == [[12, 13, 14, 15], [16, 17, 18, 19]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["stream", "loader"])
def test_dropping_under_every_lock(kind: str, what: str) -> None:
    """Finalizers take no lock: garbage is found by whichever thread happens to allocate.

    Here that thread is inside every lock that the engine has, as a reader may be.
    """
    loader = loader_of(kind, workers=2, prefetch=2)
    stream = loader.epoch(0)
    next(stream)
    engine, run = loader._engine, loader._engine._run
    assert isinstance(run, Run)
    locks = [run.ring.lock, engine._lock, engine.pool._lock, process_budget()._lock]
    held: list[Any] = [stream] if what == "stream" else [stream, loader]
    wanted = epoch_of(loader, 1)
    del stream, engine, run
    if what == "loader":
        del loader
    dropping = start_thread(partial(_drop_under, locks, held), "drop")

    assert not join_all([dropping], LIMIT_S), "a finalizer waits for a lock"
    if what == "stream":
        assert all_ids(loader) == wanted
        loader.close()
    assert not join_all(ours(), LIMIT_S)


def _drop_under(locks: list[Any], held: list[Any]) -> None:
    with ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        held.clear()
        gc.collect()


def test_the_collector_at_work_everywhere(seed: int, full: bool) -> None:
    """With a collection every few allocations, cycles die inside readers and nothing hangs."""
    random_ = random.Random(seed)
    threshold = gc.get_threshold()
    survivor = loader_of("rows", workers=2, prefetch=4)
    try:
        gc.set_threshold(11, 5, 1)
        for _ in range(200 if full else 30):
            kind = random_.choice([*KINDS])
            loader = loader_of(kind, workers=random_.choice([0, 1, 2]), prefetch=4)
            stream: Any = loader.epoch(0)
            for _ in range(random_.randrange(4)):
                ids_of(next(stream))
            cycle: list[Any] = [loader, stream, random_.random()]
            cycle.append(cycle)
            del loader, stream, cycle
            epoch = survivor.state_dict()["epoch"]
            assert all_ids(survivor) == epoch_of(survivor, epoch)
    finally:
        gc.set_threshold(*threshold)
    survivor.close()
    assert all_gone()


@pytest.mark.parametrize(("kind", "workers"), CASES)
async def test_dropping_in_a_coroutine(kind: str, workers: int) -> None:
    """An awaited loop that is broken off and dropped leaves no task and no warning."""
    loader = loader_of(kind, workers=workers)
    async for _ in loader:
        break
    consumer = asyncio.create_task(all_ids_awaited(loader))
    await asyncio.sleep(0)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer

    del consumer, loader
    await asyncio.sleep(0)  # the loop lets go of the cancellation that it has just delivered

    assert len(asyncio.all_tasks()) == 1
    assert all_gone()


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_an_error_that_was_handled_keeps_nothing(kind: str, workers: int) -> None:
    """Once an error is handled, loader and threads go; with threads at once.

    At workers=0 the error came through the consumer's own frames, which hold it in a cycle.
    """

    def fail(batch: hr.Batch, keys: Any) -> None:
        raise ZeroDivisionError

    def take(loader: hr.Loader) -> None:
        with pytest.raises(hr.SampleError, match="ZeroDivisionError"):
            next(iter(loader))

    gc.collect()
    gc.disable()
    try:
        loader = loader_of(kind, workers=workers, transform=fail)
        take(loader)
        watched = weakref.ref(loader)

        del loader

        if workers == 0:
            gc.collect()
        assert watched() is None
        assert not join_all(ours(), LIMIT_S)
    finally:
        gc.enable()


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_generator_of_epochs_in_a_cycle(is_awaited: bool) -> None:
    """A generator of epochs finalised by the collector, mid epoch, closes what it read ahead."""

    async def some(stream: hr.BatchStream) -> None:
        for _ in range(25):
            await anext(stream)

    with loader_of("rows", workers=2) as loader:
        generator: Any = loader.epochs(3)
        stream = next(generator)
        if is_awaited:
            asyncio.run(some(stream))
        else:
            assert len(all_ids(stream)) == 25
        cycle: list[Any] = [generator]
        cycle.append(cycle)
        del generator, stream, cycle
        gc.collect()
        all_reaped()

        assert loader._engine._share.taken_bytes == 0
        assert all_ids(loader) == epoch_of(loader, 1)
