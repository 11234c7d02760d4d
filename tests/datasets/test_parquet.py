"""Rows of Parquet files: what columns become, what is read, and how damage is told."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import headrace as hr
from headrace.datasets.dataset import BulkDataset, Dataset
from headrace.datasets.kept_groups import KeptGroups
from headrace.datasets.parquet_arrays import column_of
from headrace.datasets.parquet_columns import FixedColumn, Group, ParquetColumn
from headrace.datasets.parquet_groups import GroupTable, ParquetFile
from headrace.errors import ConfigError, FormatError, NotFoundError, SourceChangedError
from headrace.testing.dataset_contract import BulkDatasetContract, DatasetContract

ROWS = 11


def row_of(index: int) -> dict[str, Any]:
    """Give what row `index` of all files holds."""
    return {
        "id": np.int32(index),
        "x": np.float32(index / 2),
        "flag": np.bool_(index % 3 == 0),
        "box": np.arange(4, dtype=np.int16) + index,
        "grid": np.full((2, 3), index, np.float64),
        "tokens": np.arange(index % 4, dtype=np.int64) + 100 * index,
        "points": np.full((index % 3, 2), index, np.float32),
    }


TYPES = {
    "id": pa.int32(),
    "x": pa.float32(),
    "flag": pa.bool_(),
    "box": pa.list_(pa.int16(), 4),
    "grid": pa.list_(pa.list_(pa.float64(), 3), 2),
    "tokens": pa.large_list(pa.int64()),
    "points": pa.list_(pa.list_(pa.float32(), 2)),
}


def table_of(indices: range, **more: Any) -> pa.Table:
    rows = [row_of(index) for index in indices]
    columns = {
        name: pa.array([np.asarray(row[name]).tolist() for row in rows], kind)
        for name, kind in TYPES.items()
    }
    return pa.table({**columns, **more})


def written(folder: Path) -> Path:
    """Two files of 7 and 4 rows, in row groups of 3."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table_of(range(7)), folder / "a.parquet", row_group_size=3)
    pq.write_table(table_of(range(7, ROWS)), folder / "b.parquet", row_group_size=3)
    return folder


class TestParquetRows(BulkDatasetContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.path = written(tmp_path)

    def make(self) -> BulkDataset:
        return as_rows(hr.Parquet(self.path))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return row_of(index)


class TestParquetRowsThatAreNotKept(TestParquetRows):
    def make(self) -> BulkDataset:
        return as_rows(hr.Parquet(self.path, kept_bytes=0))


class TestParquetRowsWithNulls(BulkDatasetContract):
    bad_indices = (2, 5)

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.path = tmp_path / "a.parquet"
        table = pa.table({"x": [0, 1, None, 3, 4, 5], "l": [[0], [1], [2], [3], [4], [5, None]]})
        pq.write_table(table, self.path, row_group_size=4)

    def make(self) -> BulkDataset:
        return as_rows(hr.Parquet(self.path))

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"x": index, "l": [index]}

    def good_indices(self, dataset: BulkDataset) -> list[int]:
        return [0, 1, 3, 4]


