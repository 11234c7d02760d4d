"""Datasets that know nothing of headrace, given the contract's face."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from headrace.datasets.dataset import BatchDataset, Dataset, Opened


class Foreign(Opened):
    """Hands everything on to a user's object that has no base class of ours.

    Attributes:
        subject: The user's object.
        thread_safe: Whether the object says that all threads may share it.
        pure: Whether it, or the user, says that an index always gives the same bytes. Augmenting
            in `__getitem__` is common, so this is off unless said.
    """

    def __init__(
        self, subject: Any, pure: bool | None = None, thread_safe: bool | None = None
    ) -> None:
        self.subject = subject
        self.pure = _told(subject, "pure", pure)
        self.thread_safe = _told(subject, "thread_safe", thread_safe)

    def __len__(self) -> int:
        return len(self.subject)

    async def open(self) -> None:
        await self._await("open")

    async def aclose(self) -> None:
        await self._await("aclose")

    def thread_open(self) -> None:
        self._call("thread_open")

    def thread_close(self) -> None:
        self._call("thread_close")

    async def _await(self, name: str) -> None:
        # An `open` that is not awaited is a method of another meaning.
        method = getattr(self.subject, name, None)
        if asyncio.iscoroutinefunction(method):
            await method()

    def _call(self, name: str) -> None:
        method = getattr(self.subject, name, None)
        if callable(method):
            method()

    def fingerprint(self) -> dict[str, Any]:
        own = getattr(self.subject, "fingerprint", None)
        told = own() if callable(own) else None
        facts = told if isinstance(told, dict) else {}
        kind = type(self.subject)
        # Not the module: a script's is "__main__" when run and its own name when imported.
        return {"kind": kind.__qualname__, "samples": len(self), **facts}

    def __repr__(self) -> str:
        return f"{type(self.subject).__name__}({len(self)} samples)"


class ForeignOne(Foreign, Dataset):
    """An object with `__getitem__(index)`, or a blocking `get(index)`."""

    def __getitem__(self, index: int) -> Any:
        return _one_of(self.subject)(index)


class ForeignMany(ForeignOne):
    """An object with torch's `__getitems__(indices)` too."""

    def __getitems__(self, indices: Sequence[int]) -> Any:
        return self.subject.__getitems__(list(indices))


class ForeignGet(Foreign, Dataset):
    """An object with `async get(index)`."""

    async def get(self, index: int) -> Any:
        return await self.subject.get(index)


class ForeignFetch(Foreign, Dataset):
    """An object with `async fetch(indices)` and `decode(raw)`."""

    async def fetch(self, indices: Sequence[int]) -> Any:
        return await self.subject.fetch(indices)

    def decode(self, raw: Any) -> Any:
        return self.subject.decode(raw)


class ForeignBatch(Foreign, BatchDataset):
    """An object with a blocking `get_batch(indices)`."""

    def get_batch(self, indices: Sequence[int]) -> Any:
        return self.subject.get_batch(indices)


class ForeignAwaitedBatch(Foreign, BatchDataset):
    """An object with `async get_batch(indices)`."""

    async def get_batch(self, indices: Sequence[int]) -> Any:
        return await self.subject.get_batch(indices)


def _one_of(subject: Any) -> Callable[[int], Any]:
    found: Callable[[int], Any]
    found = subject.__getitem__ if hasattr(subject, "__getitem__") else subject.get
    return found


def _told(subject: Any, name: str, told: bool | None) -> bool:
    return bool(getattr(subject, name, False)) if told is None else told
