"""Which shard holds which window: arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of token ids.

    Attributes:
        name: Relative to the root of the dataset, '/'-separated.
        tokens: Ids in it, the tail that fills no window included.
        data_start_bytes: Where the ids begin in the file.
        size_bytes: Size of the file.
    """

    name: str
    tokens: int
    data_start_bytes: int
    size_bytes: int

    def windows(self, seq_len: int) -> int:
        """Windows that fit: each needs one token beyond its own for the last target."""
        return max(self.tokens - 1, 0) // seq_len


def starts_of(lengths: Sequence[int] | NDArray[Any]) -> Indices:
    """Give where each of some lengths begins, and the total: int64 `[n + 1]`.

    Summed in 64 bits whatever the lengths are held in.
    """
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=starts[1:])
    return starts


class ShardTable:
    """Windows of all shards numbered through; none crosses from one shard into the next."""

    def __init__(self, shards: Sequence[Shard], seq_len: int) -> None:
        self.shards = tuple(shards)
        self.seq_len = seq_len
        self.first_window = starts_of([shard.windows(seq_len) for shard in shards])

    def __len__(self) -> int:
        return int(self.first_window[-1])

    @property
    def total_tokens(self) -> int:
        """Ids in all shards, tails included."""
        return sum(shard.tokens for shard in self.shards)

    def shard_of(self, indices: Indices) -> Indices:
        """Give the number of the shard of each window, which must be in range."""
        # side="right" passes over shards without a window, which begin where the next one does.
        return np.searchsorted(self.first_window, indices, side="right") - 1

    def place(self, index: int) -> tuple[Shard, int]:
        """Give the shard of a window and the position of its first token there."""
        number = int(self.shard_of(np.array([index], np.int64))[0])
        return self.shards[number], (index - int(self.first_window[number])) * self.seq_len
