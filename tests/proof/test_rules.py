"""The rules themselves, without threads: slots, grants, and the sizes of blocks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.budget import Budget
from headrace.errors import ClosedError, WouldWait
from headrace.ring.blocks import BlockPool, capacity_for
from headrace.ring.grants import Grants, Share
from headrace.ring.ring import Ring
from headrace.ring.slots import Slots
from tests.proof.naive_ring import delivered

BOUND_BYTES = 100


def run_to_the_end(
    sizes: list[int], prefetch: int, claims: int, order: random.Random, share: Share | None
) -> tuple[list[int], Grants]:
    """Claim, fill and take until all is taken; steps are finished in any order."""
    slots: Slots[int] = Slots(0, prefetch, prefetch, len(sizes))
    grants = Grants(BOUND_BYTES, share)
    ring = Ring(slots, grants)
    building: list[int] = []
    taken: list[int] = []
    while len(taken) < len(sizes):
        first = slots.next_to_claim
        building += ring.claim(sizes[first : first + claims])
        # Somebody is always building or something is filled: else nothing could ever happen.
        assert building or slots.has_next()
        if building:
            step = building.pop(order.randrange(len(building)))
            assert ring.fill(step, [step])
        if order.random() < 0.7:
            try:
                taken.append(ring.take_nowait()[1])
            except WouldWait:
                continue
        held = sum(sizes[slots.next_to_take : slots.next_to_claim])
        assert grants.granted_bytes == held
        assert held <= BOUND_BYTES or grants.forced_steps
        assert slots.claimed_steps <= prefetch
    return taken, grants


SIZES = st.lists(st.integers(0, 3 * BOUND_BYTES), min_size=1, max_size=40)


@given(SIZES, st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False))
def test_there_is_always_progress(
    sizes: list[int], prefetch: int, claims: int, order: random.Random
) -> None:
    """Sizes up to three times the bound, steps finished in any order: all are delivered."""
    taken, grants = run_to_the_end(sizes, prefetch, claims, order, None)

    oracle = delivered(range(len(sizes)), prefetch, BOUND_BYTES, sizes, str)
    assert [(step, str(step)) for step in taken] == oracle
    assert grants.granted_bytes == 0
    assert grants.peak_bytes <= BOUND_BYTES + max(sizes)


@given(SIZES, st.integers(0, 200), st.integers(0, 300), st.randoms(use_true_random=False))
def test_a_budget_that_others_use_up_stops_no_ring(
    sizes: list[int], room_bytes: int, others_bytes: int, order: random.Random
) -> None:
    """The step wanted next is always granted, whatever other loaders hold."""
    budget = Budget(lambda: room_bytes)
    other = budget.open_share("other", 0, 0.9)
    other.take_forced(others_bytes)

    taken, grants = run_to_the_end(sizes, 4, 4, order, budget.open_share("ring", 20, 0.9))

    assert taken == list(range(len(sizes)))
    assert budget.taken_bytes == others_bytes
    assert grants.granted_bytes == 0


@given(st.integers(1, 8), st.integers(0, 20), st.data())
def test_a_slot_is_claimed_filled_and_taken_once(
    slots: int, start: int, data: st.DataObject
) -> None:
    """What the rules forbid raises, and changes nothing."""
    ring: Slots[str] = Slots(start, slots, slots)
    claimed = ring.claim(data.draw(st.integers(1, slots)))
    step = data.draw(st.sampled_from(claimed))
    ring.fill(step, "first")

    with pytest.raises(ValueError, match="already filled"):
        ring.fill(step, "second")
    with pytest.raises(ValueError, match="not claimed"):
        ring.fill(claimed.stop, "early")
    with pytest.raises(ValueError, match="claimable"):
        ring.claim(slots - len(claimed) + 1)
    if step != start:
        with pytest.raises(ValueError, match="not filled"):
            ring.take()

    assert ring.next_to_take == start
    assert ring.next_to_claim == claimed.stop
    assert ring.close() == ["first"]
    with pytest.raises(ClosedError):
        ring.fill(step, "late")


def test_none_is_a_value() -> None:
    """A slot that holds None is filled."""
    ring: Slots[None] = Slots(0, 2, 2)
    ring.claim(1)
    ring.fill(0, None)

    assert ring.has_next()
    assert ring.take() == (0, None)
    assert not ring.has_next()


def test_a_grant_is_released_once() -> None:
    """A step gives its bytes back when it is taken, and those that an interrupt left before it."""
    grants = Grants(BOUND_BYTES)
    for step in (5, 6, 7):
        assert grants.grant(step, 10, False)

    with pytest.raises(ValueError, match="step 4 holds no grant"):
        grants.release(4)
    assert grants.release(6) == 20
    with pytest.raises(ValueError, match="step 6 holds no grant"):
        grants.release(6)

    assert grants.granted_bytes == 10


@given(st.integers(1, 1 << 40))
def test_sizes_near_each_other_share_blocks(nbytes: int) -> None:
    """A block wastes at most an eighth, and sizes within an eighth get the same block."""
    capacity = capacity_for(nbytes)

    assert nbytes <= capacity
    assert capacity <= max(4096, nbytes + nbytes // 8 + 1)
    assert capacity_for(capacity) == capacity
    assert capacity % 64 == 0


@given(st.lists(st.sampled_from([4096, 8192, 65536]), max_size=60), st.integers(0, 80_000))
def test_free_memory_stays_within_its_bound(sizes: list[int], bound_bytes: int) -> None:
    """Whatever sizes are lent and returned, no more than the bound lies free."""
    pool = BlockPool(bound_bytes)
    for at, size in enumerate(sizes):
        first, second = pool.lend(size), pool.lend(sizes[at - 1])
        second.let_go()
        first.let_go()

        free_bytes = sum(len(block.memory) for free in pool._free.values() for block in free)
        assert free_bytes == pool._free_bytes <= bound_bytes
