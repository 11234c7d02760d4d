"""A pick is one view of one sample at an epoch, step and slot of the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
