"""close and aclose: in every order, from every thread, while anything else goes on."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.threads import join_all, start_thread
from tests.lifecycle.data import (
    KINDS,
    WAITING,
    all_ids,
    all_ids_awaited,
    epoch_of,
    ids_of,
    loader_of,
)

WORKERS = (0, 1, 4)
CASES = [*itertools.product(KINDS, WORKERS)]
LIMIT_S = 20


class Aside:
    """A call on a thread of its own, and what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._outcome: list[object] = []
        self._thread = start_thread(self._run, "aside")

    def _run(self) -> None:
        try:
            self._outcome.append(self._call())
        except BaseException as error:
            self._outcome.append(error)

    def outcome(self) -> object:
        assert not join_all([self._thread], LIMIT_S), "the call did not end"
        return self._outcome[0]


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_use_after_close(kind: str, workers: int) -> None:
    """A closed loader says so to everything that would read; facts and state still work."""
    loader = loader_of(kind, workers=workers)
    stream = loader.epoch(0)
    next(stream)
    state = loader.state_dict()

    loader.close()
    loader.close()

    for use in (
        lambda: next(stream),
        lambda: iter(loader),
        lambda: loader.epoch(0),
        lambda: loader.stream(),
        lambda: next(loader.epochs(3)),
        lambda: loader.batch_at(0),
        lambda: loader.load_state_dict(state),
        lambda: asyncio.run(all_ids_awaited(loader)),
    ):
        with pytest.raises(hr.ClosedError, match="closed"):
            use()
    assert loader.state_dict() == state
    assert (len(loader), loader.stats()["batches"]) == (25, 1)
    repr(loader)


