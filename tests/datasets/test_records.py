"""Records of equal size: where each is, how it becomes columns, and what is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace import BulkDataset, Loader, Location, Records
from headrace.datasets import records
from headrace.datasets.fields import fields_of, row_dtype, split_as_bytes, split_rows
from headrace.datasets.row_readers import PositionedRows
from headrace.errors import (
    ConfigError,
    FormatError,
    NotFoundError,
    ShortReadError,
    SourceChangedError,
)
from headrace.sources.source import ByteRange
from headrace.testing.dataset_contract import BulkDatasetContract
from headrace.testing.dataset_reads import delivered_rows, in_threads, raised, read_rows

FORM = [("id", ">u2"), ("score", "<f4"), ("pixels", "u1", (2, 3))]
BOTH_WAYS = pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "positioned"])


def write(path: Path, first: int, count: int, header: bytes = b"") -> Path:
    """Write records of FORM with the numbers first, first + 1, ..."""
    rows = np.zeros(count, FORM)
    rows["id"] = np.arange(first, first + count)
    rows["score"] = rows["id"] / 2
    rows["pixels"] = rows["id"][:, np.newaxis, np.newaxis] + np.arange(6).reshape(2, 3)
    path.write_bytes(header + rows.tobytes())
    return path


def ids(data: Records, indices: list[int] | None = None) -> list[int]:
    chosen = list(range(len(data))) if indices is None else indices
    return [int(row["id"]) for row in delivered_rows(data, chosen)]


class RecordsContract(BulkDatasetContract):
    mapped: bool

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        files = [("a", 0, 3), ("b", 3, 0), ("c", 3, 4)]
        self.paths = [write(tmp_path / name, first, n, b"head") for name, first, n in files]

    def make(self) -> BulkDataset:
        return Records(self.paths, FORM, header_bytes=4, mapped=self.mapped)

    def stored_row(self, index: int) -> Mapping[str, Any]:
        data = b"".join(path.read_bytes()[4:] for path in self.paths)
        return {"record": np.frombuffer(data, np.uint8)[12 * index : 12 * index + 12]}


class TestMappedRecords(RecordsContract):
    mapped = True


class TestPositionedRecords(RecordsContract):
    mapped = False


class TestRecordsOfOneField(BulkDatasetContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.numbers = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        self.path = tmp_path / "numbers.bin"
        self.path.write_bytes(self.numbers.tobytes())

    def make(self) -> BulkDataset:
        return Records(self.path, [("numbers", "f4", (2, 3))])

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"numbers": self.numbers[index]}


@BOTH_WAYS
def test_records_become_columns(mapped: bool, tmp_path: Path) -> None:
    """By name, in native byte order, for every way of looping (U-36)."""
    write(tmp_path / "1.bin", 0, 5)
    write(tmp_path / "2.bin", 5, 3)
    data = Records(tmp_path / "*.bin", FORM, mapped=mapped)
    for workers in (0, 2):
        with Loader(data, batch_size=8, shuffle=False, workers=workers) as loader:
            (batch,) = list(loader)

        assert batch["id"].tolist() == list(range(8))
        assert batch["id"].dtype == torch.uint16
        assert batch["score"].tolist() == [number / 2 for number in range(8)]
        assert batch["pixels"].shape == (8, 2, 3)
        assert batch["pixels"][7].flatten().tolist() == [7, 8, 9, 10, 11, 12]


@BOTH_WAYS
def test_records_without_fields_are_bytes(mapped: bool, tmp_path: Path) -> None:
    """One column, of the size that was said."""
    (tmp_path / "a").write_bytes(b"HEADabcdef")

    data = Records(tmp_path / "a", record_bytes=3, header_bytes=4, mapped=mapped)

    rows = [row["record"].tobytes() for row in read_rows(data, [1, 0])]
    assert rows == [b"def", b"abc"]


@BOTH_WAYS
def test_records_may_be_longer_than_their_fields(mapped: bool, tmp_path: Path) -> None:
    """What follows the fields is skipped; a dtype with gaps says the same."""
    (tmp_path / "a").write_bytes(b"\1\2\3\4xx\5\6\7\10xx")
    gaps = np.dtype({"names": ["b"], "formats": ["<u2"], "offsets": [2], "itemsize": 6})

    longer = Records(tmp_path / "a", [("a", "u1", (4,))], record_bytes=6, mapped=mapped)
    sparse = Records(tmp_path / "a", gaps, mapped=mapped)

    assert [row["a"].tolist() for row in delivered_rows(longer, [0, 1])] == [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
    ]
    assert [int(row["b"]) for row in delivered_rows(sparse, [0, 1])] == [0x0403, 0x0807]


def test_only_selected_columns_are_delivered(tmp_path: Path) -> None:
    """In the order named; the record is read whole, as it lies in one piece."""
    data = Records(write(tmp_path / "a", 0, 4), FORM).select("pixels", "id")

    (row,) = delivered_rows(data, [3])

    assert list(row) == ["pixels", "id"]
    assert int(row["id"]) == 3
    with pytest.raises(ConfigError, match="out of pixels, id"):
        data.select("score")


NUMBERS = ["?", "u1", "i1", "<u2", ">u2", ">i4", "<u8", ">f2", "<f4", ">f8", "<c8", ">c8", ">c16"]


@given(
    dtypes=st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4),
    shape=st.sampled_from([(), (1,), (2, 3), (0,)]),
    rows=st.integers(0, 3),
)
def test_fields_are_split_alike_on_every_device(
    dtypes: list[str], shape: tuple[int, ...], rows: int
) -> None:
    """numpy on the CPU and plain byte operations elsewhere give what numpy sees in the bytes."""
    form = row_dtype([("pad", "u1"), *((f"f{i}", dtype, shape) for i, dtype in enumerate(dtypes))])
    data = np.random.default_rng(0).integers(0, 2, rows * form.itemsize, np.uint8)
    stored = torch.from_numpy(data.reshape(rows, form.itemsize))
    fields = fields_of(form)
    outs: list[dict[str, torch.Tensor]] = [
        {
            f.column.name: torch.from_numpy(np.zeros((rows, *f.column.unit_shape), f.column.dtype))
            for f in fields
        }
        for _ in range(2)
    ]

    split_rows(stored, fields, outs[0])
    for field in fields:
        if outs[1][field.column.name].numel():
            split_as_bytes(stored, field, outs[1][field.column.name])

    for out in outs:
        for name, column in out.items():
            np.testing.assert_array_equal(column.numpy(), data.view(form)[name])


def test_fields_within_fields_have_joined_names() -> None:
    """As the samples of any dataset have."""
    inner = np.dtype([("x", "<f4"), ("y", "<f4")])

    fields = fields_of(row_dtype([("n", "u1"), ("at", inner)]))

    assert [(f.column.name, f.offset_bytes) for f in fields] == [("n", 0), ("at/x", 1), ("at/y", 5)]


@BOTH_WAYS
def test_any_thread_reads_any_record(mapped: bool, tmp_path: Path) -> None:
    """No read moves the place of another: 8 threads read in orders of their own (U-36)."""
    data = Records(write(tmp_path / "a", 0, 500), FORM, mapped=mapped)
    seeds = iter(range(8))
    lock = threading.Lock()

    def read() -> bool:
        with lock:
            order = np.random.default_rng(next(seeds)).permutation(500).tolist()
        return bool(ids(data, order) == order)

    assert in_threads(8, read) == [True] * 8


def test_neighbours_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that follow each other in a file come by one system call, in whatever order."""
    data = Records(write(tmp_path / "a", 0, 10), FORM, mapped=False)
    reads = count_reads(monkeypatch)

    assert ids(data, [5, 3, 4, 9]) == [5, 3, 4, 9]

    assert sorted(reads) == [(36, 36), (108, 12)]


