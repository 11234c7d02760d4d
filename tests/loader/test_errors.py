"""Errors come out at their batch, once, whoever raised them; then the stream has ended.

Rows S0-04, S1-10, U-29, B24, C21 of the choices. Every dataset here has ten samples in batches of
two, in order, and something raises for sample 5: steps 0 and 1 arrive, step 2 raises.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import headrace as hr
from headrace.datasets.dataset import Indices, Layout, Out
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows
from tests.loader.kinds import ByAwaitedBatch, ByBatch, ByFetch, ByGet, ByItem, ByItems, arrays_of

BAD = 5
Boom = Callable[[], BaseException]


def fail_at(indices: Sequence[int] | NDArray[Any], boom: Boom) -> None:
    if BAD in list(indices):
        raise boom()


class BadItem(ByItem):
    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    def __getitem__(self, index: int) -> Any:
        fail_at([index], self.boom)
        return super().__getitem__(index)


class BadItems(ByItems):
    """Fails as a whole, so the loader must find out which sample it was."""

    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    def __getitems__(self, indices: Sequence[int]) -> Any:
        fail_at(indices, self.boom)
        return super().__getitems__(indices)


class BadGet(ByGet):
    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    async def get(self, index: int) -> Any:
        await asyncio.sleep(0)
        fail_at([index], self.boom)
        return await super().get(index)


class BadFetch(ByFetch):
    """Fails a whole fetch."""

    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    async def fetch(self, indices: Sequence[int]) -> list[bytes]:
        await asyncio.sleep(0)
        fail_at(indices, self.boom)
        return await super().fetch(indices)


class BadDecode(ByFetch):
    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    def decode(self, raw: bytes) -> Any:
        fail_at([int(raw)], self.boom)
        return super().decode(raw)


class BadBatch(ByBatch):
    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    def get_batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        fail_at(indices, self.boom)
        return super().get_batch(indices)


class BadAwaitedBatch(ByAwaitedBatch):
    def __init__(self, boom: Boom) -> None:
        super().__init__(10)
        self.boom = boom

    async def get_batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        await asyncio.sleep(0)
        fail_at(indices, self.boom)
        return await super().get_batch(indices)


class BadRead(hr.Arrays):
    """Fails a whole read, which may be of several steps."""

    def __init__(self, boom: Boom) -> None:
        super().__init__(arrays_of(10))
        self.boom = boom

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        fail_at(indices, self.boom)
        super().read_into_blocking(indices, out, rows)


class BadDeliver(hr.Arrays):
    """Fails while rows are turned into their delivered form."""

    def __init__(self, boom: Boom) -> None:
        super().__init__(arrays_of(10))
        self.boom = boom

    @property
    def delivered(self) -> Layout:
        return self.layout[:1]

    def deliver(self, stored: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
        fail_at(stored["id"].tolist(), self.boom)
        out["id"].copy_(stored["id"])


class BadSizes(RaggedRows):
    """Fails to say how long a row is."""

    def __init__(self, boom: Boom) -> None:
        super().__init__([[i] for i in range(10)])
        self.boom = boom

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        fail_at(indices, self.boom)
        return super().sizes(indices)


def bad_sample_transform(boom: Boom) -> Callable[[Any, hr.PickKey], Any]:
    def transform(sample: Any, key: hr.PickKey) -> Any:
        fail_at([key.sample], boom)
        return sample

    return transform


def bad_collate(boom: Boom) -> Callable[..., Any]:
    def collate(samples: Any, keys: hr.PickKeys) -> Any:
        fail_at(keys.sample, boom)
        return hr.default_collate(samples, keys.sample)

    return collate


def bad_transform(boom: Boom) -> Callable[[hr.Batch, hr.PickKeys], hr.Batch]:
    def transform(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        fail_at(keys.sample, boom)
        return batch

    return transform


def bad_awaited_transform(boom: Boom) -> Callable[[hr.Batch, hr.PickKeys], Any]:
    async def transform(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        await asyncio.sleep(0)
        fail_at(keys.sample, boom)
        return batch

    return transform


def at_sample(data: Callable[[Boom], Any]) -> tuple[Callable[[Boom], dict[str, Any]], int | None]:
    return lambda boom: {"data": data(boom)}, BAD


def at_batch(data: Callable[[Boom], Any]) -> tuple[Callable[[Boom], dict[str, Any]], int | None]:
    return lambda boom: {"data": data(boom)}, None


def knob(
    name: str, call: Callable[[Boom], Any], index: int | None, data: Any
) -> tuple[Callable[[Boom], dict[str, Any]], int | None]:
    return lambda boom: {"data": data, name: call(boom)}, index


PLACES: dict[str, tuple[Callable[[Boom], dict[str, Any]], int | None]] = {
    "item": at_sample(BadItem),
    "items": at_sample(BadItems),
    "get": at_sample(BadGet),
    "fetch": at_sample(BadFetch),
    "decode": at_sample(BadDecode),
    "batch": at_batch(BadBatch),
    "awaited batch": at_batch(BadAwaitedBatch),
    "read": at_batch(BadRead),
    "awaited read": at_batch(lambda boom: AwaitedRows(BadRead(boom))),
    "deliver": at_batch(BadDeliver),
    "awaited deliver": at_batch(lambda boom: AwaitedRows(BadDeliver(boom))),
    "sizes": at_batch(BadSizes),
    "awaited sizes": at_batch(lambda boom: AwaitedRows(BadSizes(boom))),
    "sample_transform": knob("sample_transform", bad_sample_transform, BAD, ByItem(10)),
    "sample_transform of rows": knob(
        "sample_transform", bad_sample_transform, BAD, hr.Arrays(arrays_of(10))
    ),
    "collate": knob("collate", bad_collate, None, ByItem(10)),
    "collate of awaited": knob("collate", bad_collate, None, ByGet(10)),
    "transform": knob("transform", bad_transform, None, hr.Arrays(arrays_of(10))),
    "awaited transform": knob("transform", bad_awaited_transform, None, ByItem(10)),
    "awaited transform of rows": knob(
        "transform", bad_awaited_transform, None, hr.Arrays(arrays_of(10))
    ),
    "awaited transform of awaited": knob("transform", bad_awaited_transform, None, ByGet(10)),
}
"""Who raises, and the sample index that the error must name (None: the batch as a whole)."""


class OddError(Exception):
    """An exception that cannot be made from a message."""

    def __init__(self, code: int, *, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code


KINDS_OF_ERROR: dict[str, Boom] = {
    "ValueError": lambda: ValueError("boom"),
    "KeyError": lambda: KeyError("boom"),
    "odd": lambda: OddError(7, reason="boom"),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"boom", 0, 1, "boom"),
    "StopIteration": lambda: StopIteration("boom"),
    "StopAsyncIteration": lambda: StopAsyncIteration("boom"),
    "GeneratorExit": lambda: GeneratorExit("boom"),
    "OSError": lambda: FileNotFoundError(2, "boom", "a.npy"),
    "headrace": lambda: hr.ConfigError("boom", "1", 2),
    "SystemExit": lambda: SystemExit("boom"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("boom"),
    "CancelledError": lambda: asyncio.CancelledError("boom"),
    "MemoryError": lambda: MemoryError("boom"),
    "TimeoutError": lambda: TimeoutError("boom"),
    "group": lambda: ExceptionGroup("boom", [ValueError("boom")]),
}
# Also the class of what is raised at the consumer, so that `except` of it works.
KEEPS_ITS_CLASS = (
    "ValueError",
    "KeyError",
    "odd",
    "unicode",
    "OSError",
    "headrace",
    "MemoryError",
    "TimeoutError",
)


class Met:
    """What a consumer meets: the ids of its batches, then an error, then the end."""

    def __init__(self, loader: hr.Loader, face: str) -> None:
        self.ids: list[list[int]] = []
        self.after: list[Any] = []
        with loader:
            if face == "for":
                self._take(loader.epoch(0))
            else:
                asyncio.run(self._take_awaited(loader.epoch(0)))

    def _take(self, stream: hr.BatchStream) -> None:
        try:
            for batch in stream:
                self.ids.append(batch.indices.tolist())
        except BaseException as error:
            self.error = error
        self.after = list(stream)

    async def _take_awaited(self, stream: hr.BatchStream) -> None:
        try:
            async for batch in stream:
                self.ids.append(batch.indices.tolist())
        except BaseException as error:
            self.error = error
        self.after = [batch async for batch in stream]


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Give the errors behind an error; Python itself puts one behind a StopIteration."""
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__


