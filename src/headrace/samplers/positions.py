"""Samplers that deal out an order of picks: position p of the epoch's order is step p div B."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.config import flag, whole
from headrace.errors import ConfigError
from headrace.pick import Picks
from headrace.samplers.schedule import Run, Schedule
from headrace.samplers.scheduled import ScheduledSampler, places_of


class PositionSampler(ScheduledSampler):
    """Deals out, epoch by epoch, an order of `num_samples * augment` picks.

    Pick q of the order is view `q mod augment` of sample `q div augment`. An implementation
    gives the order of an epoch at any positions, at a cost in proportion to their number.

    Attributes:
        drop_last: Whether the picks that fill no whole batch are left out.
        augment: Views per sample and epoch.
    """

    def __init__(self, num_samples: int, batch_size: int, drop_last: bool, augment: int) -> None:
        self.drop_last = flag("drop_last", drop_last)
        self.augment = whole("augment", augment)
        if self.augment < 1:
            raise ConfigError("augment", "1 or more", augment)
        super().__init__(self._schedule_of([(0, batch_size, num_samples)]))

    @abstractmethod
    def _order(self, epoch: int, length: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give which picks stand at some positions of an epoch's order of `length` picks."""

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "num_samples": self.num_samples,
            "global_batch": self.global_batch_size,
            "drop_last": self.drop_last,
            "augment": self.augment,
        }

    def _picks_of(self, run: Run, slots: slice) -> Picks:
        places = places_of(run, slots)
        # Only the last batch of an epoch can be short, so what it lacks is at the end.
        rows = int(np.searchsorted(places.position, run.num_positions))
        picks = self._order(run.epoch, run.num_positions, places.position[:rows])
        sample, repeat = self._views(picks)
        return Picks(places.step[:rows], places.slot[:rows], sample, repeat)

    def _views(self, picks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        if self.augment == 1:
            return picks, np.zeros(len(picks), np.int32)
        sample, repeat = np.divmod(picks, self.augment)
        return sample, repeat.astype(np.int32)

    def _schedule_of(self, pieces: Sequence[tuple[int, int, int]]) -> Schedule:
        schedule = Schedule(pieces, self.drop_last, self.augment)
        picks = schedule.pieces[-1].num_samples * self.augment
        if picks >= 2**63:
            raise ConfigError("augment", "fewer than 2^63 picks in an epoch", self.augment)
        return schedule
