"""A pick is one view of one sample at an epoch, step and slot of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from headrace.rng import SampleRng, SampleRngs, Stream, derive, derive_rows


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Picks as a struct of arrays, all of one length, ordered by (step, slot).

    Attributes:
        step: Global step of each pick, int64 `[rows]`.
        slot: Position in the GLOBAL batch, int64 `[rows]`.
        sample: Index into the dataset, int64 `[rows]`.
        repeat: Which of the `augment` views of the sample, int32 `[rows]`.
    """

    step: NDArray[np.int64]
    slot: NDArray[np.int64]
    sample: NDArray[np.int64]
    repeat: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, rows: slice) -> Picks:
        return Picks(self.step[rows], self.slot[rows], self.sample[rows], self.repeat[rows])

    @classmethod
    def joined(cls, parts: Sequence[Picks]) -> Picks:
        """Give the picks of all parts, in their order; one part is given as it is."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.step for part in parts] or [np.zeros(0, np.int64)]),
            np.concatenate([part.slot for part in parts] or [np.zeros(0, np.int64)]),
            np.concatenate([part.sample for part in parts] or [np.zeros(0, np.int64)]),
            np.concatenate([part.repeat for part in parts] or [np.zeros(0, np.int32)]),
        )


@dataclass(frozen=True, slots=True)
class PickKey:
    """What the randomness of one view hangs on.

    Attributes:
        sample: Index into the dataset.
        repeat: Which of the `augment` views of the sample.
        epoch: Epoch of the view.
        seed: Seed of the loader.
        step_in_epoch: Step in the epoch.
        slot: Position in the GLOBAL batch.
    """

    sample: int
    repeat: int
    epoch: int
    seed: int
    step_in_epoch: int
    slot: int

    def rng(self) -> SampleRng:
        """Give a fresh rng of this view: it does not move with batch size, ranks or slot."""
        view = (self.seed, self.epoch, self.sample, self.repeat)
        return SampleRng(derive(*view, Stream.PICK_KEY))

    def slot_rng(self) -> SampleRng:
        """Give a fresh rng of this place in the run, whichever sample is there."""
        place = (self.seed, self.epoch, self.step_in_epoch, self.slot)
        return SampleRng(derive(*place, Stream.TRANSFORM))


@dataclass(frozen=True, slots=True, eq=False)
class PickKeys:
    """The keys of one batch as a struct of arrays; row r is the `PickKey` of that row.

    Attributes:
        sample: Index into the dataset, int64 `[rows]`.
        repeat: Which of the `augment` views of the sample, int32 `[rows]`.
        epoch: Epoch of the batch.
        seed: Seed of the loader.
        step_in_epoch: Step of the batch in its epoch.
        slot: Position in the GLOBAL batch, int64 `[rows]`.
    """

    sample: NDArray[np.int64]
    repeat: NDArray[np.int32]
    epoch: int
    seed: int
    step_in_epoch: int
    slot: NDArray[np.int64]

    @classmethod
    def of(cls, picks: Picks, epoch: int, step_in_epoch: int, seed: int) -> PickKeys:
        """Give the keys of the picks of one step; the sampler's `locate` says where it lies."""
        return cls(picks.sample, picks.repeat, epoch, seed, step_in_epoch, picks.slot)

    def __len__(self) -> int:
        return len(self.sample)

    @overload
    def __getitem__(self, row: int) -> PickKey: ...
    @overload
    def __getitem__(self, row: slice) -> PickKeys: ...
    def __getitem__(self, row: int | slice) -> PickKey | PickKeys:
        sample, repeat, slot = self.sample[row], self.repeat[row], self.slot[row]
        if isinstance(row, slice):
            return PickKeys(sample, repeat, self.epoch, self.seed, self.step_in_epoch, slot)
        return PickKey(
            int(sample), int(repeat), self.epoch, self.seed, self.step_in_epoch, int(slot)
        )

    def __iter__(self) -> Iterator[PickKey]:
        return (self[row] for row in range(len(self)))

    def rngs(self) -> SampleRngs:
        """Give fresh rngs, row r with the draws of `self[r].rng()`."""
        view = (self.seed, self.epoch, self.sample, self.repeat)
        return SampleRngs(derive_rows(*view, Stream.PICK_KEY))

    def slot_rngs(self) -> SampleRngs:
        """Give fresh rngs, row r with the draws of `self[r].slot_rng()`."""
        place = (self.seed, self.epoch, self.step_in_epoch, self.slot)
        return SampleRngs(derive_rows(*place, Stream.TRANSFORM))