def meet(place: str, boom: Boom, workers: int = 2, prefetch: int = 8, face: str = "for") -> Met:
    """Run into an error, which must be a cause of the one that is met."""
    raised: list[BaseException] = []

    def kept() -> BaseException:
        raised.append(boom())
        return raised[-1]

    knobs, _ = PLACES[place]
    loader = hr.Loader(
        batch_size=2,
        shuffle=False,
        workers=workers,
        prefetch=prefetch,
        probe=False,
        **knobs(kept),
    )
    met = Met(loader, face)
    assert any(cause in raised for cause in causes_of(met.error))
    return met


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("place", PLACES)
def test_an_error_comes_out_at_its_batch(place: str, workers: int, face: str) -> None:
    """Batches before it arrive, then the error with step, sample and line, then the end."""
    for prefetch in (1, 8):
        met = meet(place, lambda: ValueError("boom"), workers, prefetch, face)

        assert met.ids == [[0, 1], [2, 3]]
        assert isinstance(met.error, hr.SampleError)
        assert isinstance(met.error, ValueError)
        assert (met.error.step, met.error.index) == (2, PLACES[place][1])
        assert "ValueError: boom" in str(met.error)
        assert "test_errors.py" in str(met.error)
        assert met.after == []


@pytest.mark.parametrize("name", KINDS_OF_ERROR)
def test_every_kind_of_error_is_delivered(name: str, full: bool) -> None:
    """What would hang a future, end a thread or stop a loop is an error like any other."""
    places = [*PLACES] if full else ["item", "get", "decode", "batch", "read", "transform"]
    for place in places:
        for workers in (1, 4):
            met = meet(place, KINDS_OF_ERROR[name], workers)

            assert met.ids == [[0, 1], [2, 3]]
            assert isinstance(met.error, hr.SampleError)
            assert not isinstance(met.error, BaseExceptionGroup)
            if name in KEEPS_ITS_CLASS:
                assert isinstance(met.error, type(met.error.__cause__))
            assert met.after == []


