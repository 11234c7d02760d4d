"""Columns in memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from headrace.datasets import Arrays
from headrace.errors import ConfigError, IndexOutOfRangeError
from headrace.testing.dataset_reads import delivered_rows, read_rows


def column(dataset: Arrays, indices: list[int], name: str = "0") -> NDArray[Any]:
    return np.stack([row[name] for row in read_rows(dataset, indices)])


@pytest.mark.parametrize("dtype", [">f4", ">i4", ">u2", ">i8"])
def test_big_endian_arrays_give_native_right_values(dtype: str, tmp_path: Path) -> None:
    """Read from memory and from a map alike, whatever the machine's order (B08)."""
    values = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    np.save(tmp_path / "a.npy", values)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")

    for given_ in (values, mapped):
        dataset = Arrays(given_)
        got = column(dataset, [1, 0])
        assert got.tolist() == [[4, 5, 6], [1, 2, 3]]
        assert got.dtype == dataset.layout[0].dtype == np.dtype(dtype).newbyteorder("=")
        assert torch.from_numpy(got).tolist() == [[4, 5, 6], [1, 2, 3]]


def test_the_payload_of_the_report_reads_as_one_to_six() -> None:
    """Bytes 3F 80 00 00 40 00 00 00 are 1.0 and 2.0 (B08)."""
    payload = bytes.fromhex("3F800000 40000000 40400000 40800000 40A00000 40C00000")
    dataset = Arrays(np.frombuffer(payload, ">f4").reshape(2, 3))

    assert column(dataset, [0, 1]).tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@given(st.data())
def test_every_layout_of_memory_gives_the_same_rows(data: st.DataObject) -> None:
    """Contiguous, sliced, reversed, transposed, broadcast."""
    base = np.arange(6 * 4 * 2, dtype=data.draw(st.sampled_from(["<i4", ">i4", "<f8"])))
    array = base.reshape(6, 4, 2)
    way = data.draw(st.sampled_from(["plain", "sliced", "reversed", "transposed", "broadcast"]))
    if way == "sliced":
        array = array[::2, 1:3]
    elif way == "reversed":
        array = array[::-1]
    elif way == "transposed":
        array = array.transpose(1, 2, 0)
    elif way == "broadcast":
        array = np.broadcast_to(array[:1], (5, 4, 2))
    indices = data.draw(st.lists(st.integers(0, len(array) - 1), min_size=1))

    got = column(Arrays(array), indices)

    assert got.tolist() == [array[index].tolist() for index in indices]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int8, torch.bool, torch.uint16, torch.complex64]
)
def test_tensors_are_read_in_place(dtype: torch.dtype) -> None:
    """No copy is made of what is given."""
    tensor = torch.zeros(3, 2).to(dtype)
    dataset = Arrays(tensor)

    tensor[1, 0] = 1

    assert (column(dataset, [1]) == [[1, 0]]).all()


@pytest.mark.parametrize("way", ["plain", "big-endian", "sliced"])
def test_a_read_copies_the_rows_asked_for_only(way: str) -> None:
    """Whatever the layout, reading 2 rows of 8 MB takes no 8 MB."""
    array = np.zeros((1_000_000, 8), ">u8" if way == "big-endian" else "u1")
    dataset = Arrays(array[:, ::2] if way == "sliced" else array)
    read_rows(dataset, [0])
    tracemalloc.start()

    read_rows(dataset, [5, 999_999])

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000


def test_columns_are_named_or_numbered() -> None:
    """A mapping keeps its names; positions are "0", "1"."""
    named = Arrays({"x": np.zeros(2), "y": np.zeros((2, 3), np.int8)})

    assert [(c.name, c.dtype.str, c.shape) for c in named.layout] == [
        ("x", "<f8", ()),
        ("y", "|i1", (3,)),
    ]
    assert [c.name for c in Arrays(np.zeros(2), np.zeros(2)).layout] == ["0", "1"]
    assert [c.name for c in named.select("y").layout] == ["y"]


