"""Rows of any length out of flat values, and every way in which offsets can be wrong."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace import BulkDataset, Loader, Location, Ragged, Subset
from headrace.datasets.dataset import RaggedColumn
from headrace.errors import (
    ConfigError,
    FormatError,
    NotFoundError,
    SourceChangedError,
)
from headrace.sources.source import ByteRange
from headrace.testing.dataset_contract import BulkDatasetContract
from headrace.testing.dataset_reads import read_rows

ROWS = [[1, 2, 3], [], [4], [5, 6], [7, 8, 9, 10], []]
FLAT = np.arange(1, 11, dtype=np.int32)
OFFSETS = np.array([0, 3, 3, 4, 6, 10, 10])
LABELS = np.arange(6) * 10
DTYPES = ["|b1", "|u1", "|i1", "<u2", "<f2", "<i4", "<f4", "<i8", "<f8", "<c8", "<c16"]


def save(path: Path, array: object) -> Path:
    np.save(path, np.asarray(array))
    return path


def rows_of(data: BulkDataset, name: str = "values") -> list[list[Any]]:
    return [row[name].tolist() for row in read_rows(data, range(len(data)))]


class TestRaggedInMemory(BulkDatasetContract):
    def make(self) -> BulkDataset:
        return Ragged(FLAT, OFFSETS, fixed={"label": LABELS})

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"values": ROWS[index], "label": 10 * index}


class TestRaggedFiles(TestRaggedInMemory):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.values = save(tmp_path / "values.npy", FLAT)
        self.lengths = save(tmp_path / "lengths.npy", [len(row) for row in ROWS])
        self.labels = save(tmp_path / "labels.npy", LABELS)

    def make(self) -> BulkDataset:
        return Ragged(self.values, lengths=self.lengths, fixed={"label": self.labels})


class TestColumnsWithOffsetsOfTheirOwn(BulkDatasetContract):
    def make(self) -> BulkDataset:
        frames = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
        return Ragged(
            {"frames": frames, "text": FLAT[:7], "types": FLAT[:7].astype(np.uint8)},
            {"frames": OFFSETS, "text": (text := np.array([0, 1, 3, 3, 3, 7, 7])), "types": text},
        )

    def stored_row(self, index: int) -> Mapping[str, Any]:
        frames = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
        text = [[1], [2, 3], [], [], [4, 5, 6, 7], []][index]
        return {"frames": frames[OFFSETS[index] : OFFSETS[index + 1]], "text": text, "types": text}


class TestSelectedColumnsOfRagged(BulkDatasetContract):
    def make(self) -> BulkDataset:
        values = {"tokens": FLAT, "types": FLAT * 2}
        return Ragged(values, OFFSETS, fixed={"label": LABELS}).select("label", "types")

    def stored_row(self, index: int) -> Mapping[str, Any]:
        return {"label": 10 * index, "types": [2 * value for value in ROWS[index]]}


@st.composite
def some_rows(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Give lengths of rows, and indices of them in any order, runs among them."""
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=12))
    index = st.integers(0, len(lengths) - 1)
    runs = draw(st.lists(st.tuples(index, st.integers(1, 4)), max_size=5))
    return lengths, [i for first, n in runs for i in range(first, min(first + n, len(lengths)))]


@given(rows=some_rows(), dtype=st.sampled_from(DTYPES), unit=st.sampled_from([(), (2,), (0,)]))
def test_rows_are_slices_of_the_values(
    rows: tuple[list[int], list[int]], dtype: str, unit: tuple[int, ...]
) -> None:
    """Any lengths, any element type and shape, neighbours among the rows asked for."""
    lengths, indices = rows
    flat = numbers(dtype, (sum(lengths), *unit))
    offsets = np.cumsum([0, *lengths])

    got = read_rows(Ragged(flat, lengths=np.array(lengths, np.int16)), indices)

    for row, index in zip(got, indices, strict=True):
        np.testing.assert_array_equal(row["values"], flat[offsets[index] : offsets[index + 1]])
        assert row["values"].dtype == np.dtype(dtype)


