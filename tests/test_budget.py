"""The budget: arithmetic, and what shares may take of it."""

from __future__ import annotations

import gc
import math
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.budget import (
    Budget,
    Share,
    clamp_usage,
    host_budget_bytes,
    local_ranks,
    ring_slots,
)
from headrace.errors import ClosedError, ConfigError
from headrace.threads import start_thread


def budget_of(total_bytes: int | None) -> Budget:
    """A budget of which a share of the default usage, a half, may hold this much."""
    return Budget(lambda: None if total_bytes is None else 2 * total_bytes)


@pytest.mark.parametrize(
    ("usage", "clamped"),
    [(0.5, 0.5), (0, 0.0), (0.9, 0.9), (5.0, 0.9), (-1.0, 0.0), (math.inf, 0.9), (1, 0.9)],
)
def test_usage_is_clamped(usage: float, clamped: float) -> None:
    """ram_max_usage is moved into [0.0, 0.90] (U-08)."""
    assert clamp_usage(usage) == clamped


@pytest.mark.parametrize("usage", [math.nan, "0.5", None, True])
def test_usage_must_be_a_number(usage: object) -> None:
    """NaN and what is no number name the knob (U-08)."""
    with pytest.raises(ConfigError, match=r"ram_max_usage: wanted a share from 0.0 to 0.9"):
        clamp_usage(usage)  # type: ignore[arg-type]


@pytest.mark.parametrize("held", [0, 100, 400, 500])
def test_held_bytes_are_added_back(held: int) -> None:
    """Of 1,000 bytes the budget is 500, however much of it is held already (U-20)."""
    assert host_budget_bytes(0.5, available=1000 - held, held=held) == 500


@pytest.mark.parametrize(
    ("usage", "available", "ranks", "expected"),
    [(0.5, 1000, 1, 500), (0.5, 1000, 4, 125), (5.0, 1000, 2, 450), (0.0, 1000, 1, 0)],
)
def test_ranks_of_a_machine_share_its_memory(
    usage: float, available: int, ranks: int, expected: int
) -> None:
    """The budget of a rank is usage x available / local ranks (S0-91)."""
    assert host_budget_bytes(usage, available, held=0, local_ranks=ranks) == expected


@given(
    memory=st.integers(0, 1 << 45),
    usage=st.floats(-1, 2),
    ranks=st.integers(1, 16),
    held_part=st.floats(0, 1),
)
def test_the_budget_is_a_fixed_point(
    memory: int, usage: float, ranks: int, held_part: float
) -> None:
    """While all ranks of a machine hold alike, a new measurement gives the same (U-20, S0-91)."""
    fresh = host_budget_bytes(usage, memory, 0, ranks)
    held = int(fresh * held_part)

    again = host_budget_bytes(usage, memory - ranks * held, held, ranks)

    assert again == fresh


@pytest.mark.parametrize(
    ("budget", "batch", "batches", "is_caching", "slots"),
    [
        (1000, 100, None, False, 10),
        (1000, 100, 3, False, 3),
        (1000, 100, None, True, 8),
        (1000, 300, None, True, 3),
        (99, 100, None, False, 0),
        (0, 100, None, False, 0),
        (None, 100, None, False, 4),
        (None, 100, 2, False, 2),
        (None, 100, None, True, 4),
        (10, 0, 5, False, 5),
    ],
)
def test_ring_slots(
    budget: int | None, batch: int, batches: int | None, is_caching: bool, slots: int
) -> None:
    """Budget over batch, at most the epoch, 8 while caching, 4 unmeasured, 0 one stage (U-21)."""
    assert ring_slots(budget, batch, batches, is_caching) == slots


def test_local_ranks_come_from_the_launcher() -> None:
    """LOCAL_WORLD_SIZE, 1 without it, an error if it makes no sense (S0-91)."""
    assert local_ranks({}) == 1
    assert local_ranks({"LOCAL_WORLD_SIZE": "8"}) == 8
    for text in ["0", "-1", "two", ""]:
        with pytest.raises(ConfigError, match="LOCAL_WORLD_SIZE"):
            local_ranks({"LOCAL_WORLD_SIZE": text})


