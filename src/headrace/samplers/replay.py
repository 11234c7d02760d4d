"""Drawing the list of an epoch from a foreign iterable, so that it can be drawn again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.rng import Stream, derive
from headrace.samplers.epoch_starts import generators_of, states_of
from headrace.samplers.fingerprints import digest_of_array
from headrace.samplers.sampler import Resume

# Epochs whose start is kept besides the first one; about 7 KB each for a generator.
_STATES_KEPT = 8

Convert = Callable[[int, list[Any]], NDArray[np.int64]]


class Replay:
    """Lists of a torch sampler by epoch. Not thread-safe; its owner asks under a lock.

    There are five kinds of iterables:
        1. It accepts a generator and has none: it is given one of `derive`, stream 109, for
           each epoch, so any epoch can be drawn at once.
        2. It has a generator of its own: the generator's state is noted where an epoch starts,
           and the epochs before one are drawn to reach it.
        3. It is steady, or hears of the epoch by `set_epoch`: it is drawn as it is.
        4. It has none of these, but `state_dict` and `load_state_dict`: as 2. (The state of one
           that hears of epochs is left alone: it may say how far the epoch was read.)
        5. Nothing is known of it: as 3, but a state cannot promise the same order.

    Attributes:
        resume: "replay", or "none" for the fifth kind.
    """

    def __init__(self, iterable: Any, seed: int, replayable: bool | None) -> None:
        self.name = type(iterable).__name__
        self._iterable = iterable
        self._seed = seed
        self._chain = list(chain_of(iterable))
        self._holders = [part for part in self._chain if hasattr(part, "generator")]
        self._own = generators_of(self._holders)
        self._states: dict[int, list[str]] = {}
        self._digests: dict[int, str] = {}
        known = bool(self._holders) or any(map(_is_steady, self._chain))
        if not known:
            self._own = states_of(self._chain)
            known = bool(self._own)
        if self._own:
            self._states[0] = self._read()
        self.resume: Resume = "replay" if (known if replayable is None else replayable) else "none"

    def draw(self, epoch: int, most: int) -> list[Any]:
        """Give what the iterable yields in an epoch, cut after `most + 1` elements.

        Raises:
            ConfigError: The iterable yields other elements than the last time, or the epoch
                lies before the one that a state has been restored for.
        """
        for earlier in range(self._nearest(epoch), epoch):
            self._draw_one(earlier, most)
        return self._draw_one(epoch, most)

    def check(self, epoch: int, indices: NDArray[np.int64]) -> None:
        """Hold an epoch's indices against what they were before.

        Raises:
            ConfigError: They differ.
        """
        digest = digest_of_array(indices)
        if self._digests.setdefault(epoch, digest) != digest:
            raise ConfigError(
                "sampler",
                f"the same indices whenever epoch {epoch} is asked for",
                self.name,
                "Give it a `generator` or a `set_epoch(epoch)` that decides its order.",
            )

    def state_at(self, epoch: int, most: int) -> list[str]:
        """Give, as texts, what of its own an epoch starts from."""
        for earlier in range(self._nearest(epoch), epoch) if self._own else ():
            self._draw_one(earlier, most)
        return list(self._states.get(epoch, ()))

    def restored(self, epoch: int, states: Sequence[str]) -> Replay:
        """Give a replay in which an epoch starts from these; earlier ones cannot be drawn.

        Raises:
            ConfigError: They are not as many as were noted, or cannot be gone back to.
        """
        if len(states) != len(self._own):
            wanted = f"a state of each of {len(self._own)} generators"
            raise ConfigError("sampler", wanted, len(states))
        other = copy(self)
        other._states = {epoch: list(states)}
        other._digests = {}
        try:
            other._write(epoch)
        except Exception as error:
            wanted = f"states that {self.name} gave"
            raise ConfigError("sampler", wanted, f"others ({error})") from error
        return other

    def _nearest(self, epoch: int) -> int:
        """Give the last epoch up to this one that can be drawn at once."""
        if not self._own:
            return epoch
        known = [start for start in self._states if start <= epoch]
        if not known:
            wanted = f"epoch {min(self._states)} or later, where the restored state begins"
            raise ConfigError("epoch", wanted, epoch)
        return max(known)

    def _draw_one(self, epoch: int, most: int) -> list[Any]:
        for part in self._chain:
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        self._write(epoch)
        drawn = self._with_given_generators(epoch, most)
        if self._own:
            self._note_start(epoch + 1)
        return drawn

    def _with_given_generators(self, epoch: int, most: int) -> list[Any]:
        import torch

        lacking = [part for part in self._holders if part.generator is None]
        try:
            for number, part in enumerate(lacking):
                key = derive(self._seed, epoch, 0, number, Stream.REPLAYED)
                part.generator = torch.Generator().manual_seed(key)
            return list(islice(iter(self._iterable), most + 1))
        finally:
            for part in lacking:
                part.generator = None

    def _note_start(self, epoch: int) -> None:
        """Keep where an epoch starts, besides the first start and the last few noted."""
        self._states.pop(epoch, None)
        self._states[epoch] = self._read()
        first = min(self._states)
        for old in [start for start in self._states if start != first][:-_STATES_KEPT]:
            del self._states[old]

    def _read(self) -> list[str]:
        return [own.read() for own in self._own]

    def _write(self, epoch: int) -> None:
        for own, text in zip(self._own, self._states.get(epoch, ()), strict=True):
            own.write(text)


def chain_of(iterable: Any) -> Iterator[Any]:
    """Give an iterable and the samplers inside it, as a batch sampler holds one.

    One that takes a share of another's batches, or skips some, holds a batch sampler.
    """
    seen: list[Any] = []
    while iterable is not None and not any(iterable is part for part in seen):
        seen.append(iterable)
        yield iterable
        inside = getattr(iterable, "sampler", None)
        iterable = getattr(iterable, "batch_sampler", None) if inside is None else inside


def _is_steady(part: Any) -> bool:
    from torch.utils.data import SequentialSampler

    return isinstance(part, Sequence | np.ndarray | SequentialSampler) or hasattr(part, "set_epoch")
