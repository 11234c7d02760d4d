"""Reading ahead: how far, how much at once, and never past its bounds.

Nothing here measures time: gates hold reads back until a test lets them go.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.testing.gates import Gate
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows
from tests.loader.kinds import ByItem, Samples, arrays_of, sample_of

WAIT_S = 20.0


class Counter:
    """What was counted, and a wait until there is enough of it."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._changed = threading.Condition()

    def add(self, value: int) -> None:
        with self._changed:
            self.seen.append(value)
            self._changed.notify_all()

    def reached(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= count, WAIT_S)


class GatedGet(Samples):
    """Every read waits at one gate."""

    def __init__(self, num_samples: int, gate: Gate) -> None:
        super().__init__(num_samples)
        self.gate = gate

    async def get(self, index: int) -> dict[str, Any]:
        await self.gate.wait()
        return sample_of(index)


class CountedItems(ByItem):
    """Reads are counted; those of some samples wait at a gate of their own."""

    def __init__(self, num_samples: int, *gated: int) -> None:
        super().__init__(num_samples)
        self.gates = {index: Gate() for index in gated}
        self.read = Counter()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.gates:
            self.gates[index].wait_blocking()
        self.read.add(index)
        return super().__getitem__(index)


class Consumer:
    """Takes batches on a thread of its own, so that a test may go on while it waits."""

    def __init__(self, stream: Iterator[hr.Batch]) -> None:
        self.ids: list[list[int]] = []
        self._thread = threading.Thread(target=self._take, args=(stream,))
        self._thread.start()

    def _take(self, stream: Iterator[hr.Batch]) -> None:
        for batch in stream:
            self.ids.append(batch["id"].tolist())

    def end(self) -> list[list[int]]:
        """Wait until all was taken; give the ids of each batch."""
        self._thread.join(WAIT_S)
        return self.ids


def ordered(data: Any, **knobs: Any) -> hr.Loader:
    return hr.Loader(data, batch_size=2, shuffle=False, probe=False, **knobs)


def pairs(num_samples: int) -> list[list[int]]:
    """Give the ids of each batch of an ordered loader."""
    return [[i, i + 1] for i in range(0, num_samples, 2)]


@pytest.mark.parametrize("prefetch", [1, 4, 32])
def test_as_many_steps_are_asked_for_at_once_as_prefetch_says(prefetch: int) -> None:
    """With K steps ahead all of their reads are in flight before the first answers (S0-84)."""
    gate = Gate()
    with ordered(GatedGet(200, gate), workers=1, prefetch=prefetch) as loader:
        consumer = Consumer(loader.epoch(0))

        gate.arrived_blocking(2 * prefetch)

        assert gate.arrivals == 2 * prefetch
        assert loader.stats()["ring_steps"] == prefetch
        gate.open()
        assert consumer.end() == pairs(200)


def test_an_early_step_that_is_late_changes_nothing() -> None:
    """Steps are built in any order and delivered in theirs (S1-08)."""
    data = CountedItems(16, 0, 5)
    with ordered(data, workers=4, prefetch=8) as loader:
        consumer = Consumer(loader.epoch(0))

        # All that can be read while steps 0 and 2 are held back.
        assert data.read.reached(13)
        assert consumer.ids == []
        data.gates[5].open()
        data.gates[0].open()

        assert consumer.end() == pairs(16)
    assert set(data.read.seen[:13]).isdisjoint({0, 1, 5})


def test_reads_go_on_while_the_consumer_is_busy() -> None:
    """A training step that blocks its thread holds up no read (S0-44)."""
    data = CountedItems(100)
    with ordered(data, workers=2, prefetch=8) as loader:
        stream = loader.epoch(0)
        next(stream)

        # This thread takes nothing more, and the ring fills.
        assert data.read.reached(2 * 8)


