"""Every sampler keeps the contract; what each adds to it."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Loader
from headrace.errors import ConfigError
from headrace.rng import SampleRng
from headrace.samplers import BlockShuffled, Bucketed, Mixing, Sampler, Sequential, Shuffled
from headrace.samplers.epoch_plans import EpochPlans
from headrace.samplers.shuffled import UNIFORM_MAX, fisher_yates
from headrace.testing.sampler_contract import SamplerContract
from tests.order.vectors import cases, word

LENGTHS = [(7 * i) % 23 for i in range(53)]


class TestSequential(SamplerContract):
    """Stored order, with a short last batch."""

    def make(self) -> Sampler:
        return Sequential(23, 5, drop_last=False)


class TestSequentialViews(SamplerContract):
    """Stored order of two views each."""

    def make(self) -> Sampler:
        return Sequential(11, 4, augment=2)


class TestShuffled(SamplerContract):
    """The keyed order."""

    def make(self) -> Sampler:
        return Shuffled(53, 8, 7)


class TestShuffledViews(SamplerContract):
    """The keyed order of three views each, nothing dropped."""

    def make(self) -> Sampler:
        return Shuffled(17, 6, augment=3, drop_last=False)


class TestUniform(SamplerContract):
    """Fisher-Yates."""

    def make(self) -> Sampler:
        return Shuffled(53, 8, drop_last=False, order="uniform")


class TestBlockShuffled(SamplerContract):
    """Blocks, the last of which is short."""

    def make(self) -> Sampler:
        return BlockShuffled(53, 8, block=5, window=3, drop_last=False)


class TestBlockShuffledViews(SamplerContract):
    """Blocks of three views each, a batch larger than a window."""

    def make(self) -> Sampler:
        return BlockShuffled(20, 9, block=2, window=1, augment=3, drop_last=False)


class TestMixing(SamplerContract):
    """Draws with replacement."""

    covers = False

    def make(self) -> Sampler:
        return Mixing([(0, 5), (20, 30), (5, 0)], [1, 2.5, 3], 6, steps_per_epoch=7)


class TestBucketed(SamplerContract):
    """Buckets, the short batch anywhere."""

    def make(self) -> Sampler:
        return Bucketed(LENGTHS, 4, 3, drop_last=False)


class TestBucketedFull(SamplerContract):
    """Buckets of full batches only."""

    def make(self) -> Sampler:
        return Bucketed(LENGTHS, 4, 3)


class TestRescheduled(SamplerContract):
    """An order whose batch size and data changed on the way."""

    def make(self) -> Sampler:
        return Shuffled(40, 8, drop_last=False).rescheduled([(0, 5, 36), (3, 8, 40)])

    def test_an_epoch_holds_num_picks(self) -> None:
        """`num_picks` is that of the epochs from the last piece on."""
        sampler = self.make()
        first, after = sampler.first_step(1), sampler.first_step(2)

        assert len(sampler.picks(range(first, after))) == sampler.num_picks == 40

    def test_an_epoch_repeats_no_view(self) -> None:
        """The epoch under way has its old data whole; the next has the new data whole."""
        sampler = self.make()
        ends = [sampler.first_step(epoch) for epoch in range(3)]

        epochs = [sampler.picks(range(*steps)).sample.tolist() for steps in pairwise(ends)]

        assert [sorted(epoch) for epoch in epochs] == [list(range(36)), list(range(40))]


MAKERS: dict[str, Callable[[], Sampler]] = {
    "sequential": lambda: Sequential(23, 5),
    "shuffled": lambda: Shuffled(23, 5),
    "uniform": lambda: Shuffled(23, 5, order="uniform"),
    "blocks": lambda: BlockShuffled(23, 5, block=4),
    "mixing": lambda: Mixing.end_to_end([5, 6], [1, 2], 4, 3),
    "bucketed": lambda: Bucketed(LENGTHS, 4, 3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_sampler_travels_to_another_process(name: str) -> None:
    """A pickled sampler, used or fresh, gives the picks of the first."""
    sampler = MAKERS[name]()
    first = sampler.picks(range(9)).sample.tolist()

    copy = pickle.loads(pickle.dumps(sampler))

    assert copy.picks(range(9)).sample.tolist() == first
    assert copy.fingerprint() == sampler.fingerprint()


@given(
    n=st.integers(1, 300),
    batch=st.integers(1, 40),
    seed=st.integers(-(2**63), 2**64 - 1),
    epoch=st.integers(0, 2**40),
    augment=st.integers(1, 4),
    kind=st.sampled_from(["sequential", "keyed", "uniform", "blocks"]),
    data=st.data(),
)
def test_an_epoch_is_every_view_once(
    n: int, batch: int, seed: int, epoch: int, augment: int, kind: str, data: st.DataObject
) -> None:
    """Any size, seed, epoch and batch: all views once, and without drop_last all (S1-26, S0-69)."""
    knobs: dict[str, Any] = {"augment": augment, "drop_last": data.draw(st.booleans())}
    if kind == "sequential":
        sampler: Any = Sequential(n, batch, **knobs)
    elif kind == "blocks":
        block, window = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 20))
        sampler = BlockShuffled(n, batch, seed, block=block, window=window, **knobs)
    else:
        sampler = Shuffled(n, batch, seed, order=kind, **knobs)
    first = sampler.first_step(epoch)

    picks = sampler.picks(range(first, sampler.first_step(epoch + 1)))

    views = Counter(zip(picks.sample.tolist(), picks.repeat.tolist(), strict=True))
    assert set(views.values()) <= {1}
    assert len(picks) == sampler.num_picks
    if not knobs["drop_last"]:
        assert set(views) == {(sample, r) for sample in range(n) for r in range(augment)}


@given(
    kind=st.sampled_from(["sequential", "keyed", "uniform", "blocks"]),
    start=st.integers(1, 60),
    changes=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 9), st.sampled_from([0, 5])), max_size=3
    ),
)
def test_a_changed_schedule_repeats_and_skips_nothing(
    kind: str, start: int, changes: list[tuple[int, int, int]]
) -> None:
    """Through any changes of batch size and data, every epoch is its samples once each."""
    pieces = [(0, 4, start)]
    for steps, batch, more in changes:
        pieces.append((pieces[-1][0] + steps, batch, pieces[-1][2] + more))
    made = {
        "sequential": Sequential(start, 4, drop_last=False),
        "keyed": Shuffled(start, 4, drop_last=False),
        "uniform": Shuffled(start, 4, drop_last=False, order="uniform"),
        "blocks": BlockShuffled(start, 4, block=3, window=2, drop_last=False),
    }
    sampler = made[kind].rescheduled(pieces)

    for epoch in range(6):
        first, after = sampler.first_step(epoch), sampler.first_step(epoch + 1)
        samples = sorted(sampler.picks(range(first, after)).sample.tolist())
        known = [n for from_step, _, n in pieces if from_step <= first][-1]
        assert samples == list(range(known))
    assert sampler.fingerprint()["global_batch"] == pieces[-1][1]
    assert sampler.fingerprint()["num_samples"] == pieces[-1][2]


def test_what_was_taken_stays_when_the_batch_size_changes() -> None:
    """Steps before the change are as they were; the rest of the epoch follows in order."""
    before = Shuffled(20, 4)
    after = before.rescheduled([(0, 4, 20), (2, 3, 20)])
    order = before.picks(range(5)).sample.tolist()

    assert after.picks(range(2)).sample.tolist() == order[:8]
    assert after.picks(range(2, 6)).sample.tolist() == order[8:]
    assert before.picks(range(5)).sample.tolist() == order


def test_epochs_differ_and_come_back() -> None:
    """Each epoch has an order of its own, the same whenever it is asked for (S0-60, S0-62, S4-20).

    The default seed is 42 (S0-61, U-03).
    """
    sampler = Shuffled(1000, 1000)
    orders = [sampler.picks(range(e, e + 1)).sample.tolist() for e in (3, 0, 1, 2)]

    again = [Shuffled(1000, 1000, 42).picks(range(e, e + 1)).sample.tolist() for e in (3, 0, 1, 2)]

    assert orders == again
    assert len({tuple(order) for order in orders}) == 4
    assert Shuffled(1000, 1000, 43).picks(range(1)).sample.tolist() not in orders


def test_drop_last_is_the_default() -> None:
    """23 samples in batches of 7 are 3 batches, or 4 with the short one (S1-27, S0-65)."""
    assert Shuffled(23, 7).steps_in(0) == 3
    assert Shuffled(23, 7, drop_last=False).steps_in(0) == 4
    assert Shuffled(23, 7, drop_last=False).rows_in(3) == 2


def test_repeats_are_spread_over_the_epoch() -> None:
    """Views of one sample stand side by side about as often as chance has it (S0-67)."""
    sampler = Shuffled(500, 2000, augment=4)
    together = 0
    for epoch in range(50):
        samples = sampler.picks(range(epoch, epoch + 1)).sample
        together += int(np.sum(samples[1:] == samples[:-1]))

    # 1,999 neighbours in each of 50 epochs, of which 3 in 1,999 are of one sample: 150 +- 12.
    assert 100 < together < 200


def test_picks_of_a_block_stay_together() -> None:
    """All picks of a block come within one window of `window * block * augment` positions."""
    sampler = BlockShuffled(1003, 10, block=10, window=4, augment=2, drop_last=False)
    picks = sampler.picks(range(sampler.steps_in(0)))
    position_of: dict[int, list[int]] = {}
    for position, sample in enumerate(picks.sample.tolist()):
        position_of.setdefault(sample // 10, []).append(position)

    spans = [max(places) - min(places) + 1 for places in position_of.values()]

    assert len(position_of) == 101
    assert max(spans) <= 4 * 10 * 2
    assert max(spans) > 10 * 2


def test_uniform_orders_are_equally_likely() -> None:
    """Of the 24 orders of four samples, each seed gives one, and each comes as often as another."""
    counts = Counter(tuple(fisher_yates(4, state).tolist()) for state in range(24_000))

    # Chi-square with 23 degrees of freedom exceeds 49.7 once in a thousand.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 49.7
    assert len(counts) == 24


def test_a_uniform_draw_that_takes_two_words_moves_the_later_ones() -> None:
    """An order whose first draw is drawn again is what one rng, draw by draw, makes of it."""
    [state] = {word(c["state"]) for c in cases("next_int") if "t = 1" in c.get("comment", "")}
    rng, order = SampleRng(state), [0, 1, 2]
    for i in (2, 1):
        j = rng.next_int(i + 1)
        order[i], order[j] = order[j], order[i]

    assert rng.state == (state + 3 * 0x9E3779B97F4A7C15) % 2**64
    assert fisher_yates(3, state).tolist() == order


def test_the_uniform_order_has_a_limit() -> None:
    """Above it the keyed order is named as the cure."""
    with pytest.raises(ConfigError, match='order="keyed"'):
        Shuffled(UNIFORM_MAX + 1, 4, order="uniform")
    with pytest.raises(ConfigError, match='order="keyed"'):
        Shuffled(8, 4, order="uniform").rescheduled([(0, 4, 8), (1, 4, UNIFORM_MAX + 1)])


def test_a_plan_is_made_once_for_all_threads() -> None:
    """Sixteen threads in two epochs make two plans (S1-35)."""
    plans: EpochPlans[list[int]] = EpochPlans()
    made: list[int] = []
    ready = Barrier(16)

    def make(epoch: int) -> list[int]:
        made.append(epoch)
        return [epoch]

    def ask(number: int) -> list[int]:
        ready.wait()
        return plans.get(number % 2, lambda: make(number % 2))

    with ThreadPoolExecutor(16) as threads:
        got = list(threads.map(ask, range(16)))

    assert sorted(made) == [0, 1]
    assert got == [[number % 2] for number in range(16)]


def test_two_plans_are_kept() -> None:
    """The one asked for least lately goes before a third is made, and can be made again (C24)."""
    plans: EpochPlans[str] = EpochPlans()
    made: list[int] = []

    def make(epoch: int) -> str:
        made.append(epoch)
        return f"plan {epoch}"

    got = [plans.get(epoch, lambda e=epoch: make(e)) for epoch in (0, 1, 0, 2, 0, 2, 1)]

    assert got == [f"plan {epoch}" for epoch in (0, 1, 0, 2, 0, 2, 1)]
    assert made == [0, 1, 2, 1]


def test_a_plan_that_fails_is_made_again() -> None:
    """An error reaches who asked, and is not kept."""
    plans: EpochPlans[str] = EpochPlans()

    with pytest.raises(ZeroDivisionError):
        plans.get(0, lambda: str(1 // 0))

    assert plans.get(0, lambda: "made") == "made"


def test_bucketed_batches_are_of_one_length() -> None:
    """With one pool for all, lengths inside the batches, in order, form one rising line."""
    sampler = Bucketed(LENGTHS, 4, 1000)
    batches = [sampler.picks(range(step, step + 1)).sample.tolist() for step in range(13)]

    lengths = sorted([LENGTHS[sample] for sample in batch] for batch in batches)

    line = list(chain.from_iterable(lengths))
    assert line == sorted(line)


def test_mixing_lays_sizes_end_to_end() -> None:
    """Sizes alone mean ranges one behind the other (C19)."""
    laid = Mixing.end_to_end([5, 0, 7], [1, 1, 2], 8, 10)
    given_ranges = Mixing([(0, 5), (5, 0), (5, 7)], [1, 1, 2], 8, 10)

    assert laid.picks(range(30)).sample.tolist() == given_ranges.picks(range(30)).sample.tolist()
    assert laid.num_samples == 12


def test_mixing_takes_a_new_batch_size() -> None:
    """Slots that both sizes have keep their draws, and epochs keep their steps."""
    before = Mixing.end_to_end([50, 70], [1, 2], 4, 5)
    after = before.rescheduled([(0, 4, 120), (3, 6, 120)])

    grown = after.picks(range(8), slice(0, 4)).sample.tolist()

    assert grown == before.picks(range(8)).sample.tolist()
    assert [after.rows_in(step) for step in (2, 3, 4, 5)] == [4, 6, 6, 6]
    assert after.locate(5) == (1, 0)


def test_bucketed_takes_a_new_batch_size_between_epochs_only() -> None:
    """Pools hang on the batch size, so it holds for a whole epoch."""
    sampler = Bucketed(LENGTHS, 4, 3)

    after = sampler.rescheduled([(0, 4, 53), (13, 5, 53)])
    second = after.picks(range(13, 23)).sample.tolist()

    assert after.picks(range(13)).sample.tolist() == sampler.picks(range(13)).sample.tolist()
    assert second == Bucketed(LENGTHS, 5, 3).picks(range(10, 20)).sample.tolist()
    with pytest.raises(
        ConfigError, match=r"got '.* from step 0, .* from step .*change it between epochs"
    ):
        sampler.rescheduled([(0, 4, 53), (12, 5, 53)])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Shuffled(10, 0), "batch_size: wanted 1 or more, got 0"),
        (lambda: Shuffled(-1, 2), "num_samples: wanted 0 to"),
        (lambda: Shuffled(10, 2, augment=0), "augment: wanted 1 or more, got 0"),
        (lambda: Shuffled(2**62, 2, augment=2), "augment: wanted fewer than 2"),
        (lambda: Shuffled(10, 2, order="random"), 'order: wanted "keyed" or "uniform"'),
        (lambda: BlockShuffled(10, 2, block=0), "block: wanted 1 or more"),
        (lambda: BlockShuffled(10, 2, block=1, window=0), "window: wanted 1 or more"),
        (lambda: BlockShuffled(2**62 + 1, 2, block=1), "num_samples: wanted at most 2"),
        (lambda: Mixing([(0, 1)], [1, 2], 1, 1), "shares: wanted one for each of 1 sources"),
        (lambda: Mixing([(0, 1)], [-1], 1, 1), "shares: wanted weights of 0 or more"),
        (lambda: Mixing([(0, 1)], [float("nan")], 1, 1), "shares: wanted weights of 0 or more"),
        (lambda: Mixing([(0, 1)] * 2, [1e308, 1e308], 1, 1), "shares: .* with a finite sum"),
        (lambda: Mixing([(0, 0), (0, 5)], [1, 0], 1, 1), "shares: wanted a source with samples"),
        (lambda: Mixing([(-1, 2)], [1], 1, 1), "sources: wanted ranges"),
        (lambda: Mixing([(0, 1)], [1], 1, 0), "steps_per_epoch: wanted 1 or more"),
        (lambda: Mixing([], [], 1, 1), "shares: wanted a source"),
        (lambda: Bucketed([1, 2], 1, 0), "pool_batches: wanted 1 or more"),
        (lambda: Bucketed([1, -2], 1, 1), "lengths: wanted lengths from 0 to .*, got -2"),
        (lambda: Bucketed([1, 2**31], 1, 1), "lengths: wanted lengths .*, got 2147483648"),
        (lambda: Bucketed([1.5], 1, 1), "lengths: wanted one integer per sample"),
        (lambda: Bucketed([[1]], 1, 1), "lengths: wanted one integer per sample"),
        (lambda: Bucketed([1], 1, 1).rescheduled([(0, 1, 2)]), "num_samples: wanted 1 lengths"),
        (
            lambda: Mixing([(0, 4)], [1], 1, 1).rescheduled([(0, 1, 5)]),
            "num_samples: wanted 4, as the sources say",
        ),
        (lambda: Shuffled(5, 2).picks(range(2), slice(0, 2, 2)), "slots: wanted a slice of step 1"),
    ],
)
def test_a_knob_that_cannot_work_is_named(make: Callable[[], Any], said: str) -> None:
    """The message has the knob, what was wanted and what was found."""
    with pytest.raises(ConfigError, match=said):
        make()


def test_a_batch_larger_than_the_data_is_an_empty_epoch() -> None:
    """No steps, no picks, and no error before a step is asked for (C11)."""
    for sampler in (Shuffled(3, 4), Sequential(0, 4), Bucketed([], 4, 2, drop_last=False)):
        assert sampler.steps_in(0) == sampler.num_picks == 0
        assert len(sampler.picks(range(0))) == 0
        with pytest.raises(ValueError, match="there is no step 0"):
            sampler.locate(0)


@pytest.mark.parametrize("name", MAKERS)
def test_slots_beyond_the_batch_are_none(name: str) -> None:
    """A slice may reach past the batch, as slices do, and be empty."""
    sampler = MAKERS[name]()

    assert len(sampler.picks(range(2), slice(1, 100))) == 2 * (sampler.global_batch_size - 1)
    assert len(sampler.picks(range(2), slice(3, 3))) == 0


def test_many_sources_fit_a_fingerprint() -> None:
    """A thousand sources are told apart by a digest."""
    one = Mixing.end_to_end([10] * 1000, [1.0] * 1000, 4, 5)
    other = Mixing.end_to_end([10] * 1000, [1.0] * 999 + [2.0], 4, 5)

    assert len(str(one.fingerprint())) < 300
    assert one.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockShuffled(9, 2, block=1.5), r"block: wanted an int, got 1\.5"),
        (lambda: BlockShuffled(9, 2, block=1, window="2"), "window: wanted an int, got '2'"),
        (lambda: Bucketed(LENGTHS, 4, 1.5), r"pool_batches: wanted an int, got 1\.5"),
        (lambda: Shuffled(9, 2, "a"), "seed: wanted an int, got 'a'"),
        (lambda: Shuffled(9, 2, augment=None), "augment: wanted an int, got None"),
        (lambda: Sequential(9, 2.5), r"batch_size: wanted an int, got 2\.5"),
        (lambda: Sequential([9], 2), r"num_samples: wanted an int, got \[9\]"),
        (lambda: Loader(LENGTHS, np.zeros(3)), r"batch_size: wanted an int >= 1, got array"),
        (lambda: Sequential(9, True), "batch_size: wanted an int, got True"),
        (lambda: Mixing.end_to_end([], [], 4, 3), "shares: wanted a source with samples"),
        (lambda: Mixing.end_to_end(5, [1], 4, 3), "sizes: wanted one size per source, got 5"),
        (lambda: Mixing.end_to_end([5.5], [1], 4, 3), r"sizes: wanted an int, got 5\.5"),
        (lambda: Mixing([(0, 5)], ["a"], 4, 3), r"shares: wanted .* a number, got \['a'\]"),
        (lambda: Mixing([(0, 5)], 0.5, 4, 3), r"shares: wanted one weight per source, got 0\.5"),
        (lambda: Mixing([5], [1], 4, 3), r"sources: wanted one range .* got 5"),
        (lambda: Mixing(5, [1], 4, 3), r"sources: wanted one range .* got 5"),
        (lambda: Mixing([(0, "5")], [1], 4, 3), "sources: wanted an int, got '5'"),
        (lambda: Mixing([(0, 5)], [1], 4, 1.5), "steps_per_epoch: wanted an int"),
        (lambda: Shuffled(5, 2, drop_last="no"), "drop_last: wanted True or False, got 'no'"),
        (lambda: Bucketed([1, 2], 1, 1, drop_last=0), "drop_last: wanted True or False, got 0"),
    ],
)
def test_a_knob_of_another_kind_is_named(make: Callable[[], Any], message: str) -> None:
    """No bare TypeError from within."""
    with pytest.raises(ConfigError, match=message):
        make()
