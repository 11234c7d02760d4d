"""Cancelled, timed-out and interrupted waits lose nothing (B27), and neither do races of them."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

import headrace as hr
from headrace.testing.gates import Gate
from tests.lifecycle.data import KINDS, epoch_of, ids_of, loader_of

KIND_AND_WORKERS = [
    ("rows", 2),
    ("items", 1),
    ("items", 2),
    ("awaited", 0),
    ("awaited", 2),
    ("awaited rows", 0),
    ("awaited rows", 2),
]


class Stepwise:
    """A transform that lets one batch through at a time."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)

    def __call__(self, batch: hr.Batch, keys: Any) -> hr.Batch:
        assert self._permits.acquire(timeout=20)
        return batch

    def let(self, batches: int = 1) -> None:
        self._permits.release(batches)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_time_outs_lose_nothing() -> None:
    """A take that times out again and again still gives every id once, in order (B27)."""
    stepwise = Stepwise()
    ids: list[int] = []
    timed_out = 0
    async with loader_of("items", 200, batch_size=1, workers=1, transform=stepwise) as loader:
        stream = loader.epoch(0)
        while len(ids) < 200:
            try:
                batch = await asyncio.wait_for(anext(stream), 1e-4)
            except TimeoutError:
                timed_out += 1
                # Every take times out at least once; every other of them as its batch comes.
                stepwise.let()
            else:
                ids += ids_of(batch)

        assert [[each] for each in ids] == epoch_of(loader, 0)
        assert [batch async for batch in stream] == []
    assert timed_out >= 200


@pytest.mark.parametrize(("kind", "workers"), KIND_AND_WORKERS, ids=str)
async def test_time_outs_at_any_moment_lose_nothing(kind: str, workers: int, seed: int) -> None:
    """The same with time-outs that fall anywhere (B27)."""
    random_ = random.Random(seed)
    ids: list[list[int]] = []
    async with loader_of(kind, 200, batch_size=1, workers=workers, prefetch=3) as loader:
        stream = loader.epoch(0)
        while len(ids) < 200:
            try:
                async with asyncio.timeout(random_.choice([0, 1e-6, 1e-5, 1e-4, 1e-3])):
                    batch = await anext(stream)
            except TimeoutError:
                continue
            ids.append(ids_of(batch))

        assert ids == epoch_of(loader, 0)
        assert loader.state_dict()["next_step"] == 200


@pytest.mark.parametrize(("kind", "workers"), KIND_AND_WORKERS, ids=str)
async def test_two_hundred_consumers_cancelled_at_random(
    kind: str, workers: int, seed: int
) -> None:
    """Each cancel ends its task; whoever comes next goes on with the next batch (B27)."""
    random_ = random.Random(seed)
    seen: list[list[int]] = []

    async def consume(stream: hr.BatchStream) -> None:
        async for batch in stream:
            seen.append(ids_of(batch))  # noqa: PERF401 - each counts, also if the next is not

    async with loader_of(kind, workers=workers, prefetch=3) as loader:
        stream = loader.stream(0)
        for _ in range(200):
            consumer = asyncio.create_task(consume(stream))
            await turns(random_.randrange(12))
            consumer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await consumer
        state = loader.state_dict()
        while len(seen) < 50:
            seen.append(ids_of(await anext(stream)))

        wanted = [ids for epoch in range(99) for ids in epoch_of(loader, epoch)]
        assert seen == wanted[: len(seen)]
        assert state["next_step"] <= len(seen)
        assert loader.verify(loader.state_dict()) == len(seen)


@pytest.mark.parametrize("kind", ["items", "awaited"])
async def test_a_cancel_in_the_moment_of_the_handing_over(kind: str) -> None:
    """A batch that arrives in the same turn of the loop as the cancel is the next one's (B27)."""
    async with loader_of(kind, gated=0, shuffle=False, workers=1) as loader:
        gate: Gate = _gate_of(loader)
        stream = loader.epoch(0)
        waiting = asyncio.create_task(anext(stream))  # type: ignore[arg-type] - a coroutine
        await gate.arrived(1)

        # The future is resolved from the reader's thread while this thread holds the loop.
        gate.open()
        _filled(loader)
        waiting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ids_of(await anext(stream)) == [0, 1, 2, 3]
        assert ids_of(await anext(stream)) == [4, 5, 6, 7]


@pytest.mark.parametrize("kind", ["items", "awaited"])
async def test_a_wait_for_that_times_out_as_the_batch_arrives(kind: str) -> None:
    """wait_for either gives the batch or leaves it for the next take (B27)."""
    async with loader_of(kind, gated=0, shuffle=False, workers=1) as loader:
        gate: Gate = _gate_of(loader)
        stream = loader.epoch(0)
        waiting = asyncio.create_task(asyncio.wait_for(anext(stream), 1e-3))
        await gate.arrived(1)
        gate.open()
        _filled(loader)

        seen = []
        try:
            seen.append(ids_of(await waiting))
        except TimeoutError:
            seen.append(ids_of(await anext(stream)))

        assert seen == [[0, 1, 2, 3]]
        assert ids_of(await anext(stream)) == [4, 5, 6, 7]


