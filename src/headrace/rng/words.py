"""64-bit words: `mix`, and `derive`, which turns a place in the run into a key.

Both exist twice, for Python integers and for numpy uint64 arrays. All arithmetic is mod 2^64.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

MASK64 = 2**64 - 1

# The constants of SplitMix64, and those that the stream's specification adds for `derive`.
GAMMA = 0x9E3779B97F4A7C15
_MULTIPLY_1 = 0xBF58476D1CE4E5B9
_MULTIPLY_2 = 0x94D049BB133111EB
_SEED_WORD = 0xD1B54A32D192ED03

_GAMMA_WORD = np.uint64(GAMMA)
_MULTIPLY_1_WORD = np.uint64(_MULTIPLY_1)
_MULTIPLY_2_WORD = np.uint64(_MULTIPLY_2)
_BY_30, _BY_27, _BY_31 = np.uint64(30), np.uint64(27), np.uint64(31)


class Stream(IntEnum):
    """The last value of `derive`: what a key is for, so that no two uses share draws."""

    TRANSFORM = 0
    AUGMENTATION = 1
    PICK_KEY = 2
    SHUFFLE_BUFFER = 3
    REPLACEMENT = 4
    ORDER = 101
    MIXING = 102
    BUCKET_ORDER = 103
    BUCKET_PLACE = 104
    BLOCK_ORDER = 105
    BLOCK_WINDOW = 106
    PACK_ORDER = 107
    PACK_PLACE = 108
    REPLAYED = 109
    UNIFORM = 110


def mix(x: int) -> int:
    """Give the SplitMix64 output of state `x` (the increment is part of it)."""
    z = (x + GAMMA) & MASK64
    z = ((z ^ (z >> 30)) * _MULTIPLY_1) & MASK64
    z = ((z ^ (z >> 27)) * _MULTIPLY_2) & MASK64
    return z ^ (z >> 31)


def mix_rows(x: Words) -> Words:
    """Give `mix` of every word, as a fresh array."""
    z = np.add(x, _GAMMA_WORD)
    shifted = np.right_shift(z, _BY_30)
    np.multiply(np.bitwise_xor(z, shifted, out=z), _MULTIPLY_1_WORD, out=z)
    np.right_shift(z, _BY_27, out=shifted)
    np.multiply(np.bitwise_xor(z, shifted, out=z), _MULTIPLY_2_WORD, out=z)
    np.right_shift(z, _BY_31, out=shifted)
    return np.bitwise_xor(z, shifted, out=z)


def derive(seed: int, epoch: int, step: int, slot: int, stream: int) -> int:
    """Give the key of a place in the run: a permutation key, or the state of a fresh rng.

    Args:
        seed: Any integer, taken mod 2^64 like the others (so -1 is 2^64 - 1).
        epoch: Epoch, or what the stream puts in its place.
        step: Step IN THE EPOCH, or what the stream puts in its place.
        slot: Position in the global batch, or what the stream puts in its place.
        stream: One of `Stream`.
    """
    h = mix((seed ^ _SEED_WORD) & MASK64)
    for value in (epoch, step, slot, stream):
        h = mix(h + value)
    return h


def derive_rows(seed: Any, epoch: Any, step: Any, slot: Any, stream: Any) -> Words:
    """Give `derive` for integers and integer arrays, which broadcast against each other."""
    h: int | Words = _mixed(0, seed, flip=_SEED_WORD)
    for value in (epoch, step, slot, stream):
        h = _mixed(h, value)
    return np.full(1, h, np.uint64) if isinstance(h, int) else h


def as_words(values: Any) -> Words:
    """Give integers mod 2^64 as an array of at least one dimension; negative ones wrap.

    Args:
        values: An integer, a sequence of integers, or an integer array.

    Raises:
        TypeError: An array holds no integers.
    """
    if not isinstance(values, np.ndarray | np.generic):
        # One by one, since numpy makes floats of a list that holds both 1 and 2^63.
        listed = [values] if isinstance(values, int) else values
        return np.array([value & MASK64 for value in listed], np.uint64)
    if values.dtype.kind not in "iu":
        raise TypeError(f"words: wanted integers, got an array of {values.dtype}")
    return np.atleast_1d(values).astype(np.uint64, casting="unsafe", copy=False)


def _mixed(h: int | Words, value: Any, flip: int = 0) -> int | Words:
    # Python integers as long as no array has come: numpy scalars would warn when they wrap.
    if isinstance(h, int) and np.ndim(value) == 0:
        return mix(h + ((int(value) ^ flip) & MASK64))
    words = as_words(value) ^ np.uint64(flip)
    return mix_rows(np.add(as_words(h), words))
