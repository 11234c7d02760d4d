"""Four Feistel rounds: a permutation of 2^(2 * half) values under a key.

`WordRounds` computes each round; `TableRounds` looks it up where the tables are small. Both
turn one value as plain integers and many as arrays, with the same result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.rng import MASK64, mix, mix_rows
from headrace.rng.words import Words

# What each of the four rounds adds to the key.
_STEPS = tuple(k * 0x632BE59BD9B4E019 & MASK64 for k in range(4))
_STEP_WORDS = tuple(np.uint64(step) for step in _STEPS)


def half_bits(n: int) -> int:
    """Give the bits of half a value in the smallest domain that holds `[0, n)`."""
    return ((n - 1).bit_length() + 1) // 2


class WordRounds:
    """The rounds by arithmetic, for any `half` up to 32 bits."""

    few_lanes = 8
    """Up to so many lanes are turned sooner one by one than as an array."""

    def __init__(self, half: int, key: int) -> None:
        self.half = half
        self.mask = (1 << half) - 1
        self.key = key
        self.keys = tuple(key ^ step for step in _STEPS)

    def one(self, x: int) -> int:
        """Give where a value of the domain goes."""
        left, right = x >> self.half, x & self.mask
        for key in self.keys:
            left, right = right, left ^ (mix(right ^ key) & self.mask)
        return (left << self.half) | right

    def back(self, x: int) -> int:
        """Give the value that goes to `x`."""
        left, right = x >> self.half, x & self.mask
        for key in reversed(self.keys):
            left, right = right ^ (mix(left ^ key) & self.mask), left
        return (left << self.half) | right

    def many(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give where each value goes; a domain of 2^64 is held as the bits of int64."""
        half, mask, key = np.uint64(self.half), np.uint64(self.mask), np.uint64(self.key)
        return turn_words(x.view(np.uint64), half, mask, key).view(np.int64)


class TableRounds:
    """The rounds by look-up: four tables of 2^half words, made once per key."""

    few_lanes = 16

    def __init__(self, rounds: WordRounds) -> None:
        self.half = rounds.half
        self.mask = rounds.mask
        values = np.arange(1 << self.half, dtype=np.uint64)
        tables = [mix_rows(values ^ np.uint64(key)) for key in rounds.keys]
        self._tables = [(t & np.uint64(self.mask)).astype(np.int64) for t in tables]
        # The last round also puts its own input where the left half belongs: two calls less.
        self._tables[3] |= values.astype(np.int64) << self.half
        # A memoryview gives plain integers, at half the price of indexing the array.
        self._views = [table.data for table in self._tables]

    def one(self, x: int) -> int:
        """Give where a value of the domain goes."""
        f0, f1, f2, f3 = self._views
        left, right = x >> self.half, x & self.mask
        left ^= f0[right]
        right ^= f1[left]
        left ^= f2[right]
        return int(f3[left] ^ right)

    def many(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give where each value goes."""
        f0, f1, f2, f3 = self._tables
        left, right = x >> self.half, x & self.mask
        left ^= f0.take(right)
        right ^= f1.take(left)
        left ^= f2.take(right)
        right ^= f3.take(left)
        return right


def turn_words(
    x: Words, half: np.uint64 | Words, mask: np.uint64 | Words, key: np.uint64 | Words
) -> Words:
    """Give where each value goes, with one domain and key for all or one per lane."""
    left, right = x >> half, x & mask
    for step in _STEP_WORDS:
        mixed = right ^ key
        mixed ^= step
        mixed = mix_rows(mixed)
        mixed &= mask
        mixed ^= left
        left, right = right, mixed
    return (left << half) | right