def test_few_files_stay_open(tmp_path: Path) -> None:
    """Two hundred files are read by positioned reads through at most 64 descriptors."""
    paths = [write(tmp_path / f"{number:03}", number, 1) for number in range(200)]
    data = Records(paths, FORM, mapped=False)
    before = psutil.Process().num_fds()

    data.read_into_blocking(
        np.arange(200), {"record": np.empty((200, 12), np.uint8)}, np.arange(200)
    )

    assert psutil.Process().num_fds() - before <= 64
    assert ids(data, [0, 199]) == [0, 199]


def test_maps_need_no_descriptor(tmp_path: Path) -> None:
    """However many files there are."""
    paths = [write(tmp_path / f"{number:03}", number, 1) for number in range(200)]
    data = Records(paths, FORM)
    before = psutil.Process().num_fds()

    assert ids(data) == list(range(200))

    assert psutil.Process().num_fds() == before


@BOTH_WAYS
def test_files_closed_are_opened_again(mapped: bool, tmp_path: Path) -> None:
    """A dataset outlives its loaders, and leaves nothing open behind them."""
    data = Records(write(tmp_path / "a", 0, 6), FORM, mapped=mapped)
    before = psutil.Process().num_fds()
    for _ in range(2):
        with Loader(data, batch_size=3, shuffle=False) as loader:
            found = [batch["id"].tolist() for batch in loader]

        assert found == [[0, 1, 2], [3, 4, 5]]
        assert psutil.Process().num_fds() == before