@pytest.mark.parametrize("longest", [3_000, 20_000], ids=["rows of pages", "wide rows"])
def test_long_rows_and_short_ones_share_a_batch(longest: int) -> None:
    """Rows beyond a page, rows that windows would read too much behind, and very wide rows."""
    lengths = [longest, 1, longest - 1, 0, 2, longest]
    offsets = np.cumsum([0, *lengths])
    flat = np.random.default_rng(1).integers(0, 2**31, offsets[-1], np.int32)
    data = Ragged(flat, offsets)
    wanted = [flat[a:b].tolist() for a, b in pairwise(offsets)]

    for indices in ([5, 0, 2], [1, 4, 3, 0, 1, 1, 1, 4, 4, 3], list(range(6))):
        assert [row["values"].tolist() for row in read_rows(data, indices)] == [
            wanted[i] for i in indices
        ]


def test_rows_go_where_they_are_wanted() -> None:
    """Neighbours that are neighbours in the values but not in the batch, and the other way."""
    data = Ragged(FLAT, OFFSETS)
    offsets = np.array([0, 4, 6, 9, 10])
    for indices, rows in (([3, 4], [1, 0]), ([0, 2], [2, 3]), ([4, 3, 0, 2], [0, 1, 2, 3])):
        column = RaggedColumn(np.zeros(10, np.int32), offsets)

        data.read_into_blocking(np.array(indices), {"values": column}, np.array(rows))

        for index, row in zip(indices, rows, strict=True):
            assert column.flat[offsets[row] : offsets[row + 1]].tolist() == ROWS[index]


def test_batches_hold_rows_end_to_end() -> None:
    """Through the loader, with offsets beside them, from either kind of loop."""
    data = Ragged(FLAT, OFFSETS, fixed={"label": LABELS})
    for workers in (0, 2):
        with Loader(data, batch_size=4, shuffle=False, workers=workers) as loader:
            first, second = list(loader)

        assert first["values"].tolist() == [1, 2, 3, 4, 5, 6]
        assert first["values/offsets"].tolist() == [0, 3, 3, 4, 6]
        assert first["label"].tolist() == [0, 10, 20, 30]
        assert second["values"].tolist() == [7, 8, 9, 10]


def test_tensors_are_read_where_they_are() -> None:
    """A tensor is not copied: what it holds later is what is read."""
    values = torch.arange(10)
    data = Ragged(values, torch.tensor([0, 4, 10], dtype=torch.int32))
    values[0] = 99

    assert rows_of(data) == [[99, 1, 2, 3], [4, 5, 6, 7, 8, 9]]


def test_fixed_columns_may_be_of_any_byte_order_and_shape(tmp_path: Path) -> None:
    """They are delivered in that of the machine, as those of Arrays are."""
    boxes = np.arange(24, dtype=">i2").reshape(6, 2, 2)
    data = Ragged(FLAT, OFFSETS, fixed={"box": save(tmp_path / "boxes.npy", boxes)})

    (row,) = read_rows(data.select("box"), [5])

    assert row["box"].tolist() == [[20, 21], [22, 23]]
    assert row["box"].dtype == np.dtype(np.int16)


def test_no_rows_are_a_dataset_too() -> None:
    """One offset is no row, and rows without a value are rows."""
    assert len(Ragged(FLAT[:0], np.array([0]))) == 0
    empty = Ragged(FLAT[:0], np.array([0, 0, 0]))
    assert rows_of(empty) == [[], []]
    assert str(empty.locate(1)) == "values['values'], bytes [0, 0), row 1"


def test_places_past_4_gib_do_not_wrap(tmp_path: Path) -> None:
    """Lengths and sums of them that users hold in 32 bits lead to the right byte (B11)."""
    lengths = np.array([2147483548, 123], np.int32)
    path = tmp_path / "values.npy"
    with open(path, "wb") as file:
        header = {"descr": "<i4", "fortran_order": False, "shape": (int(lengths.sum(dtype="i8")),)}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        file.truncate(start + 4 * 2147483671)  # sparse: it takes hardly any disk
        file.seek(start + 8589934192)
        file.write(np.array([7, 8, 9], np.int32).tobytes())

    data = Ragged(path, lengths=lengths)

    assert data.locate(1) == Location(
        "values.npy", ByteRange(start + 8589934192, start + 8589934684), "row 1"
    )
    assert data.sizes(np.array([1, 0]))["values"].tolist() == [123, 2147483548]
    (row,) = read_rows(data, [1])
    assert row["values"].tolist() == [7, 8, 9, *[0] * 120]


def test_offsets_of_users_may_be_any_integers() -> None:
    """Narrow, unsigned, big-endian, strided: all become int64 (B11)."""
    for offsets in (
        OFFSETS.astype(np.int32),
        OFFSETS.astype(np.uint8),
        OFFSETS.astype(np.uint64),
        OFFSETS.astype(">i4"),
        np.repeat(OFFSETS, 2)[::2],
    ):
        assert rows_of(Ragged(FLAT, offsets)) == ROWS


