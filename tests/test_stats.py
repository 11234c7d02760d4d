"""The counters: exact sums on a driven clock, and the first batch apart from the rest."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.stats import KEPT_WAITS, BuildTimes, LandingTimes, LoaderStats
from headrace.testing.gates import Gate
from tests.loader.kinds import KINDS


class Clock:
    """Gives the time that a test says it is, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def at(self, second: float) -> float:
        """Move to a second of the test; give the time."""
        self.now = 100.0 + second
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


# -- the consumer ------------------------------------------------------------------------


def test_the_first_batch_is_kept_apart(clock: Clock) -> None:
    """Start-up and warm-up do not move the means of the steady state (S4-42)."""
    stats = LoaderStats(clock)
    stats.begin()
    stats.took(8, asked=clock.at(1), taken=clock.at(5))  # asked first at 0
    stats.took(8, asked=clock.at(12), taken=clock.at(13))  # 7 s of warm-up with the first
    stats.took(8, asked=clock.at(15), taken=clock.at(15.5))
    stats.took(4, asked=clock.at(18.5), taken=clock.at(19.5))

    numbers = stats.numbers()

    assert numbers == {
        "batches": 4,
        "rows": 28,
        "first_batches": 1,
        "first_wait_s": 5.0,
        "wait_s": 2.5,
        "wait_p50_s": 1.0,
        "wait_p99_s": 1.0,
        "first_consumer_s": 7.0,
        "consumer_s": 5.0,
        "consumer_steps": 2,
        "consumer_mean_s": 2.5,
        "bad_samples": 0,
        "skipped_steps": 0,
        "stalls": 0,
    }


def test_each_stream_has_a_first_batch(clock: Clock) -> None:
    """What passes between two streams is neither waiting nor a step of the consumer (S4-42)."""
    stats = LoaderStats(clock)
    stats.begin()
    stats.took(1, asked=clock.at(0), taken=clock.at(2))
    clock.at(50)
    stats.begin()
    stats.took(1, asked=clock.at(50), taken=clock.at(53))

    numbers = stats.numbers()

    assert (numbers["first_batches"], numbers["first_wait_s"]) == (2, 3.0)
    assert (numbers["wait_s"], numbers["consumer_s"], numbers["first_consumer_s"]) == (0, 0, 0)


def test_a_wait_in_vain_counts_as_waiting(clock: Clock) -> None:
    """A take that is cancelled and tried again has not become the consumer's own time."""
    stats = LoaderStats(clock)
    stats.begin()
    stats.took(1, asked=clock.at(0), taken=clock.at(1))
    stats.took(1, asked=clock.at(2), taken=clock.at(3))
    asked = clock.at(4)  # 1 s with the batch, then 5 s in vain
    clock.at(9)
    stats.waited_in_vain(asked)
    stats.took(1, asked=clock.at(12), taken=clock.at(14))  # 3 s with other things, 2 s of wait

    assert stats.consumer_s == 1 + 3
    assert stats.wait_s == 1 + 5 + 2


def test_percentiles_are_of_waits_that_were() -> None:
    """No bucket, no error: the percentile is one of the waits."""
    clock = Clock()
    stats = LoaderStats(clock)
    take_with_waits(stats, clock, [float(wait_s) for wait_s in range(1, 101)])

    assert stats.wait_percentiles_s(0.5, 0.99) == [51.0, 100.0]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.floats(0, 1))
def test_a_percentile_has_its_rank(waits_s: list[int], share: float) -> None:
    """Percentile p of n waits is number floor(p n) in the order of size, at most the last."""
    clock = Clock()
    stats = LoaderStats(clock)
    take_with_waits(stats, clock, waits_s)

    (found,) = stats.wait_percentiles_s(share)

    assert found == sorted(waits_s)[min(len(waits_s) - 1, int(len(waits_s) * share))]


def test_percentiles_forget_old_waits() -> None:
    """Percentiles tell of the recent past: a bad start is gone after 2,048 batches."""
    clock = Clock()
    stats = LoaderStats(clock)
    take_with_waits(stats, clock, [64.0] * 100 + [1.0] * KEPT_WAITS)

    assert stats.wait_percentiles_s(0.5, 1.0) == [1.0, 1.0]


def test_no_wait_has_percentiles_of_zero() -> None:
    """Asking before the second batch is no error."""
    assert LoaderStats().wait_percentiles_s(0.5, 0.99) == [0.0, 0.0]


def take_with_waits(stats: LoaderStats, clock: Clock, waits_s: list[float] | list[int]) -> None:
    stats.begin()
    stats.took(1, clock.now, clock.now)
    for wait_s in waits_s:
        asked = clock.now
        clock.now += wait_s
        stats.took(1, asked, clock.now)


# -- builders ----------------------------------------------------------------------------


def test_parts_of_a_span_add_up(clock: Clock) -> None:
    """What is in no part is the rest, and a transform is not counted as assembling too."""
    times = BuildTimes(clock)
    began = times.begin()
    reading = clock.at(1)
    clock.at(4)
    times.add_read(reading)
    assembling = clock.at(6)
    transforming = clock.at(7)
    clock.at(9)
    times.add_transform(transforming, is_assembling=True)
    clock.at(10)
    times.add_assembly(assembling)
    awaiting = clock.at(11)
    clock.at(16)
    times.add_transform(awaiting, is_assembling=False)
    clock.at(17)
    times.end(began, steps=4)

    assert times.numbers() == {
        "read_s": 3.0,
        "assemble_s": 2.0,
        "transform_s": 2.0 + 5.0,
        "handover_s": 1.0 + 2.0 + 1.0 + 1.0,
        "built_steps": 4,
        "building_s": 17.0,
        "span_s": 17.0,
    }


