"""From samples to columns: nothing is lost, cut or narrowed."""

from __future__ import annotations

import collections
import enum
import gc
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import Batch
from headrace.collate import (
    Columns,
    as_columns,
    check_transformed,
    collate_names,
    default_collate,
    free_columns,
)
from headrace.errors import CollateError, ConfigError


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Pair:
    image: Any
    label: int

    def __post_init__(self) -> None:
        if not isinstance(self.label, int):
            raise TypeError("a label of one sample is an int")


def collate(*samples: Any) -> Columns:
    """Collate samples that have the indices 100, 101, ..."""
    return default_collate(samples, np.arange(100, 100 + len(samples)))


def column(*samples: Any) -> Any:
    """The only column of samples that do not nest."""
    columns = collate(*samples)
    assert columns.names == ("0",)
    return columns.values[0]


def message_of(*samples: Any) -> str:
    with pytest.raises(CollateError) as caught:
        collate(*samples)
    return str(caught.value)


# Names and nesting


@pytest.mark.parametrize(
    ("samples", "names"),
    [
        ([1, 2], ("0",)),
        ([(1, 2.0), (3, 4.0)], ("0", "1")),
        ([[1, 2.0], [3, 4.0]], ("0", "1")),
        ([{"x": 1, "y": 2}, {"y": 3, "x": 4}], ("x", "y")),
        ([{"x": {"y": (1, 2)}}], ("x/y/0", "x/y/1")),
        ([{1: 5}, {1: 6}], ("1",)),
        ([Point(1, 2), Point(3, 4)], ("x", "y")),
        ([Pair(1, 2), Pair(3, 4)], ("image", "label")),
        ([collections.OrderedDict(x=1), {"x": 2}], ("x",)),
    ],
)
def test_columns_are_named_by_position_key_or_field(
    samples: list[Any], names: tuple[str, ...]
) -> None:
    """Default names are "0", "1", ...; mappings keep their own keys (S0-24, U-05)."""
    columns = collate(*samples)

    assert columns.names == names
    assert columns.num_rows == len(samples)


def test_samples_of_three_tensors_stack_by_position() -> None:
    """A sample that is a list of tensors gives one column for each (S0-05)."""
    columns = collate(*[[torch.zeros(2), torch.zeros(2, 3), torch.zeros(())] for _ in range(4)])

    assert [tuple(value.shape) for value in columns.values] == [(4, 2), (4, 2, 3), (4,)]


def test_mappings_with_another_key_order_keep_their_values_with_their_keys() -> None:
    """The order of the first sample is used; values follow the keys."""
    columns = collate({"x": 1, "y": 2}, {"y": 3, "x": 4})

    assert [value.tolist() for value in columns.values] == [[1, 4], [2, 3]]


def test_named_tuples_and_dataclasses_come_back_as_themselves() -> None:
    """Rebuilding does not run the checks that a dataclass makes on one sample."""
    points = collate(Point(1, 2), Point(3, 4))
    pairs = collate(Pair(1, 2), Pair(3, 4))
    assert points.structure is not None
    assert pairs.structure is not None

    point = points.structure.rebuild(points.values)
    pair = pairs.structure.rebuild(pairs.values)

    assert isinstance(point, Point)
    assert point.y.tolist() == [2, 4]
    assert isinstance(pair, Pair)
    assert pair.label.tolist() == [2, 4]  # type: ignore[attr-defined]


def test_a_key_with_a_separator_is_refused() -> None:
    """A name with '/' could not be told from a nesting."""
    message = message_of({"x": {"a/b": 1}})

    assert "key 'a/b' under 'x' holds '/'" in message


def test_keys_that_are_equal_as_text_are_refused() -> None:
    """1 and "1" would be one name."""
    assert "field '1' occurs twice" in message_of({1: 1, "1": 2})


LEAVES = st.sampled_from(["int", "float", "text", "array"])
KEYS = st.text(alphabet="abc.é ", max_size=3)
NESTINGS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.tuples(inner, inner).map(lambda two: Point(*two))
    ),
    max_leaves=8,
)
MAKERS: dict[str, Any] = {
    "int": lambda row: row,
    "float": lambda row: row + 0.5,
    "text": lambda row: f"row {row}",
    "array": lambda row: np.full((2, 3), row, np.int16),
}


