"""Datasets that know nothing of headrace: who may read them at once, and whether they are pure."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import headrace as hr
from headrace.datasets.foreign import LARGE_ARRAY_BYTES
from headrace.testing.gates import Gate
from tests.loader.kinds import ByFetch, ByGet, ByItem, Samples, sample_of


class Cautious:
    """Says nothing of threads, so no two of them may use one object."""

    used_by: ClassVar[dict[int, set[int]]]
    """Id of each object that was read to the threads that read it, over all copies."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self.scratch = np.arange(num_samples)
        self.table = np.zeros(LARGE_ARRAY_BYTES + 1, np.uint8)

    def __len__(self) -> int:
        return self.num_samples

    def note(self) -> None:
        type(self).used_by.setdefault(id(self), set()).add(threading.get_ident())


def address(array: Any) -> int:
    return int(array.ctypes.data)


def open_when(gate: Gate, arrivals: int) -> None:
    gate.arrived_blocking(arrivals)
    gate.open()


def test_each_thread_reads_a_copy_of_its_own() -> None:
    """An object or a scratch is never used by two threads; its data is not copied (S0-08)."""
    scratches: set[int] = set()
    tables: set[int] = set()
    barrier = Gate()

    class Copied(Cautious):
        used_by: ClassVar[dict[int, set[int]]] = {}

        def __getitem__(self, index: int) -> int:
            self.note()
            scratches.add(address(self.scratch))
            tables.add(address(self.table))
            if index < 6:
                barrier.wait_blocking()
            return index

    data = Copied(60)
    with hr.Loader(data, 2, shuffle=False, workers=3, probe=False) as loader:
        stream = loader.epoch(0)
        opener = threading.Thread(target=open_when, args=(barrier, 3))
        opener.start()
        ids = [row for batch in stream for row in batch["0"].tolist()]
        opener.join()

    assert ids == list(range(60))
    assert len(Copied.used_by) == 3
    assert id(data) not in Copied.used_by
    assert [len(threads) for threads in Copied.used_by.values()] == [1, 1, 1]
    assert len(scratches - {address(data.scratch)}) == 3
    assert tables == {address(data.table)}


def test_a_dataset_that_says_it_is_safe_is_shared() -> None:
    """`thread_safe = True` gives all threads the one object (S0-08)."""

    class Shared(Cautious):
        used_by: ClassVar[dict[int, set[int]]] = {}
        thread_safe = True

        def __getitem__(self, index: int) -> int:
            self.note()
            return index

    data = Shared(60)
    with hr.Loader(data, 2, workers=3, probe=False) as loader:
        assert len(list(loader)) == 30

    assert set(Shared.used_by) == {id(data)}


def test_a_dataset_that_cannot_be_copied_is_read_by_one_thread() -> None:
    """It warns with the cure, and no two reads overlap."""
    reading = threading.Lock()

    class Held(Cautious):
        used_by: ClassVar[dict[int, set[int]]] = {}

        def __init__(self, num_samples: int) -> None:
            super().__init__(num_samples)
            self.handle = threading.Lock()

        def __getitem__(self, index: int) -> int:
            self.note()
            assert reading.acquire(blocking=False)
            reading.release()
            return index

    data = Held(60)
    with (
        pytest.warns(UserWarning, match=r"cannot be copied .* one thread reads it"),
        hr.Loader(data, 2, shuffle=False, workers=4, prefetch=8, probe=False) as loader,
    ):
        ids = [row for batch in loader for row in batch["0"].tolist()]

    assert ids == list(range(60))
    assert [len(threads) for threads in Held.used_by.values()] == [1]
    assert set(Held.used_by) == {id(data)}


def test_what_only_the_loop_reads_needs_no_copy() -> None:
    """An awaited dataset with a client that cannot be pickled is shared, without a warning."""

    class Client(ByGet):
        thread_safe = False

        def __init__(self, num_samples: int, gate: Gate) -> None:
            super().__init__(num_samples)
            self.gate = gate
            self.session = threading.Lock()

        async def get(self, index: int) -> dict[str, Any]:
            await self.gate.wait()
            return sample_of(index)

    gate = Gate()
    with hr.Loader(
        Client(40, gate), 2, shuffle=False, workers=2, prefetch=4, probe=False
    ) as loader:
        consumer = threading.Thread(target=next, args=(loader.epoch(0),))
        consumer.start()
        gate.arrived_blocking(8)
        gate.open()
        consumer.join()