def test_threads_that_open_at_once_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one to leave closes the files, whichever came first."""
    data = Records(write(tmp_path / "a", 0, 6), FORM, mapped=False)
    before = psutil.Process().num_fds()
    both_open = threading.Barrier(2, timeout=20)
    monkeypatch.setattr(
        records, "PositionedRows", lambda files: (both_open.wait(), PositionedRows(files))[1]
    )

    def read() -> None:
        data.thread_open()
        ids(data)
        data.thread_close()

    in_threads(2, read)
    read()

    assert psutil.Process().num_fds() == before


def test_a_record_tells_its_place(tmp_path: Path) -> None:
    """File, byte range, number."""
    write(tmp_path / "a.bin", 0, 2, b"12345")
    write(tmp_path / "b.bin", 2, 2, b"12345")

    data = Records(tmp_path / "*.bin", FORM, header_bytes=5)

    assert data.locate(3) == Location("b.bin", ByteRange(17, 29), "record 3")


@BOTH_WAYS
def test_records_far_into_a_file_are_found(mapped: bool, tmp_path: Path) -> None:
    """Places past 4 GiB do not wrap."""
    path = tmp_path / "far"
    path.touch()
    os.truncate(path, 12 * 400_000_000)  # sparse: it takes hardly any disk
    with open(path, "r+b") as file:
        file.seek(12 * 399_999_998)
        file.write(write(tmp_path / "two", 7, 2).read_bytes())

    data = Records(path, FORM, mapped=mapped)

    assert ids(data, [399_999_999, 0, 399_999_998]) == [8, 0, 7]


WRONG_FILES: dict[str, tuple[bytes, str]] = {
    "a byte lacking": (b"head" + bytes(23), r"4 \+ a whole number of rows of 12 bytes, found 27"),
    "a byte too many": (b"head" + bytes(25), r"4 \+ a whole number of rows of 12 bytes, found 29"),
    "half a header": (b"he", r"4 \+ a whole number .*found 2 bytes"),
    "no record": (b"head", "at least one row of 12 bytes, found none"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_sizes_that_do_not_fit_are_refused(case: str, tmp_path: Path) -> None:
    """The file is named, what it should be and what it is (U-36)."""
    contents, message = WRONG_FILES[case]
    (tmp_path / "odd").write_bytes(contents)

    with pytest.raises(FormatError, match=f"odd: wanted {message}"):
        Records(tmp_path / "odd", FORM, header_bytes=4)


REFUSED: dict[str, tuple[Callable[[Path], Records], str]] = {
    "no size": (lambda path: Records(path), "fields, record_bytes: .*at least one"),
    "size 0": (lambda path: Records(path, record_bytes=0), "record_bytes: .*>= 1"),
    "a size below the fields": (
        lambda path: Records(path, FORM, record_bytes=11),
        "record_bytes: .*>= 12",
    ),
    "a negative header": (
        lambda path: Records(path, FORM, header_bytes=-1),
        "header_bytes: .*>= 0",
    ),
    "a plain dtype": (lambda path: Records(path, "u1"), "fields: .*named fields.*For example"),
    "no fields": (lambda path: Records(path, []), "fields: .*named fields"),
    "no dtype": (lambda path: Records(path, [("a", "wat")]), "fields: .*structured dtype"),
    "text": (lambda path: Records(path, [("a", "S4")]), r"fields\['a'\]: .*numbers"),
    "objects": (lambda path: Records(path, [("a", "O")]), r"fields\['a'\]: .*numbers"),
    "a dtype torch lacks": (lambda path: Records(path, [("a", "f16")]), r"fields\['a'\]: .*torch"),
    "many records in one": (
        lambda path: Records(path, [("a", FORM, (2,))]),
        r"fields\['a'\]: .*numbers",
    ),
    "a flag that is none": (
        lambda path: Records(path, FORM, mapped="no"),  # type: ignore[arg-type]
        "mapped: wanted True or False, got 'no'",
    ),
    "a folder": (lambda path: Records(path.parent, FORM), "paths: .*files"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_cannot_work_are_refused(case: str, tmp_path: Path) -> None:
    """The message names the argument."""
    make, message = REFUSED[case]
    path = write(tmp_path / "a", 0, 1)

    with pytest.raises(ConfigError, match=message):
        make(path)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    """As for every dataset of files."""
    with pytest.raises(NotFoundError, match=r"'a\.bin'"):
        Records(tmp_path / "a.bin", FORM)


def test_a_file_cut_between_runs_is_an_error(tmp_path: Path) -> None:
    """Mapped files are compared before each run, others at each read: never a wrong one."""
    paths = [write(tmp_path / name, 0, 4) for name in "ab"]
    mapped, positioned = Records(paths[0], FORM), Records(paths[1], FORM, mapped=False)
    assert ids(mapped) == ids(positioned) == [0, 1, 2, 3]

    for path in paths:
        os.truncate(path, 30)

    raised(SourceChangedError, mapped.check)
    raised(ShortReadError, lambda: ids(positioned))


def test_the_fingerprint_knows_form_and_sizes(tmp_path: Path) -> None:
    """Other fields over the same bytes are other data; the way of reading is none."""
    path = write(tmp_path / "a", 0, 4)
    data = Records(path, FORM)
    others = [
        Records(path, record_bytes=12),
        Records(path, [("id", "<u2"), *FORM[1:]]),
        data.select("id", "score"),
        Records([path, path], FORM),
    ]

    assert Records(path, FORM, mapped=False).fingerprint() == data.fingerprint()
    assert all(other.fingerprint() != data.fingerprint() for other in others)


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    """Files of other systems may have names that are no UTF-8."""
    data = Records(write(tmp_path / os.fsdecode(b"\xff.bin"), 0, 4), FORM)

    with Loader(data, batch_size=4, shuffle=False) as loader:
        assert loader.batch_at(0)["id"].tolist() == [0, 1, 2, 3]
        assert loader.state_dict()["next_step"] == 0


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Have positioned reads noted from here on: offset and bytes of each."""
    reads: list[tuple[int, int]] = []
    preadv = os.preadv

    def noted(descriptor: int, views: list[memoryview], offset: int) -> int:
        reads.append((offset, sum(view.nbytes for view in views)))
        return preadv(descriptor, views, offset)

    monkeypatch.setattr(os, "preadv", noted)
    return reads