def test_a_late_read_is_not_felt_before_the_ring_is_empty() -> None:
    """The steps that were read ahead ride out a slow one (S0-45)."""
    data = CountedItems(40, 16)
    with ordered(data, workers=2, prefetch=8) as loader:
        stream = loader.epoch(0)
        first = next(stream)["id"].tolist()
        assert data.read.reached(16)

        ahead = [next(stream)["id"].tolist() for _ in range(7)]

        assert [first, *ahead] == pairs(16)
        data.gates[16].open()
        assert [batch["id"].tolist() for batch in stream] == pairs(40)[8:]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("prefetch", [1, 3, 8])
def test_steps_in_flight_are_bounded_by_prefetch(workers: int, prefetch: int) -> None:
    """At every read, steps claimed and not taken are within the bound (S1-09, S0-43)."""
    most: list[float] = []

    class Watched(ByItem):
        def __getitem__(self, index: int) -> dict[str, Any]:
            most.append(loader.stats()["ring_steps"])
            return super().__getitem__(index)

    with ordered(Watched(120), workers=workers, prefetch=prefetch) as loader:
        found = [batch["id"].tolist() for batch in loader.epoch(0)]

    assert found == pairs(120)
    assert max(most) <= prefetch


def test_backpressure_stops_the_reads() -> None:
    """A consumer that takes nothing is read ahead for, and no further (S1-09)."""
    data = CountedItems(100)
    loader = ordered(data, workers=4, prefetch=3)
    stream = loader.epoch(0)
    next(stream)
    assert data.read.reached(2 * 3)

    loader.close()

    # One step was taken, so three more may have been claimed, and no fifth.
    assert set(data.read.seen) <= set(range(2 * 4))


def test_the_bound_moves_at_run_time() -> None:
    """`set_prefetch_depth` widens the window at once, and narrows it (U-16)."""
    gate = Gate()
    with ordered(GatedGet(100, gate), workers=1, prefetch=1) as loader:
        consumer = Consumer(loader.epoch(0))
        gate.arrived_blocking(2)
        assert loader.prefetch_depth == 1

        loader.set_prefetch_depth(6)

        gate.arrived_blocking(12)
        assert loader.stats()["ring_steps"] == 6
        loader.set_prefetch_depth(0)
        assert loader.prefetch_depth == 1
        gate.open()
        assert consumer.end() == pairs(100)


def test_the_next_epoch_is_not_read_unless_it_is_said_to_come() -> None:
    """A plain pass reads its own epoch and no sample more."""
    data = CountedItems(20)
    with ordered(data, workers=2, prefetch=4) as loader:
        assert [batch["id"].tolist() for batch in loader] == pairs(20)

    assert sorted(data.read.seen) == list(range(20))


def as_epochs(loader: hr.Loader, how: str) -> Iterator[Iterator[hr.Batch]]:
    """Give two epochs one after another, announced in one of three ways."""
    if how == "epochs(n)":
        yield from loader.epochs(2)
    elif how == "stream":
        stream = loader.stream(steps=2 * len(loader))
        yield from (itertools.islice(stream, len(loader)) for _ in range(2))
    else:
        yield from (iter(loader) for _ in range(2))


@pytest.mark.parametrize("how", ["epochs=", "epochs(n)", "stream"])
def test_the_next_epoch_is_read_ahead_where_it_is_said_to_come(how: str) -> None:
    """Its first steps are there when the last batch of this one is taken, and are used."""
    data = CountedItems(20)
    loader = ordered(data, workers=2, prefetch=4, epochs=2 if how == "epochs=" else None)
    epochs = as_epochs(loader, how)
    first = next(epochs)

    found = [next(first)["id"].tolist() for _ in range(10)]
    assert data.read.reached(20 + 2)
    assert list(first) == []
    found += [batch["id"].tolist() for epoch in epochs for batch in epoch]

    loader.close()
    assert found == pairs(20) * 2
    assert sorted(data.read.seen) == sorted([*range(20), *range(20)])