def test_decoding_threads_have_copies_too() -> None:
    """`decode` is never called on one object by two threads; the loop's object fetches."""
    fetched_by: set[int] = set()

    class Decoded(Cautious):
        used_by: ClassVar[dict[int, set[int]]] = {}

        async def fetch(self, indices: Sequence[int]) -> list[int]:
            fetched_by.add(id(self))
            return list(indices)

        def decode(self, raw: int) -> int:
            self.note()
            return raw

    data = Decoded(60)
    with hr.Loader(data, 2, shuffle=False, workers=3, prefetch=8) as loader:
        ids = [row for batch in loader for row in batch["0"].tolist()]

    assert ids == list(range(60))
    assert fetched_by == {id(data)}
    assert all(len(threads) == 1 for threads in Decoded.used_by.values())


@pytest.mark.parametrize("kind", ["item", "fetch"])
def test_every_reading_thread_is_opened_and_closed(kind: str) -> None:
    """`thread_open` before the first sample on a thread, `thread_close` on it at the end
    (S4-17)."""
    opened: list[int] = []
    closed: list[int] = []
    read: set[int] = set()

    class Lifecycle:
        thread_safe = True

        def thread_open(self) -> None:
            opened.append(threading.get_ident())

        def thread_close(self) -> None:
            closed.append(threading.get_ident())

    class Items(Lifecycle, ByItem):
        def __getitem__(self, index: int) -> dict[str, Any]:
            read.add(threading.get_ident())
            assert threading.get_ident() in opened
            return super().__getitem__(index)

    class Fetched(Lifecycle, ByFetch):
        def decode(self, raw: bytes) -> dict[str, Any]:
            read.add(threading.get_ident())
            assert threading.get_ident() in opened
            return super().decode(raw)

    data = Items(60) if kind == "item" else Fetched(60)
    with hr.Loader(data, 2, workers=3, prefetch=8, probe=False) as loader:
        assert len(list(loader)) == 30

    assert read <= set(opened)
    assert len(opened) == len(set(opened))
    assert sorted(closed) == sorted(opened)


def test_tensors_of_torch_are_read_as_rows() -> None:
    """TensorDataset, also behind torch's Subset and ConcatDataset, needs no Python per sample."""
    x = torch.arange(12, dtype=torch.float32).reshape(6, 2)
    tensors = TensorDataset(x, torch.arange(6))
    both: ConcatDataset[Any] = ConcatDataset([Subset(tensors, [5, 0]), tensors])

    with hr.Loader(both, 4, shuffle=False, drop_last=False, workers=2) as loader:
        batches = list(loader)

    assert isinstance(loader.dataset, hr.BulkDataset)
    assert [batch["1"].tolist() for batch in batches] == [[5, 0, 0, 1], [2, 3, 4, 5]]
    assert batches[1]["0"].tolist() == x[2:].tolist()


class Impure(Samples):
    """Augments in `__getitem__`, from one of the global generators."""

    def __init__(self, draw: str) -> None:
        super().__init__(20)
        self.draw = draw

    def __getitem__(self, index: int) -> float:
        if self.draw == "random":
            return random.random()
        if self.draw == "numpy":
            return float(np.random.rand())
        return torch.rand(()).item()


@pytest.mark.parametrize("draw", ["random", "numpy", "torch"])
def test_an_impure_dataset_is_refused_at_the_first_take(draw: str) -> None:
    """The probe names the sample and the cures, and moves no generator (S0-74, S0-59)."""
    random.seed(1)
    before = random.getstate()
    with (
        hr.Loader(Impure(draw), 4, workers=2) as loader,
        pytest.raises(hr.PurityError, match=r"sample 0.*sample_transform\(sample, key\)"),
    ):
        next(iter(loader))

    assert random.getstate() == before


class ImpureGet(Samples):
    async def get(self, index: int) -> float:
        return random.random()


class ImpureDecode(Samples):
    async def fetch(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def decode(self, raw: int) -> float:
        return random.random()


class ImpureBatch(Samples):
    def get_batch(self, indices: Sequence[int]) -> torch.Tensor:
        return torch.rand(len(indices))


class ImpureAwaitedBatch(Samples):
    async def get_batch(self, indices: Sequence[int]) -> torch.Tensor:
        return torch.rand(len(indices))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [ImpureGet, ImpureDecode, ImpureBatch, ImpureAwaitedBatch])
def test_the_probe_reads_as_the_loader_does(kind: type[Samples], workers: int) -> None:
    """Awaited samples, decoded ones and batches are probed too (S0-74)."""
    with (
        hr.Loader(kind(20), 4, workers=workers) as loader,
        pytest.raises(hr.PurityError, match=r"sample 0 draws from the global generator|differ"),
    ):
        next(iter(loader))


