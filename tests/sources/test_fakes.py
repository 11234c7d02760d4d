"""The sources for tests do what they say, since other tests lean on them."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from headrace.sources.memory import MemorySource
from headrace.sources.source import ByteRange
from headrace.testing.gates import Gate, ManualClock
from headrace.testing.source_contract import fill
from headrace.testing.sources import (
    CountingSource,
    FlakySource,
    GatedSource,
    LateSource,
    SlowSource,
)
from headrace.threads import start_thread

INNER = MemorySource({"one": b"0123456789", "two": b"two"})


async def test_counting_source_counts() -> None:
    """Calls, ranges, bytes, and reads at the same time."""
    gated = GatedSource(INNER)
    source = CountingSource(gated)

    reads = [asyncio.create_task(fill(source, "one", [(0, 4), (6, 7)])) for _ in range(3)]
    await gated.gate.arrived(3)
    in_flight = source.in_flight
    gated.gate.open()
    await asyncio.gather(*reads)
    await source.stat("two")

    assert in_flight == 3
    assert (source.in_flight, source.peak_in_flight) == (0, 3)
    assert source.calls == {"list": 0, "stat": 1, "read_into": 3}
    assert source.reads == [("one", (ByteRange(0, 4), ByteRange(6, 7)))] * 3
    assert source.read_bytes == 15


async def test_flaky_source_fails_by_its_plan() -> None:
    """The first and the third read fail, later ones pass."""
    source = FlakySource(INNER, [TimeoutError("first"), None, OSError("third")])
    seen: list[object] = []

    for _ in range(5):
        try:
            seen.append(await source.read("two"))
        except OSError as error:
            seen.append(str(error))

    assert seen == ["first", b"two", "third", b"two", b"two"]
    assert source.failures == 2


async def test_gated_source_waits_and_can_be_cancelled() -> None:
    """A read waits until the gate is opened, from any thread, and leaves at once if cancelled."""
    source = GatedSource(INNER)
    kept, dropped = (asyncio.create_task(source.read("two")) for _ in range(2))
    await source.gate.arrived(2)

    dropped.cancel()
    await asyncio.wait([dropped])
    opener = start_thread(source.gate.open, "opener")

    assert await kept == b"two"
    assert dropped.cancelled()
    opener.join()


async def test_slow_source_takes_time_on_the_clock_of_the_test() -> None:
    """Reads end in the order of their times, when the clock says so."""
    clock, ended = ManualClock(), []
    source = SlowSource(INNER, clock, {"one": 5.0, "two": 2.0}.__getitem__)

    async def read(name: str) -> None:
        await source.read(name, ByteRange(0, 1))
        ended.append((name, clock.now_s))

    tasks = [asyncio.create_task(read(name)) for name in ("one", "two")]
    await asyncio.sleep(0)
    assert clock.sleepers == 2
    clock.advance(2.0)
    await asyncio.wait([tasks[1]])
    clock.advance(3.0)
    await asyncio.gather(*tasks)

    assert ended == [("two", 2.0), ("one", 5.0)]


async def test_late_source_writes_after_cancellation_and_is_waited_for() -> None:
    """Half of the bytes come before the gate, the rest after, and only then the read ends."""
    source, memory = LateSource(INNER), bytearray(10)
    source.gate.shut()
    task = asyncio.create_task(source.read_into("one", [ByteRange(0, 10)], [memoryview(memory)]))
    await source.gate.arrived(1)

    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)

    assert memory == b"01234" + bytes(5)
    assert not task.done()
    source.gate.open()
    await asyncio.wait([task])
    assert task.cancelled()
    assert memory == b"0123456789"
    await source.aclose()


def test_copies_begin_anew() -> None:
    """A pickled fake has the inner source and a gate, clock and counts of its own."""
    gated = GatedSource(INNER)
    gated.gate.open()

    copies = [pickle.loads(pickle.dumps(kind(INNER))) for kind in (CountingSource, SlowSource)]

    assert not pickle.loads(pickle.dumps(gated)).gate.is_open
    assert repr(copies) == (
        "[CountingSource(MemorySource(2 objects)), SlowSource(MemorySource(2 objects))]"
    )


def test_a_gate_serves_threads_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads wait at it and are waited for; what never comes is a TimeoutError."""
    gate, passed = Gate(), []

    def pass_through() -> None:
        gate.wait_blocking()
        passed.append(1)

    threads = [start_thread(pass_through, f"passer-{k}") for k in range(3)]
    gate.arrived_blocking(3)
    before = len(passed)
    gate.open()
    for thread in threads:
        thread.join()

    assert (before, len(passed), gate.arrivals) == (0, 3, 3)
    monkeypatch.setattr("headrace.testing.gates.LIMIT_S", 0.0)
    gate.shut()
    with pytest.raises(TimeoutError, match="not opened"):
        gate.wait_blocking()
    with pytest.raises(TimeoutError, match="4 of 9 arrived"):
        gate.arrived_blocking(9)