class TestParquetSamples(DatasetContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.path = tmp_path / "a.parquet"
        table = pa.table(
            {
                "text": ["é", "", "c", "d"],
                "image": [{"bytes": b"\0\1", "path": None}] * 4,
                "n": pa.array([0, 1, 2, 3], pa.int16()),
                "l": [[1], [], [2, 3], [4]],
            }
        )
        pq.write_table(table, self.path, row_group_size=3)

    def make(self) -> Dataset:
        data = hr.Parquet(self.path)
        assert isinstance(data, Dataset)
        return data

    def sample(self, index: int) -> Any:
        return {
            "text": ["é", "", "c", "d"][index],
            "image": {"bytes": b"\0\1", "path": None},
            "n": np.int16(index),
            "l": np.array([[1], [], [2, 3], [4]][index], np.int64),
        }


def as_rows(data: Any) -> BulkDataset:
    assert isinstance(data, BulkDataset)
    return data


def write(path: Path, columns: Mapping[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(dict(columns)), path, **options)
    return path


def test_columns_are_projected_in_the_order_named(tmp_path: Path) -> None:
    """What is not named is not read, and the fingerprint says so (S4-14)."""
    whole = as_rows(hr.Parquet(written(tmp_path)))
    some = as_rows(hr.Parquet(tmp_path, columns=["box", "id"]))

    assert [column.name for column in some.layout] == ["box", "id"]
    assert some.fingerprint() != whole.fingerprint()
    assert some.fingerprint() != hr.Parquet(tmp_path, columns=["id", "box"]).fingerprint()
    with hr.Loader(some, batch_size=4, shuffle=False) as loader:
        batch = next(iter(loader))
    assert batch.names == ("box", "id")
    assert batch["id"].tolist() == [0, 1, 2, 3]


def test_every_type_of_number_keeps_its_dtype(tmp_path: Path) -> None:
    """Whole, floating and boolean, behind a dictionary too (S4-14)."""
    kinds: dict[str, Any] = {
        "i8": np.int8,
        "u8": np.uint8,
        "u16": np.uint16,
        "i64": np.int64,
        "u64": np.uint64,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
    }
    columns = {name: pa.array(np.array([1, 2], kind)) for name, kind in kinds.items()}
    coded = pa.array(np.array([7, 7], np.int32)).dictionary_encode()
    data = as_rows(hr.Parquet(write(tmp_path / "a.parquet", {**columns, "coded": coded})))

    found = {column.name: column.dtype for column in data.layout}

    assert found == {**{name: np.dtype(kind) for name, kind in kinds.items()}, "coded": np.int32}
    with hr.Loader(data, batch_size=2, shuffle=False) as loader:
        batch = next(iter(loader))
    assert batch["f16"].tolist() == [1.0, 2.0]
    assert batch["coded"].tolist() == [7, 7]


@pytest.mark.parametrize("order", ["shuffled", "blocks"])
def test_the_stream_does_not_depend_on_threads(tmp_path: Path, order: str) -> None:
    """Rows across groups and files, for any number of readers (S4-13)."""
    data = hr.Parquet(written(tmp_path), columns=["id", "tokens", "grid"])

    def epoch(workers: int, prefetch: int) -> list[Any]:
        sampler = (
            hr.BlockShuffled(len(data), 2, 5, block=data.row_group_rows, window=2)
            if order == "blocks"
            else hr.Shuffled(len(data), 2, 5)
        )
        with hr.Loader(data, sampler=sampler, workers=workers, prefetch=prefetch) as loader:
            return [
                {name: value.tolist() for name, value in batch.items()} for batch in loader.epoch(0)
            ]

    alone = epoch(0, 4)

    assert len({index for batch in alone for index in batch["id"]}) == 10
    for batch in alone:
        ends = batch["tokens/offsets"]
        for row, index in enumerate(batch["id"]):
            wanted = row_of(index)
            assert batch["tokens"][ends[row] : ends[row + 1]] == wanted["tokens"].tolist()
            assert batch["grid"][row] == wanted["grid"].tolist()
    for workers, prefetch in ((1, 1), (2, 8), (4, 3)):
        assert epoch(workers, prefetch) == alone


def test_text_is_batched_as_a_list(tmp_path: Path) -> None:
    """Numbers beside it keep their dtype (S4-14)."""
    path = write(
        tmp_path / "a.parquet", {"text": ["a", "b"], "y": pa.array([1.5, 2.5], pa.float32())}
    )

    with hr.Loader(hr.Parquet(path), batch_size=2, shuffle=False, workers=2) as loader:
        batch = next(iter(loader))

    assert batch["text"] == ["a", "b"]
    assert torch.equal(batch["y"], torch.tensor([1.5, 2.5]))


def test_block_order_decodes_each_row_group_once(tmp_path: Path) -> None:
    """And a shuffle over all rows nearly one per row, where few are kept (S4-12, S4-47)."""
    path = write(tmp_path / "a.parquet", {"x": np.arange(400)}, row_group_size=20)
    # Two groups of 20 int64 each, and the one being read.
    kept_bytes = 2 * 20 * 8

    def decoded(sampler: Any) -> int:
        data = hr.Parquet(path, kept_bytes=kept_bytes)
        with hr.Loader(data, sampler=sampler, workers=1, prefetch=1) as loader:
            for _ in loader.epoch(0):
                count = data.decoded_groups
        return count

    assert decoded(hr.BlockShuffled(400, 10, 1, block=20, window=2)) == 20
    assert decoded(hr.Sequential(400, 10)) == 20
    assert decoded(hr.Shuffled(400, 10, 1)) > 200


def test_kept_groups_hold_no_more_than_their_bound() -> None:
    """Those used last stay; one larger than the bound is given and let go (S4-47)."""
    kept = KeptGroups(limit_bytes=100)
    groups = {
        n: {"x": FixedColumn(np.zeros(size, np.uint8))} for n, size in enumerate([40, 40, 40])
    }

    for number in (0, 1, 0, 2):
        assert kept.get(number, partial(groups.__getitem__, number)) is groups[number]
        assert kept.nbytes <= 100
    assert kept.decoded == 3
    kept.get(0, lambda: pytest.fail("0 was used after 1"))
    assert kept.kept_first([3, 2, 1, 0]) == [0, 2, 1, 3]
    large: Group = {"x": FixedColumn(np.zeros(101, np.uint8))}
    assert kept.get(7, lambda: large) is large
    assert kept.nbytes == 0


def test_a_row_group_is_decoded_once_for_several_threads() -> None:
    """The others wait for the first, and none keeps an error (S4-47)."""
    kept = KeptGroups(limit_bytes=100)
    group = {"x": FixedColumn(np.zeros(4, np.uint8))}
    begun, go = threading.Event(), threading.Event()

    def slow() -> Any:
        begun.set()
        assert go.wait(20)
        return group

    with pytest.raises(ZeroDivisionError):
        kept.get(0, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.append(kept.get(0, slow)))
    first.start()
    assert begun.wait(20)
    others = [
        threading.Thread(target=lambda: found.append(kept.get(0, lambda: pytest.fail("twice"))))
        for _ in range(3)
    ]
    for other in others:
        other.start()
    go.set()
    for thread in (first, *others):
        thread.join()

    assert found == [group] * 4
    assert kept.decoded == 1


def test_nulls_are_told_by_their_place(tmp_path: Path) -> None:
    """File, row group, row and column, with the cure; the other rows are good (S4-14)."""
    path = write(
        tmp_path / "a.parquet",
        {"x": pa.array([0, 1, 2, None, 4], pa.int32()), "s": ["a", "b", None, "d", "e"]},
        row_group_size=2,
    )

    with (
        hr.Loader(hr.Parquet(path, columns=["x"]), batch_size=5, shuffle=False) as loader,
        pytest.raises(
            FormatError,
            match=r"a\.parquet, row group 1, row 1: wanted a value in column 'x' \(int32\), "
            r"found null\. Say what stands for it: fill_null=\{'x': \.\.\.\}",
        ),
    ):
        loader.batch_at(0)
    with pytest.raises(FormatError, match=r"row group 1, row 0: wanted a value in column 's'"):
        hr.Parquet(path)[2]
    with hr.Loader(
        hr.Parquet(path, columns=["x"]), batch_size=5, shuffle=False, on_bad_sample="mask"
    ) as loader:
        mask = loader.batch_at(0).mask
    assert mask is not None
    assert mask.tolist() == [True, True, True, False, True]


def test_nulls_are_filled_by_choice(tmp_path: Path) -> None:
    """A value for every number, or one for each column; a null list is empty (S4-14)."""
    path = write(
        tmp_path / "a.parquet",
        {
            "x": pa.array([None, 1.5], pa.float32()),
            "l": pa.array([[None, 2], None], pa.list_(pa.int32())),
            "f": pa.array([None, [3, None]], pa.list_(pa.int8(), 2)),
        },
    )

    for fill in (-1, {"x": -1.0, "l": -1, "f": -1}):
        with hr.Loader(hr.Parquet(path, fill_null=fill), batch_size=2, shuffle=False) as loader:
            batch = loader.batch_at(0)
        assert batch["x"].tolist() == [-1.0, 1.5]
        assert batch["l"].tolist() == [-1, 2]
        assert batch["l/offsets"].tolist() == [0, 2, 2]
        assert batch["f"].tolist() == [[-1, -1], [3, -1]]
    text = write(tmp_path / "b.parquet", {"s": ["a", None]})
    assert hr.Parquet(text, fill_null={"s": "?"})[1] == {"s": "?"}


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_()],
    ids=str,
)
def test_nulls_of_every_kind_of_number_are_found_and_filled(tmp_path: Path, kind: Any) -> None:
    """Alone and in lists, in one piece or several (S4-14)."""
    one = pa.array([1, 0, None], kind) if kind != pa.bool_() else pa.array([True, False, None])
    columns = {
        "x": one,
        "f": pa.FixedSizeListArray.from_arrays(pa.concat_arrays([one, one]), 2),
        "l": pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), one),
    }
    path = write(tmp_path / "a.parquet", columns)

    whole = as_rows(hr.Parquet(path, fill_null=1))

    with hr.Loader(whole, batch_size=3, shuffle=False) as loader:
        batch = loader.batch_at(0)
    assert batch["x"].tolist() == [1, 0, 1]
    assert batch["f"].tolist() == [[1, 0], [1, 1], [0, 1]]
    assert batch["l"].tolist() == [1, 0, 1]
    for column, bad in (("x", [2]), ("f", [1, 2]), ("l", [2])):
        data = hr.Parquet(path, columns=[column])
        assert [index for index in range(3) if not is_good(data, index)] == bad


