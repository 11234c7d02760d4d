"""Datasets made of other datasets: what they hand on to their parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.datasets.bounds import Indices
from headrace.datasets.dataset import Opened


class OverParts(Opened):
    """Hands the lifecycle on to the parts, each once however often it takes part."""

    parts: tuple[Any, ...]

    def made_of(self) -> dict[str, Any]:
        """Give what this is made of by a short name: the parts by number, and functions."""
        return {str(number): part for number, part in enumerate(self.parts)}

    def _each(self) -> Iterator[Any]:
        return iter({id(part): part for part in self.parts}.values())

    async def open(self) -> None:
        for part in self._each():
            await part.open()

    async def aclose(self) -> None:
        for part in self._each():
            await part.aclose()

    def thread_open(self) -> None:
        for part in self._each():
            part.thread_open()

    def thread_close(self) -> None:
        for part in self._each():
            part.thread_close()

    def check(self) -> None:
        for part in self._each():
            part.check()


def everything_in(dataset: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Give a dataset and all that it is made of, outermost first, each with its path.

    What adapts a user's object stands for it: the object itself is given, under the same path.
    """
    yield path, getattr(dataset, "subject", dataset)
    if isinstance(dataset, OverParts):
        for name, part in dataset.made_of().items():
            yield from everything_in(part, f"{path}/{name}")


def fingerprints_of(parts: Sequence[Any]) -> str:
    """Give one short digest of the fingerprints of some datasets, in order."""
    listed = json.dumps([part.fingerprint() for part in parts], sort_keys=True)
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def digest_of(indices: Indices) -> str:
    """Give a short digest of some indices, the same on every machine."""
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()[:16]