async def test_the_probe_does_not_stop_a_running_loop() -> None:
    """What would have to be waited for inside a coroutine is left unprobed."""
    async with hr.Loader(ImpureGet(20), 4, workers=1) as loader:
        assert (await anext(aiter(loader))).num_rows == 4


def test_impurity_may_be_allowed() -> None:
    """`pure=False` reads on one thread and leaves out the probe (S0-74, S4-15)."""
    threads: set[int] = set()

    class Noted(Impure):
        def __getitem__(self, index: int) -> float:
            threads.add(threading.get_ident())
            return super().__getitem__(index)

    with hr.Loader(Noted("random"), 4, workers=4, pure=False) as loader:
        assert len(list(loader)) == 5

    assert len(threads) == 1


@pytest.mark.parametrize("word", ["off", "0", "false"])
def test_the_probe_may_be_switched_off(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment or the knob, which wins (S0-74)."""
    monkeypatch.setenv("HEADRACE_PROBE", word)
    with hr.Loader(Impure("random"), 4, workers=1) as loader:
        assert len(list(loader)) == 5
    with (
        hr.Loader(Impure("random"), 4, workers=1, probe=True) as loader,
        pytest.raises(hr.PurityError),
    ):
        next(iter(loader))
    monkeypatch.setenv("HEADRACE_PROBE", "on")
    with hr.Loader(Impure("random"), 4, workers=1, probe=False) as loader:
        assert len(list(loader)) == 5


def test_nothing_is_read_before_the_first_take() -> None:
    """Making a loader reads no sample; then two are probed, twice each, once (U-26)."""
    read: list[int] = []

    class Noted(ByItem):
        def __getitem__(self, index: int) -> dict[str, Any]:
            read.append(index)
            return super().__getitem__(index)

    with hr.Loader(Noted(9), 3, shuffle=False, workers=0) as loader:
        assert read == []
        assert len(list(loader.epoch(0))) == 3
        assert read == [0, 0, 4, 4, *range(9)]
        assert len(list(loader.epoch(1))) == 3

    assert read == [0, 0, 4, 4, *range(9), *range(9)]


def test_a_bad_sample_is_not_met_in_the_probe() -> None:
    """A sample that fails does so at its step, not before the first (S0-04)."""

    class Bad(ByItem):
        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 4:
                raise ValueError("boom")
            return super().__getitem__(index)

    with hr.Loader(Bad(9), 3, shuffle=False, workers=2) as loader:
        stream = iter(loader)
        assert next(stream)["id"].tolist() == [0, 1, 2]
        with pytest.raises(hr.SampleError, match="sample 4"):
            next(stream)


def test_what_holds_up_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """An awaited read that blocks for over 50 ms is warned about, once (S1-13)."""

    class Blocking(ByGet):
        async def get(self, index: int) -> dict[str, Any]:
            began = time.perf_counter()
            while index < 2 and time.perf_counter() < began + 0.06:
                pass
            return sample_of(index)

    with (
        caplog.at_level(logging.WARNING, "headrace"),
        hr.Loader(Blocking(20), 4, shuffle=False, workers=1) as loader,
    ):
        assert len(list(loader)) == 5

    said = [each.getMessage() for each in caplog.records if "held up" in each.getMessage()]
    assert len(said) == 1
    assert "Blocking.get held up the event loop" in said[0]
    assert "Move the work to `decode`, or to a thread." in said[0]


class OneAtATime:
    """Notices a second caller while a first one is inside."""

    def __init__(self) -> None:
        self.inside = threading.Lock()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        assert self.inside.acquire(blocking=False), "two threads read at once"
        try:
            if index == 8:
                self.entered.release()
                self.gate.wait()
            return index
        finally:
            self.inside.release()


def test_batch_at_waits_for_the_one_reader_of_a_serial_dataset() -> None:
    """A dataset served by one thread is read by one thread, `batch_at` included."""
    data = OneAtATime()
    found: list[list[int]] = []
    with hr.Loader(data, 4, shuffle=False, workers=2, pure=False) as loader:
        stream = iter(loader)
        next(stream)
        data.entered.acquire()
        look = threading.Thread(target=lambda: found.append(loader.batch_at(7)["0"].tolist()))
        look.start()
        data.gate.set()
        look.join()
        rest = [batch["0"].tolist() for batch in stream]

    assert found == [[28, 29, 30, 31]]
    assert rest == [list(range(step * 4, step * 4 + 4)) for step in range(1, 10)]
