"""The two faces and the event loops they meet: none, a running one, several in turn, uvloop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

import headrace as hr
from headrace.build.opened import OpenedDataset
from headrace.testing.gates import Gate
from headrace.threads import start_thread
from tests.lifecycle.data import (
    KINDS,
    WAITING,
    all_ids,
    all_ids_awaited,
    epoch_of,
    ids_of,
    loader_of,
)

pytestmark = pytest.mark.usefixtures("libuv")

WORKERS = (0, 2)
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=[(kind, workers) for kind in KINDS for workers in WORKERS], ids=str)
def loader(request: pytest.FixtureRequest) -> hr.Loader:
    """Each kind of data, with threads of ours and without."""
    kind, workers = request.param
    return loader_of(kind, workers=workers)


def run_on(loop_name: str, main: Any) -> Any:
    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        return runner.run(main)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_sync_loop_inside_a_running_loop(kind: str) -> None:
    """list(loader) in a coroutine works where there are workers (B26)."""
    with loader_of(kind, workers=1) as loader:
        assert all_ids(loader) == epoch_of(loader, 0)
        assert await all_ids_awaited(loader) == epoch_of(loader, 1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WAITING])
async def test_a_sync_loop_without_workers_inside_a_running_loop(kind: str) -> None:
    """Data that does not wait is built on the caller, whatever runs there (B26)."""
    with loader_of(kind, workers=0) as loader:
        assert all_ids(loader) == epoch_of(loader, 0)


@pytest.mark.parametrize("kind", WAITING)
async def test_what_cannot_block_a_running_loop_names_the_awaited_form(kind: str) -> None:
    """Awaited data at workers=0 inside a loop says `async for`, and loses nothing by it (B26)."""
    with loader_of(kind, workers=0) as loader:
        stream = loader.epoch(0)

        with pytest.raises(hr.LoopRunningError, match="Use `async for"):
            next(stream)
        with pytest.raises(hr.LoopRunningError, match="batch_at would block"):
            loader.batch_at(3)

        assert await all_ids_awaited(stream) == epoch_of(loader, 0)


@pytest.mark.parametrize("loop_name", LOOPS)
def test_loops_one_after_the_other(loader: hr.Loader, loop_name: str) -> None:
    """One loader serves asyncio.run after asyncio.run, and plain loops between them (B26)."""

    async def epoch() -> list[list[int]]:
        return await all_ids_awaited(loader)

    with loader:
        seen = [
            run_on(loop_name, epoch()),
            run_on(loop_name, epoch()),
            all_ids(loader),
            run_on(loop_name, epoch()),
        ]

        assert seen == [epoch_of(loader, e) for e in range(4)]


@pytest.mark.parametrize("loop_name", LOOPS)
def test_one_stream_over_several_loops(loader: hr.Loader, loop_name: str) -> None:
    """A stream begun in one loop goes on in the next, and in a plain loop."""
    with loader:
        stream = loader.epoch(0)

        async def three() -> list[list[int]]:
            return [ids_of(await anext(stream)) for _ in range(3)]

        seen = run_on(loop_name, three()) + run_on(loop_name, three()) + all_ids(stream)

        assert seen == epoch_of(loader, 0)


@pytest.mark.parametrize("loop_name", LOOPS)
def test_a_loop_in_a_thread(loader: hr.Loader, loop_name: str) -> None:
    """The awaited face works from the loop of any thread."""
    seen: list[list[int]] = []

    async def epoch() -> None:
        async with loader:
            seen.extend(await all_ids_awaited(loader))

    thread = start_thread(lambda: run_on(loop_name, epoch()), "elsewhere")
    thread.join()

    assert seen == epoch_of(loader, 0)


@pytest.mark.parametrize("loop_name", LOOPS)
def test_other_tasks_go_on(loader: hr.Loader, loop_name: str) -> None:
    """A consumer that always finds its batch lets its loop turn, so cancellation reaches it."""
    taken = 0

    async def consume() -> None:
        nonlocal taken
        async for batch in loader.stream():
            ids_of(batch)
            taken += 1
            assert taken < 5000, "the loop never turned"

    async def main() -> None:
        consumer = asyncio.create_task(consume())
        while taken < 64 and not consumer.done():  # noqa: ASYNC110 - the loop is to turn
            await asyncio.sleep(0)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer

    with loader:
        run_on(loop_name, main())

        assert loader.state_dict()["next_step"] == taken


@pytest.mark.parametrize("kind", KINDS)
async def test_the_loop_turns_while_batches_are_ready(kind: str) -> None:
    """A full ring is emptied without waiting, and yet other tasks get their turns."""
    data, filled = KINDS[kind](400), threading.Event()
    data.when_given(4 * 64, filled.set)
    async with hr.Loader(data, 4, workers=1, prefetch=64, probe=False) as loader:
        stream = loader.epoch(0)
        assert stream._ready() is not None
        assert filled.wait(20)
        turned = 0

        async def turn() -> None:
            nonlocal turned
            while True:
                turned += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        for _ in range(60):
            ids_of(await anext(stream))
        turning.cancel()

        assert turned >= 3


async def test_open_runs_once_however_many_ask() -> None:
    """A take and a `batch_at` that begin together open the data once for their loop."""
    opened = 0

    class Opening(KINDS["awaited"]):  # type: ignore[misc] - a class out of a table
        async def open(self) -> None:
            nonlocal opened
            opened += 1
            await asyncio.sleep(0)

    dataset = OpenedDataset(Opening(100), None)

    await asyncio.gather(*(dataset.open_loop() for _ in range(3)))

    assert opened == 1


async def test_a_cancelled_open_is_begun_again() -> None:
    """Who waits for an open that is cancelled opens it itself."""
    gate, opened = Gate(), 0

    class Opening(KINDS["awaited"]):  # type: ignore[misc] - a class out of a table
        async def open(self) -> None:
            nonlocal opened
            opened += 1
            await gate.wait()

    dataset = OpenedDataset(Opening(100), None)
    first, second = (asyncio.create_task(dataset.open_loop()) for _ in range(2))
    await gate.arrived(1)

    first.cancel()
    await gate.arrived(2)
    gate.open()
    await second

    assert first.cancelled()
    assert opened == 2


@pytest.mark.parametrize("loop_name", LOOPS)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_closed_under_its_waiter(kind: str, workers: int, loop_name: str) -> None:
    """A task left waiting in a loop that was closed is dropped; the next consumer gets its batch.

    So a notebook cell that was interrupted does not spoil the loader.
    """
    data = KINDS[kind](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, workers=workers, probe=False)
    with loader:
        stream = loader.epoch(0)
        loop = LOOPS[loop_name]()
        waiting = loop.create_task(stream.__anext__())
        loop.run_until_complete(data.gate.arrived(1))
        loop.close()

        data.gate.open()

        assert ids_of(next(stream)) == [0, 1, 2, 3]
        assert not waiting.done()
        waiting._log_destroy_pending = False  # type: ignore[attr-defined] - left on purpose
        waiting.get_coro().close()


async def test_the_loop_of_the_consumer_is_not_the_engines() -> None:
    """A training step that blocks its loop does not stall reads, which have a loop of theirs."""
    data, reached = KINDS["awaited"](100, gated=8), threading.Event()
    async with hr.Loader(data, 4, workers=1, prefetch=4, probe=False, shuffle=False) as loader:
        stream = loader.epoch(0)
        assert ids_of(await anext(stream)) == [0, 1, 2, 3]
        await data.gate.arrived(1)

        # The consumer's loop does not turn from here on, and yet step 2 gets built.
        data.when_given(12, reached.set)
        data.gate.open()
        assert reached.wait(20)


async def test_a_coroutine_may_be_handed_over() -> None:
    """Streams of several loaders are awaited at once by tasks of one loop."""
    loaders = [loader_of(kind, workers=2, seed=seed) for seed, kind in enumerate(KINDS)]

    seen = await asyncio.gather(*(all_ids_awaited(loader) for loader in loaders))

    assert seen == [epoch_of(loader, 0) for loader in loaders]
    for loader in loaders:
        await loader.aclose()


@pytest.mark.parametrize("workers", WORKERS)
async def test_what_is_opened_on_a_loop_is_closed_on_it(workers: int) -> None:
    """Open and aclose of awaited data come in pairs, each on the loop that uses it."""
    events: list[tuple[str, bool]] = []
    here = asyncio.get_running_loop()

    class Opening(KINDS["awaited"]):  # type: ignore[misc] - a class out of a table
        async def open(self) -> None:
            events.append(("open", asyncio.get_running_loop() is here))

        async def aclose(self) -> None:
            events.append(("aclose", asyncio.get_running_loop() is here))

    async with hr.Loader(Opening(100), 4, workers=workers, probe=False) as loader:
        await all_ids_awaited(loader)
        await all_ids_awaited(loader)

    assert events == [("open", workers == 0), ("aclose", workers == 0)]


def test_a_private_loop_is_closed_inside_a_running_one() -> None:
    """Data opened by a plain loop at workers=0 is closed by `close` in a coroutine too."""
    events: list[str] = []

    class Opening(KINDS["awaited"]):  # type: ignore[misc] - a class out of a table
        async def open(self) -> None:
            events.append("open")

        async def aclose(self) -> None:
            events.append("aclose")

    loader = hr.Loader(Opening(100), 4, workers=0, probe=False)
    assert all_ids(loader) == epoch_of(loader, 0)

    async def main() -> None:
        loader.close()

    asyncio.run(main())
    assert events == ["open", "aclose"]


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_of_aclose_does_not_stop_the_closing(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An `aclose` that raises is logged; threads end and the loader is closed."""

    class Failing(KINDS["awaited"]):  # type: ignore[misc] - a class out of a table
        async def aclose(self) -> None:
            raise ZeroDivisionError

    loader = hr.Loader(Failing(100), 4, workers=workers, probe=False)
    next(iter(loader))

    loader.close()

    assert [record.message for record in caplog.records] == ["closing the dataset failed"]
