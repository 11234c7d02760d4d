"""CIFAR-10, in memory and from disk."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from headrace import BulkDataset, Cifar10, Cifar10Disk, Loader
from headrace.errors import ConfigError, FormatError, NotFoundError, RowErrors
from headrace.testing.dataset_contract import BulkDatasetContract
from headrace.testing.dataset_reads import delivered_rows, raised, read_rows

SETS = pytest.mark.parametrize("kind", [Cifar10, Cifar10Disk])
Kind = type[Cifar10] | type[Cifar10Disk]
LABELS = [3, 9, 0, 0, 7, 1, 4, 5, 2, 6]


def picture(number: int) -> np.ndarray[Any, Any]:
    """Give the pixels of a picture: every plane, row and column differs."""
    planes, rows, columns = np.meshgrid(np.arange(3), np.arange(32), np.arange(32), indexing="ij")
    return (7 * number + 50 * planes + 5 * rows + columns).astype(np.uint8)


def rows(numbers: range) -> bytes:
    return b"".join(bytes([LABELS[n]]) + picture(n).tobytes() for n in numbers)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures in each training file, and a test file with the last."""
    for number in range(5):
        data = rows(range(2 * number, 2 * number + 2))
        (tmp_path / f"data_batch_{number + 1}.bin").write_bytes(data)
    (tmp_path / "test_batch.bin").write_bytes(rows(range(9, 10)))
    return tmp_path


class TestCifar10(BulkDatasetContract):
    @pytest.fixture(autouse=True)
    def _folder(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> BulkDataset:
        return Cifar10(self.folder)

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"image": picture(index), "label": LABELS[index]}


class TestCifar10Disk(TestCifar10):
    def make(self) -> BulkDataset:
        return Cifar10Disk(self.folder)

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"record": [LABELS[index], *picture(index).reshape(-1)]}


class TestCifar10DiskWithABadLabel(TestCifar10Disk):
    bad_indices = (3, 4)

    @pytest.fixture(autouse=True)
    def _bad(self, _folder: None) -> None:
        for number, place in ((2, 3073), (3, 0)):
            with open(self.folder / f"data_batch_{number}.bin", "r+b") as file:
                file.seek(place)
                file.write(b"\x0a")


@SETS
@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_come_with_their_labels(kind: Kind, workers: int, folder: Path) -> None:
    """uint8 planes and int64 labels, file after file (S0-11, S0-12)."""
    with Loader(kind(folder), batch_size=10, shuffle=False, workers=workers) as loader:
        (batch,) = list(loader)

    assert batch["image"].dtype == torch.uint8
    assert batch["image"].tolist() == [picture(number).tolist() for number in range(10)]
    assert batch["label"].dtype == torch.int64
    assert batch["label"].tolist() == LABELS


@SETS
def test_the_test_set_is_another(kind: Kind, folder: Path) -> None:
    """`train=False` reads the test file, and the fingerprint tells them apart."""
    train, test = kind(folder), kind(folder, train=False)

    (row,) = delivered_rows(test, [0])
    assert row["label"].item() == 6
    assert len(test) == 1
    assert train.fingerprint() != test.fingerprint()


@SETS
def test_any_files_of_the_form_are_a_set(kind: Kind, folder: Path) -> None:
    """A list keeps its order; a place names file, bytes and picture."""
    data = kind.files([folder / "test_batch.bin", folder / "data_batch_2.bin"])

    assert [row["label"].item() for row in delivered_rows(data, [0, 1, 2])] == [6, 0, 0]
    assert str(data.locate(2)) == "data_batch_2.bin, bytes [3073, 6146), picture 2"


def test_only_labels_may_be_asked_for(folder: Path) -> None:
    """A column is chosen as of any dataset."""
    for data in (Cifar10(folder).select("label"), Cifar10Disk(folder).select("label")):
        (row,) = delivered_rows(data, [4])

        assert {name: value.item() for name, value in row.items()} == {"label": 7}


