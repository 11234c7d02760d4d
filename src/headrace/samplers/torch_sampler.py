"""Samplers and batch samplers of torch, and what is like them, as samplers of headrace."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Sized
from copy import copy
from dataclasses import dataclass
from operator import index
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.config import flag
from headrace.errors import ConfigError, IndexOutOfRangeError
from headrace.pick import Picks
from headrace.samplers.epoch_plans import EpochPlans
from headrace.samplers.replay import Replay
from headrace.samplers.sampler import Sampler
from headrace.samplers.scheduled import slots_of


@dataclass(frozen=True, slots=True, eq=False)
class EpochList:
    """What an epoch yields.

    Attributes:
        order: Sample indices, int64 `[picks]`.
        offsets: Where the batch of each step begins in `order`, int64 `[steps + 1]`.
    """

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]


class ListedSampler(Sampler):
    """A sampler whose epochs are lists from a foreign iterable.

    The list of an epoch is drawn when it is first asked for, in time and memory proportional
    to its length, and those of the current and the previous epoch are kept. Any thread may ask.

    Attributes:
        resume: "replay", or "none" where nothing makes the iterable yield an epoch again.
    """

    def __init__(self, iterable: Any, num_samples: int, seed: int, replayable: bool | None) -> None:
        self._num_samples = index(num_samples)
        self.seed = int(seed)
        self._length = _length_of(iterable)
        self._replay = Replay(iterable, self.seed, replayable)
        self._plans: EpochPlans[EpochList] = EpochPlans()
        self.resume = self._replay.resume

    @property
    def num_samples(self) -> int:
        return self._num_samples

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Steps of every epoch."""

    def locate(self, step: int) -> tuple[int, int]:
        if step < 0:
            raise ConfigError("step", "0 or more", step)
        if not self.steps_per_epoch:
            cure = f"No epoch has a step, so there is no step {step}."
            raise ConfigError("sampler", "epochs that fill a batch", self._length, cure)
        return divmod(step, self.steps_per_epoch)

    def first_step(self, epoch: int) -> int:
        if epoch < 0:
            raise ConfigError("epoch", "0 or more", epoch)
        return epoch * self.steps_per_epoch

    def steps_in(self, epoch: int) -> int:
        return self.first_step(epoch + 1) - self.first_step(epoch)

    def rows_in(self, step: int) -> int:
        epoch, into = self.locate(step)
        offsets = self.epoch_list(epoch).offsets
        return int(offsets[into + 1] - offsets[into])

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        if steps and steps.step != 1:
            raise ConfigError("steps", "consecutive steps", steps)
        parts, step = [], steps.start
        while step < steps.stop:
            epoch, into = self.locate(step)
            stop = min(steps.stop, self.first_step(epoch + 1))
            part = _picks_of(self.epoch_list(epoch), into, step, stop)
            parts.append(_only_slots(part, slots, self.global_batch_size))
            step = stop
        return Picks.joined(parts)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "of": self._replay.name,
            "length": self._length,
            "num_samples": self.num_samples,
            "global_batch": self.global_batch_size,
            "seed": self.seed,
        }

    def epoch_list(self, epoch: int) -> EpochList:
        """Give what an epoch yields.

        Raises:
            ConfigError: The iterable yields more or less than its length, no integers, or
                another list than before.
            IndexOutOfRangeError: It yields an index outside `[0, num_samples)`.
        """
        return self._plans.get(epoch, lambda: self._draw(epoch))

    def epoch_state(self, epoch: int) -> list[str]:
        """Give what `restored` needs in another process; empty where it needs nothing.

        That is the state of the iterable's own generators where the epoch starts, as text; of
        the iterable itself where that is all that it has.
        """
        with self._plans.lock:
            return self._replay.state_at(epoch, self._length)

    def restored(self, epoch: int, state: Sequence[str]) -> Self:
        """Give this sampler with an epoch that starts from an `epoch_state`.

        Epochs before that one can then not be asked of it. Both samplers may be used.

        Raises:
            ConfigError: The state is not one of this sampler's.
        """
        other = copy(self)
        with self._plans.lock:
            other._replay = self._replay.restored(epoch, state)
        # Plans of their own, made under one lock: both draw from the same iterable.
        other._plans = EpochPlans(self._plans.lock)
        return other

    def _draw(self, epoch: int) -> EpochList:
        drawn = self._replay.draw(epoch, self._length)
        where = f"{self._replay.name} in epoch {epoch}"
        if len(drawn) != self._length:
            found = len(drawn) if len(drawn) < self._length else f"more than {self._length}"
            wanted = f"{self._length} elements from {where}, as its len says"
            raise ConfigError("sampler", wanted, found)
        listed = self._listed(drawn, where)
        self._replay.check(epoch, listed.order)
        return listed

    @abstractmethod
    def _listed(self, drawn: list[Any], where: str) -> EpochList:
        """Give the list of what was drawn, checked."""


