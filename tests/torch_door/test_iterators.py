"""Passes over one loader: nested, side by side, left early, dropped, awaited."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler, Sampler

import headrace as hr
from headrace.testing.gates import Gate
from tests.torch_door.data import OURS, THEIRS, Each, same, taken

BOTH = pytest.mark.parametrize("num_workers", [0, 2])


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("headrace-reader")]


@BOTH
def test_passes_side_by_side_are_those_of_torch(num_workers: int) -> None:
    """Two open iterators draw their orders as torch's do, each its own."""

    def both(kind: Any) -> list[Any]:
        loader = kind(range(23), 4, shuffle=True, num_workers=num_workers)
        torch.manual_seed(5)
        return [(one.tolist(), other.tolist()) for one, other in zip(loader, loader, strict=True)]

    ours = both(OURS)

    assert ours == both(THEIRS)
    assert any(one != other for one, other in ours)


@BOTH
def test_a_pass_inside_another_leaves_it_alone(num_workers: int) -> None:
    """A nested loop over the same loader sees everything each time."""
    loader = OURS(range(6), 2, num_workers=num_workers)

    seen = [(outer.tolist(), [inner.tolist() for inner in loader]) for outer in loader]

    whole = [[0, 1], [2, 3], [4, 5]]
    assert seen == [(batch, whole) for batch in whole]


@pytest.mark.parametrize("shuffle", [False, True])
def test_kept_threads_go_on_as_torchs_kept_workers(shuffle: bool) -> None:
    """Passes broken off, passes after them, and two at once are as with torch's own processes."""

    def passes(kind: Any) -> list[Any]:
        torch.manual_seed(8)
        generator = torch.Generator().manual_seed(2)
        loader = kind(
            range(23),
            4,
            shuffle=shuffle,
            generator=generator,
            num_workers=2,
            persistent_workers=True,
        )
        seen = [[batch.tolist() for batch in loader]]
        first = iter(loader)
        seen.append([next(first).tolist() for _ in range(2)])
        second = iter(loader)
        seen.append([next(first).tolist(), next(second).tolist()])
        assert first is second
        seen.append([batch.tolist() for batch in loader])
        loader._iterator = None
        return [seen, torch.randint(2**40, ()).item(), torch.randint(9, (), generator=generator)]

    theirs, ours = passes(THEIRS), passes(OURS)

    assert ours == theirs


def test_worker_processes_and_threads_draw_alike() -> None:
    """The keys drawn ahead move a sampler's generator as far as torch's processes do."""

    def moved(kind: Any) -> list[Any]:
        generator = torch.Generator().manual_seed(4)
        sampler = Noted(200)
        loader = kind(
            range(200), 1, sampler=sampler, num_workers=2, prefetch_factor=3, generator=generator
        )
        iterator = iter(loader)
        at_start = sampler.given
        next(iterator)
        next(iterator)
        given = sampler.given
        del iterator, loader
        return [at_start, given, generator.get_state().tolist()]

    assert moved(OURS) == moved(THEIRS)


class Noted(Sampler[int]):
    """A sampler that counts what it has given."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.given = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        for index in range(self.length):
            self.given += 1
            yield index


@BOTH
def test_an_endless_sampler_is_asked_only_as_far_as_needed(num_workers: int) -> None:
    """A sampler without end or length gives batches for as long as they are taken."""

    def for_ever() -> Iterator[int]:
        while True:
            yield from range(3)

    sampler: Any = Endless(for_ever)
    loader = OURS(range(3), 2, sampler=sampler, num_workers=num_workers)
    iterator = iter(loader)

    batches = [next(iterator).tolist() for _ in range(50)]

    assert batches[:3] == [[0, 1], [2, 0], [1, 2]]
    assert batches[48:] == [[0, 1], [2, 0]]
    iterator.close()


class Endless:
    def __init__(self, make: Any) -> None:
        self.make = make

    def __iter__(self) -> Iterator[int]:
        made: Iterator[int] = self.make()
        return made


@BOTH
def test_a_sampler_may_learn_from_the_training(num_workers: int) -> None:
    """Keys are drawn on the consumer's thread, so a sampler sees what was done so far."""
    threads = set()
    wanted = [1]

    def mined() -> Iterator[int]:
        for _ in range(40):
            threads.add(threading.get_ident())
            yield wanted[-1]

    seen = []
    for batch in OURS(range(100), 1, sampler=Endless(mined), num_workers=num_workers):
        seen.append(batch.item())
        wanted.append(len(seen))

    ahead = 2 * num_workers
    assert seen[ahead + 1 :] == list(range(1, 40 - ahead))
    assert threads == {threading.get_ident()}


@BOTH
def test_an_error_of_the_sampler_comes_after_the_batches_before_it(num_workers: int) -> None:
    """No batch is lost to it, and the pass then has ended."""

    def failing() -> Iterator[int]:
        yield from range(5)
        raise LookupError("no more")

    loader = OURS(range(9), 1, sampler=Endless(failing), num_workers=num_workers)

    assert taken(batch.item() for batch in loader)[:5] == [0, 1, 2, 3, 4]
    assert taken(loader)[5:] == [LookupError]


