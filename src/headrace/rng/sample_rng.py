"""SplitMix64, one draw at a time."""

from __future__ import annotations

import numpy as np

from headrace.errors import ConfigError
from headrace.rng.words import GAMMA, MASK64, mix

_SINGLE_STEP = 1.0 / 2**24
_DOUBLE_STEP = 1.0 / 2**53


class SampleRng:
    """A random generator whose whole state is one word, for one sample or slot.

    Not shared between threads: make one where it is needed, which costs nothing.

    Attributes:
        state: The word before the next draw; the first draw gives `mix(state)`.
    """

    __slots__ = ("state",)

    def __init__(self, state: int) -> None:
        self.state = state & MASK64

    def __repr__(self) -> str:
        return f"SampleRng({self.state:#018x})"

    def next_u64(self) -> int:
        """Draw an integer of `[0, 2^64)`."""
        word = mix(self.state)
        self.state = (self.state + GAMMA) & MASK64
        return word

    def next_single(self) -> float:
        """Draw a multiple of 2^-24 of `[0, 1)`, exact in float32."""
        return (self.next_u64() >> 40) * _SINGLE_STEP

    def next_double(self) -> float:
        """Draw a multiple of 2^-53 of `[0, 1)`."""
        return (self.next_u64() >> 11) * _DOUBLE_STEP

    def next_int(self, n: int) -> int:
        """Draw an integer of `[0, n)` without bias; now and then this takes more than one word.

        Raises:
            ConfigError: `n` is outside `[1, 2^64)`.
        """
        if not 1 <= n <= MASK64:
            raise ConfigError("n", "1 to 2^64 - 1", n)
        product = self.next_u64() * n
        if product & MASK64 < n:
            threshold = (2**64 - n) % n
            while product & MASK64 < threshold:
                product = self.next_u64() * n
        return product >> 64

    def next_normal(self) -> float:
        """Draw from about the normal distribution, exact in float32; takes twelve words.

        The sum of twelve singles less 6: mean 0, variance 1, never outside `[-6, 6)`.
        """
        total = np.float32(0.0)
        for _ in range(12):
            total = np.float32(total + np.float32(self.next_single()))
        return float(total - np.float32(6.0))

    def usize(self, n: int) -> int:
        """Draw an integer of `[0, n)`: `next_int` under its short name."""
        return self.next_int(n)

    def f32(self) -> float:
        """Draw from `[0, 1)`: `next_single` under its short name."""
        return self.next_single()

    def bernoulli(self, p: float) -> bool:
        """Draw True with probability `p`, to 24 bits."""
        return self.next_single() < p
