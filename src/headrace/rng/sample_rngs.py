"""SplitMix64 for many rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.rng.sample_rng import SampleRng
from headrace.rng.words import GAMMA, MASK64, Words, as_words, mix_rows

_GAMMA_WORD = np.uint64(GAMMA)
_LOW_HALF = np.uint64(2**32 - 1)
_BY_32 = np.uint64(32)


class SampleRngs:
    """One `SampleRng` per row, drawn together; row r gives the bits that its own rng would.

    Not shared between threads.

    Attributes:
        state: uint64 `[rows]`, the word of each row before its next draw.
    """

    __slots__ = ("state",)

    def __init__(self, state: Any) -> None:
        self.state: Words = as_words(state).copy()

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, row: int) -> SampleRng:
        """Give the rng of one row as it stands; drawing from it leaves this one alone."""
        return SampleRng(int(self.state[row]))

    def next_u64(self) -> Words:
        """Draw a word per row, uint64 `[rows]`."""
        words = mix_rows(self.state)
        np.add(self.state, _GAMMA_WORD, out=self.state)
        return words

    def next_single(self) -> NDArray[np.float32]:
        """Draw from `[0, 1)` per row, float32 `[rows]`."""
        return (self.next_u64() >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def next_double(self) -> NDArray[np.float64]:
        """Draw from `[0, 1)` per row, float64 `[rows]`."""
        return (self.next_u64() >> np.uint64(11)).astype(np.float64) * np.float64(2**-53)

    def next_int(self, n: Any) -> NDArray[Any]:
        """Draw from `[0, n)` per row without bias.

        Args:
            n: An integer, or integers `[rows]`, each from 1 to 2^64 - 1.

        Returns:
            int64 `[rows]`, or uint64 where an `n` is above 2^63.

        Raises:
            ConfigError: An `n` is outside its range.
        """
        sizes = np.broadcast_to(_checked_sizes(n), self.state.shape)
        high, low = _product(self.next_u64(), sizes)
        self._redraw(sizes, high, low)
        return high if sizes.size and sizes.max() > 2**63 else high.astype(np.int64)

    def next_normal(self) -> NDArray[np.float32]:
        """Draw from about the normal distribution per row, float32 `[rows]`."""
        total = np.zeros(len(self), np.float32)
        # One column after another: numpy's own sum adds in pairs, which rounds differently.
        for _ in range(12):
            total += self.next_single()
        return total - np.float32(6.0)

    def usize(self, n: Any) -> NDArray[Any]:
        """Draw from `[0, n)` per row: `next_int` under its short name."""
        return self.next_int(n)

    def f32(self) -> NDArray[np.float32]:
        """Draw from `[0, 1)` per row: `next_single` under its short name."""
        return self.next_single()

    def bernoulli(self, p: float) -> NDArray[np.bool_]:
        """Draw True with probability `p` per row, bool `[rows]`."""
        # In float64, since rounding p to float32 could move it past a draw.
        return self.next_single().astype(np.float64) < p

    def _redraw(self, sizes: Words, high: Words, low: Words) -> None:
        """Draw again for the rows that would be biased; only their states move on."""
        rows = np.flatnonzero(low < sizes)
        while len(rows):
            n = sizes[rows]
            rows = rows[low[rows] < (np.uint64(0) - n) % n]
            again = SampleRngs(self.state[rows])
            high[rows], low[rows] = _product(again.next_u64(), sizes[rows])
            self.state[rows] = again.state


def _checked_sizes(n: Any) -> Words:
    arrays = isinstance(n, np.ndarray | np.generic)
    smallest = int(np.min(n, initial=1)) if arrays else min(_listed(n), default=1)
    largest = int(np.max(n, initial=1)) if arrays else max(_listed(n), default=1)
    if not 1 <= smallest <= largest <= MASK64:
        raise ConfigError("n", "1 to 2^64 - 1", smallest if smallest < 1 else largest)
    return as_words(n)


def _listed(n: Any) -> Any:
    return [n] if isinstance(n, int) else n


def _product(a: Words, b: Words) -> tuple[Words, Words]:
    """Give the high and the low word of the 128-bit products, by 32-bit halves."""
    a_low, a_high = a & _LOW_HALF, a >> _BY_32
    b_low, b_high = b & _LOW_HALF, b >> _BY_32
    cross = a_high * b_low + ((a_low * b_low) >> _BY_32)
    middle = a_low * b_high + (cross & _LOW_HALF)
    return a_high * b_high + (cross >> _BY_32) + (middle >> _BY_32), a * b
