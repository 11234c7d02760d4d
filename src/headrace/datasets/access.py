"""The four ways of a per-sample dataset, seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from headrace.errors import ConfigError, RowErrors

Access = Literal["fetch", "get", "many", "one"]


def access_of(dataset: Any) -> Access:
    """Say how samples come out of a dataset; the first that it has of these.

    - "fetch": `async fetch(indices)`, then `decode(raw)`.
    - "get": `async get(index)`.
    - "many": `__getitems__(indices)`, blocking.
    - "one": `__getitem__(index)`, blocking.

    Raises:
        ConfigError: It has none.
    """
    if hasattr(dataset, "fetch") and hasattr(dataset, "decode"):
        return "fetch"
    if asyncio.iscoroutinefunction(getattr(dataset, "get", None)):
        return "get"
    if hasattr(dataset, "__getitems__"):
        return "many"
    if hasattr(dataset, "__getitem__"):
        return "one"
    raise ConfigError(
        "data",
        "one of: async fetch and decode, async get, __getitems__, __getitem__",
        type(dataset).__name__,
    )


class Samples:
    """Samples of a dataset, by one call whatever its access is.

    Attributes:
        waits: Whether samples must be fetched on an event loop.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._access = access_of(dataset)
        self.waits = self._access in ("fetch", "get")

    def get_blocking(self, indices: Sequence[int]) -> list[Any]:
        """Give samples on the calling thread; only where nothing waits.

        Raises:
            RowErrors: Some samples failed, where the dataset tells; rows are positions in
                `indices`.
        """
        if self._access == "many":
            return list(self._dataset.__getitems__(list(indices)))
        return [self._dataset[index] for index in indices]

    def get_one_blocking(self, index: int) -> Any:
        """Give one sample on the calling thread; what it raises is the sample's own error."""
        try:
            if hasattr(self._dataset, "__getitem__"):
                return self._dataset[index]
            return self.get_blocking([index])[0]
        except RowErrors as error:
            raise next(iter(error.errors.values())) from error

    async def fetch(self, indices: Sequence[int]) -> list[Any]:
        """Give what `decode` needs for each sample.

        Raises:
            RowErrors: Some samples failed; rows are positions in `indices`.
        """
        if self._access == "fetch":
            return list(await self._dataset.fetch(list(indices)))
        if self._access == "get":
            return await self._get_all(indices)
        # A blocking dataset does all its work where decoding is done: off the loop.
        return list(indices)

    def decode(self, raw: Any) -> Any:
        """Give the sample of what was fetched."""
        if self._access == "fetch":
            return self._dataset.decode(raw)
        if self._access == "get":
            return raw
        return self.get_one_blocking(raw)

    async def _get_all(self, indices: Sequence[int]) -> list[Any]:
        calls = [self._dataset.get(index) for index in indices]
        return all_or_row_errors(await asyncio.gather(*calls, return_exceptions=True))


def all_or_row_errors(results: Sequence[Any]) -> list[Any]:
    """Give results of `gather(..., return_exceptions=True)`.

    Raises:
        RowErrors: Some are errors. One that is no Exception (a cancellation that nobody asked
            for, the end of the program) is raised as it is.
    """
    errors: dict[int, Exception] = {}
    for row, result in enumerate(results):
        if isinstance(result, Exception):
            errors[row] = result
        elif isinstance(result, BaseException):
            raise result
    if errors:
        raise RowErrors(errors)
    return list(results)