def sample_of(nesting: Any, row: int) -> Any:
    """Fill a nesting of leaf words with the values of one row."""
    if isinstance(nesting, str):
        return MAKERS[nesting](row)
    if isinstance(nesting, dict):
        return {key: sample_of(part, row) for key, part in nesting.items()}
    parts = [sample_of(part, row) for part in nesting]
    return Point(*parts) if isinstance(nesting, Point) else type(nesting)(parts)


def row_of(nesting: Any, rebuilt: Any, row: int) -> Any:
    """Take one row out of a rebuilt batch, as a sample."""
    if isinstance(nesting, str):
        value = rebuilt[row]
        if not isinstance(value, torch.Tensor):
            return value
        return value.numpy() if nesting == "array" else value.item()
    if isinstance(nesting, dict):
        assert list(rebuilt) == list(nesting)
        return {key: row_of(part, rebuilt[key], row) for key, part in nesting.items()}
    assert type(rebuilt) is type(nesting)
    parts = [row_of(part, got, row) for part, got in zip(nesting, rebuilt, strict=True)]
    return Point(*parts) if isinstance(nesting, Point) else type(nesting)(parts)


@given(NESTINGS, st.integers(1, 4))
def test_collating_and_rebuilding_keeps_every_row(nesting: Any, rows: int) -> None:
    """Each row of the rebuilt batch is the sample it came from, in its own types."""
    samples = [sample_of(nesting, row) for row in range(rows)]

    columns = default_collate(samples, range(rows))
    assert columns.structure is not None
    rebuilt = columns.structure.rebuild(columns.values)

    assert len(set(columns.names)) == len(columns.names) == len(columns.values)
    for row in range(rows):
        # repr compares arrays by value and dtype, and every other value exactly.
        assert repr(row_of(nesting, rebuilt, row)) == repr(samples[row])


# Values: dtypes and shapes


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([True, False], torch.bool),
        ([1, -(2**63)], torch.int64),
        ([1.5, float("inf")], torch.float64),
        ([1j, 2 + 1j], torch.complex128),
        ([np.float32(1), np.float32(2)], torch.float32),
        ([np.uint64(2**64 - 1), np.uint64(0)], torch.uint64),
        ([np.bool_(True), np.bool_(False)], torch.bool),
        ([np.array(1, np.int8), np.int8(2)], torch.int8),
        ([torch.tensor(1.0, dtype=torch.bfloat16)] * 2, torch.bfloat16),
        ([3, np.int64(4)], torch.int64),
        ([np.int64(4), torch.tensor(3)], torch.int64),
    ],
)
def test_numbers_become_tensors_of_their_own_dtype(values: list[Any], dtype: torch.dtype) -> None:
    """Python numbers have the widths that torch's collation gives them; numpy keeps its own."""
    got = column(*values)

    assert got.dtype == dtype
    assert got.shape == (2,)
    assert got.tolist() == [v.item() if hasattr(v, "item") else v for v in values]


DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_keep_their_dtype_and_values(name: str) -> None:
    """Every numeric dtype of numpy that torch has is stacked as it is (S4-16)."""
    rows = [np.array([[0, 1, 2]], dtype=name), np.array([[3, 4, 5]], dtype=name)]

    got = column(*rows)

    assert got.dtype == getattr(torch, name)
    assert got.shape == (2, 1, 3)
    assert np.array_equal(got.numpy(), np.stack(rows))


@pytest.mark.parametrize("dtype", [">f4", ">i4", ">u2", ">i8"])
def test_big_endian_arrays_come_out_native_with_their_values(dtype: str) -> None:
    """Values are equal after collation and the dtype is native (B08)."""
    rows = [np.array([1, 2, 300], dtype), np.array([4, 5, 600], dtype)]

    got = column(*rows)

    assert got.tolist() == [[1, 2, 300], [4, 5, 600]]
    assert got.numpy().dtype == np.dtype(dtype).newbyteorder("=")
    assert column(*[row[2] for row in rows]).tolist() == [300, 600]