def test_time_with_spans_in_flight_is_counted_once(clock: Clock) -> None:
    """Two spans at once are one stretch of building, of twice the span time."""
    times = BuildTimes(clock)
    clock.at(1)
    first = times.begin()
    clock.at(3)
    second = times.begin()
    clock.at(6)
    times.end(first, steps=1)
    clock.at(7)
    times.end(second, steps=1)
    clock.at(20)

    numbers = times.numbers()

    assert (numbers["building_s"], numbers["span_s"]) == (6.0, 2 + 2 * 3 + 1)


def test_a_span_in_flight_counts_up_to_now(clock: Clock) -> None:
    """A reading in the middle of a long read does not wait for its end."""
    times = BuildTimes(clock)
    clock.at(2)
    times.begin()
    clock.at(5)

    numbers = times.numbers()

    assert (numbers["building_s"], numbers["span_s"], numbers["built_steps"]) == (3.0, 3.0, 0)


def test_a_transform_whose_assembly_goes_on_is_not_less_than_nothing(clock: Clock) -> None:
    """Between the end of a transform and that of the assembly around it, sums stay sums."""
    times = BuildTimes(clock)
    times.begin()
    transforming = clock.at(0)
    clock.at(3)
    times.add_transform(transforming, is_assembling=True)

    assert times.numbers()["assemble_s"] == 0.0


def test_builders_count_from_any_thread() -> None:
    """No count is lost between threads."""
    times = BuildTimes(lambda: 1.0)

    def build() -> None:
        for _ in range(2000):
            times.add_read(0.0)
            times.end(times.begin(), steps=2)

    run_in_threads(build)

    assert (times.numbers()["read_s"], times.numbers()["built_steps"]) == (8000.0, 16000)


def test_landings_count_copy_and_transform(clock: Clock) -> None:
    """The blocking copy and what follows it are told apart."""
    times = LandingTimes(clock)
    began, copied = clock.at(0), clock.at(2)
    clock.at(5)
    times.add(began, copied)

    assert times.numbers() == {"copies": 1, "copy_s": 2.0, "device_transform_s": 3.0}


def run_in_threads(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- the loader's numbers ----------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_times_of_a_run_are_consistent(kind: str, workers: int) -> None:
    """Every kind of dataset counts all its steps, and no part is counted twice (S4-40)."""
    calls: list[int] = []

    def transform(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        calls.append(batch.step)
        return batch

    with hr.Loader(KINDS[kind](24), 4, seed=1, workers=workers, transform=transform) as loader:
        batches = sum(1 for _ in loader)
        stats = loader.stats()

    assert (batches, stats["batches"], stats["built_steps"], len(calls)) == (6, 6, 6, 6)
    assert min(stats["read_s"], stats["assemble_s"], stats["transform_s"]) > 0
    parts_s = sum(stats[f"{part}_s"] for part in ("read", "assemble", "transform", "handover"))
    assert parts_s == pytest.approx(stats["span_s"])
    assert stats["building_s"] <= stats["span_s"]
    assert (stats["first_batches"], stats["consumer_steps"]) == (1, 4)
    assert stats["first_wait_s"] > 0
    assert stats["copies"] == 0


def test_stats_are_flat_numbers() -> None:
    """A logger can take them as they are."""
    with hr.Loader(KINDS["arrays"](24), 4, workers=1) as loader:
        next(iter(loader))
        stats = loader.stats()

    assert {type(value) for value in stats.values()} <= {int, float}


class Gated:
    """Samples that are their index; that of `held` waits at a gate."""

    thread_safe = True

    def __init__(self, held: int) -> None:
        self.held = held
        self.gate = Gate()

    def __len__(self) -> int:
        return 8

    async def get(self, index: int) -> int:
        if index == self.held:
            await self.gate.wait()
        return index


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_cancelled_take_is_waiting(workers: int) -> None:
    """A consumer that gives up on a take and comes back has waited, not worked."""
    data = Gated(held=2)
    began = time.perf_counter()
    async with hr.Loader(data, 1, shuffle=False, workers=workers) as loader:
        stream = loader.stream(steps=4)
        await anext(stream)
        await anext(stream)
        take = asyncio.create_task(anext(stream))
        await data.gate.arrived(1)
        in_vain = time.perf_counter()
        for _ in range(500):
            await asyncio.sleep(0)
        in_vain_s = time.perf_counter() - in_vain
        take.cancel()
        with pytest.raises(asyncio.CancelledError):
            await take
        data.gate.open()

        await anext(stream)

        stats = loader.stats()
        assert stats["wait_s"] >= in_vain_s
        assert stats["consumer_s"] <= time.perf_counter() - began - in_vain_s


def test_a_skipped_step_is_waiting() -> None:
    """The wait for a step that is passed over belongs to the batch after it."""
    with hr.Loader(KINDS["item"](24), 4, shuffle=False, workers=0) as loader:
        loader.skip_step(1)
        steps = [batch.step for batch in loader]
        stats = loader.stats()

    assert steps == [0, 2, 3, 4, 5]
    assert (stats["batches"], stats["skipped_steps"], stats["consumer_steps"]) == (5, 1, 3)


def test_batches_for_a_device_count_their_copies() -> None:
    """The copy and the transform on the consumer's thread are neither waiting nor its own time."""
    seen: list[str] = []

    def transform(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        seen.append(batch["x"].device.type)
        return batch

    data = KINDS["arrays"](24)
    with hr.Loader(data, 4, workers=1, device="meta", transform=transform) as loader:
        for _ in loader:
            pass
        stats = loader.stats()

    assert seen == ["meta"] * 6
    assert stats["copies"] == 6
    assert stats["transform_s"] == 0.0
    assert min(stats["copy_s"], stats["device_transform_s"]) > 0
