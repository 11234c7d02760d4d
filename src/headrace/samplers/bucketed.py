"""Batches of samples of about one length, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.config import flag, whole
from headrace.errors import ConfigError
from headrace.pick import Picks
from headrace.rng import Stream, derive
from headrace.samplers.epoch_plans import EpochPlans
from headrace.samplers.fingerprints import digest_of_array
from headrace.samplers.permutation import KeyedPermutation, keyed_permutation
from headrace.samplers.schedule import Run, Schedule
from headrace.samplers.scheduled import ScheduledSampler, places_of

_LONGEST = 2**31 - 1
_MOST_SAMPLES = 2**32


class Bucketed(ScheduledSampler):
    """Every sample once per epoch; the samples of a batch have neighbouring lengths.

    The samples are shuffled, cut into pools of `pool_batches` batches, each pool is sorted by
    length and cut into batches, and the batches of all pools are shuffled. A larger pool pads
    less and mixes less. Without drop_last the short batch holds the longest samples of the last
    pool, and may come at any step of the epoch.

    The plan of an epoch takes O(n log n) time and 8 bytes a sample; those of the current and
    the previous epoch are kept. The batch size may change only between epochs.

    Args:
        lengths: Length of each sample, integers `[n]` from 0 to 2^31 - 1, n up to 2^32.
        batch_size: Rows of a full global batch.
        pool_batches: Batches per pool.
        seed: Any integer, taken mod 2^64.
        drop_last: Leave out the samples that fill no whole batch; other ones in each epoch.

    Raises:
        ConfigError: A knob is out of its range.

    Attributes:
        augment: Views per sample and epoch.
    """

    augment = 1

    def __init__(
        self,
        lengths: Any,
        batch_size: int,
        pool_batches: int,
        seed: int = 42,
        *,
        drop_last: bool = True,
    ) -> None:
        self.lengths = _checked_lengths(lengths)
        self.pool_batches = whole("pool_batches", pool_batches)
        if self.pool_batches < 1:
            raise ConfigError("pool_batches", "1 or more", pool_batches)
        self.seed = whole("seed", seed)
        self.drop_last = flag("drop_last", drop_last)
        self._digest = digest_of_array(self.lengths)
        self._plans: EpochPlans[_Plan] = EpochPlans()
        super().__init__(self._schedule_of([(0, batch_size, len(self.lengths))]))

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "num_samples": self.num_samples,
            "global_batch": self.global_batch_size,
            "drop_last": self.drop_last,
            "pool_batches": self.pool_batches,
            "lengths": self._digest,
            "seed": self.seed,
        }

    def rows_in(self, step: int) -> int:
        run = next(self.schedule.runs(range(step, step + 1)))
        batch = self._places_of_batches(run.epoch).inverse(run.step_in_epoch)
        return min(run.global_batch, self.num_samples - batch * run.global_batch)

    def _picks_of(self, run: Run, slots: slice) -> Picks:
        plan = self._plans.get((run.epoch, run.global_batch), lambda: self._plan(run))
        places = places_of(run, slots)
        step_in_epoch = places.step + (run.step_in_epoch - run.first_step)
        sorted_at = plan.batch_at[step_in_epoch] * run.global_batch + places.slot
        # The short batch may be any of them.
        real = sorted_at < len(plan.order)
        sample = plan.order[sorted_at[real]]
        return Picks(places.step[real], places.slot[real], sample, np.zeros(len(sample), np.int32))

    def _plan(self, run: Run) -> _Plan:
        steps = self.steps_in(run.epoch)
        key = derive(self.seed, run.epoch, 0, 0, Stream.BUCKET_ORDER)
        shuffled = keyed_permutation(self.num_samples, key).take(np.arange(self.num_samples))
        kept = shuffled[: steps * run.global_batch]
        order = _sorted_by_pool(kept, self.lengths, run.global_batch * self.pool_batches)
        batch_at = np.empty(steps, np.int64)
        batch_at[self._places_of_batches(run.epoch).take(np.arange(steps))] = np.arange(steps)
        return _Plan(order, batch_at)

    def _places_of_batches(self, epoch: int) -> KeyedPermutation:
        key = derive(self.seed, epoch, 1, 0, Stream.BUCKET_PLACE)
        return keyed_permutation(self.steps_in(epoch), key)

    def _schedule_of(self, pieces: Sequence[tuple[int, int, int]]) -> Schedule:
        schedule = Schedule(pieces, self.drop_last)
        if schedule.inside_epochs:
            cure = "The pools of an epoch hang on its batch size: change it between epochs."
            found = ", ".join(f"{batch} from step {first}" for first, batch, _ in pieces)
            raise ConfigError("batch_size", "one for each epoch", found, cure)
        if any(piece.num_samples != len(self.lengths) for piece in schedule.pieces):
            cure = "Give Bucketed the lengths of all samples, as a new run."
            raise ConfigError("num_samples", f"{len(self.lengths)} lengths", list(pieces), cure)
        return schedule


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """One epoch.

    Attributes:
        order: Samples, sorted inside each pool, int64 `[picks]`; batch t is the t-th B of them.
        batch_at: Which batch is served at each step of the epoch, int64 `[steps]`.
    """

    order: NDArray[np.int64]
    batch_at: NDArray[np.int64]


def _sorted_by_pool(
    samples: NDArray[np.int64], lengths: NDArray[np.int64], pool_rows: int
) -> NDArray[np.int64]:
    # Length and index in one word: no two are equal, so any sort gives the same order.
    keys = (lengths[samples] << 32) | samples
    whole = len(keys) - len(keys) % pool_rows
    keys[:whole].reshape(-1, pool_rows).sort(axis=1)
    keys[whole:].sort()
    keys &= _MOST_SAMPLES - 1
    return keys


def _checked_lengths(lengths: Any) -> NDArray[np.int64]:
    found = np.array(lengths)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ConfigError("lengths", "one integer per sample", f"{found.dtype} {found.shape}")
    if len(found) > _MOST_SAMPLES:
        raise ConfigError("lengths", "at most 2^32 samples", len(found))
    if found.size and not (int(found.min()) >= 0 and int(found.max()) <= _LONGEST):
        bad = int(found.min()) if int(found.min()) < 0 else int(found.max())
        raise ConfigError("lengths", "lengths from 0 to 2^31 - 1", bad)
    return found.astype(np.int64)