def test_pieces_of_larger_arrays_are_read_right() -> None:
    """Arrow gives columns in several chunks, each a slice of what it holds (S4-14)."""
    numbers = pa.array([[i, i + 1] for i in range(6)], pa.list_(pa.int32(), 2))
    lists = pa.array([[i] * i for i in range(6)], pa.list_(pa.int32()))

    def taken(array: Any, kind: Any, shape: tuple[int, ...]) -> list[Any]:
        chunks = pa.chunked_array([array.slice(1, 2), array.slice(4, 2), array.slice(0, 0)])
        column = column_of(chunks, ParquetColumn("c", kind, "", "<i4", shape), None)
        assert column.nulls is None
        return [value.tolist() for value in column.take(np.array([3, 0, 1, 2]))]

    assert taken(numbers, "fixed", (2,)) == [[5, 6], [1, 2], [2, 3], [4, 5]]
    assert taken(lists, "open", ()) == [[5] * 5, [1], [2, 2], [4] * 4]


def is_good(data: Any, index: int) -> bool:
    try:
        data[index]
    except FormatError:
        return False
    return True


def test_what_stands_for_a_null_belongs_to_its_sample(tmp_path: Path) -> None:
    """Changing it changes no other sample (S0-75)."""
    path = write(tmp_path / "a.parquet", {"tags": [["a"], None, None]})
    data = hr.Parquet(path, fill_null={"tags": []})

    data[1]["tags"].append("b")

    assert [data[1]["tags"], data[2]["tags"]] == [[], []]


