"""The keyed permutation: a shuffle of `[0, n)` that needs no table of n and starts anywhere.

Feistel rounds permute the smallest domain of 2^(2 * half) values that holds n, and a value that
falls outside `[0, n)` is turned again until it falls inside ("cycle walking", at most 4 turns
on average). With four rounds the orders of a set below about 100 are not all equally likely;
`Shuffled(order="uniform")` is for those.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.rng import MASK64
from headrace.rng.words import as_words
from headrace.samplers.feistel import TableRounds, WordRounds, half_bits, turn_words

Positions = NDArray[np.int64]

MAX_LENGTH = 2**63
"""The longest range: its positions fill int64."""

# Up to 2^14 values a half, which is n up to 2^28, the tables take 512 KiB at most and a
# millisecond to make; looking up takes a third of the time that mixing does.
_TABLE_BITS = 14
# Lanes turned together: their arrays (64 KiB each) stay in a core's second-level cache.
_LANES = 8192


class KeyedPermutation:
    """The keyed permutation of `[0, n)`; any thread may use it at any time.

    Attributes:
        n: Length of the range, 0 to 2^63.
        key: The key, one word.
    """

    def __init__(self, n: int, key: int) -> None:
        if not 0 <= n <= MAX_LENGTH:
            raise ConfigError("n", "0 to 2^63", n)
        self.n = n
        self.key = key & MASK64
        self._words = WordRounds(half_bits(max(n, 1)), self.key)
        self._tables: TableRounds | None = None

    def __repr__(self) -> str:
        return f"KeyedPermutation({self.n}, {self.key:#018x})"

    def __call__(self, position: int) -> int:
        """Give where a position goes.

        Raises:
            ConfigError: `position` is outside `[0, n)` (0 is allowed where n is 0).
        """
        self._check(position, position)
        x = self._words.one(position) if self.n > 1 else 0
        while x >= self.n > 1:
            x = self._words.one(x)
        return x

    def inverse(self, value: int) -> int:
        """Give the position that goes to `value`.

        Raises:
            ConfigError: `value` is outside `[0, n)` (0 is allowed where n is 0).
        """
        self._check(value, value)
        x = self._words.back(value) if self.n > 1 else 0
        while x >= self.n > 1:
            x = self._words.back(x)
        return x

    def take(self, positions: Any) -> Positions:
        """Give where each position goes, int64 of the shape of `positions`.

        Raises:
            ConfigError: A position is outside `[0, n)`.
        """
        wanted = np.ascontiguousarray(positions, np.int64)
        if wanted.size:
            self._check(int(wanted.min()), int(wanted.max()))
        if self.n <= 1:
            return np.zeros_like(wanted)
        return self._walk(wanted.reshape(-1)).reshape(wanted.shape)

    def _check(self, smallest: int, largest: int) -> None:
        if not 0 <= smallest <= largest < max(self.n, 1):
            bad = smallest if smallest < 0 else largest
            raise ConfigError("position", f"one of [0, {self.n})", bad)

    def _rounds(self) -> TableRounds | WordRounds:
        if self._words.half > _TABLE_BITS:
            return self._words
        # Two threads may both make the tables; they are equal, and one of them stays.
        if self._tables is None:
            self._tables = TableRounds(self._words)
        return self._tables

    def _walk(self, positions: Positions) -> Positions:
        """Turn every lane until it falls inside, together while that pays, then one by one."""
        rounds = self._rounds()
        x = _turned(rounds, positions)
        lanes = _outside(x, self.n)
        walking = x.take(lanes)
        while len(lanes) > rounds.few_lanes:
            walking = _turned(rounds, walking)
            x[lanes] = walking
            still = _outside(walking, self.n)
            lanes, walking = lanes.take(still), walking.take(still)
        if len(lanes):
            x[lanes] = [self._walk_one(rounds, value) for value in _plain(walking)]
        return x

    def _walk_one(self, rounds: TableRounds | WordRounds, x: int) -> int:
        while x >= self.n:
            x = rounds.one(x)
        return x


@lru_cache(maxsize=16)
def keyed_permutation(n: int, key: int) -> KeyedPermutation:
    """Give the permutation of a key, the same object for the few that are in use.

    What an object keeps are its tables, so this saves making them at every call; 8 MiB at most.
    """
    return KeyedPermutation(n, key)


def permute_rows(positions: Any, n: Any, key: Any) -> Positions:
    """Give where each position goes under a length and a key of its own.

    Args:
        positions: Integers `[rows]`, each in `[0, n)` of its row.
        n: An integer, or integers `[rows]`, 1 to 2^63.
        key: A word, or uint64 `[rows]`.

    Returns:
        int64 `[rows]`.
    """
    x, lengths, keys = np.broadcast_arrays(as_words(positions), as_words(n), as_words(key))
    known, which = np.unique(lengths, return_inverse=True)
    halves = np.array([half_bits(length) for length in known.tolist()], np.uint64)[which]
    masks = (np.uint64(1) << halves) - np.uint64(1)
    out = turn_words(x, halves, masks, keys)
    lanes = (out >= lengths).nonzero()[0]
    while len(lanes):
        turned = turn_words(out[lanes], halves[lanes], masks[lanes], keys[lanes])
        out[lanes] = turned
        lanes = lanes[turned >= lengths[lanes]]
    return out.view(np.int64)


def _turned(rounds: TableRounds | WordRounds, x: Positions) -> Positions:
    if len(x) <= _LANES:
        return rounds.many(x)
    out = np.empty_like(x)
    for start in range(0, len(x), _LANES):
        out[start : start + _LANES] = rounds.many(x[start : start + _LANES])
    return out


def _outside(x: Positions, n: int) -> NDArray[np.intp]:
    # Compared as words, since a domain of 2^64 shows its upper half as negative int64.
    return (x.view(np.uint64) >= np.uint64(n)).nonzero()[0]


def _plain(x: Positions) -> list[int]:
    words: list[int] = x.view(np.uint64).tolist()
    return words