@pytest.mark.parametrize(("kind", "workers"), KIND_AND_WORKERS, ids=str)
async def test_a_cancel_after_any_number_of_turns(kind: str, workers: int) -> None:
    """Wherever a first take waits (for open, for data, for a turn), its cancel loses nothing."""

    class Opening(KINDS[kind]):  # type: ignore[misc] - a class out of a table
        async def open(self) -> None:
            await turns(3)

    for count in range(30):
        loader = hr.Loader(Opening(20), 4, shuffle=False, workers=workers, probe=False)
        async with loader:
            stream = loader.epoch(0)
            first = asyncio.create_task(anext(stream))  # type: ignore[arg-type] - a coroutine
            await turns(count)
            first.cancel()
            await asyncio.wait([first])
            seen = [] if first.cancelled() else [ids_of(first.result())]
            seen += [ids_of(batch) async for batch in stream]

            assert seen == epoch_of(loader, 0)


@pytest.mark.parametrize(("kind", "workers"), [("items", 2), ("awaited", 2), ("awaited", 0)])
async def test_a_cancelled_consumer_ends_at_once(kind: str, workers: int) -> None:
    """A consumer that waits for a read that never ends can be cancelled, and close still works."""
    loader = loader_of(kind, gated=0, shuffle=False, workers=workers)
    gate: Gate = _gate_of(loader)
    consumer = asyncio.create_task(anext(loader.epoch(0)))  # type: ignore[arg-type] - a coroutine
    await gate.arrived(1)

    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer

    gate.open()
    await loader.aclose()


@pytest.mark.parametrize("workers", [0, 2])
async def test_a_cancelled_group_of_consumers(workers: int) -> None:
    """A consumer whose TaskGroup fails is cancelled with it; the loader goes on."""
    async with loader_of("awaited", workers=workers) as loader:

        async def consume() -> None:
            async for batch in loader.stream():
                ids_of(batch)

        async def fail() -> None:
            await turns(20)
            raise ZeroDivisionError

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(consume())
                group.create_task(fail())

        with pytest.raises(ExceptionGroup) as raised:
            await both()
        state = loader.state_dict()
        rest = [ids_of(batch) async for batch in loader.stream(steps=3)]

        assert [type(error) for error in raised.value.exceptions] == [ZeroDivisionError]
        first = state["next_step"]
        wanted = [ids for epoch in range(99) for ids in epoch_of(loader, epoch)]
        assert rest == wanted[first : first + 3]


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize("which", ["its own", "all"])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["awaited", "awaited rows"])
async def test_user_code_that_cancels_tasks_of_the_engine(
    kind: str, workers: int, which: str, face: str
) -> None:
    """A cancellation that headrace did not ask for is an error of its step, never a hang."""

    class Cancelling(KINDS[kind]):  # type: ignore[misc] - a class out of a table
        async def passing(self, indices: Any) -> None:
            if 8 in indices:
                tasks = asyncio.all_tasks() if which == "all" else {asyncio.current_task()}
                for task in tasks:
                    task.cancel()
            await asyncio.sleep(0)

    loader = hr.Loader(Cancelling(100), 4, shuffle=False, workers=workers, probe=False, prefetch=1)
    async with loader:
        stream = loader.epoch(0)
        for wanted in ([0, 1, 2, 3], [4, 5, 6, 7]):
            assert ids_of(next(stream) if face == "for" else await anext(stream)) == wanted
        with pytest.raises(hr.HeadraceError, match="Cancel"):
            _ = next(stream) if face == "for" else await anext(stream)

        assert await anext(stream, None) is None


@pytest.mark.parametrize("kind", ["awaited", "awaited rows"])
def test_an_exit_raised_into_the_engines_loop(kind: str) -> None:
    """SystemExit in a callback of user code kills the loop: the consumer hears of it, once."""

    class Exiting(KINDS[kind]):  # type: ignore[misc] - a class out of a table
        async def passing(self, indices: Any) -> None:
            if 8 in indices:
                asyncio.get_running_loop().call_soon(_exit)
                await asyncio.sleep(3600)
            await asyncio.sleep(0)

    loader = hr.Loader(Exiting(100), 4, shuffle=False, workers=2, probe=False, prefetch=1)
    with loader:
        stream = loader.epoch(0)
        assert [ids_of(next(stream)), ids_of(next(stream))] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(hr.HeadraceError, match="SystemExit"):
            next(stream)
        assert next(stream, None) is None

        # The next stream has a loop of its own again.
        assert ids_of(next(loader.stream(start=5))) == [20, 21, 22, 23]


def _exit() -> None:
    raise SystemExit


async def test_a_second_consumer_is_refused_and_harms_nobody() -> None:
    """Two tasks at one stream: the second is told, the first gets its batch."""
    async with loader_of("items", gated=0, shuffle=False, workers=1) as loader:
        gate: Gate = _gate_of(loader)
        stream = loader.epoch(0)
        first = asyncio.create_task(anext(stream))  # type: ignore[arg-type] - a coroutine
        await gate.arrived(1)

        with pytest.raises(hr.HeadraceError, match="One consumer at a time"):
            await anext(stream)
        with pytest.raises(hr.HeadraceError, match="One consumer at a time"):
            next(stream)

        gate.open()
        assert ids_of(await first) == [0, 1, 2, 3]
        assert ids_of(next(stream)) == [4, 5, 6, 7]


def _gate_of(loader: hr.Loader) -> Gate:
    """Give the gate of the data under a loader."""
    dataset: Any = loader.dataset
    gate: Gate = getattr(dataset, "subject", dataset).gate
    return gate


def _filled(loader: hr.Loader) -> None:
    """Block this thread, and its loop, until the readers have filled a step."""
    reached = threading.Event()
    dataset: Any = loader.dataset
    getattr(dataset, "subject", dataset).when_given(8, reached.set)
    assert reached.wait(20)