def test_selected_columns_share_the_memory() -> None:
    """Selecting copies nothing."""
    x = np.zeros(1000)

    assert np.shares_memory(Arrays({"x": x, "y": x}).select("y").columns["y"], x)


def test_unequal_lengths_are_refused_naming_both() -> None:
    """The error says which columns, and how long each is."""
    with pytest.raises(ConfigError, match=r"one length, got 'x: 3 rows, y: 2 rows'"):
        Arrays({"x": np.zeros(3), "y": np.zeros(2)})


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((), "at least one array"),
        (({},), "at least one array"),
        (({"x": np.zeros(2)}, np.zeros(2)), "one mapping, or arrays"),
        ((np.array(3.0),), "0-d array"),
        ((np.array(["a", "b"]),), r"dtype <U1.*Encode strings"),
        ((np.array([None, 1]),), "dtype object"),
        ((np.array(["2020-01-01"], "M8[D]"),), "datetime64"),
        (
            ([1, 2, 3],),
            r"data\['0'\]: wanted a numpy array or a CPU.*got 'list'.*np\.asarray",
        ),
        (({"x": np.zeros(3, "g")},), r"data\['x'\]: wanted a dtype that torch has.*float64"),
        (({"x": np.zeros(3, "G")},), r"data\['x'\]: wanted a dtype that torch has.*complex128"),
        (({"x": np.ma.masked_equal([1, 2], 2)},), r"data\['x'\]: wanted.*masked.*two columns"),
        ((torch.zeros(2, dtype=torch.bfloat16),), r"dtype that numpy has.*tensor\.float"),
        ((torch.zeros(2, 2).to_sparse(),), "dense tensor on the CPU"),
        ((torch.zeros(2, device="meta"),), r"on meta.*tensor\.cpu\(\)"),
    ],
)
def test_what_is_no_column_is_refused(given_: tuple[Any, ...], message: str) -> None:
    """Each error says what to change."""
    with pytest.raises(ConfigError, match=message):
        Arrays(*given_)


@pytest.mark.parametrize("name", np.typecodes["AllInteger"])
def test_every_integer_of_c_is_delivered(name: str) -> None:
    """Also where two of C's names are one dtype, of which torch knows one."""
    data = Arrays({"x": np.arange(4).astype(name)})

    (row,) = delivered_rows(data, [3])

    assert int(row["x"]) == 3


def test_an_array_in_which_nothing_is_masked_is_an_array() -> None:
    """Its mask says nothing."""
    assert Arrays(np.ma.array([1, 2]))[1]["0"] == 2


def test_an_index_gives_the_row_as_its_columns() -> None:
    """As `map` sees it: a dict of tensors of their own, native, also of 1-D columns."""
    x = np.array([[1, 2], [3, 4]], ">i4")
    data = Arrays({"x": x, "y": np.array([5.0, 6.0], "<f4")})

    row = data[1]
    row["x"][0] = 9

    assert row["y"].dtype == torch.float32
    assert (row["x"].tolist(), row["y"].item()) == ([9, 4], 6.0)
    assert x.tolist() == [[1, 2], [3, 4]]
    assert [int(each["y"]) for each in data] == [5, 6]  # type: ignore[attr-defined]
    with pytest.raises(IndexOutOfRangeError, match=r"index -1 is outside \[0, 2\)"):
        data[-1]


def test_the_fingerprint_is_shape_and_dtype() -> None:
    """Equal on every machine, and independent of byte order and layout."""
    wanted = {"kind": "Arrays", "samples": 3, "columns": [["0", "<i4", [2]]]}

    assert Arrays(np.zeros((3, 2), "<i4")).fingerprint() == wanted
    assert Arrays(np.zeros((2, 3), ">i4").T).fingerprint() == wanted


def test_an_empty_dataset_is_one() -> None:
    """No rows is a length like any other."""
    assert len(Arrays(np.zeros((0, 3)))) == 0
