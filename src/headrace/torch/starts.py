"""What decides the order of a pass: the generators and samplers that it starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from headrace.errors import StateError
from headrace.samplers.epoch_starts import EpochStart, GeneratorStart, states_of
from headrace.samplers.replay import chain_of
from headrace.torch.place import Place
from headrace.torch.process_generators import process_generators


class Starts:
    """The states that a pass starts from, as texts.

    Args:
        generator: The loader's own generator.
        sampler: What gives the keys; the samplers inside it count too.

    Attributes:
        own: Generators of the loader and its samplers, and samplers with a state of their own.
        process: Generators of the whole process, which loader or samplers may draw from:
            torch's, and those of Python and numpy where a sampler is not torch's.
        epochs: What samplers were told by `set_epoch`.
        ranks: The shares that samplers take of an order, by their numbers.
    """

    def __init__(self, generator: torch.Generator | None, sampler: Any) -> None:
        chain = list(chain_of(sampler))
        held = [getattr(part, "generator", None) for part in chain]
        distinct = {id(each): each for each in (generator, *held) if each is not None}
        lacking = [part for part in chain if getattr(part, "generator", None) is None]
        self.own: list[EpochStart] = [GeneratorStart(each) for each in distinct.values()]
        self.own += states_of(lacking)
        # Torch's samplers draw from torch's generator alone, and a state should stay small.
        are_torchs = all(type(part).__module__.startswith("torch.") for part in chain)
        self.process = process_generators()[: 1 if are_torchs else None]
        self.epochs: list[EpochStart] = [_ToldEpoch(part) for part in chain if _is_told(part)]
        self.ranks = [rank for part in chain if (rank := _rank_of(part)) is not None]

    def read_own(self) -> list[str]:
        """Give the states of what belongs to the loader."""
        return _read(self.own)

    def note(self, place: Place) -> None:
        """Note in a place what its pass starts from."""
        place.own, place.process = _read(self.own), _read(self.process)
        place.epochs, place.ranks = _read(self.epochs), self.ranks

    @contextmanager
    def gone_back_to(self, saved: Place | None) -> Iterator[None]:
        """Go back to where a saved pass began, to draw its keys again.

        What belongs to the loader stays there, and so does the epoch that samplers are told: a
        framework tells it again later, or starts counting anew. The generators of the process
        are put back afterwards: they are where the program wants them.

        Raises:
            StateError: The pass is one of other generators or samplers.
        """
        if saved is None:
            yield
            return
        _write(self.own, saved.own, "own")
        if not saved.process:
            yield
            return
        _write(self.epochs, saved.epochs, "epochs")
        now = _read(self.process)
        try:
            _write(self.process, saved.process, "process")
            yield
        finally:
            _write(self.process, now, "process")


class _ToldEpoch:
    """The epoch that a sampler was told."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def read(self) -> str:
        return str(self._sampler.epoch)

    def write(self, text: str) -> None:
        self._sampler.set_epoch(int(text))


def _is_told(sampler: Any) -> bool:
    can_be_told = callable(getattr(sampler, "set_epoch", None))
    return can_be_told and isinstance(getattr(sampler, "epoch", None), int)


def _rank_of(sampler: Any) -> int | None:
    """Give the number of a sampler's share, under torch's name for it or accelerate's."""
    rank = getattr(sampler, "rank", getattr(sampler, "process_index", None))
    return rank if isinstance(rank, int) else None


def _read(starts: Sequence[EpochStart]) -> list[str]:
    return [start.read() for start in starts]


def _write(starts: Sequence[EpochStart], texts: Sequence[str], field: str) -> None:
    if len(starts) != len(texts):
        raise StateError({field: (f"{len(texts)} states", f"{len(starts)}")}, _CURE)
    try:
        for start, text in zip(starts, texts, strict=True):
            start.write(text)
    except Exception as error:
        raise StateError({field: ("states of another kind", repr(error))}, _CURE) from error


_CURE = "Make the DataLoader with the generator and sampler that it had when the state was saved."
