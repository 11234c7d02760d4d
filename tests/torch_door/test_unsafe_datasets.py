"""Datasets that one thread at a time may use, read by four threads: no sample is wrong."""

from __future__ import annotations

import sqlite3
import threading
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from headrace.datasets.foreign import LARGE_ARRAY_BYTES
from tests.torch_door.data import OURS

SAMPLES = 400
WIDTH = 16


def row(index: int) -> np.ndarray[Any, Any]:
    return np.arange(index * WIDTH, (index + 1) * WIDTH, dtype=np.int64)


class Rows(Dataset[Any]):
    """Rows in a file, with a handle that is opened at the first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle: Any = None

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.handle is None:
            self.handle = self.opened()
        return torch.from_numpy(self.read(index)), index

    def __del__(self) -> None:
        if hasattr(self.handle, "close"):
            self.handle.close()

    def opened(self) -> Any:
        raise NotImplementedError

    def read(self, index: int) -> Any:
        raise NotImplementedError


class SeekAndRead(Rows):
    """One file handle: a seek, then a read from where it is."""

    def opened(self) -> BinaryIO:
        return self.path.open("rb")

    def read(self, index: int) -> Any:
        self.handle.seek(index * WIDTH * 8)
        # Where the handle is shared, other threads move it here.
        pause.wait_for_others()
        return np.frombuffer(self.handle.read(WIDTH * 8), np.int64).copy()


class Scratch(Rows):
    """Memory that each read writes into, and gives out a copy of."""

    def opened(self) -> Any:
        self.scratch = np.zeros(WIDTH, np.int64)
        return self.path.read_bytes()

    def read(self, index: int) -> Any:
        self.scratch[:] = np.frombuffer(self.handle, np.int64, WIDTH, index * WIDTH * 8)
        pause.wait_for_others()
        return self.scratch.copy()


class Hdf(Rows):
    """h5py, whose objects are no better than its library's one lock."""

    def opened(self) -> Any:
        return h5py.File(self.path, "r")

    def read(self, index: int) -> Any:
        return self.handle["rows"][index]


class Zip(Rows):
    """A zip file, whose members share one position."""

    def opened(self) -> Any:
        return zipfile.ZipFile(self.path)

    def read(self, index: int) -> Any:
        with self.handle.open(str(index)) as member:
            first = member.read(24)
            pause.wait_for_others()
            return np.frombuffer(first + member.read(), np.int64).copy()


class Sqlite(Rows):
    """A connection, which sqlite3 lets only its own thread use."""

    def opened(self) -> Any:
        return sqlite3.connect(self.path)

    def read(self, index: int) -> Any:
        found = self.handle.execute("select bytes from rows where id = ?", (index,)).fetchone()
        return np.frombuffer(found[0], np.int64).copy()


class OpenedByInit(Hdf):
    """The same with a handle that `worker_init_fn` opens, as torch's guides advise."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        assert self.handle is not None
        return super().__getitem__(index)


def open_in_worker(number: int) -> None:
    info = get_worker_info()
    assert info is not None
    data: Any = info.dataset
    data.handle = data.opened()


class Pause:
    """Lets threads run into each other: one that is in the middle of a read lets others begin."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._came = 0

    def wait_for_others(self) -> None:
        """Wait until another thread comes here, or for a few turns of the interpreter."""
        with self._changed:
            self._came += 1
            self._changed.notify_all()
            came = self._came
            self._changed.wait_for(lambda: self._came > came, timeout=0.002)


pause = Pause()


def write_bytes(path: Path) -> None:
    path.write_bytes(np.concatenate([row(index) for index in range(SAMPLES)]).tobytes())