@pytest.mark.parametrize(
    ("fill", "told"),
    [
        ({"y": 0}, r"fill_null: wanted columns out of x, got \['y'\]"),
        ({"x": 1.5}, r"fill_null: wanted a value of 'x' \(uint8\), got 1\.5"),
        (-1, r"wanted a value of 'x' \(uint8\), got -1"),
        ({"x": "0"}, "wanted a value of 'x'"),
        ({"x": None}, "wanted a value of 'x'"),
        (float("nan"), "wanted a value of 'x'"),
    ],
)
def test_a_fill_that_does_not_fit_is_refused(tmp_path: Path, fill: Any, told: str) -> None:
    """Before a row is read (S4-14)."""
    path = write(tmp_path / "a.parquet", {"x": pa.array([1], pa.uint8())})

    with pytest.raises(ConfigError, match=told):
        hr.Parquet(path, fill_null=fill)


def test_damage_is_told_by_file_column_and_row_group(tmp_path: Path) -> None:
    """Rows of other groups are good; it is a bad sample, not trouble of the disk (S4-13)."""
    path = write(
        tmp_path / "a.parquet",
        {"x": np.arange(3000), "y": np.arange(3000) * 7},
        row_group_size=1000,
        compression="snappy",
        use_dictionary=False,
        write_page_checksum=True,
    )
    chunk = pq.read_metadata(path).row_group(1).column(1)
    raw = bytearray(path.read_bytes())
    raw[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(raw)
    data = hr.Parquet(path)

    with hr.Loader(data, batch_size=1000, shuffle=False, workers=2) as loader:
        batches = iter(loader.epoch(0))
        assert next(batches)["y"].tolist() == list(range(0, 7000, 7))
        with pytest.raises(
            FormatError,
            match=r"a\.parquet: wanted column 'y' \(int64\) of row group 1, found damage",
        ):
            next(batches)
    assert str(data.locate(1500)) == "a.parquet, row group 1, row 500"


def test_trouble_of_the_system_is_no_damage(tmp_path: Path) -> None:
    """An error with a number passes as it is, and is no bad sample (S4-13)."""
    data = as_rows(hr.Parquet(write(tmp_path / "a.parquet", {"x": [1, 2]})))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    with hr.Loader(data, batch_size=2, workers=0, on_bad_sample="replace") as loader:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files") as caught:
                loader.batch_at(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert not isinstance(caught.value, hr.DataError)


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    """By name, when the dataset is made (S4-12)."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FormatError, match=r"a\.parquet: wanted a Parquet file, found damage"):
        hr.Parquet(tmp_path)
    good = write(tmp_path / "b.parquet", {"x": [1]}).read_bytes()
    (tmp_path / "a.parquet").write_bytes(good[:20] + good[-60:])
    with pytest.raises(FormatError, match=r"a\.parquet: wanted"):
        hr.Parquet(tmp_path / "a.parquet")[0]
    with pytest.raises(NotFoundError, match=r"'no\.parquet' is not in"):
        hr.Parquet(tmp_path / "no.parquet")
    empty = write(tmp_path / "c.parquet", {"x": pa.array([], pa.int32())})
    with pytest.raises(FormatError, match="wanted a file with at least one row"):
        hr.Parquet(empty)


def test_files_must_agree_in_their_columns(tmp_path: Path) -> None:
    """In those that are taken; an empty file among others does no harm (S4-12)."""
    write(tmp_path / "a.parquet", {"x": pa.array([1], pa.int32()), "z": [1]})
    write(tmp_path / "b.parquet", {"x": pa.array([2.0], pa.float32()), "y": [2]})
    write(tmp_path / "c.parquet", {"x": pa.array([], pa.int32()), "z": pa.array([], pa.int64())})

    with pytest.raises(FormatError, match=r"b\.parquet: wanted column 'x' of type int32, as in a"):
        hr.Parquet(tmp_path)
    with pytest.raises(FormatError, match=r"column 'z' of type int64, .* found no such column"):
        hr.Parquet(tmp_path, columns=["z"])
    assert len(hr.Parquet([tmp_path / "c.parquet", tmp_path / "a.parquet"])) == 1


@pytest.mark.parametrize("columns", [["x", "q"], [], ["x", "x"], "x"])
def test_columns_that_are_none_are_refused(tmp_path: Path, columns: Any) -> None:
    """Unknown, none, twice, no list (S4-12)."""
    path = write(tmp_path / "a.parquet", {"x": [1], "y": [2]})

    with pytest.raises(ConfigError, match="columns: wanted"):
        hr.Parquet(path, columns=columns)


def test_a_file_that_went_or_changed_is_no_bad_sample(tmp_path: Path) -> None:
    """Even where bad samples are survived (S4-13)."""
    paths = [write(tmp_path / f"{n}.parquet", {"x": list(range(5))}) for n in range(2)]
    data = hr.Parquet(paths)
    write(paths[0], {"x": list(range(500))})
    paths[1].unlink()

    with hr.Loader(data, batch_size=5, shuffle=False, on_bad_sample="replace") as loader:
        with pytest.raises(SourceChangedError, match=r"0\.parquet in .* changed during the run"):
            loader.batch_at(0)
        with pytest.raises(NotFoundError, match=r"'1\.parquet' is not in"):
            loader.batch_at(1)


def test_rows_of_another_length_are_noticed(tmp_path: Path) -> None:
    """A file of the same size, whose rows would run over the memory of others (S4-13).

    By a pickle, which knows the lengths and not the file.
    """
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    path = write(tmp_path / "a.parquet", {"l": [[1, 2], [3]]}, **plain)
    data = as_rows(pickle.loads(pickle.dumps(hr.Parquet(path))))
    size_bytes = path.stat().st_size
    write(path, {"l": [[1], [2, 3]]}, **plain)
    assert path.stat().st_size == size_bytes

    with (
        hr.Loader(data, batch_size=2, shuffle=False, on_bad_sample="replace") as loader,
        pytest.raises(SourceChangedError, match="now others in column 'l' of row group 0"),
    ):
        loader.batch_at(0)


def test_rows_cut_elsewhere_are_noticed(tmp_path: Path) -> None:
    """A file of the same size with fewer rows in a group: none is given twice (S4-13)."""
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    path = write(tmp_path / "a.parquet", {"x": np.arange(6)}, row_group_size=4, **plain)
    data = hr.Parquet(path)
    size_bytes = path.stat().st_size
    write(path, {"x": np.arange(6)}, row_group_size=3, **plain)
    assert path.stat().st_size == size_bytes

    with (
        hr.Loader(data, batch_size=6, shuffle=False, on_bad_sample="replace") as loader,
        pytest.raises(
            SourceChangedError, match="opened as 6 rows in 2 row groups, now 6 rows in 2 others"
        ),
    ):
        loader.batch_at(0)


def test_a_file_rewritten_in_the_same_form_is_noticed(tmp_path: Path) -> None:
    """One run never mixes two versions; the next one may read the other (S4-13)."""
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none", "row_group_size": 2}
    path = write(tmp_path / "a.parquet", {"x": np.arange(4)}, **plain)
    data = hr.Parquet(path)
    knobs: dict[str, Any] = {"batch_size": 2, "shuffle": False, "on_bad_sample": "replace"}

    with hr.Loader(data, **knobs, workers=0) as loader:
        assert loader.batch_at(0)["x"].tolist() == [0, 1]
        size_bytes = path.stat().st_size
        path.unlink()
        write(path, {"x": np.arange(4) + 4}, **plain)
        assert path.stat().st_size == size_bytes
        with pytest.raises(SourceChangedError, match=r"a\.parquet in Parquet\(.* changed during"):
            loader.batch_at(1)

    with hr.Loader(data, **knobs) as loader:
        assert loader.batch_at(1)["x"].tolist() == [6, 7]


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """Which of the two is meant cannot be said."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")

    with pytest.raises(FormatError, match=r"^a\.parquet: wanted columns whose names all differ"):
        hr.Parquet(tmp_path / "a.parquet")


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    """Files of other systems may have names that are no UTF-8."""
    path = write(tmp_path / "a.parquet", {"x": [3, 4]})
    odd = path.rename(tmp_path / os.fsdecode(b"\xff.parquet"))

    with hr.Loader(hr.Parquet(odd), batch_size=2, shuffle=False) as loader:
        assert loader.batch_at(0)["x"].tolist() == [3, 4]


def test_the_fingerprint_tells_files_apart(tmp_path: Path) -> None:
    """By names, sizes, row groups, types and fills; not by the place (S4-12)."""
    first = hr.Parquet(written(tmp_path / "one")).fingerprint()

    assert hr.Parquet(written(tmp_path / "two")).fingerprint() == first
    assert hr.Parquet(tmp_path / "one", fill_null=0).fingerprint() != first
    assert hr.Parquet(tmp_path / "one" / "a.parquet").fingerprint() != first
    pq.write_table(table_of(range(7)), tmp_path / "two" / "a.parquet", row_group_size=4)
    assert hr.Parquet(tmp_path / "two").fingerprint() != first
    tables = [GroupTable([ParquetFile("a", 99, rows)]) for rows in ((3, 3), (6,), (3, 3))]
    assert tables[0].digest() == tables[2].digest() != tables[1].digest()


def test_no_file_stays_open_and_a_pickle_is_small(tmp_path: Path) -> None:
    """What is decoded is not in the pickle (S4-13, S4-47)."""
    data = hr.Parquet(write(tmp_path / "a.parquet", {"s": ["x" * 1000] * 100}))
    before = len(os.listdir("/dev/fd"))

    with hr.Loader(data, batch_size=10, workers=0) as loader:
        next(iter(loader))
        assert len(os.listdir("/dev/fd")) == before
        assert len(pickle.dumps(data)) < 2000
    assert pickle.loads(pickle.dumps(data))[0] == {"s": "x" * 1000}


def test_what_was_kept_is_let_go_with_the_loader(tmp_path: Path) -> None:
    """Closing frees decoded groups, of data that waits on no loop too (S4-47)."""
    data = hr.Parquet(write(tmp_path / "a.parquet", {"x": np.arange(1000)}))

    with hr.Loader(data, batch_size=10, workers=2) as loader:
        next(iter(loader))
        assert data.decoded_bytes == 8000

    assert data.decoded_bytes == 0


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path) -> None:
    """And importing headrace needs none (S4-13)."""
    program = """
import sys
import headrace as hr
assert "pyarrow" not in sys.modules
sys.modules["pyarrow"] = None
open("a.parquet", "wb").close()
try:
    hr.Parquet("a.parquet")
except ImportError as error:
    print(error)
"""

    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert told.stdout == (
        "Reading Parquet files needs pyarrow, which is not installed. "
        "Install it with: pip install 'headrace[parquet]'\n"
    )