def test_a_share_takes_what_fits() -> None:
    """Bytes are granted up to the bound over all shares, and come back (S0-46)."""
    budget = budget_of(100)
    train, val = budget.open_share("train", 0), budget.open_share("val", 0)

    assert train.try_take(70)
    assert not val.try_take(31)
    assert val.try_take(30)
    assert not train.try_take(1)
    train.give_back(70)
    assert val.try_take(70)
    assert (train.taken_bytes, val.taken_bytes, budget.taken_bytes) == (0, 100, 100)


def test_an_idle_share_lends_everything() -> None:
    """What a share with a floor does not use, another may take."""
    budget = budget_of(100)
    budget.open_share("idle", floor_bytes=40)
    busy = budget.open_share("busy", floor_bytes=0)

    assert not busy.try_take(101)
    assert busy.try_take(100)


def test_a_share_always_has_its_floor() -> None:
    """Two steps are granted whatever others hold, and not a byte more."""
    budget = budget_of(100)
    busy, late = budget.open_share("busy", 0), budget.open_share("late", floor_bytes=20)
    assert busy.try_take(100)

    assert [late.try_take(10) for _ in range(3)] == [True, True, False]
    assert not busy.try_take(1)
    late.set_floor(30)
    assert late.try_take(10)
    assert budget.stats()["budget_peak_bytes"] == 130


def test_what_is_wanted_next_is_always_granted_and_counted() -> None:
    """Forced bytes are counted only where they would not have fitted."""
    budget = budget_of(100)
    share = budget.open_share("train", 0)

    share.take_forced(60)
    share.take_forced(60)

    assert budget.stats() == {
        "budget_room_bytes": 200,
        "budget_shares": 1,
        "budget_taken_bytes": 120,
        "budget_peak_bytes": 120,
        "budget_forced": 1,
        "budget_forced_bytes": 60,
    }


def test_shares_of_different_usage_see_one_total() -> None:
    """A loader with 0.2 stops when the process holds that much; one with 0.8 goes on."""
    budget = Budget(lambda: 100)
    small = budget.open_share("small", 0, ram_max_usage=0.2)
    large = budget.open_share("large", 0, ram_max_usage=0.8)

    assert large.try_take(15)
    assert not small.try_take(6)
    assert small.try_take(5)
    assert large.try_take(60)
    assert not large.try_take(1)
    assert (budget.total_bytes(0.2), budget.total_bytes(0.8)) == (20, 80)


def test_unmeasured_memory_bounds_nothing() -> None:
    """Where memory cannot be measured, slots alone bound a ring."""
    budget = budget_of(None)
    share = budget.open_share("train", 0)

    assert share.try_take(1 << 50)
    assert budget.total_bytes() is None
    assert budget.stats()["budget_room_bytes"] == -1


def test_memory_is_measured_only_when_asked() -> None:
    """Once at the first share, then by refresh alone, with what is held added back (U-20)."""
    readings = [1000, 600]
    measured = []

    def measure() -> int:
        measured.append(1)
        return readings.pop(0)

    budget = Budget(measure)
    before = len(measured)
    share = budget.open_share("train", 0)
    budget.open_share("val", 0)
    for _ in range(4):
        assert share.try_take(100)

    assert (before, len(measured)) == (0, 1)
    budget.refresh()
    assert (len(measured), budget.room_bytes) == (2, 1000)


def test_a_closed_share_holds_nothing() -> None:
    """Closing gives all back, may be repeated, and late returns change nothing."""
    budget = budget_of(100)
    share = budget.open_share("train", 10)
    assert share.try_take(80)

    share.close()
    share.close()
    share.give_back(80)

    assert (budget.taken_bytes, budget.stats()["budget_shares"]) == (0, 0)
    with pytest.raises(ClosedError, match="'train'"):
        share.try_take(1)
    with pytest.raises(ClosedError, match="'train'"):
        share.take_forced(1)


def test_a_dropped_share_gives_back_what_it_held() -> None:
    """A stream that is collected unclosed leaves the budget as it was."""
    budget = budget_of(100)
    share = budget.open_share("train", 0)
    assert share.try_take(100)

    del share
    gc.collect()

    assert budget.open_share("next", 0).try_take(100)


def test_more_than_is_held_cannot_come_back() -> None:
    """A mistake in counting is an error at once, and changes nothing."""
    budget = budget_of(100)
    share, other = budget.open_share("train", 0), budget.open_share("val", 0)
    assert share.try_take(10)
    assert other.try_take(20)

    with pytest.raises(ValueError, match="holds 10 bytes and cannot give back 11"):
        share.give_back(11)
    with pytest.raises(ValueError, match="cannot take -1"):
        share.try_take(-1)
    with pytest.raises(ConfigError, match="floor_bytes"):
        budget.open_share("bad", -1)

    assert budget.taken_bytes == 30


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["take", "force", "give", "close"]),
        st.integers(0, 2),
        st.integers(0, 120),
    ),
    max_size=40,
)


