"""Per-sample datasets made of other datasets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from headrace.datasets.access import Samples
from headrace.datasets.bounds import Indices, as_indices, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Dataset, Layout, Location, RaggedColumn
from headrace.datasets.parts import OverParts, digest_of, fingerprints_of
from headrace.datasets.shards import starts_of
from headrace.errors import RowErrors

Place = tuple[int, int]
"""Number of a part, and an index in it."""


class Route:
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

    def facts(self) -> dict[str, Any]:
        return {"function": getattr(self._function, "__qualname__", repr(self._function))}


class Parts:
    """Takes some parts of a sample as a dict; a function that can be pickled."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self._keys = tuple(keys)
        self.__qualname__ = f"select({', '.join(map(repr, self._keys))})"

    def __call__(self, sample: Any) -> dict[Hashable, Any]:
        return {key: sample[key] for key in self._keys}


class _Routed(OverParts, Dataset):
    def __init__(self, parts: Sequence[Any], route: Route) -> None:
        self.parts = tuple(parts)
        self._route = route
        self._samples = tuple(Samples(part) for part in self.parts)
        self.thread_safe = all(part.thread_safe for part in self.parts)
        self.pure = all(part.pure for part in self.parts)

    def __len__(self) -> int:
        return self._route.length(self.parts)

    def locate(self, index: int) -> Location | None:
        part, local = self._place(index)
        found: Location | None = self.parts[part].locate(local)
        return found

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": self._route.kind,
            "samples": len(self),
            **self._route.facts(),
            "of": fingerprints_of(self.parts),
        }

    def _place(self, index: int) -> Place:
        return self._route.place(check_index(index, len(self), self))

    def _by_part(self, indices: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Give for each part concerned the (row, index in the part) of its samples."""
        found: dict[int, list[tuple[int, int]]] = {}
        for row, index in enumerate(indices):
            part, local = self._place(index)
            found.setdefault(part, []).append((row, local))
        return found

    def __repr__(self) -> str:
        return f"{self._route.kind}({', '.join(map(repr, self.parts))})"


class BlockingSamples(_Routed):
    """Samples of parts that are all read on reader threads."""

    def __getitem__(self, index: int) -> Any:
        part, local = self._place(index)
        return self._route.finish(self._samples[part].get_one_blocking(local))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        got: list[Any] = [None] * len(indices)
        errors: dict[int, Exception] = {}
        for part, wanted in self._by_part(indices).items():
            try:
                samples = self._samples[part].get_blocking([local for _, local in wanted])
            except RowErrors as error:
                errors |= _rows_in(wanted, error)
                continue
            for (row, _), sample in zip(wanted, samples, strict=True):
                try:
                    got[row] = self._route.finish(sample)
                except Exception as error:  # noqa: BLE001 - the user's function may raise any
                    errors[row] = error
        if errors:
            raise RowErrors(errors)
        return got


class WaitingSamples(_Routed):
    """Samples of parts of which some wait on the loop; the rest of the work is in `decode`."""

    async def fetch(self, indices: Sequence[int]) -> list[Any]:
        raw: list[Any] = [None] * len(indices)
        errors: dict[int, Exception] = {}
        for part, wanted in self._by_part(indices).items():
            try:
                got = await self._samples[part].fetch([local for _, local in wanted])
            except RowErrors as error:
                errors |= _rows_in(wanted, error)
                continue
            for (row, _), fetched in zip(wanted, got, strict=True):
                raw[row] = (part, fetched)
        if errors:
            raise RowErrors(errors)
        return raw

    def decode(self, raw: tuple[int, Any]) -> Any:
        part, fetched = raw
        return self._route.finish(self._samples[part].decode(fetched))


def _rows_in(wanted: Sequence[tuple[int, int]], error: RowErrors) -> dict[int, Exception]:
    """Give the errors of one part by the row of the whole request."""
    return {wanted[at][0]: cause for at, cause in error.errors.items()}


def routed(parts: Sequence[Any], route: Route) -> Dataset:
    """Give the composition in the form that its parts allow."""
    if any(Samples(part).waits for part in parts):
        return WaitingSamples(parts, route)
    return BlockingSamples(parts, route)


class _RowSamples(OverParts, Dataset):
    """Rows of a bulk dataset, one dict of tensors each."""

    def __init__(self, base: BulkDataset) -> None:
        self.parts = (base,)
        self._base = base

    def __len__(self) -> int:
        return len(self._base)

    def locate(self, index: int) -> Location | None:
        return self._base.locate(index)

    def fingerprint(self) -> dict[str, Any]:
        return self._base.fingerprint()

    def __repr__(self) -> str:
        return repr(self._base)


class BlockingRowSamples(_RowSamples):
    """Rows read on reader threads."""

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        rows = Rows(self._base, indices)
        self._base.read_into_blocking(rows.indices, rows.out, rows.numbers)
        return rows.samples()


class WaitingRowSamples(_RowSamples):
    """Rows read on the loop."""

    async def fetch(self, indices: Sequence[int]) -> list[Any]:
        rows = Rows(self._base, indices)
        await self._base.read_into(rows.indices, rows.out, rows.numbers)
        return rows.samples()

    def decode(self, raw: Any) -> Any:
        return raw


class Rows:
    """Memory for some rows of a bulk dataset, and the rows in it as samples.

    Attributes:
        indices: int64 `[k]`, checked.
        numbers: Their rows, 0 to k.
        out: What `read_into` fills.
    """

    def __init__(self, base: BulkDataset, indices: Iterable[int]) -> None:
        self._base = base
        self.indices = as_indices(indices)
        check_indices(self.indices, len(base), base)
        self.numbers = np.arange(len(self.indices))
        self._offsets = {name: starts_of(n) for name, n in base.sizes(self.indices).items()}
        self.out: dict[str, Any] = {
            name: RaggedColumn(array, self._offsets[name]) if name in self._offsets else array
            for name, array in self._fresh(base.layout).items()
        }

    def samples(self) -> list[dict[str, torch.Tensor]]:
        """Give each row as a dict of delivered columns, once `out` is filled."""
        stored = {
            name: torch.from_numpy(into.flat if isinstance(into, RaggedColumn) else into)
            for name, into in self.out.items()
        }
        delivered = stored
        if self._base.delivered != self._base.layout:
            fresh = self._fresh(self._base.delivered)
            delivered = {name: torch.from_numpy(array) for name, array in fresh.items()}
            self._base.deliver(stored, delivered)
        return [
            {name: self._row(name, column, row) for name, column in delivered.items()}
            for row in self.numbers.tolist()
        ]

    def _fresh(self, layout: Layout) -> dict[str, Any]:
        return {
            column.name: np.empty((self._length(column.name), *column.unit_shape), column.dtype)
            for column in layout
        }

    def _length(self, name: str) -> int:
        offsets = self._offsets.get(name)
        return len(self.indices) if offsets is None else int(offsets[-1])

    def _row(self, name: str, column: torch.Tensor, row: int) -> torch.Tensor:
        if name not in self._offsets:
            return column[row]
        start, stop = self._offsets[name][row : row + 2].tolist()
        return column[start:stop]
