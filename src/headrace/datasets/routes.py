"""Where the samples of a composition come from, and what becomes of each: pure rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.datasets.bounds import Indices
from headrace.datasets.parts import digest_of
from headrace.datasets.shards import starts_of

Place = tuple[int, int]
"""Number of a part, and an index in it."""


class Route(ABC):
    """Where the samples of a composition come from, and what becomes of each; pure."""

    kind: str

    @abstractmethod
    def length(self, parts: Sequence[Any]) -> int:
        """Give how many samples there are."""

    @abstractmethod
    def place(self, index: int) -> Place:
        """Give where a sample is."""

    def finish(self, sample: Any) -> Any:
        """Give what is made of a sample."""
        return sample

    def functions(self) -> dict[str, Any]:
        """Give the user's functions by a short name."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Give what a fingerprint must know beside the parts."""
        return {}


class Chosen(Route):
    """Some samples of one part."""

    kind = "Subset"

    def __init__(self, chosen: Indices) -> None:
        self._chosen = chosen

    def length(self, parts: Sequence[Any]) -> int:
        return len(self._chosen)

    def place(self, index: int) -> Place:
        return 0, int(self._chosen[index])

    def facts(self) -> dict[str, Any]:
        return {"indices": digest_of(self._chosen)}


class Chained(Route):
    """Parts one after another."""

    kind = "Concat"

    def __init__(self, lengths: Sequence[int]) -> None:
        self._starts = starts_of(lengths)

    def length(self, parts: Sequence[Any]) -> int:
        return int(self._starts[-1])

    def place(self, index: int) -> Place:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return part, index - int(self._starts[part])


class Mapped(Route):
    """A function of each sample of one part."""

    kind = "map"

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def length(self, parts: Sequence[Any]) -> int:
        return len(parts[0])

    def place(self, index: int) -> Place:
        return 0, index

    def finish(self, sample: Any) -> Any:
        return self._function(sample)

    def functions(self) -> dict[str, Any]:
        return {"function": self._function}

    def facts(self) -> dict[str, Any]:
        return {"function": _name_of(self._function)}


class Parts:
    """Takes some parts of a sample as a dict; a function that can be pickled."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self._keys = tuple(keys)
        self.__qualname__ = f"select({', '.join(map(repr, self._keys))})"

    def __call__(self, sample: Any) -> dict[Hashable, Any]:
        return {key: sample[key] for key in self._keys}


def _name_of(function: Callable[[Any], Any]) -> str:
    """Name a function alike in every process: an object by its class, not by its address."""
    if isinstance(function, partial):
        return f"partial({_name_of(function.func)})"
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name