def test_strided_read_only_and_empty_arrays_stack() -> None:
    """The layout of a sample in memory does not matter."""
    backwards = np.arange(3)[::-1]
    transposed = np.arange(6).reshape(3, 2).T[1]
    frozen = np.frombuffer(np.arange(3).tobytes(), np.int64)

    assert column(backwards, transposed, frozen).tolist() == [[2, 1, 0], [1, 3, 5], [0, 1, 2]]
    assert column(np.zeros((0, 2)), np.zeros((0, 2))).shape == (2, 0, 2)


def test_arrays_stack_beside_tensors_of_one_dtype() -> None:
    """What agrees in dtype and shape is stacked, whichever library made it."""
    got = column(torch.tensor([1, 2]), np.array([3, 4]))

    assert got.tolist() == [[1, 2], [3, 4]]


def test_columns_share_no_memory_with_samples() -> None:
    """An edit of a batch reaches no sample, also in a batch of one (S0-75)."""
    array, tensor = np.zeros(3), torch.zeros(3)

    columns = collate((array, tensor))
    for value in columns.values:
        value += 1

    assert array.tolist() == [0, 0, 0]
    assert tensor.tolist() == [0, 0, 0]


def test_tensors_leave_their_graph_behind() -> None:
    """A batch is data: a parameter in a sample does not bring its graph."""
    weight = torch.ones(2, requires_grad=True)

    got = column(weight * 2, weight * 3)

    assert not got.requires_grad
    assert got.tolist() == [[2, 2], [3, 3]]


def test_columns_go_where_the_caller_says() -> None:
    """`empty` gives the memory of array columns, asked for by shape and dtype."""
    given: list[torch.Tensor] = []

    def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        given.append(torch.full(shape, 99, dtype=dtype))
        return given[-1]

    samples = [(np.array([1, 2], np.int16), torch.ones(1, dtype=torch.bfloat16))] * 2
    columns = default_collate(samples, [0, 1], empty)

    assert [got is value for got, value in zip(given, columns.values, strict=True)] == [True, True]
    assert columns.values[0].tolist() == [[1, 2], [1, 2]]
    assert columns.values[1].tolist() == [[1], [1]]


@pytest.mark.parametrize(
    "values",
    [
        ["a", "bc"],
        ["a", np.str_("b")],
        [b"a", b""],
        [np.datetime64("2020-01-01"), np.datetime64("2021-01-01")],
    ],
)
def test_text_bytes_and_dates_stay_a_list_on_the_host(values: list[Any]) -> None:
    """Strings stay strings (S4-32)."""
    assert column(*values) == values


# What does not fit together


def test_lists_of_unequal_length_are_an_error_that_names_field_lengths_and_samples() -> None:
    """The longer list is not cut (B29)."""
    samples = [
        {"x": np.array([1, 2, 3]), "t": ["a"]},
        {"x": np.array([4, 5, 6]), "t": ["a", "b"]},
    ]

    with pytest.raises(CollateError) as caught:
        default_collate(samples, [17, 5])

    assert caught.value.field == "t"
    assert caught.value.indices == (17, 5)
    assert str(caught.value).startswith(
        "field 't': sample 17 gives a list of length 1 and sample 5 gives a list of length 2."
    )


def test_unequal_shapes_are_an_error_that_names_field_shapes_and_samples() -> None:
    """The first sample that differs is named beside one it differs from (B29, S4-32)."""
    samples = [{"x": (np.zeros(shape),)} for shape in [(3, 4), (3, 4), (3, 5)]]

    with pytest.raises(CollateError) as caught:
        default_collate(samples, np.array([9, 8, 2]))

    assert caught.value.field == "x/0"
    assert caught.value.indices == (9, 2)
    assert str(caught.value) == (
        "field 'x/0': sample 9 gives float64 of shape (3, 4) and sample 2 gives float64 of shape "
        "(3, 5). Crop or pad in sample_transform, give images one size (size= of their dataset), "
        "or pass a collate function that pads (PadCollator for sequences)."
    )


