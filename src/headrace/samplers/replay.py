"""Drawing the list of an epoch from a foreign iterable, so that it can be drawn again."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.rng import Stream, derive
from headrace.samplers.fingerprints import digest_of_array
from headrace.samplers.sampler import Resume

# Epochs whose generator state is kept besides the first one; about 5 KB each.
_STATES_KEPT = 8

Convert = Callable[[int, list[Any]], NDArray[np.int64]]


class Replay:
    """Lists of a torch sampler by epoch. Not thread-safe; its owner asks under a lock.

    There are four kinds of iterables:
        1. It accepts a generator and has none: it is given one of `derive`, stream 109, for
           each epoch, so any epoch can be drawn at once.
        2. It has a generator of its own: the generator's state is noted where an epoch starts,
           and the epochs before one are drawn to reach it.
        3. It is steady, or hears of the epoch by `set_epoch`: it is drawn as it is.
        4. Nothing is known of it: as 3, but a state cannot promise the same order.

    Attributes:
        resume: "replay", or "none" for the fourth kind.
    """

    def __init__(self, iterable: Any, seed: int, replayable: bool | None) -> None:
        self.name = type(iterable).__name__
        self._iterable = iterable
        self._seed = seed
        self._chain = list(_chain_of(iterable))
        self._holders = [part for part in self._chain if hasattr(part, "generator")]
        self._own = [part.generator for part in self._holders if part.generator is not None]
        self._states: dict[int, list[Any]] = {}
        self._digests: dict[int, str] = {}
        if self._own:
            self._states[0] = self._generator_states()
        known = bool(self._holders) or any(map(_is_steady, self._chain))
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
        """Give the states of its own generators where an epoch starts, as base64."""
        for earlier in range(self._nearest(epoch), epoch) if self._own else ():
            self._draw_one(earlier, most)
        states = self._states.get(epoch, [])
        return [base64.b64encode(state.numpy().tobytes()).decode() for state in states]

    def restore(self, epoch: int, states: Sequence[str]) -> None:
        """Let an epoch start with these generator states; earlier ones can no longer be drawn.

        Raises:
            ConfigError: There are not as many states as generators.
        """
        import torch

        if len(states) != len(self._own):
            wanted = f"a state of each of {len(self._own)} generators"
            raise ConfigError("sampler", wanted, len(states))
        raw = [bytearray(base64.b64decode(state)) for state in states]
        self._states = {epoch: [torch.frombuffer(state, dtype=torch.uint8) for state in raw]}
        self._digests.clear()

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
        if self._own:
            for generator, state in zip(self._own, self._states[epoch], strict=True):
                generator.set_state(state)
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
        self._states[epoch] = self._generator_states()
        first = min(self._states)
        for old in [start for start in self._states if start != first][:-_STATES_KEPT]:
            del self._states[old]

    def _generator_states(self) -> list[Any]:
        return [generator.get_state() for generator in self._own]


def _chain_of(iterable: Any) -> Iterator[Any]:
    """Give an iterable and the samplers inside it, as a batch sampler holds one."""
    seen: list[Any] = []
    while iterable is not None and not any(iterable is part for part in seen):
        seen.append(iterable)
        yield iterable
        iterable = getattr(iterable, "sampler", None)


def _is_steady(part: Any) -> bool:
    from torch.utils.data import SequentialSampler

    return isinstance(part, Sequence | np.ndarray | SequentialSampler) or hasattr(part, "set_epoch")