def test_one_positioned_read_per_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is asked for is read, without a seek and by few descriptors (S0-12)."""
    data = Cifar10Disk(folder)
    reads: list[tuple[int, int]] = []
    preadv = os.preadv

    def counted(descriptor: int, views: list[memoryview], offset: int) -> int:
        reads.append((offset, sum(view.nbytes for view in views)))
        return preadv(descriptor, views, offset)

    monkeypatch.setattr(os, "preadv", counted)
    monkeypatch.setattr(os, "lseek", None)
    before = psutil.Process().num_fds()
    for index in (9, 2, 4, 2):
        read_rows(data, [index])

    assert reads == [(3073, 3073), (0, 3073), (0, 3073), (0, 3073)]
    assert psutil.Process().num_fds() == before


def test_descriptors_close_with_the_loader(folder: Path) -> None:
    """The readers that opened them are gone, and so are they."""
    data = Cifar10Disk(folder)
    before = psutil.Process().num_fds()
    for workers in (0, 3):
        with Loader(data, batch_size=2, workers=workers) as loader:
            assert len(list(loader)) == 5

        assert psutil.Process().num_fds() == before


@SETS
def test_a_pickle_carries_paths_only(kind: Kind, folder: Path) -> None:
    """Its copy reads the same files, whatever the working directory."""
    data = kind(folder)

    pickled = pickle.dumps(data)

    assert len(pickled) < 3_000
    (row,) = delivered_rows(pickle.loads(pickled), [9])
    assert row["label"].item() == 6


WRONG: dict[str, tuple[bytes, str]] = {
    "a byte lacking": (rows(range(2))[:-1], "whole number of rows of 3073 bytes, found 6145"),
    "a byte too many": (rows(range(1)) + b"\0", "whole number of rows of 3073 bytes, found 3074"),
    "a hundred classes": (bytes(3074 * 2), "whole number of rows of 3073 bytes, found 6148"),
    "a pickle": (b"\x80\x02}q\x01" + bytes(3068), "binary form .*the Python form.*runs code"),
}


@SETS
@pytest.mark.parametrize("case", WRONG)
def test_files_of_another_form_are_refused(kind: Kind, case: str, folder: Path) -> None:
    """With the file, and never unpickled (S0-09, S0-11)."""
    contents, message = WRONG[case]
    (folder / "data_batch_4.bin").write_bytes(contents)

    with pytest.raises(FormatError, match=f"data_batch_4.bin: wanted .*{message}"):
        kind(folder)


@SETS
def test_empty_sets_are_refused(kind: Kind, folder: Path) -> None:
    """An empty test file holds no picture; an empty file among others is none the worse."""
    (folder / "test_batch.bin").write_bytes(b"")
    (folder / "data_batch_1.bin").write_bytes(b"")

    with pytest.raises(FormatError, match=r"test_batch\.bin: wanted at least one row"):
        kind(folder, train=False)
    assert len(kind(folder)) == 8


def test_labels_above_9_are_refused(folder: Path) -> None:
    """At once in memory, at their own sample from disk, each with its place."""
    (folder / "data_batch_2.bin").write_bytes(rows(range(2)) + b"\x0a" + bytes(3072))
    data = Cifar10Disk(folder)

    with pytest.raises(FormatError, match=r"data_batch_2\.bin, picture 2: .*below 10, found 10"):
        Cifar10(folder)
    errors = raised(RowErrors, lambda: read_rows(data, [0, 4, 1])).errors
    assert {row: str(error) for row, error in errors.items()} == {
        1: "data_batch_2.bin, bytes [6146, 9219), picture 4: wanted a label below 10, found 10. "
        "Is it CIFAR-10?"
    }


def test_a_bad_label_may_be_survived(folder: Path) -> None:
    """It is an error of the data, so a run may go on without it."""
    (folder / "test_batch.bin").write_bytes(rows(range(2)) + b"\x0a" + bytes(3072))
    data = Cifar10Disk(folder, train=False)

    with Loader(
        data, batch_size=3, shuffle=False, on_bad_sample="mask", max_bad_samples=1
    ) as loader:
        batch = next(iter(loader))

    assert batch["label"][:2].tolist() == [3, 9]


@SETS
def test_the_python_form_is_refused(kind: Kind, tmp_path: Path) -> None:
    """A folder of it is named as what it is (S0-09)."""
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02}q\x01")

    with pytest.raises(FormatError, match=r"the Python form.*It is pickled"):
        kind(tmp_path)


REFUSED: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "no file": (Cifar10, NotFoundError, "'data_batch_1.bin'.*Files of other names"),
    "no such file": (lambda p: Cifar10.files(p / "a.bin"), NotFoundError, "'a.bin'"),
    "no file in a folder": (Cifar10Disk.files, ConfigError, "holds .bin files"),
    "no folder": (lambda p: Cifar10Disk(p / "no"), NotFoundError, "'no' is not in"),
    "a flag that is none": (
        lambda p: Cifar10(p, train="test"),  # type: ignore[arg-type]
        ConfigError,
        "train: wanted True or False, got 'test'",
    ),
    "a remote folder": (lambda p: Cifar10Disk("s3://bucket"), ConfigError, "local files"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_files_that_are_missing_are_named(case: str, tmp_path: Path) -> None:
    """Nothing is fetched in their place."""
    make, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        make(tmp_path)
