"""Per-sample datasets made of other datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.datasets.access import Samples
from headrace.datasets.bounds import check_index
from headrace.datasets.dataset import Dataset, Location
from headrace.datasets.parts import OverParts, fingerprints_of
from headrace.datasets.routes import Place, Route
from headrace.errors import RowErrors


class _Routed(OverParts, Dataset):
    def __init__(self, parts: Sequence[Any], route: Route) -> None:
        self.parts = tuple(parts)
        self._route = route
        self._samples = tuple(Samples(part) for part in self.parts)
        self.thread_safe = all(part.thread_safe for part in self.parts)
        self.pure = all(part.pure for part in self.parts)

    def __len__(self) -> int:
        return self._route.length(self.parts)

    def made_of(self) -> dict[str, Any]:
        return {**super().made_of(), **self._route.functions()}

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
