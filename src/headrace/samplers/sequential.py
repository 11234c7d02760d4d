"""Samples in the order in which they are stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.samplers.positions import PositionSampler


class Sequential(PositionSampler):
    """Every sample once per epoch, in stored order: position p of an epoch is sample p.

    Args:
        num_samples: Samples of the dataset.
        batch_size: Rows of a full global batch.
        drop_last: Leave out the samples that fill no whole batch.
        augment: Views of each sample, which follow one another.
    """

    def __init__(
        self, num_samples: int, batch_size: int, *, drop_last: bool = True, augment: int = 1
    ) -> None:
        super().__init__(num_samples, batch_size, drop_last, augment)

    def _order(self, epoch: int, length: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return positions
