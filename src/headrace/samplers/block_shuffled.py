"""An order for reads in long runs: blocks are shuffled, and the picks inside a window of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.config import whole
from headrace.errors import ConfigError
from headrace.rng import Stream, derive, derive_rows
from headrace.samplers.permutation import KeyedPermutation, keyed_permutation, permute_rows
from headrace.samplers.positions import PositionSampler
from headrace.samplers.schedule import Schedule

Positions = NDArray[np.int64]

# With at least so many rows in a window, going window by window is the quicker way.
_ROWS_PER_WINDOW = 256


class BlockShuffled(PositionSampler):
    """Every sample once per epoch, with the picks of a block close together in the order.

    The samples are cut into blocks of `block` neighbours (the last may be shorter), the blocks
    are put in a keyed order, and the picks of every `window` blocks in a row are shuffled among
    themselves. No table and no start-up, as with the keyed order of `Shuffled`.

    How far a pick moves: all picks of a block come within `window * block * augment` positions
    of the epoch, which begin and end with a window. So a reader that holds the `window` blocks
    of a batch (twice as many where a batch lies over the border of two windows) reads every
    block once per epoch, in one run. A larger window mixes more of the data into each batch.

    Args:
        num_samples: Samples of the dataset.
        batch_size: Rows of a full global batch.
        seed: Any integer, taken mod 2^64.
        block: Samples per block.
        window: Blocks whose picks are shuffled among themselves.
        drop_last: Leave out the picks that fill no whole batch; other ones in each epoch.
        augment: Views of each sample per epoch; they stay within the window of their block.

    Raises:
        ConfigError: A knob is out of its range.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        seed: int = 42,
        *,
        block: int,
        window: int = 16,
        drop_last: bool = True,
        augment: int = 1,
    ) -> None:
        self.seed = whole("seed", seed)
        self.block = whole("block", block)
        self.window = whole("window", window)
        for knob, value in (("block", self.block), ("window", self.window)):
            if value < 1:
                raise ConfigError(knob, "1 or more", value)
        super().__init__(num_samples, batch_size, drop_last, augment)

    def fingerprint(self) -> dict[str, Any]:
        shape = {"seed": self.seed, "block": self.block, "window": self.window}
        return {**super().fingerprint(), **shape}

    def _order(self, epoch: int, length: int, positions: Positions) -> Positions:
        blocks = _Blocks.of(length, self.block * self.augment, self._block_order(epoch, length))
        window = blocks.at(positions) // min(self.window, blocks.count)
        starts, sizes = self._windows(window, blocks)
        shuffled = starts + self._shuffled_inside(epoch, window, sizes, positions - starts)
        place = blocks.at(shuffled)
        return blocks.order.take(place) * blocks.size + (shuffled - blocks.start(place))

    def _block_order(self, epoch: int, length: int) -> KeyedPermutation:
        count = -(-length // (self.block * self.augment))
        return keyed_permutation(count, derive(self.seed, epoch, 0, 0, Stream.BLOCK_ORDER))

    def _windows(self, window: Positions, blocks: _Blocks) -> tuple[Positions, Positions]:
        """Give where each window begins in the order, and how many picks it has."""
        per_window = min(self.window, blocks.count)
        starts = blocks.start(window * per_window)
        ends = blocks.start(np.minimum((window + 1) * per_window, blocks.count))
        return starts, ends - starts

    def _shuffled_inside(
        self, epoch: int, window: Positions, sizes: Positions, inside: Positions
    ) -> Positions:
        """Shuffle positions inside their windows; positions, and so windows, ascend."""
        place = (self.seed, epoch, window, 0, Stream.BLOCK_WINDOW)
        if not len(window) or window[-1] - window[0] > len(window) // _ROWS_PER_WINDOW:
            return permute_rows(inside, sizes, derive_rows(*place))
        # Few windows: one at a time, each with the tables of its own key.
        out = np.empty_like(inside)
        first_rows = np.flatnonzero(np.diff(window, prepend=-1)).tolist()
        for start, stop in zip(first_rows, [*first_rows[1:], len(window)], strict=True):
            key = derive(self.seed, epoch, int(window[start]), 0, Stream.BLOCK_WINDOW)
            order = keyed_permutation(int(sizes[start]), key)
            out[start:stop] = order.take(inside[start:stop])
        return out

    def _schedule_of(self, pieces: Sequence[tuple[int, int, int]]) -> Schedule:
        schedule = super()._schedule_of(pieces)
        # Sums of a position and a block must fit int64.
        picks = schedule.pieces[-1].num_samples * self.augment
        if picks > 2**62:
            raise ConfigError("num_samples", "at most 2^62 picks in an epoch", picks)
        return schedule


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks in their order, one of which is shorter than the others.

    Attributes:
        count: Blocks in all.
        size: Picks of a whole block.
        order: Which block stands at each place.
        short_at: The place of the block that holds the last picks.
        missing: Picks that it lacks to a whole one.
    """

    count: int
    size: int
    order: KeyedPermutation
    short_at: int
    missing: int

    @classmethod
    def of(cls, length: int, size: int, order: KeyedPermutation) -> _Blocks:
        size = min(size, max(length, 1))
        short_at = order.inverse(max(order.n - 1, 0))
        return cls(order.n, size, order, short_at, order.n * size - length)

    def start(self, place: Positions) -> Positions:
        """Give the position at which the block of a place begins."""
        return place * self.size - self.missing * (place > self.short_at)

    def at(self, position: Positions) -> Positions:
        """Give the place of the block that a position falls into."""
        whole_before = (self.short_at + 1) * self.size - self.missing
        return (position + self.missing * (position >= whole_before)) // self.size