WRONG_OFFSETS = {
    "they fall": ([0, 4, 3, 10], "offsets that never fall, .*3 after 4 at row 1.*32 bits"),
    "sums wrapped": ([0, 2**31 - 1, -5], "-5 after 2147483647 at row 1"),
    "not from 0": ([1, 10], "begin with 0, .*1 first.*say lengths=.*offsets - offsets"),
    "none": ([], "begin with 0, .*none at all"),
    "values left over": ([0, 9], "end with the 10 values of .*, .*9.*belong together"),
    "values lacking": ([0, 11], "end with the 10 values of .*, .*11"),
}


@pytest.mark.parametrize("case", WRONG_OFFSETS)
def test_offsets_that_do_not_fit_are_refused(case: str, tmp_path: Path) -> None:
    """In memory and in a file, which is named."""
    offsets, message = WRONG_OFFSETS[case]
    numbers = np.array(offsets, np.int64)
    path = save(tmp_path / "cuts.npy", numbers)

    with pytest.raises(ConfigError, match=f"^offsets: .*{message}"):
        Ragged(FLAT, numbers)
    with pytest.raises(FormatError, match=f"cuts.npy: .*{message}"):
        Ragged(FLAT, path)


def test_numbers_that_are_no_offsets_are_refused() -> None:
    """Floats, tables of numbers, negative lengths."""
    with pytest.raises(ConfigError, match=r"offsets: .*whole numbers, .*float64 \[2\]"):
        Ragged(FLAT, np.array([0.0, 10.0]))
    with pytest.raises(ConfigError, match=r"offsets: .*one dimension .*int64 \[1, 2\]"):
        Ragged(FLAT, np.array([[0, 10]]))
    with pytest.raises(ConfigError, match=r"lengths: .*0 or more, .*-2 at row 1"):
        Ragged(FLAT, lengths=np.array([12, -2]))


