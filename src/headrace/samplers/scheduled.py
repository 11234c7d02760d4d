"""What the samplers of headrace share: steps by a schedule, picks run by run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.pick import Picks
from headrace.samplers.sampler import Sampler
from headrace.samplers.schedule import Run, Schedule


class ScheduledSampler(Sampler):
    """A sampler whose steps follow a `Schedule`.

    An implementation gives the picks of one `Run`, a fingerprint, and the schedule that it can
    follow. The fingerprint is that of the last piece; who keeps a state keeps the pieces too.

    Attributes:
        schedule: Where every step lies.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    @property
    def global_batch_size(self) -> int:
        return self.schedule.pieces[-1].global_batch

    @property
    def num_samples(self) -> int:
        return self.schedule.pieces[-1].num_samples

    @property
    def num_picks(self) -> int:
        return self.schedule.num_picks

    def locate(self, step: int) -> tuple[int, int]:
        return self.schedule.locate(step)

    def first_step(self, epoch: int) -> int:
        return self.schedule.first_step(epoch)

    def steps_in(self, epoch: int) -> int:
        return self.schedule.steps_in(epoch)

    def rows_in(self, step: int) -> int:
        return self.schedule.rows_in(step)

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        return Picks.joined([self._picks_of(run, slots) for run in self.schedule.runs(steps)])

    def rescheduled(self, schedule: Sequence[tuple[int, int, int]]) -> Self:
        other = copy(self)
        other.schedule = self._schedule_of(schedule)
        return other

    @abstractmethod
    def _picks_of(self, run: Run, slots: slice) -> Picks:
        """Give the picks of one run, ordered by (step, slot)."""

    @abstractmethod
    def _schedule_of(self, pieces: Sequence[tuple[int, int, int]]) -> Schedule:
        """Give the schedule of other pieces.

        Raises:
            ConfigError: This kind of sampler cannot follow them.
        """


class Places(NamedTuple):
    """The places that the full batches of a run would fill, ordered by (step, slot).

    Attributes:
        step: Global step, int64 `[rows]`.
        slot: Position in the global batch, int64 `[rows]`.
        position: Position in the order of the epoch, int64 `[rows]`, ascending.
    """

    step: NDArray[np.int64]
    slot: NDArray[np.int64]
    position: NDArray[np.int64]


def places_of(run: Run, slots: slice) -> Places:
    """Give the places of a run, as if no batch were short."""
    wanted = slots_of(slots, run.global_batch)
    shape = (run.num_steps, len(wanted))
    step = run.first_step + np.arange(run.num_steps, dtype=np.int64)[:, None]
    slot = np.arange(wanted.start, wanted.stop, dtype=np.int64)
    begin = run.position + run.global_batch * np.arange(run.num_steps, dtype=np.int64)[:, None]
    return Places(
        np.broadcast_to(step, shape).reshape(-1),
        np.broadcast_to(slot, shape).reshape(-1),
        (begin + slot).reshape(-1),
    )


def slots_of(slots: slice, global_batch: int) -> range:
    """Give the slots of a full global batch that a slice names.

    Raises:
        ConfigError: The slice leaves slots out between others.
    """
    if slots.step not in (None, 1):
        raise ConfigError("slots", "a slice of step 1", slots)
    start, stop, _ = slots.indices(global_batch)
    return range(start, max(start, stop))