def write_hdf(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["rows"] = np.stack([row(index) for index in range(SAMPLES)])


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for index in range(SAMPLES):
            file.writestr(str(index), row(index).tobytes())


def write_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("create table rows (id integer primary key, bytes blob)")
        rows = [(index, row(index).tobytes()) for index in range(SAMPLES)]
        connection.executemany("insert into rows values (?, ?)", rows)
    connection.close()


KINDS: dict[str, tuple[type[Rows], Any, dict[str, Any]]] = {
    "seek and read": (SeekAndRead, write_bytes, {}),
    "scratch": (Scratch, write_bytes, {}),
    "h5py": (Hdf, write_hdf, {}),
    "h5py in worker_init_fn": (OpenedByInit, write_hdf, {"worker_init_fn": open_in_worker}),
    "zipfile": (Zip, write_zip, {}),
    "sqlite3": (Sqlite, write_sqlite, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_is_wrong_on_four_threads(kind: str, tmp_path: Path) -> None:
    """Each thread has a handle of its own, of the dataset as it was unopened (S4-15, S4-17)."""
    made, write, knobs = KINDS[kind]
    write(tmp_path / "rows")
    loader = OURS(made(tmp_path / "rows"), 10, shuffle=True, num_workers=4, **knobs)

    batches = list(loader)

    assert sorted(index for _, ids in batches for index in ids.tolist()) == list(range(SAMPLES))
    for rows, ids in batches:
        assert np.array_equal(rows, np.stack([row(index) for index in ids.tolist()]))


def test_shared_handles_would_give_wrong_samples(tmp_path: Path) -> None:
    """What the test above would see, were one handle shared: so it can fail."""
    write_bytes(tmp_path / "rows")
    data = SeekAndRead(tmp_path / "rows")
    data.thread_safe = True  # type: ignore[attr-defined] - it is not
    data[0]

    wrong = 0
    for _ in range(20):
        for rows, ids in OURS(data, 10, num_workers=4, collate_fn=tolerant):
            wrong += sum(
                not np.array_equal(found, row(index))
                for found, index in zip(rows, ids, strict=True)
            )
        if wrong:
            break

    assert wrong > 0
    data.handle.close()


def tolerant(samples: list[Any]) -> tuple[list[Any], list[int]]:
    rows, ids = zip(*samples, strict=True)
    return list(rows), list(ids)


@pytest.mark.parametrize("kind", ["seek and read", "h5py"])
def test_a_handle_that_is_open_already_is_read_by_one_thread(kind: str, tmp_path: Path) -> None:
    """It cannot be copied: a warning says so, and the samples are right."""
    made, write, knobs = KINDS[kind]
    write(tmp_path / "rows")
    data = made(tmp_path / "rows")
    data[0]
    loader = OURS(data, 10, num_workers=4, **knobs)

    with pytest.warns(UserWarning, match="so one thread reads it"):
        batches = list(loader)

    data.handle.close()
    assert len(batches) == SAMPLES // 10
    for rows, ids in batches:
        assert np.array_equal(rows, np.stack([row(index) for index in ids.tolist()]))


def test_sqlite_opened_by_the_program_says_whose_it_is(tmp_path: Path) -> None:
    """A connection belongs to its thread: the error is sqlite3's, the warning ours (S4-17)."""
    write_sqlite(tmp_path / "rows")
    data = Sqlite(tmp_path / "rows")
    data[0]

    with pytest.warns(UserWarning, match=r"cannot be copied .*sqlite3.Connection"):
        iterator = iter(OURS(data, 10, num_workers=4))
    with pytest.raises(sqlite3.ProgrammingError, match="same thread"):
        next(iterator)

    iterator.close()
    data.handle.close()


class InMemory(Rows):
    """Rows in an array that is too large to be copied for each thread."""

    def __init__(self) -> None:
        self.rows = np.zeros((SAMPLES, 50_000 // SAMPLES * 150), np.float32)
        self.rows[:] = np.arange(SAMPLES)[:, None]
        self.handle = self.rows

    def read(self, index: int) -> Any:
        return self.handle[index]

    def __getitem__(self, index: int) -> Any:
        return self.read(index)


def test_large_arrays_are_shared_in_silence() -> None:
    """They come read-only, and torch's warning of that is not heard: batches are copies."""
    data = InMemory()
    assert data.rows.nbytes > LARGE_ARRAY_BYTES

    batches = list(OURS(data, 10, num_workers=2))

    assert torch.cat(batches)[:, -1].tolist() == list(range(SAMPLES))
    batches[0].fill_(-1)
    assert data.rows.min() == 0


@pytest.mark.parametrize("made", [np.asarray, torch.from_numpy])
def test_arrays_themselves_are_shared(made: Any) -> None:
    """An array is a dataset of its rows, and is read where it is."""
    data = made(np.arange(8.0).reshape(4, 2))

    seen: list[bool] = []

    def init(number: int) -> None:
        info = get_worker_info()
        assert info is not None
        seen.append(info.dataset is data)

    batches = list(OURS(data, 2, num_workers=2, worker_init_fn=init))

    assert torch.cat(batches).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert seen == [True, True]


class Closing(Hdf):
    """A dataset that hears of its threads, as datasets of headrace do."""

    open_files = 0
    counting = threading.Lock()

    def thread_open(self) -> None:
        self.handle = self.opened()
        with self.counting:
            Closing.open_files += 1

    def thread_close(self) -> None:
        self.handle.close()
        with self.counting:
            Closing.open_files -= 1


def test_threads_open_and_close_what_they_read(tmp_path: Path) -> None:
    """`thread_open` and `thread_close` are called where a dataset has them (S4-17)."""
    write_hdf(tmp_path / "rows")
    iterator = iter(OURS(Closing(tmp_path / "rows"), 10, num_workers=2))

    next(iterator)
    while_reading = Closing.open_files
    iterator.close()

    assert while_reading >= 1
    assert Closing.open_files == 0