@pytest.mark.parametrize(("kind", "workers"), CASES)
async def test_use_after_aclose(kind: str, workers: int) -> None:
    """The awaited close does the same, and closing again in either way does nothing."""
    loader = loader_of(kind, workers=workers)
    stream = loader.epoch(0)
    await anext(stream)

    await loader.aclose()
    await loader.aclose()
    loader.close()

    with pytest.raises(hr.ClosedError):
        await anext(stream)
    with pytest.raises(hr.ClosedError):
        await all_ids_awaited(loader)


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_closing_what_never_began(kind: str, workers: int) -> None:
    """A loader that was only made, or only opened, closes without having started anything."""
    before = threading.active_count()

    loader_of(kind, workers=workers).close()
    opened = loader_of(kind, workers=workers)
    stream = opened.epoch(0)
    assert threading.active_count() == before
    opened.close()

    with pytest.raises(hr.ClosedError):
        next(stream)


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_context_managers(kind: str, workers: int) -> None:
    """Leaving a `with` closes, after an error of the body too."""
    loader = loader_of(kind, workers=workers)

    def train() -> None:
        with loader, loader.epoch(0) as stream:
            assert ids_of(next(stream)) == epoch_of(loader, 0)[0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    with pytest.raises(hr.ClosedError):
        iter(loader)


@pytest.mark.parametrize(("kind", "workers"), CASES)
async def test_awaited_context_managers(kind: str, workers: int) -> None:
    """The same by `async with`, for loader and stream."""
    loader = loader_of(kind, workers=workers)

    async def train() -> None:
        async with loader, loader.epoch(0) as stream:
            assert ids_of(await anext(stream)) == epoch_of(loader, 0)[0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await train()
    with pytest.raises(hr.ClosedError):
        iter(loader)


# At workers=0 data that blocks is read on the consumer's own thread, which nobody can interrupt.
@pytest.mark.parametrize(("kind", "workers"), [(k, w) for k, w in CASES if w or k in WAITING])
@pytest.mark.parametrize("what", ["loader", "stream", "another", "state"])
def test_closing_while_another_thread_waits(kind: str, workers: int, what: str) -> None:
    """A thread that waits for a batch that never comes is woken, and told why."""
    data = KINDS[kind](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, workers=workers, probe=False)
    state = loader.state_dict()
    stream = loader.epoch(0)
    waiting = Aside(lambda: next(stream))
    data.gate.arrived_blocking(1)

    closing = {
        "loader": loader.close,
        "stream": stream.close,
        "another": lambda: loader.epoch(1),
        "state": lambda: loader.load_state_dict(state),
    }[what]
    # A reader in user code is waited for by close, so the gate opens once the waiter is told.
    closed = Aside(closing)
    outcome = waiting.outcome()
    data.gate.open()

    wanted = StopIteration if what == "stream" else hr.ClosedError
    assert isinstance(outcome, wanted)
    assert not isinstance(closed.outcome(), Exception)
    loader.close()


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["loader", "stream", "another"])
async def test_closing_while_another_task_waits(kind: str, workers: int, what: str) -> None:
    """The same for a task of the same loop, which is not blocked meanwhile."""
    data = KINDS[kind](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, workers=workers, probe=False)
    stream = loader.epoch(0)
    waiting = asyncio.create_task(anext(stream))  # type: ignore[arg-type] - a coroutine
    await data.gate.arrived(1)

    async def opened() -> None:
        loader.epoch(1)

    close = {"loader": loader.aclose, "stream": stream.aclose, "another": opened}[what]
    closing = asyncio.create_task(close())
    await asyncio.wait([waiting], timeout=LIMIT_S)
    data.gate.open()

    wanted = StopAsyncIteration if what == "stream" else hr.ClosedError
    with pytest.raises(wanted):
        await waiting
    await closing
    await loader.aclose()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", WAITING)
def test_closing_while_any_batch_is_built(kind: str, workers: int) -> None:
    """`batch_at`, too, is told when the loader is closed under it."""
    data = KINDS[kind](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, workers=workers, probe=False)
    building = Aside(lambda: loader.batch_at(0))
    data.gate.arrived_blocking(1)

    loader.close()

    assert isinstance(building.outcome(), hr.ClosedError)
    data.gate.open()


@pytest.mark.parametrize("what", ["loader", "stream"])
@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_closing_from_user_code(kind: str, workers: int, what: str) -> None:
    """User code may close the loader or the stream that it runs for, on whatever thread."""
    closers: list[Callable[[], None]] = []

    class Closing(KINDS[kind]):  # type: ignore[misc] - a class out of a table
        def pass_blocking(self, indices: Any) -> None:
            if 8 in indices:
                closers[0]()
            super().pass_blocking(indices)

        async def passing(self, indices: Any) -> None:
            if 8 in indices:
                closers[0]()
            await super().passing(indices)

    loader = hr.Loader(Closing(100), 4, shuffle=False, workers=workers, probe=False, prefetch=1)
    stream = loader.epoch(0)
    closers.append(loader.close if what == "loader" else stream.close)
    seen = []
    try:
        for batch in stream:
            seen.append(ids_of(batch))  # noqa: PERF401 - what came before an error counts
    except hr.ClosedError:
        assert what == "loader"
    else:
        assert what == "stream" or workers == 0

    # Built on the caller, the step in the making is still given.
    assert seen in ([[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    loader.close()


@pytest.mark.parametrize(("kind", "workers"), CASES)
def test_many_threads_close_at_once(kind: str, workers: int) -> None:
    """Eight closes at the same moment: all return, everything is closed once."""
    loader = loader_of(kind, workers=workers)
    next(iter(loader))
    together = threading.Barrier(8)

    def close() -> None:
        together.wait(LIMIT_S)
        loader.close()

    closes = [Aside(close) for _ in range(8)]

    assert [each.outcome() for each in closes] == [None] * 8


@pytest.mark.parametrize("what", ["loader", "stream", "another"])
@pytest.mark.parametrize(("kind", "workers"), [(k, w) for k, w in CASES if w != 4])
def test_closing_races_with_the_first_take(
    kind: str, workers: int, what: str, full: bool, seed: int
) -> None:
    """However close and first take meet, the take gives its batch or says that it was closed."""
    random_ = random.Random(seed)
    for _ in range(200 if full else 20):
        loader = loader_of(kind, workers=workers)
        stream = loader.epoch(0)
        together = threading.Barrier(2)
        spins = random_.randrange(300)

        def take(stream: hr.BatchStream = stream, together: threading.Barrier = together) -> object:
            together.wait(LIMIT_S)
            return next(stream, None)

        taking = Aside(take)
        together.wait(LIMIT_S)
        for _ in range(spins):
            pass
        if what == "loader":
            loader.close()
        elif what == "stream":
            stream.close()
        else:
            second = loader.epoch(0)
            assert all_ids(second) == epoch_of(loader, 0)

        outcome = taking.outcome()
        if isinstance(outcome, hr.Batch):
            assert ids_of(outcome) == epoch_of(loader, 0)[0]
        else:
            assert isinstance(outcome, hr.ClosedError) or (what == "stream" and outcome is None)
        loader.close()


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_closing_races_with_an_epoch(kind: str, workers: int, full: bool, seed: int) -> None:
    """A loader closed at any moment of an epoch gives a beginning of it, then ClosedError."""
    random_ = random.Random(seed)
    for _ in range(200 if full else 20):
        loader = loader_of(kind, workers=workers)
        seen: list[list[int]] = []

        def consume(loader: hr.Loader = loader, seen: list[list[int]] = seen) -> None:
            for _ in range(100):
                for batch in loader.epoch(0):
                    seen.append(ids_of(batch))  # noqa: PERF401 - what came before counts

        consuming = Aside(consume)
        for _ in range(random_.randrange(20_000)):
            pass
        loader.close()

        assert isinstance(consuming.outcome(), hr.ClosedError)
        wanted = epoch_of(loader, 0) * 100
        assert seen == wanted[: len(seen)]


@pytest.mark.parametrize("workers", [1, 4])
async def test_aclose_does_not_block_the_loop(workers: int) -> None:
    """While `aclose` waits for a reader that is inside user code, the loop turns."""
    data = KINDS["items"](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, workers=workers, probe=False)
    waiting = asyncio.create_task(anext(loader.epoch(0)))  # type: ignore[arg-type] - a coroutine
    await data.gate.arrived(1)

    closing = asyncio.create_task(loader.aclose())
    with pytest.raises(hr.ClosedError):
        await waiting
    is_early = closing.done()
    data.gate.open()
    await closing

    assert not is_early


async def test_a_cancelled_aclose_can_be_repeated() -> None:
    """Cancelling `aclose` waits for what it started, and leaves a loader that can be closed."""
    data = KINDS["items"](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, workers=2, probe=False)
    waiting = asyncio.create_task(anext(loader.epoch(0)))  # type: ignore[arg-type] - a coroutine
    await data.gate.arrived(1)
    closing = asyncio.create_task(loader.aclose())
    with pytest.raises(hr.ClosedError):
        await waiting

    closing.cancel()
    data.gate.open()
    await asyncio.wait([closing])

    assert closing.cancelled()
    await loader.aclose()


@pytest.mark.parametrize("workers", [1, 4])
def test_threads_are_opened_and_closed_in_pairs(workers: int) -> None:
    """thread_open and thread_close run once on each thread that read, on it."""
    events: list[tuple[str, threading.Thread]] = []

    class Opening(KINDS["rows"]):  # type: ignore[misc] - a class out of a table
        def thread_open(self) -> None:
            events.append(("open", threading.current_thread()))

        def thread_close(self) -> None:
            events.append(("close", threading.current_thread()))

    with hr.Loader(Opening(100), 4, workers=workers) as loader:
        all_ids(loader)
        all_ids(loader)

    opened = [thread for what, thread in events if what == "open"]
    assert sorted(map(id, opened)) == sorted(
        id(thread) for what, thread in events if what == "close"
    )
    assert 1 <= len(opened) == len(set(opened)) <= workers


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_thread_open_reaches_the_consumer(workers: int) -> None:
    """What thread_open raises comes out of the first take, and again of the next pass."""

    class Failing(KINDS["rows"]):  # type: ignore[misc] - a class out of a table
        def thread_open(self) -> None:
            raise ZeroDivisionError("no such disk")

    with hr.Loader(Failing(100), 4, workers=workers) as loader:
        for _ in range(2):
            with pytest.raises((hr.HeadraceError, ZeroDivisionError), match="no such disk"):
                next(iter(loader))


def test_an_error_of_thread_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """thread_close that raises does not hold up the closing."""

    class Failing(KINDS["rows"]):  # type: ignore[misc] - a class out of a table
        def thread_close(self) -> None:
            raise ZeroDivisionError

    with hr.Loader(Failing(100), 4, workers=1) as loader:
        next(iter(loader))

    (record,) = caplog.records
    assert "closing the dataset" in record.message
