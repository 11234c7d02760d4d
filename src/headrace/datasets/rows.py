"""Bulk datasets made of bulk datasets: they keep the stored layout and the fast path."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Layout, Location, Out
from headrace.datasets.parts import OverParts, digest_of, fingerprints_of
from headrace.datasets.shards import starts_of
from headrace.errors import ConfigError, RowErrors
from headrace.threads import BlockingCalls


class OverRows(OverParts, BulkDataset):
    """Rows of parts that share one layout."""

    parts: tuple[BulkDataset, ...]

    @property
    def layout(self) -> Layout:
        return self.parts[0].layout

    @property
    def delivered(self) -> Layout:
        return self.parts[0].delivered

    @property
    def waits(self) -> bool:
        return any(part.waits for part in self.parts)

    @property
    def decodes(self) -> bool:  # type: ignore[override]
        return any(part.decodes for part in self.parts)

    def deliver(self, stored: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
        self.parts[0].deliver(stored, out)


class SubsetRows(OverRows):
    """Some rows of a bulk dataset, in a chosen order."""

    def __init__(self, base: BulkDataset, chosen: Indices) -> None:
        check_indices(chosen, len(base), base)
        self.parts = (base,)
        self.chosen = chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def select(self, *names: str) -> BulkDataset:
        return SubsetRows(self.parts[0].select(*names), self.chosen)

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        return self.parts[0].sizes(self._in_base(indices))

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        self.parts[0].read_into_blocking(self._in_base(indices), out, rows)

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        await self.parts[0].read_into(self._in_base(indices), out, rows)

    def read_spread_blocking(
        self,
        indices: Indices,
        fixed: Mapping[str, NDArray[Any]],
        spread: Sequence[Mapping[str, NDArray[Any]]],
    ) -> None:
        self.parts[0].read_spread_blocking(self._in_base(indices), fixed, spread)

    @property
    def reads_spread(self) -> bool:
        return self.parts[0].reads_spread

    def _in_base(self, indices: Indices) -> Indices:
        check_indices(indices, len(self), self)
        return self.chosen[indices]

    def locate(self, index: int) -> Location | None:
        return self.parts[0].locate(int(self.chosen[check_index(index, len(self), self)]))

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "Subset",
            "samples": len(self),
            "indices": digest_of(self.chosen),
            "of": self.parts[0].fingerprint(),
        }

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {self.parts[0]!r})"


class ConcatRows(OverRows):
    """Bulk datasets one after another."""

    def __init__(self, parts: Sequence[BulkDataset]) -> None:
        self.parts = tuple(parts)
        for part in self.parts[1:]:
            _check_same_columns(self.parts[0], part)
        self._starts = starts_of([len(part) for part in self.parts])
        self._threads = _Threads()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def select(self, *names: str) -> BulkDataset:
        return ConcatRows([part.select(*names) for part in self.parts])

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        found: dict[str, NDArray[np.int64]] = {}
        for part, local, where in self._pieces(indices):
            for name, lengths in part.sizes(local).items():
                found.setdefault(name, np.zeros(len(indices), np.int64))[where] = lengths
        return found

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        errors: dict[int, Exception] = {}
        for part, local, where in self._pieces(indices):
            try:
                part.read_into_blocking(local, out, rows[where])
            except RowErrors as error:
                errors.update(error.errors)
        if errors:
            raise RowErrors(errors)

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        pieces = list(self._pieces(indices))
        reads = [self._read_part(part, local, out, rows[where]) for part, local, where in pieces]
        # With return_exceptions, gather ends only after every read has, also when cancelled.
        _raise_merged(await asyncio.gather(*reads, return_exceptions=True))

    async def _read_part(self, part: BulkDataset, local: Indices, out: Out, rows: Indices) -> None:
        if part.waits:
            await part.read_into(local, out, rows)
            return
        await self._threads.calls.run(part.read_into_blocking, local, out, rows)

    async def open(self) -> None:
        await super().open()
        self._threads.enter()

    async def aclose(self) -> None:
        await self._threads.leave()
        await super().aclose()

    def _pieces(self, indices: Indices) -> Iterator[tuple[BulkDataset, Indices, Any]]:
        """Give the parts concerned, the indices in each, and where these are in `indices`."""
        check_indices(indices, len(self), self)
        if not len(indices):
            return
        number = np.searchsorted(self._starts, indices, side="right") - 1
        if number.min() == (last := number.max()):
            yield self.parts[last], indices - self._starts[last], slice(None)
            return
        for found in np.unique(number).tolist():
            where = np.nonzero(number == found)[0]
            yield self.parts[found], indices[where] - self._starts[found], where

    def locate(self, index: int) -> Location | None:
        check_index(index, len(self), self)
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.parts[number].locate(index - int(self._starts[number]))

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "Concat",
            "samples": len(self),
            "parts": len(self.parts),
            "of": fingerprints_of(self.parts),
        }

    def __repr__(self) -> str:
        return f"Concat({', '.join(map(repr, self.parts))})"


class _Threads:
    """A few threads for the parts that block, from the first loop's open to the last's close."""

    def __init__(self) -> None:
        self.calls = BlockingCalls(2, "concat")
        self._loops = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        with self._lock:
            self._loops += 1

    async def leave(self) -> None:
        with self._lock:
            self._loops -= 1
            if self._loops > 0:
                return
            # A loop that opens from here on has threads of its own.
            calls, self.calls = self.calls, BlockingCalls(2, "concat")
        await calls.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Threads, ()


def _check_same_columns(first: BulkDataset, other: BulkDataset) -> None:
    if (first.layout, first.delivered) != (other.layout, other.delivered):
        raise ConfigError(
            "Concat",
            f"columns as in {first!r}: {_listed(first.layout)}",
            f"{_listed(other.layout)} in {other!r}",
        )


def _listed(layout: Layout) -> str:
    return ", ".join(f"{c.name} {c.dtype} {list(c.shape)}" for c in layout)


def _raise_merged(results: Sequence[BaseException | None]) -> None:
    errors: dict[int, Exception] = {}
    for result in results:
        if isinstance(result, RowErrors):
            errors.update(result.errors)
        elif result is not None:
            raise result
    if errors:
        raise RowErrors(errors)