REFUSED: dict[str, tuple[Callable[[], Ragged], str]] = {
    "nothing cuts": (lambda: Ragged(FLAT), "either offsets or lengths, got 'neither'"),
    "both cut": (lambda: Ragged(FLAT, OFFSETS, lengths=OFFSETS), "either .*got 'both'"),
    "no column": (lambda: Ragged({}, OFFSETS), "values: .*at least one column"),
    "one name twice": (
        lambda: Ragged({"a": FLAT}, OFFSETS, fixed={"a": LABELS}),
        "fixed: .*no other column",
    ),
    "names that differ": (
        lambda: Ragged({"a": FLAT}, {"b": OFFSETS}),
        r"offsets: .*\['a'\], got \['b'\]",
    ),
    "a label too few": (
        lambda: Ragged(FLAT, OFFSETS, fixed={"label": LABELS[1:]}),
        "one length, got 'values: 6 rows, label: 5 rows'",
    ),
    "big-endian values": (
        lambda: Ragged(FLAT.astype(">i4"), OFFSETS),
        r"values\['values'\]: .*byte order.*newbyteorder",
    ),
    "strided values": (lambda: Ragged(np.arange(20)[::2], OFFSETS), "one piece.*ascontiguous"),
    "no array": (lambda: Ragged([1, 2, 3], np.array([0, 3])), "a numpy array"),  # type: ignore[arg-type]
    "rows as lists": (
        lambda: Ragged([[1, 2], [3]], lengths=np.array([2, 1])),  # type: ignore[arg-type]
        r"values\['values'\]: .*got 'list'\. .*Ragged\(np\.concatenate\(rows\), lengths=",
    ),
    "a remote path": (lambda: Ragged("s3://bucket/values.npy", OFFSETS), "local files"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_cannot_work_are_refused(case: str) -> None:
    """The message names the argument and says what to do."""
    make, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        make()


def test_files_that_are_no_whole_npy_are_refused(tmp_path: Path) -> None:
    """Cut short, with bytes behind, of strings, in Fortran order, of no dimension, missing."""
    path = save(tmp_path / "values.npy", FLAT)
    whole = path.read_bytes()
    refused = {
        whole[:-1]: "bytes by its header.*truncated",
        whole + b"\0": "bytes by its header.*follows",
        b"": "a .npy file, .*empty",
    }
    for contents, message in refused.items():
        path.write_bytes(contents)
        with pytest.raises(FormatError, match=rf"values\.npy: .*{message}"):
            Ragged(path, OFFSETS)
    for array in (np.array(3), np.asfortranarray(np.ones((2, 2)))):
        with pytest.raises(FormatError, match="C order"):
            Ragged(save(path, array), OFFSETS)
    with pytest.raises(ConfigError, match=r"values\.npy.*numbers"):
        Ragged(save(path, np.array(["a"])), OFFSETS)
    with pytest.raises(NotFoundError, match=re.escape("'other.npy'")):
        Ragged(tmp_path / "other.npy", OFFSETS)
    with pytest.raises(FormatError, match=r"wanted a \.npy file, found a folder"):
        Ragged(tmp_path, OFFSETS)


def test_files_that_change_are_noticed(tmp_path: Path) -> None:
    """A mapped file that is replaced is refused at the next run (B25 holds for its pickle)."""
    path = save(tmp_path / "values.npy", FLAT)
    data = Ragged(path, OFFSETS)
    assert rows_of(data) == ROWS
    data.check()

    path.unlink()
    save(path, FLAT + 1)

    with pytest.raises(SourceChangedError, match=r"values\.npy"):
        data.check()


def test_pickles_of_files_carry_paths_only(tmp_path: Path) -> None:
    """However long the files are."""
    count = 100_000
    values = save(tmp_path / "values.npy", np.zeros(count, np.int8))
    offsets = save(tmp_path / "offsets.npy", np.arange(count + 1))

    pickled = pickle.dumps(Ragged(values, offsets))

    assert len(pickled) < 2_000
    assert len(pickle.loads(pickled)) == count


@pytest.mark.parametrize(
    ("name", "other", "told"),
    [
        ("values", np.zeros(10, np.float64), r"as int64 \[10\], now float64 \[10\]"),
        ("values", np.zeros(11, np.int64), r"as int64 \[10\], now int64 \[11\]"),
        ("offsets", np.array([0, 4, 4, 10]), r"as int64 \[3\], now int64 \[4\]"),
        ("offsets", np.array([0, 4, 11]), "as 10 values, now 11"),
    ],
)
def test_a_pickle_notices_files_of_another_form(
    tmp_path: Path, name: str, other: Any, told: str
) -> None:
    """Nothing is read as numbers that it is not, or as rows that are not there."""
    values = save(tmp_path / "values.npy", np.arange(10))
    offsets = save(tmp_path / "offsets.npy", np.array([0, 4, 10]))
    pickled = pickle.dumps(Ragged(values, offsets))
    save(tmp_path / f"{name}.npy", other)

    with pytest.raises(SourceChangedError, match=rf"^{name}\.npy in .* opened {told}"):
        rows_of(pickle.loads(pickled))


def test_the_fingerprint_knows_lengths_and_sizes() -> None:
    """Other lengths, dtypes or columns are other data; many columns stay short."""
    data = Ragged(FLAT, OFFSETS, fixed={"label": LABELS})
    others = [
        Ragged(FLAT, np.array([0, 2, 3, 4, 6, 10, 10]), fixed={"label": LABELS}),
        Ragged(FLAT.astype(np.int16), OFFSETS, fixed={"label": LABELS}),
        Ragged(FLAT, OFFSETS),
    ]
    many = Ragged({f"column {i}": FLAT for i in range(40)}, OFFSETS)

    assert (
        data.fingerprint()
        == Ragged(FLAT, OFFSETS.astype(np.int32), fixed={"label": LABELS}).fingerprint()
    )
    assert all(other.fingerprint() != data.fingerprint() for other in others)
    assert len(str(many.fingerprint())) < 200


def test_fixed_columns_alone_may_be_selected() -> None:
    """The open ones are not read then."""
    data = Ragged(FLAT, OFFSETS, fixed={"label": LABELS}).select("label")

    assert [column.name for column in data.layout] == ["label"]
    assert data.sizes(np.array([0])) == {}
    assert [row["label"].tolist() for row in read_rows(data, [5, 0])] == [50, 0]
    assert data.locate(2) == Location("fixed['label']", ByteRange(16, 24), "row 2")


def test_subsets_keep_lengths() -> None:
    """Compositions of ragged rows know lengths without a read, as the rows do."""
    chosen = Subset(Ragged(FLAT, OFFSETS), [4, 0])

    assert isinstance(chosen, BulkDataset)
    assert chosen.sizes(np.array([1, 0]))["values"].tolist() == [3, 4]


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Give numbers with every bit in use where the dtype has them."""
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 127, shape).astype(dtype)