def test_leaving_a_loop_ends_its_threads() -> None:
    """After `break` nothing is left once the iterator is gone, with no collection."""
    gc.disable()
    try:
        for _ in OURS(range(1000), 1, num_workers=3):
            break
        left = readers()
        for thread in left:
            thread.join(20)
    finally:
        gc.enable()

    assert [thread for thread in left if thread.is_alive()] == []


def test_an_error_does_not_keep_a_pass_alive() -> None:
    """Once it is handled, the pass goes at once, without the collector."""

    def failing() -> Iterator[int]:
        yield 1 // 0

    knobs: list[dict[str, Any]] = [{}, {"num_workers": 2}]
    gc.collect()
    gc.disable()
    try:
        for threads in knobs:
            for of_sampler in ({}, {"sampler": Endless(failing)}):
                iterator = iter(OURS(Each(fails), 1, **threads, **of_sampler))
                with pytest.raises(ZeroDivisionError):
                    next(iterator)
                gone = weakref.ref(iterator)
                left = readers()
                del iterator
                assert gone() is None
                for thread in left:
                    thread.join(20)
                assert [thread for thread in left if thread.is_alive()] == []
    finally:
        gc.enable()


def fails(index: int) -> float:
    return 1 / 0


def test_threads_end_with_their_pass() -> None:
    """A pass taken whole leaves none, kept ones stay until the loader goes."""
    loader = OURS(range(8), 2, num_workers=2)
    kept = OURS(range(8), 2, num_workers=2, persistent_workers=True)

    list(loader)
    after_pass = readers()
    list(kept)
    threads = readers()
    list(kept)

    assert after_pass == []
    assert len(threads) == 2
    assert readers() == threads
    del kept
    for thread in threads:
        thread.join(20)
    assert readers() == []


@BOTH
def test_a_pass_can_be_awaited(num_workers: int) -> None:
    """`async for` gives the same batches, from a loop that goes on to turn."""
    loader = OURS(range(23), 4, num_workers=num_workers)

    async def awaited() -> list[Any]:
        return [batch async for batch in loader]

    assert same(asyncio.run(awaited()), list(loader))


def test_an_awaited_batch_that_is_late_raises_and_can_be_waited_for_again() -> None:
    """`timeout` bounds an awaited take as well, and nothing is lost."""
    gate = Gate()

    class Slow(torch.utils.data.Dataset[int]):
        thread_safe = True

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            gate.wait_blocking()
            return index

    async def awaited() -> list[int]:
        iterator = aiter(OURS(Slow(), 2, num_workers=1, timeout=0.02))
        with pytest.raises(RuntimeError, match="no batch within timeout"):
            await anext(iterator)
        gate.open()
        while True:
            try:
                batch = await anext(iterator)
            except hr.torch.BatchTimeoutError:
                continue
            iterator.close()
            return list(batch.tolist())

    assert asyncio.run(awaited()) == [0, 1]


@BOTH
def test_an_exhausted_pass_stays_exhausted(num_workers: int) -> None:
    """As with any iterator; and its length is that of a whole pass."""
    iterator = iter(OURS(range(6), 4, num_workers=num_workers))

    assert len(list(iterator)) == 2
    assert list(iterator) == []
    assert len(iterator) == 2


def test_kept_threads_that_were_closed_are_begun_anew() -> None:
    """Closing a pass gives its threads up; the loader goes on with others."""
    loader = OURS(range(4), 2, num_workers=2, persistent_workers=True)
    first = iter(loader)
    first.close()

    seen = [batch.tolist() for batch in loader]
    loader._iterator = None

    assert list(first) == []
    assert seen == [[0, 1], [2, 3]]


def test_no_more_is_read_ahead_than_asked_for() -> None:
    """`prefetch_factor` batches for each thread are in flight, and no more (S4-29)."""
    asked: list[int] = []
    counting = threading.Condition()

    class Counted(torch.utils.data.Dataset[int]):
        thread_safe = True

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            with counting:
                asked.append(index)
                counting.notify_all()
            return index

    iterator = iter(OURS(Counted(), 1, num_workers=2, prefetch_factor=3))
    with counting:
        counting.wait_for(lambda: len(asked) >= 6, 20)
    at_start = sorted(asked)
    # Readers that rest are woken once half of what was in flight has been taken, so four to six
    # batches are: the readers may have come for one or two of the three before they rested.
    for _ in range(3):
        next(iterator)
    with counting:
        counting.wait_for(lambda: len(asked) >= 7, 20)
    after_three = sorted(asked)
    iterator.close()

    assert at_start == list(range(6))
    assert after_three in (list(range(7)), list(range(8)), list(range(9)))


def test_threads_that_cannot_be_started_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process may have no more threads, the caller builds the batches."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    loader = OURS(range(6), 2, sampler=RandomSampler(range(6)), num_workers=2)

    assert sorted(index for batch in loader for index in batch.tolist()) == list(range(6))