def replay(
    budget: Budget, shares: list[Share], operations: list[tuple[str, int, int]]
) -> list[tuple[bool, int]]:
    """Apply operations; give for each what it answered and what all hold afterwards."""
    answers = []
    for kind, which, nbytes in operations:
        share, answer = shares[which], True
        try:
            if kind == "take":
                answer = share.try_take(nbytes)
            elif kind == "force":
                share.take_forced(nbytes)
            elif kind == "give":
                share.give_back(min(nbytes, share.taken_bytes))
            elif nbytes > 100:
                share.close()
        except ClosedError:
            answer = False
        answers.append((answer, budget.taken_bytes))
    return answers


@given(total=st.integers(0, 200), floors=st.tuples(*[st.integers(0, 60)] * 3), ops=OPERATIONS)
def test_the_bound_holds_for_any_use(
    total: int, floors: tuple[int, int, int], ops: list[tuple[str, int, int]]
) -> None:
    """A take is granted exactly if it fits in the floor or the total; the sums always agree."""
    budget = budget_of(total)
    shares = [budget.open_share(str(floor), floor) for floor in floors]

    for operation in ops:
        kind, which, nbytes = operation
        own, held = shares[which].taken_bytes, budget.taken_bytes
        is_closed = not shares[which]._account.is_open
        [(answer, after)] = replay(budget, shares, [operation])

        assert after == sum(share.taken_bytes for share in shares)
        if kind == "take":
            fits = own + nbytes <= floors[which] or held + nbytes <= total
            assert answer == (fits and not is_closed)
    for share in shares:
        share.close()
    assert budget.taken_bytes == 0


@given(
    order=st.permutations([0, 1, 2]),
    floors=st.tuples(*[st.integers(0, 60)] * 3),
    ops=OPERATIONS,
)
def test_the_order_of_construction_does_not_matter(
    order: list[int], floors: tuple[int, int, int], ops: list[tuple[str, int, int]]
) -> None:
    """Train and validation loaders get the same whichever was made first (S0-46)."""
    first, second = budget_of(100), budget_of(100)
    in_order = [first.open_share(str(k), floors[k]) for k in range(3)]
    mixed = {k: second.open_share(str(k), floors[k]) for k in order}

    assert replay(first, in_order, ops) == replay(second, [mixed[k] for k in range(3)], ops)


def test_the_bound_holds_under_stress(seed: int) -> None:
    """Four threads taking and giving back never hold more than total and floors (S0-46)."""
    budget = budget_of(200)
    shares = [budget.open_share(str(k), floor_bytes=30) for k in range(4)]
    refused: list[int] = []

    def use(share: Share, random_: random.Random) -> None:
        held: list[int] = []
        for _ in range(3000):
            nbytes = random_.randrange(1, 100)
            if share.try_take(nbytes):
                held.append(nbytes)
            else:
                refused.append(nbytes)
            while held and (len(held) > 6 or random_.random() < 0.3):
                share.give_back(held.pop(0))
        share.give_back(sum(held))

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [
        start_thread(task(use, share, random.Random(seed + k)), f"user-{k}")
        for k, share in enumerate(shares)
    ]
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval_s)

    assert refused
    assert 150 < budget.stats()["budget_peak_bytes"] <= 200 + 4 * 30
    assert budget.taken_bytes == 0


def task(
    use: Callable[[Share, random.Random], None], share: Share, random_: random.Random
) -> Callable[[], None]:
    return lambda: use(share, random_)


def test_a_process_has_one_budget_and_a_forked_child_another() -> None:
    """All loaders draw on the same one; in a child nothing is held (S0-46)."""
    program = """
import os
from headrace.budget import process_budget
budget = process_budget()
share = budget.open_share("train", 100)
assert share.try_take(100)
if (pid := os.fork()) == 0:
    child = process_budget()
    os._exit(10 * (child is budget) + child.taken_bytes + 3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), process_budget() is budget)
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=80, check=False
    )

    assert (ended.stdout, ended.stderr) == ("3 True\n", "")
