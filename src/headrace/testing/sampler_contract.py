"""The contract of a sampler as a test suite: subclass it and say how to make yours."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random

from headrace.pick import Picks
from headrace.samplers.sampler import Sampler

Rows = list[tuple[int, int, int, int]]


class SamplerContract(ABC):
    """What every sampler must do. Subclass it in a test module as `class TestMine(...)`.

    The sampler that `make` gives should have epochs of a few dozen steps at most, and, if it
    can, a short last batch: the suite goes through whole epochs.

    Attributes:
        far_epoch: An epoch that is asked for without those before it; lower it for a sampler
            that must draw all of them.
        covers: Whether an epoch holds every sample equally often when nothing is dropped.
    """

    far_epoch: int = 1_000_000
    covers: bool = True

    @abstractmethod
    def make(self) -> Sampler:
        """Give a fresh sampler, equal to the last one given."""

    def test_picks_do_not_depend_on_what_was_asked_before(self) -> None:
        """Steps asked for one by one, in any order, are the steps of a whole run."""
        sampler, steps = self.make(), _steps(self.make(), 0, 3)
        whole = _rows(sampler.picks(steps))
        shuffled = list(steps)
        Random(7).shuffle(shuffled)
        fresh = self.make()

        by_step = {step: _rows(fresh.picks(range(step, step + 1))) for step in shuffled}

        assert [row for step in steps for row in by_step[step]] == whole

    def test_any_thread_may_ask(self) -> None:
        """Threads that ask at once get what one thread gets."""
        sampler, steps = self.make(), _steps(self.make(), 0, 3)
        alone = [_rows(self.make().picks(range(step, step + 1))) for step in steps]

        with ThreadPoolExecutor(8) as threads:
            asked = [threads.submit(sampler.picks, range(step, step + 1)) for step in steps]
            together = [_rows(future.result()) for future in asked]

        assert together == alone

    def test_a_range_of_steps_is_its_steps_one_after_another(self) -> None:
        """Cutting a range anywhere changes nothing, also across the end of an epoch."""
        sampler, steps = self.make(), _steps(self.make(), 0, 3)
        whole = _rows(sampler.picks(steps))
        random = Random(3)

        for _ in range(20):
            cut = random.randint(steps.start, steps.stop)
            ahead, behind = range(steps.start, cut), range(cut, steps.stop)
            assert _rows(sampler.picks(ahead)) + _rows(sampler.picks(behind)) == whole

    def test_slots_are_a_slice_of_the_global_batch(self) -> None:
        """Asking for some slots gives those rows of the whole batch, and no others."""
        sampler, steps = self.make(), _steps(self.make(), 0, 2)
        whole, batch = _rows(sampler.picks(steps)), sampler.global_batch_size

        for start in range(batch + 1):
            for stop in {start, start + 1, (start + batch) // 2, batch}:
                part = _rows(sampler.picks(steps, slice(start, stop)))
                assert part == [row for row in whole if start <= row[1] < stop]

    def test_rows_in_counts_the_picks_of_a_step(self) -> None:
        """`rows_in` says how many picks a step has, and their slots count from 0."""
        sampler = self.make()

        for step in _steps(sampler, 0, 3):
            rows = _rows(sampler.picks(range(step, step + 1)))
            assert [row[:2] for row in rows] == [(step, slot) for slot in range(len(rows))]
            assert 1 <= sampler.rows_in(step) == len(rows) <= sampler.global_batch_size

    def test_steps_and_epochs_agree(self) -> None:
        """`locate`, `first_step` and `steps_in` say the same about every step."""
        sampler = self.make()
        places = [sampler.locate(step) for step in _steps(sampler, 0, 4)]

        expected = [(e, s) for e in range(4) for s in range(sampler.steps_in(e) or 0)]
        assert places == expected
        for epoch, after in pairwise(range(5)):
            between = sampler.first_step(after) - sampler.first_step(epoch)
            assert between == sampler.steps_in(epoch)
        assert _raises_value_error(sampler, -1)

    def test_an_epoch_holds_num_picks(self) -> None:
        """An epoch delivers `num_picks` picks of samples inside the dataset."""
        sampler = self.make()

        for epoch in range(3):
            picks = sampler.picks(_steps(sampler, epoch, epoch + 1))
            assert len(picks) == sampler.num_picks
            assert all(0 <= sample < sampler.num_samples for sample in picks.sample.tolist())

    def test_an_epoch_repeats_no_view(self) -> None:
        """No epoch holds a view twice, and with nothing dropped it holds them all."""
        if not self.covers:
            return
        sampler = self.make()

        for epoch in range(3):
            picks = sampler.picks(_steps(sampler, epoch, epoch + 1))
            views = set(zip(picks.sample.tolist(), picks.repeat.tolist(), strict=True))
            assert len(views) == len(picks)
            if len(picks) % sampler.num_samples == 0:
                per_sample = len(picks) // sampler.num_samples
                assert views == {
                    (s, r) for s in range(sampler.num_samples) for r in range(per_sample)
                }

    def test_the_arrays_have_their_types(self) -> None:
        """Picks are int64 but for the repeat, which is int32, also when there are none."""
        sampler = self.make()
        first = sampler.first_step(0)

        for steps in (_steps(sampler, 0, 1), range(first, first)):
            picks = sampler.picks(steps)
            types = [a.dtype for a in (picks.step, picks.slot, picks.sample, picks.repeat)]
            assert types == ["int64", "int64", "int64", "int32"]
            assert len(picks.step) == len(picks.slot) == len(picks.sample) == len(picks.repeat)

    def test_a_far_epoch_starts_at_once(self) -> None:
        """A sampler asked for a far epoch first gives what it gives after another."""
        sampler, other = self.make(), self.make()
        step = sampler.first_step(self.far_epoch) + (sampler.steps_in(self.far_epoch) or 0) // 2
        other.picks(_steps(other, 0, 1))

        assert sampler.locate(step)[0] == self.far_epoch
        here, there = (s.picks(range(step, step + 1)) for s in (sampler, other))
        assert _rows(here) == _rows(there)
        assert len(here) == sampler.rows_in(step)

    def test_the_fingerprint_is_json_and_stable(self) -> None:
        """Two equal samplers have one fingerprint, JSON of less than a kilobyte."""
        sampler, other = self.make(), self.make()
        before = json.dumps(sampler.fingerprint(), sort_keys=True)
        sampler.picks(_steps(sampler, 1, 2))

        assert before == json.dumps(sampler.fingerprint(), sort_keys=True)
        assert before == json.dumps(other.fingerprint(), sort_keys=True)
        assert json.loads(before) == sampler.fingerprint()
        assert len(before) < 1024


def _steps(sampler: Sampler, epoch: int, stop: int) -> range:
    return range(sampler.first_step(epoch), sampler.first_step(stop))


def _rows(picks: Picks) -> Rows:
    columns = (picks.step, picks.slot, picks.sample, picks.repeat)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _raises_value_error(sampler: Sampler, step: int) -> bool:
    try:
        sampler.locate(step)
    except ValueError:
        return True
    return False