def test_leaving_the_last_epoch_reads_nothing_after_it() -> None:
    """`epochs(2)` ends the reading where the second epoch ends."""
    data = CountedItems(20)
    with ordered(data, workers=2, prefetch=8) as loader:
        assert [batch["id"].tolist() for epoch in loader.epochs(2) for batch in epoch] == (
            pairs(20) * 2
        )

    assert len(data.read.seen) == 40


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("awaited", [False, True])
def test_bytes_in_flight_stay_within_ring_bytes(workers: int, awaited: bool, seed: int) -> None:
    """Whatever the sizes, a step over the bound is alone in the ring, and all arrive (S0-46)."""
    rng = random.Random(seed)
    for _ in range(6):
        bound = rng.randint(64, 4096)
        # Up to three times the bound: 4 bytes for each value, 8 for the length of a row.
        lengths = [rng.randint(0, 3 * bound // 4) for _ in range(60)]
        rows = RaggedRows([[i] * length for i, length in enumerate(lengths)])
        data = AwaitedRows(rows) if awaited else rows
        batch_size = rng.randint(1, 4)
        with hr.Loader(
            data, batch_size, shuffle=False, workers=workers, prefetch=8, ring_bytes=bound
        ) as loader:
            found: list[int] = []
            peak = 0.0
            for batch in loader.epoch(0):
                found += batch["length"].tolist()
                peak = loader.stats()["ring_peak_bytes"]

        largest = max(
            sum(4 * length + 8 for length in lengths[at : at + batch_size])
            for at in range(0, 60, batch_size)
        )
        smallest_bound = 2 * batch_size * 12
        assert found == lengths
        assert peak <= max(bound, smallest_bound, largest)


def test_a_step_over_the_bound_is_granted_and_counted() -> None:
    """What the consumer wants next is read whatever its size: always progress (S0-46)."""
    rows = RaggedRows([[0] * 10, [1] * 5000, [2] * 10, [3] * 5000])
    with hr.Loader(rows, 1, shuffle=False, workers=2, prefetch=4, ring_bytes=1000) as loader:
        lengths = [batch["length"].item() for batch in loader.epoch(0)]
        forced = loader.stats()["ring_forced_steps"]

    assert lengths == [10, 5000, 10, 5000]
    assert forced == 2


def test_one_stage_serves_the_host(seed: int) -> None:
    """Samples are read by the reader threads alone, and by no more of them (S0-42, S0-08)."""
    names: set[str] = set()

    class Named(ByItem):
        def __getitem__(self, index: int) -> dict[str, Any]:
            names.add(threading.current_thread().name)
            return super().__getitem__(index)

    with hr.Loader(Named(100), 4, workers=3, probe=False, seed=seed) as loader:
        assert len(list(loader)) == 25

    assert names <= {f"headrace-reader-{number}" for number in range(3)}


@pytest.mark.parametrize("face", ["for", "async for"])
async def test_without_workers_the_caller_builds(face: str) -> None:
    """`workers=0` starts no thread, on either face (S1-05)."""
    threads: set[threading.Thread] = set()

    class Noted(ByItem):
        def __getitem__(self, index: int) -> dict[str, Any]:
            threads.add(threading.current_thread())
            return super().__getitem__(index)

    before = threading.enumerate()
    with hr.Loader(Noted(20), 4, workers=0, probe=False) as loader:
        if face == "for":
            taken = list(loader)
        else:
            taken = [batch async for batch in loader]
        during = threading.enumerate()

    assert len(taken) == 5
    assert threads == {threading.current_thread()}
    assert during == before


def test_where_no_thread_can_start_the_caller_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same batches without an error, as with workers=0 (S1-12, C26)."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for data in (ByItem(20), GatedGet(20, Gate(is_open=True)), hr.Arrays(arrays_of(20))):
        with ordered(data, workers=4) as loader:
            found = [batch["id"].tolist() for batch in loader]
            assert loader.stats()["workers"] == 0

        assert found == pairs(20)