@pytest.mark.parametrize(
    ("samples", "first", "second"),
    [
        ([np.ones(3), np.ones(0)], "float64 of shape (3,)", "float64 of shape (0,)"),
        ([torch.ones(3), torch.ones(0)], "float32 of shape (3,)", "float32 of shape (0,)"),
        ([np.ones(2, "i4"), np.ones(2, "i8")], "int32 of shape (2,)", "int64 of shape (2,)"),
        ([torch.ones(2), torch.ones(2).half()], "float32 of shape (2,)", "float16 of shape (2,)"),
        ([torch.ones(2), torch.ones(2).to_sparse()], "float32 of shape", "float32 of shape"),
        ([torch.ones(2), torch.ones(2, device="meta")], "float32 of", "float32 of"),
        ([1, 2**63], "the int 1", "the int 9223372036854775808"),
        ([1, None], "the int 1", "None"),
        ([None, 1], "None", "the int 1"),
        ([1, 2.5], "the int 1", "the float 2.5"),
        ([1, True], "the int 1", "the bool True"),
        ([np.int32(1), 2], "int32 of shape ()", "the int 2"),
        (["a", b"a"], "a str", "a bytes"),
        (["a", 1], "a str", "the int 1"),
        ([1, [1]], "the int 1", "a list of length 1"),
        ([[1], 1], "a list of length 1", "the int 1"),
        ([[1], (1,)], "a list of length 1", "a tuple of length 1"),
        ([{"x": 1}, {"y": 1}], "a mapping with keys ['x']", "a mapping with keys ['y']"),
        (
            [{"x": 1}, {"x": 1, "y": 2}],
            "a mapping with keys ['x']",
            "a mapping with keys ['x', 'y']",
        ),
    ],
)
def test_samples_that_differ_are_an_error_naming_both(
    samples: list[Any], first: str, second: str
) -> None:
    """Zero lengths, dtypes, None and keys: nothing is narrowed, cut or guessed (B29)."""
    message = message_of(*samples)

    assert f"sample 100 gives {first}" in message
    assert f" and sample 101 gives {second}" in message


