"""Errors come out at their batch, once, whoever raised them; then the stream has ended.

Rows S0-04, S1-10, U-29, B24, C21 of the choices. Every dataset here has ten samples in batches of
two, in order, and something raises for sample 5: steps 0 and 1 arrive, step 2 raises.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
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


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_what_cannot_be_opened_ends_the_stream(kind: str, workers: int, face: str) -> None:
    """A reader that cannot begin is told with its cause; nobody waits for it (U-29)."""

    class Unopened(ByItem):
        def thread_open(self) -> None:
            raise FileNotFoundError("no such base")

    class UnopenedGet(ByGet):
        async def open(self) -> None:
            raise FileNotFoundError("no such base")

    data = Unopened(10) if kind == "thread" else UnopenedGet(10)
    met = Met(hr.Loader(data, 2, workers=workers, probe=False), face)

    assert met.ids == []
    causes = [met.error, *causes_of(met.error)]
    assert any(isinstance(cause, FileNotFoundError) for cause in causes)
    assert met.after == []


def test_later_steps_are_not_delivered_after_an_error() -> None:
    """What was built behind the failed step is dropped, and a new stream begins where it is
    told to (C21)."""
    read: set[int] = set()
    all_read = threading.Event()

    class Bad(ByItem):
        def __getitem__(self, index: int) -> Any:
            read.add(index)
            if len(read) == 10:
                all_read.set()
            fail_at([index], lambda: ValueError("boom"))
            return super().__getitem__(index)

    with hr.Loader(Bad(10), 2, shuffle=False, workers=2, prefetch=8, probe=False) as loader:
        stream = loader.epoch(0)
        assert next(stream)["id"].tolist() == [0, 1]
        assert all_read.wait(20)
        assert next(stream)["id"].tolist() == [2, 3]
        with pytest.raises(ValueError, match="boom"):
            next(stream)
        assert list(stream) == []
        assert loader.state_dict()["next_step"] == 2

        assert [batch["id"].tolist() for batch in loader.stream(3, 2)] == [[6, 7], [8, 9]]


def test_an_error_is_the_same_however_far_was_read_ahead(seed: int) -> None:
    """Of several bad steps the first is met, whichever was built first (S1-10)."""
    for prefetch in (1, 2, 5, 8):
        for workers in (1, 3):

            class Bad(ByItem):
                def __getitem__(self, index: int) -> Any:
                    if index in (4, 5, 9, 14):
                        raise ValueError(f"boom {index}")
                    return super().__getitem__(index)

            with hr.Loader(
                Bad(16), 2, shuffle=False, workers=workers, prefetch=prefetch, probe=False
            ) as loader:
                stream = loader.epoch(0)
                assert [next(stream).step for _ in range(2)] == [0, 1]
                with pytest.raises(hr.SampleError, match="step 2, sample 4: ValueError: boom 4"):
                    next(stream)


def test_user_code_may_be_wrong_in_any_way() -> None:
    """Wrong counts and wrong types are errors at their step, of whoever gave them."""

    class Short(ByItems):
        def __getitems__(self, indices: Sequence[int]) -> Any:
            return super().__getitems__(indices)[1:]

    class Nothing(ByItems):
        def __getitems__(self, indices: Sequence[int]) -> Any:
            return None

    class ShortFetch(ByFetch):
        async def fetch(self, indices: Sequence[int]) -> list[bytes]:
            return (await super().fetch(indices))[1:]

    class NoFetch(ByFetch):
        async def fetch(self, indices: Sequence[int]) -> Any:
            return None

    class ShortBatch(ByBatch):
        def get_batch(self, indices: Sequence[int]) -> Any:
            return super().get_batch(indices[1:])

    wrong: dict[str, Any] = {
        "__getitems__: wanted 2 samples, got 1": Short(4),
        "NoneType": Nothing(4),
        "fetch: wanted 2 samples, got 1": ShortFetch(4),
        "'NoneType' object is not iterable": NoFetch(4),
        "get_batch: column 'id' has 1 rows, wanted 2": ShortBatch(4),
    }
    for words, data in wrong.items():
        for workers in (0, 2):
            with (
                hr.Loader(data, 2, workers=workers, probe=False) as loader,
                pytest.raises(hr.SampleError, match=words) as caught,
            ):
                next(iter(loader))
            assert (caught.value.step, caught.value.index) == (0, None)