class TorchSampler(ListedSampler):
    """Batches of consecutive indices of a torch Sampler, or of any sized iterable of indices.

    A sampler that could use a generator and has none is given one per epoch, made from the
    seed, so its epochs differ and are the same in every run. One with a generator of its own
    goes on with it from epoch to epoch. `set_epoch(epoch)` is called where it exists.

    Args:
        sampler: The iterable; `len` must tell how many indices an epoch has.
        num_samples: Samples of the dataset.
        batch_size: Rows of a full global batch.
        seed: Seed of the generators that are given.
        drop_last: Leave out the indices that fill no whole batch.
        replayable: Whether the iterable yields an epoch again when asked again, where that
            cannot be seen from its type.

    Raises:
        ConfigError: The iterable has no `len`, or a knob is out of its range.
    """

    def __init__(
        self,
        sampler: Any,
        num_samples: int,
        batch_size: int,
        seed: int = 42,
        *,
        drop_last: bool = True,
        replayable: bool | None = None,
    ) -> None:
        self._batch = index(batch_size)
        if self._batch < 1:
            raise ConfigError("batch_size", "1 or more", batch_size)
        self.drop_last = flag("drop_last", drop_last)
        super().__init__(sampler, num_samples, seed, replayable)

    @property
    def global_batch_size(self) -> int:
        return self._batch

    @property
    def steps_per_epoch(self) -> int:
        whole, short = divmod(self._length, self._batch)
        return whole + (short > 0 and not self.drop_last)

    @property
    def num_picks(self) -> int:
        return min(self._length, self.steps_per_epoch * self._batch)

    def rows_in(self, step: int) -> int:
        _, into = self.locate(step)
        return min(self._batch, self._length - into * self._batch)

    def fingerprint(self) -> dict[str, Any]:
        return {**super().fingerprint(), "drop_last": self.drop_last}

    def _listed(self, drawn: list[Any], where: str) -> EpochList:
        order = _indices(drawn, self.num_samples, where)
        offsets = np.arange(self.steps_per_epoch + 1, dtype=np.int64) * self._batch
        return EpochList(order, np.minimum(offsets, len(order)))


class TorchBatchSampler(ListedSampler):
    """The batches of a torch BatchSampler, or of any sized iterable of lists of indices.

    Args:
        batch_sampler: The iterable; `len` must tell how many batches an epoch has.
        num_samples: Samples of the dataset.
        seed: Seed of the generators that are given, as in `TorchSampler`.
        batch_size: Rows of the largest batch; by default `batch_sampler.batch_size`, else those
            of the largest in epoch 0, which is drawn at once.
        replayable: As in `TorchSampler`.

    Raises:
        ConfigError: The iterable has no `len`, or a knob is out of its range.
    """

    def __init__(
        self,
        batch_sampler: Any,
        num_samples: int,
        seed: int = 42,
        *,
        batch_size: int | None = None,
        replayable: bool | None = None,
    ) -> None:
        size = getattr(batch_sampler, "batch_size", None) if batch_size is None else batch_size
        self._largest = index(size) if size is not None else None
        super().__init__(batch_sampler, num_samples, seed, replayable)
        # Of torch's own batch samplers all is known; of others only what epoch 0 shows.
        inner = getattr(batch_sampler, "sampler", None)
        if self._largest is not None and isinstance(inner, Sized):
            self._num_picks = min(len(inner), self._length * self._largest)
        else:
            first = self.epoch_list(0)
            self._num_picks = len(first.order)
            self._largest = self._largest or int(np.diff(first.offsets).max(initial=1))

    @property
    def global_batch_size(self) -> int:
        return self._largest or 1

    @property
    def steps_per_epoch(self) -> int:
        return self._length

    @property
    def num_picks(self) -> int:
        return self._num_picks

    def _listed(self, drawn: list[Any], where: str) -> EpochList:
        sizes = [_rows_of(batch, where) for batch in drawn]
        most = max(sizes, default=1) if self._largest is None else self._largest
        for size in sizes:
            if not 1 <= size <= most:
                wanted = f"batches of 1 to {most} indices from {where}"
                raise ConfigError("sampler", wanted, size)
        flat = [sample for batch in drawn for sample in batch]
        offsets = np.cumsum([0, *sizes], dtype=np.int64)
        return EpochList(_indices(flat, self.num_samples, where), offsets)


def _rows_of(batch: Any, where: str) -> int:
    try:
        return len(batch)
    except TypeError as error:
        wanted = f"an int >= 1, since {where} gives {type(batch).__name__} and no batches"
        raise ConfigError("batch_size", wanted, None) from error


def _length_of(iterable: Any) -> int:
    try:
        return len(iterable)
    except TypeError as error:
        cure = "Add __len__, so that steps can be placed in epochs."
        raise ConfigError("sampler", "an iterable with a length", iterable, cure) from error


def _indices(drawn: list[Any], num_samples: int, where: str) -> NDArray[np.int64]:
    try:
        order = np.fromiter(map(index, drawn), np.int64, len(drawn))
    except (TypeError, OverflowError) as error:
        wanted = f"integers as sample indices from {where}"
        raise ConfigError("sampler", wanted, str(error)) from error
    outside = np.flatnonzero((order < 0) | (order >= num_samples))
    if len(outside):
        place = f"{where}, position {outside[0]}"
        raise IndexOutOfRangeError(int(order[outside[0]]), num_samples, place)
    return order


def _picks_of(listed: EpochList, into: int, step: int, stop: int) -> Picks:
    offsets = listed.offsets[into : into + stop - step + 1]
    sizes = np.diff(offsets)
    sample = listed.order[offsets[0] : offsets[-1]]
    slot = np.arange(len(sample), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], sizes)
    steps = np.repeat(np.arange(step, stop, dtype=np.int64), sizes)
    return Picks(steps, slot, sample, np.zeros(len(sample), np.int32))


def _only_slots(picks: Picks, slots: slice, global_batch: int) -> Picks:
    wanted = slots_of(slots, global_batch)
    if len(wanted) == global_batch:
        return picks
    kept = (picks.slot >= wanted.start) & (picks.slot < wanted.stop)
    return Picks(picks.step[kept], picks.slot[kept], picks.sample[kept], picks.repeat[kept])