class FakeImage:
    """As a PIL image, it would pass for an array; an image must be turned into one by the user."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return np.zeros((2, 2), np.uint8).__array_interface__


FakeImage.__module__ = "PIL.Image"


@pytest.mark.parametrize(
    ("value", "named", "cure"),
    [
        (FakeImage(), "a PIL.Image.FakeImage", "np.asarray(image)"),
        (object(), "an object", "numbers, arrays, dense tensors and text"),
        ({1, 2}, "a set", "pass a collate function"),
        (None, "None", "leave the field out"),
        (2**63, "the int 9223372036854775808", "np.uint64"),
        (np.longdouble(1), "of shape ()", "torch has no such dtype"),
        (np.array([None]), "object of shape (1,)", "torch has no such dtype"),
        (np.ma.masked_array([1, 2], [True, False]), "a masked array", "two fields"),
        (torch.zeros(2, 2).to_sparse(), "sparse_coo", "dense tensors"),
    ],
)
def test_what_cannot_be_a_row_is_refused_with_type_and_cure(
    value: Any, named: str, cure: str
) -> None:
    """Raw PIL images and other objects name their type and what to do (S4-16)."""
    message = message_of({"x": value}, {"x": value})

    assert message.startswith("field 'x': sample 100 gives ")
    assert named in message
    assert cure in message


def test_an_int_enum_is_an_int() -> None:
    """Subclasses of Python numbers are numbers."""
    kind = enum.IntEnum("kind", ["CAT", "DOG"])

    assert column(kind.CAT, kind.DOG).tolist() == [1, 2]


def test_no_samples_are_an_error() -> None:
    """There is no batch of nothing."""
    assert "at least one sample" in message_of()


# Columns from user code


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (torch.zeros(2, 3), ("0",)),
        (np.zeros((2, 3)), ("0",)),
        ((torch.zeros(2), np.zeros(2)), ("0", "1")),
        ([torch.zeros(2), ["a", "b"]], ("0", "1")),
        ({"x": torch.zeros(2), "y": {"z": torch.zeros(2, 0)}}, ("x", "y/z")),
        ({"x": torch.zeros(2), "words": [["a"], ["b", "c"]]}, ("x", "words")),
        ({"x": torch.zeros(2), "return_loss": True, "note": None}, ("x", "return_loss", "note")),
    ],
)
def test_what_a_collate_function_gives_becomes_columns(value: Any, names: tuple[str, ...]) -> None:
    """Tensors, arrays and nestings are columns; what holds no tensor is kept as it is (S0-06)."""
    columns = as_columns(value, 2)

    assert columns.names == names
    assert columns.num_rows == 2
    assert isinstance(columns.values[0], torch.Tensor)


def test_given_tensors_and_plain_arrays_are_not_copied_and_maps_are(tmp_path: Any) -> None:
    """A large batch is taken as it is, but a transform must never write to a file."""
    tensor, array = torch.zeros(2), np.zeros(2)
    mapped = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=(2,))
    frozen = np.broadcast_to(np.zeros(1), (2,))

    columns = as_columns((tensor, array, mapped, frozen, array[::-1]), 2)
    for value in columns.values:
        value += 1

    assert columns.values[0] is tensor
    assert array.tolist() == [1, 1]
    assert mapped.tolist() == [0, 0]
    assert frozen.tolist() == [0, 0]
    assert columns.values[4].tolist() == [1, 1]


def test_columns_and_batches_are_columns_already() -> None:
    """Columns say their rows themselves, so columns that do not go by rows are possible."""
    targets = torch.zeros(7)
    given = Columns(("image", "targets"), (np.zeros((2, 3)), targets), 2)
    batch = Batch(("x",), (targets,), step=0, epoch=0, num_rows=2, indices=np.arange(2))

    assert as_columns(given, 2).values[1] is targets
    assert isinstance(as_columns(given, 2).values[0], torch.Tensor)
    assert as_columns(batch, 2).names == ("x",)
    with pytest.raises(CollateError, match="get_batch: wanted 3 rows, got 2"):
        as_columns(given, 3, "get_batch")


def test_an_open_column_has_any_length_beside_its_offsets() -> None:
    """Flat values are checked by offsets of rows + 1."""
    flat, offsets = torch.zeros(7), torch.tensor([0, 3, 7])

    columns = as_columns({"x": flat, "x/offsets": offsets}, 2)

    assert columns.names == ("x", "x/offsets")
    with pytest.raises(CollateError, match="column 'x/offsets' has 3 rows, wanted 4"):
        as_columns({"x": flat, "x/offsets": offsets}, 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"x": torch.zeros(2), "y": torch.zeros(3)}, "column 'y' has 3 rows, wanted 2"),
        ({"x": torch.zeros(2), "y": ["a"]}, "column 'y' has 1 rows, wanted 2"),
        ({"x": torch.zeros(2), "y": torch.tensor(1.0)}, "column 'y' has no rows, wanted 2"),
        (torch.zeros(3), "column '0' has 3 rows, wanted 2"),
    ],
)
def test_a_column_of_another_length_is_named(value: Any, words: str) -> None:
    """Rows must be those asked for, in every column."""
    with pytest.raises(CollateError, match=words) as caught:
        as_columns(value, 2, "get_batch")

    assert str(caught.value).startswith("get_batch: ")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (["a", "b"], "found a list of length 2 without one"),
        ({}, r"found a mapping with keys \[\] without one"),
        ({"t": [1, 2]}, r"found a mapping with keys \['t'\] without one\. .*torch\.tensor"),
        (3, "found the int 3 without one"),
        (Columns(("t",), (["a"],), 1), "found 't'"),
    ],
)
def test_a_batch_without_tensors_is_refused(value: Any, found: str) -> None:
    """A dataset that gives no tensors cannot feed a model (U-25)."""
    with pytest.raises(CollateError, match=f"at least one tensor column, {found}"):
        as_columns(value, None)


def test_a_forgotten_return_is_named() -> None:
    """A function without one gives None."""
    with pytest.raises(CollateError) as caught:
        as_columns(None, 2, "transform")

    said = "transform returned None: wanted columns. Is its `return` missing?"
    assert str(caught.value) == said


def test_names_replace_the_default_ones() -> None:
    """`names=` gives each column its name, in order; the nesting stays."""
    columns = collate((1, 2.0), (3, 4.0))

    named = collate_names(columns, ["x", "y"])

    assert named.names == ("x", "y")
    assert named.values is columns.values
    assert named.structure is columns.structure
    assert collate_names(columns, None) is columns


@pytest.mark.parametrize(
    ("names", "wanted"),
    [(["x"], "2 names, one for each of"), (["x", "x"], "names that all differ")],
)
def test_names_that_do_not_fit_are_an_error_naming_the_knob(names: list[str], wanted: str) -> None:
    """The count of names is that of the columns (U-25)."""
    with pytest.raises(ConfigError, match=wanted) as caught:
        collate_names(collate((1, 2.0)), names)

    assert caught.value.knob == "names"


def batch_of(**columns: Any) -> Batch:
    return Batch(
        tuple(columns),
        tuple(columns.values()),
        step=0,
        epoch=0,
        num_rows=2,
        indices=np.arange(2),
    )


def test_a_transform_must_keep_the_rows() -> None:
    """Keys, weights and masks belong to rows, so their count is kept (U-24)."""
    before = batch_of(x=torch.zeros(2))

    check_transformed(2, as_columns(torch.zeros(2, 9), None, "transform"))
    check_transformed(2, as_columns(before.with_columns({"x": torch.ones(2)}), None))
    for result in ({"x": torch.zeros(1)}, before.with_columns({"x": torch.zeros(1)})):
        with pytest.raises(ConfigError, match="wanted 2 rows in column 'x'") as caught:
            check_transformed(2, as_columns(result, None, "transform"))
        assert caught.value.knob == "transform"
    with pytest.raises(ConfigError, match="wanted 2 rows, as many as it was given, got 3"):
        check_transformed(2, Columns(("x",), (torch.zeros(2),), 3))


def test_a_transform_keeps_the_rows_of_open_columns_by_their_offsets() -> None:
    """Flat values may change in number; offsets must still be rows + 1."""
    flat = torch.zeros(7)
    kept = Columns(("x", "x/offsets"), (flat, torch.tensor([0, 3, 7])), 2)
    lost = Columns(("x", "x/offsets"), (flat, torch.tensor([0, 7])), 2)

    check_transformed(2, kept)
    with pytest.raises(ConfigError, match="in column 'x/offsets', as many as it was given, got 1"):
        check_transformed(2, lost)


def test_a_transform_may_change_columns_that_do_not_go_by_rows() -> None:
    """Targets joined end to end have a length of their own, before and after."""
    before = batch_of(x=torch.zeros(2), targets=torch.zeros(7))

    after = as_columns(before.with_columns({"targets": torch.zeros(5)}), None, "transform")

    assert free_columns(before) == {"targets"}
    check_transformed(2, after, free_columns(before))
    with pytest.raises(ConfigError, match="in column 'targets'"):
        check_transformed(2, after)


def test_rows_are_counted_past_an_open_column() -> None:
    """Flat values of an open column are not rows; its offsets say how many there are."""
    columns = as_columns({"x": torch.zeros(7), "x/offsets": torch.tensor([0, 3, 7])}, None)

    assert columns.num_rows == 2


@pytest.mark.parametrize(
    "made",
    [
        lambda: collate({"x": np.zeros(3)}, {"x": np.ones(3)}).values[0],
        lambda: as_columns({"x": torch.zeros(3)}, 3).values[0],
    ],
)
def test_columns_die_with_their_last_reference(made: Any) -> None:
    """No cycle keeps them until the collector runs: they may be megabytes (S1-43)."""
    gc.disable()
    try:
        dead = weakref.ref(made())
    finally:
        gc.enable()

    assert dead() is None