def test_an_error_keeps_the_facts_of_the_original() -> None:
    """What the class of the original has can be asked of the error that is met."""
    found = meet("item", lambda: FileNotFoundError(2, "boom", "a.npy")).error
    assert isinstance(found, FileNotFoundError)
    assert (found.errno, found.filename) == (2, "a.npy")
    assert str(found).startswith("step 2, sample 5: FileNotFoundError: [Errno 2] boom: 'a.npy' (")

    found = meet("item", lambda: UnicodeDecodeError("utf-8", b"boom", 0, 1, "boom")).error
    assert isinstance(found, UnicodeDecodeError)
    assert (found.object, found.reason) == (b"boom", "boom")

    found = meet("item", lambda: OddError(7, reason="boom")).error
    assert isinstance(found, OddError)
    assert found.code == 7

    found = meet("batch", lambda: hr.ConfigError("boom", "1", 2)).error
    assert isinstance(found, hr.ConfigError)
    assert (found.knob, found.found) == ("boom", 2)


def test_an_error_of_an_error_names_the_outer_step() -> None:
    """A dataset that reads by a loader of its own fails at a step of the outer one."""
    inner = meet("item", lambda: ValueError("boom")).error
    assert isinstance(inner, hr.SampleError)

    found = meet("batch", lambda: inner).error

    assert isinstance(found, hr.SampleError)
    assert isinstance(found, ValueError)
    assert (found.step, found.index) == (2, None)


@pytest.mark.parametrize("name", KINDS_OF_ERROR)
def test_an_error_may_be_pickled(name: str) -> None:
    """Errors travel between processes, as a launcher sends them."""
    found = meet("item", KINDS_OF_ERROR[name]).error
    assert isinstance(found, hr.SampleError)

    again = pickle.loads(pickle.dumps(found))

    assert type(again) is type(found)
    assert str(again) == str(found)
    assert (again.step, again.index) == (2, 5)
