"""Foreign objects and threads."""

from __future__ import annotations

import sqlite3
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headrace import Loader
from headrace.datasets import Arrays, Concat, as_dataset
from headrace.datasets.foreign import (
    LARGE_ARRAY_BYTES,
    LARGE_ITEMS,
    ThreadCopies,
    can_share,
    thread_copy,
)
from headrace.testing.dataset_reads import get_samples, in_threads


class Unsafe:
    """Keeps a scratch between calls, as many do."""

    def __init__(self) -> None:
        self.table = np.arange((16 << 20) // 8 + 1)
        self.tensor = torch.zeros((16 << 20) + 1, dtype=torch.uint8)
        self.blob = bytes(100_000)
        self.small = b"small"
        self.scratch = [0]
        self.transform = lambda value: value + 1

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.scratch[0] = index
        return self.transform(int(self.table[self.scratch[0]]))


def test_copies_share_what_is_large_and_nothing_else() -> None:
    """Large arrays, tensors and bytes, and functions by reference; small state copied."""
    subject = Unsafe()

    copied = thread_copy(subject)

    assert copied is not subject
    assert np.shares_memory(copied.table, subject.table)
    assert copied.tensor is subject.tensor
    assert copied.blob is subject.blob
    assert copied.transform is subject.transform
    assert copied.scratch == subject.scratch
    assert copied.scratch is not subject.scratch


@pytest.mark.parametrize(
    "scratch",
    [
        np.arange(3),
        np.arange((16 << 20) // 8),
        np.array([[1], None], object),
        torch.arange(3),
        torch.nn.Parameter(torch.zeros(3)),
        bytearray(100_000),
    ],
    ids=["array", "16 MiB", "objects", "tensor", "parameter", "bytearray"],
)
def test_what_may_be_a_scratch_is_copied_for_each_thread(scratch: Any) -> None:
    """Threads that write into it would fill each other's samples; one object stays one."""
    first, again = thread_copy([scratch, scratch])

    assert first is again
    assert type(first) is type(scratch)
    assert str(first) == str(scratch)
    if not isinstance(scratch, bytearray):
        mine, theirs = (x.detach() if isinstance(x, torch.Tensor) else x for x in (first, scratch))
        assert not np.shares_memory(np.asarray(mine), np.asarray(theirs))
    assert first is not scratch


def test_a_large_array_comes_as_a_view_that_refuses_writes() -> None:
    """Writing into it raises numpy's own error; the original stays writable."""
    table = np.zeros((16 << 20) + 1, np.uint8)

    view = thread_copy(table)

    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    table[0] = 2
    assert view[0] == 2


def test_many_small_arrays_are_copied_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of samples is data, and is not held once for each thread."""
    monkeypatch.setattr("headrace.datasets.foreign.COPIED_BYTES", 100)
    samples = [np.zeros(40, np.uint8) for _ in range(4)]

    copied = thread_copy(samples)

    assert [array.flags.writeable for array in copied] == [True, True, False, False]


def test_a_slice_is_copied_without_what_it_is_cut_from() -> None:
    """A tensor of a few bytes never costs the memory behind it."""
    row = torch.arange(1000)[5:8]

    copied = thread_copy(row)

    assert copied.tolist() == [5, 6, 7]
    assert copied.untyped_storage().nbytes() == 24


class Holding:
    """Keeps a value between calls."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> Any:
        np.multiply(np.ones(64), index, out=self.held)
        return torch.from_numpy(self.held).clone()


def test_a_scratch_array_gives_right_batches_on_several_readers() -> None:
    """What one thread writes no other thread delivers."""
    data = Holding(np.zeros(64))

    with Loader(data, 50, shuffle=False, workers=3, probe=False) as loader:
        found = torch.cat([batch[0] for batch in loader])

    assert torch.equal(found, torch.arange(2000.0).double()[:, None].expand(2000, 64))


def test_a_closure_is_made_anew_over_copies_of_what_it_holds() -> None:
    """Scratch that a function holds is no more shared than that of an object."""
    scratch, large = [0], np.zeros(LARGE_ARRAY_BYTES // 8 + 1)

    def count(by: int = 2, *, times: int = 3) -> int:
        scratch[0] += by * times * len(large[:1])
        return scratch[0]

    count.note = "kept"  # type: ignore[attr-defined]
    copies = ThreadCopies(as_dataset(Holding(count)))
    one, other = (copies.for_thread().subject.held for _ in range(2))

    assert copies.sharing == "copies"
    assert (one(), one(), other()) == (6, 12, 6)
    assert scratch == [0]
    assert (one.__name__, one.note, one.__code__) == ("count", "kept", count.__code__)
    assert one.__globals__ is globals()
    assert np.shares_memory(
        large, one.__closure__[one.__code__.co_freevars.index("large")].cell_contents
    )


def test_a_closure_may_hold_itself_or_nothing() -> None:
    """A function that calls itself is copied once, and an empty cell stays empty."""

    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    def lacking() -> object:
        return later

    copied, without = thread_copy(factorial), thread_copy(lacking)
    later = 1

    assert copied is not factorial
    assert copied.__closure__ is not None
    assert copied.__closure__[0].cell_contents is copied
    assert copied(5) == 120
    with pytest.raises(NameError):
        without()
    assert lacking() == 1


def test_a_closure_over_a_handle_makes_one_thread_read(tmp_path: Path) -> None:
    """An open file cannot be copied; the warning says so."""
    (tmp_path / "data").write_bytes(b"1")

    with (tmp_path / "data").open("rb") as file, pytest.warns(UserWarning, match="BufferedReader"):
        assert ThreadCopies(as_dataset(Holding(lambda: file))).sharing == "serial"


def test_long_lists_of_plain_values_are_data() -> None:
    """A million paths are in memory once; what is short, or holds more, is copied."""
    paths = [(f"{index}.jpeg", index % 7) for index in range(LARGE_ITEMS)]
    by_name = dict(paths)
    shared: list[Any] = [paths, tuple(paths), by_name, ["text", None, 1.5, True, b""] * LARGE_ITEMS]
    copied: list[Any] = [paths[1:], [[]] * LARGE_ITEMS, [([],)] * LARGE_ITEMS, {**by_name, "x": []}]

    assert [thread_copy(held) is held for held in shared] == [True] * 4
    assert [thread_copy(held) is held for held in copied] == [False] * 4
    assert thread_copy(copied) == copied


def test_a_bound_builtin_is_copied_with_its_object() -> None:
    """`file.read` or `list.append` is a handle, not a function."""
    held: list[int] = []

    append = thread_copy(held.append)
    append(1)

    assert held == []
    assert thread_copy(len) is len


def test_a_dataset_that_was_read_from_is_told_how_to_leave_its_file_out(tmp_path: Path) -> None:
    """Opening late is not enough once it is open."""
    data = Holding(None)
    (tmp_path / "data").write_bytes(b"1")
    advice = r"leave them out of __getstate__.*read from before"
    with (tmp_path / "data").open("rb") as data.held, pytest.warns(UserWarning, match=advice):
        copies = ThreadCopies(as_dataset(data))

    assert copies.sharing == "serial"


def test_each_thread_gets_a_copy_of_an_object_that_does_not_say_it_is_safe() -> None:
    """Threads never meet in one object (S0-08)."""
    dataset = as_dataset(Unsafe())
    copies = ThreadCopies(dataset)
    assert copies.sharing == "copies"
    together = threading.Barrier(4)

    def read() -> tuple[Any, list[int]]:
        mine = copies.for_thread()
        together.wait(20)
        return mine, get_samples(mine, range(100))

    found = in_threads(4, read)

    assert len({id(mine.subject) for mine, _ in found} - {id(dataset)}) == 4
    assert all(samples == list(range(1, 101)) for _, samples in found)


@pytest.mark.parametrize(
    "given_", [[1, 2], range(3), Arrays(np.zeros(3)), torch.zeros(3), Concat([1], [2])]
)
def test_what_is_safe_is_shared(given_: Any) -> None:
    """No copy is made of lists, ranges, tensors and datasets of headrace."""
    dataset = as_dataset(given_)

    copies = ThreadCopies(dataset)

    assert can_share(dataset)
    assert copies.sharing == "shared"
    assert copies.for_thread() is dataset


def test_compositions_are_shared_only_if_all_parts_are() -> None:
    """One foreign part is enough to need copies."""
    assert can_share(Concat([1], [2]).map(str))
    assert not can_share(Concat([1], Unsafe()).map(lambda sample: sample))
    assert ThreadCopies(Concat([1], Unsafe()).map(lambda s: s)).sharing == "copies"


class Locked(Unsafe):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_what_cannot_be_copied_is_served_by_one_thread_with_one_warning() -> None:
    """The warning names the dataset, the cause and both cures."""
    dataset = as_dataset(Locked())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copies = ThreadCopies(dataset)
        assert copies.for_thread() is copies.for_thread() is dataset

    assert copies.sharing == "serial"
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith("Locked(100 samples) does not say thread_safe = True")
    assert "cannot pickle '_thread.lock' object" in message
    assert "thread_open" in message


class Exploding:
    """Its pickle cannot be read again."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index

    def __setstate__(self, state: object) -> None:
        raise RuntimeError("no copies of me")

    def __getstate__(self) -> dict[str, int]:
        return {"kept": 1}


def test_a_pickle_that_cannot_be_read_shows_at_once() -> None:
    """Not later, on a reader thread."""
    with pytest.warns(UserWarning, match="no copies of me"):
        assert ThreadCopies(as_dataset(Exploding())).sharing == "serial"


class Database:
    """Connects at first use; sqlite3 refuses a connection of another thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = None

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        (value,) = self.connection.execute("select v from t where k = ?", (index,)).fetchone()
        return int(value)

    def thread_close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def test_a_connection_is_never_used_by_two_threads(tmp_path: Path) -> None:
    """Each copy connects for itself, also after the original has been used (S4-17)."""
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("create table t (k integer, v integer)")
        connection.executemany("insert into t values (?, ?)", [(i, i * i) for i in range(20)])
    connection.close()
    dataset = as_dataset(Database(tmp_path / "t.db"))
    copies = ThreadCopies(dataset)
    get_samples(dataset, [3])  # connects the original, which could not be pickled any more

    found = in_threads(3, lambda: get_samples(copies.for_thread(), range(20)))

    assert found == [[i * i for i in range(20)]] * 3
