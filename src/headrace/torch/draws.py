"""The keys of a pass, drawn from a torch sampler on the consumer's thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headrace.build.calls import Raised, attempt
from headrace.errors import ClosedError
from headrace.pick import Picks
from headrace.samplers.sampler import Sampler

# Picks are worked out for LOOKAHEAD_ROWS rows at once. How many a batch sampler gives is not
# known before, and a window of 64 steps follows the sizes of batches closely enough.
_ROWS_OF_A_WINDOW = 256


class Keys:
    """What each step fetches: a list of dataset keys, or one key without batching.

    Steps are numbered on from pass to pass, so that readers that still build for a pass broken
    off cannot meet the keys of the next. Put by the consumer, got by any thread.

    Attributes:
        next_step: The first step that nothing was drawn for.
    """

    def __init__(self) -> None:
        self.next_step = 0
        self._keys: dict[int, Any] = {}

    def put(self, key: Any) -> None:
        """Note what the next step fetches."""
        self._keys[self.next_step] = key
        self.next_step += 1

    def get(self, step: int) -> Any:
        """Give what a step fetches.

        Raises:
            ClosedError: Its pass was broken off.
        """
        try:
            return self._keys[step]
        except KeyError:
            raise ClosedError("the pass over this DataLoader was broken off") from None

    def pop(self, step: int) -> Any:
        """Give what a step fetched, and forget it."""
        return self._keys.pop(step)

    def clear(self) -> None:
        """Forget all, of a pass broken off."""
        self._keys = {}


class Draws:
    """Draws the keys of one pass, in step order and no further ahead than it is told.

    A torch sampler may be endless, give anything as keys, draw from generators that the training
    draws from too, or look at what the training did: so it is asked as torch asks it, on the
    consumer's thread and step by step. What it raises is met at its step.

    Args:
        sampler: Gives the keys.
        keys: Where they go.

    Attributes:
        keys: Where they go.
        end: First step that the sampler has nothing for; None until that shows.
    """

    def __init__(self, sampler: Iterable[Any], keys: Keys) -> None:
        self._iterator = iter(sampler)
        self.keys = keys
        self.end: int | None = None

    def draw_to(self, step: int) -> int | None:
        """Draw the keys of all steps before this one, and give `end`."""
        while self.end is None and self.keys.next_step < step:
            self._draw()
        return self.end

    def _draw(self) -> None:
        key = attempt(next, self._iterator, _NO_MORE)
        try:
            if key is not _NO_MORE:
                self.keys.put(key)
            if key is _NO_MORE or isinstance(key, Raised):
                self.end = self.keys.next_step
        finally:
            # The traceback of an error leads back to this frame, which must not hold the error.
            del key


_NO_MORE = object()


class DrawnSteps(Sampler):
    """The order that a plan sees: one pick for each step, of the sample of the same number."""

    resume = "replay"

    @property
    def global_batch_size(self) -> int:
        return _ROWS_OF_A_WINDOW

    @property
    def num_picks(self) -> int:
        raise TypeError("a pass ends where its sampler does")

    @property
    def num_samples(self) -> int:
        raise TypeError("a pass ends where its sampler does")

    def locate(self, step: int) -> tuple[int, int]:
        return 0, step

    def first_step(self, epoch: int) -> int:
        return 0

    def steps_in(self, epoch: int) -> int | None:
        return None

    def rows_in(self, step: int) -> int:
        return 1

    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        step = np.arange(steps.start, steps.stop, dtype=np.int64)
        return Picks(step, np.zeros_like(step), step, np.zeros(len(step), np.int32))

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "DrawnSteps"}
