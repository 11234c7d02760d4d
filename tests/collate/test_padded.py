"""Fields of open length, padded sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from tests.collate.keys import keys_of


def collated(*samples: Any, names: tuple[str, ...] = ("x",), **knobs: Any) -> dict[str, Any]:
    """Collate samples that have the indices 10, 11, ..."""
    keys = keys_of(range(10, 10 + len(samples)))
    made = hr.PadCollator(*names, **knobs)(samples, keys)
    assert made.num_rows == len(samples)
    return dict(zip(made.names, made.values, strict=True))


def message_of(*samples: Any, **knobs: Any) -> str:
    with pytest.raises(hr.CollateError) as caught:
        collated(*samples, **knobs)
    return str(caught.value)


def x(*values: int) -> dict[str, Any]:
    return {"x": np.array(values, np.int32)}


def test_a_field_becomes_values_lengths_and_mask() -> None:
    """The values keep their dtype; other fields are stacked (S4-33)."""
    batch = collated(
        {"id": 3, "x": np.array([1, 2], np.int16), "name": "a"},
        {"id": 4, "x": np.array([5], np.int16), "name": "b"},
    )

    assert list(batch) == ["id", "x", "x/lengths", "x/mask", "name"]
    assert (batch["x"].dtype, batch["x"].tolist()) == (torch.int16, [[1, 2], [5, 0]])
    lengths, mask = batch["x/lengths"], batch["x/mask"]
    assert (lengths.dtype, lengths.tolist()) == (torch.int64, [2, 1])
    assert (mask.dtype, mask.tolist()) == (torch.bool, [[True, True], [True, False]])
    assert (batch["id"].tolist(), batch["name"]) == ([3, 4], ["a", "b"])


@pytest.mark.parametrize("pad_value", [0, 7])
def test_the_mask_comes_from_lengths_and_never_from_values(pad_value: int) -> None:
    """A real value may equal the pad value, also the last of a row (S4-33)."""
    batch = collated(x(0, 7, 7), x(7, 0), pad_value=pad_value)

    assert batch["x"].tolist() == [[0, 7, 7], [7, 0, pad_value]]
    assert batch["x/mask"].tolist() == [[True, True, True], [True, True, False]]


def test_single_rows_may_be_empty() -> None:
    """Their rows are all padding (S4-34)."""
    batch = collated(x(), x(4), x(), pad_value=-1)

    assert batch["x"].tolist() == [[-1], [4], [-1]]
    assert batch["x/lengths"].tolist() == [0, 1, 0]


def test_a_batch_of_empty_rows_is_refused() -> None:
    """Nothing would be left to divide by, and the error names the samples (S4-34)."""
    assert message_of(x(), x()).startswith(
        "field 'x': every row of the batch is empty (samples 10, 11), so a mean"
    )


def test_no_batch_is_made_of_nothing() -> None:
    """As in every collation (S4-34)."""
    assert "at least one sample" in message_of()


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (5, "the int 5"),
        (np.int32(5), "int32 of shape ()"),
        ("text", "a str"),
        (["a"], "a list of length 1"),
        ([[1], [2, 3]], "a list of length 2"),
        (None, "None"),
        (np.ma.array([1, 2], mask=[False, True]), "a masked array of shape (2,)"),
        (torch.zeros(2, dtype=torch.bfloat16), "bfloat16 of shape (2,)"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64[D] of shape (1,)"),
    ],
)
def test_what_is_no_sequence_of_numbers_is_refused(value: Any, found: str) -> None:
    """The error names field and sample, and says what was found (S4-34)."""
    assert message_of(x(1), {"x": value}) == (
        f"field 'x': sample 11 gives {found}, wanted a sequence of numbers [length, ...]."
    )


@pytest.mark.parametrize(
    ("odd", "found"),
    [
        (np.array([1.5]), "float64 of shape (1,)"),
        (np.array([[1]], np.int32), "int32 of shape (1, 1)"),
        (np.array([1], np.int64), "int64 of shape (1,)"),
    ],
)
def test_sequences_of_a_batch_differ_in_length_only(odd: Any, found: str) -> None:
    """No dtype is widened or narrowed, and the error names both samples."""
    assert message_of(x(1, 2), {"x": odd}) == (
        f"field 'x': sample 10 gives int32 of shape (2,) and sample 11 gives {found}. Sequences "
        "of a batch may differ in length only."
    )


def test_sequences_may_be_lists_or_tensors() -> None:
    """A list of numbers is one sequence here; an empty one has no dtype of its own."""
    lists = collated({"x": [1, 2]}, {"x": []}, {"x": (3,)})
    tensors = collated(
        {"x": torch.tensor([1.5])}, {"x": torch.tensor([2.5, 3], requires_grad=True)}
    )

    assert (lists["x"].dtype, lists["x"].tolist()) == (torch.int64, [[1, 2], [0, 0], [3, 0]])
    assert (tensors["x"].dtype, tensors["x"].tolist()) == (torch.float32, [[1.5, 0], [2.5, 3]])
    assert not tensors["x"].requires_grad


def test_elements_may_have_a_shape() -> None:
    """A sequence of vectors is padded with whole vectors; the mask is by position."""
    batch = collated(
        {"x": np.ones((1, 2), np.float32)}, {"x": np.ones((3, 2), np.float32)}, pad_value=-1
    )

    assert batch["x"][0].tolist() == [[1, 1], [-1, -1], [-1, -1]]
    assert batch["x/mask"].tolist() == [[True, False, False], [True, True, True]]


def test_arrays_of_the_other_byte_order_are_turned() -> None:
    """The values are the same."""
    batch = collated({"x": np.array([1, 2], ">i4")}, {"x": np.array([3], "<i4")})

    assert (batch["x"].dtype, batch["x"].tolist()) == (torch.int32, [[1, 2], [3, 0]])


def test_fields_have_the_names_of_their_columns() -> None:
    """Parts of tuples are called by position, nested ones joined; a bare array is "0"."""
    pairs = collated(([1], 5), ([1, 2], 6), names=("0",))
    nested = collated({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, names=("a/b",))
    bare = collated(np.array([1]), np.array([1, 2]), names=("0",))

    assert list(pairs) == ["0", "0/lengths", "0/mask", "1"]
    assert nested["a/b"].tolist() == bare["0"].tolist() == [[1, 0], [1, 2]]


def test_several_fields_have_pad_values_of_their_own() -> None:
    """Such as targets that a loss ignores; 0 where none is given (S4-36)."""
    batch = collated(
        {"x": [1, 2], "y": [3, 4]},
        {"x": [5], "y": [6]},
        names=("x", "y"),
        pad_value={"y": -100},
    )

    assert batch["x"].tolist() == [[1, 2], [5, 0]]
    assert batch["y"].tolist() == [[3, 4], [6, -100]]


def test_a_field_that_is_not_there_is_named() -> None:
    """With those that are."""
    assert message_of(x(1), names=("tokens",)) == (
        "PadCollator: no field 'tokens'; samples have 'x'."
    )


def test_a_misnamed_field_is_named_where_it_would_not_stack() -> None:
    """Else the error would advise a collate function that pads, which this one is."""
    assert message_of(x(1), x(1, 2), names=("tokens",)) == (
        "PadCollator: no field 'tokens'; samples have 'x'."
    )
    assert message_of(([1] * 9, 0), ([1], 1), names=("x",)) == (
        "PadCollator: no field 'x'; samples have '0/0', '0/1', '0/2', '0/3', '0/4', '0/5', "
        "'0/6', '0/7', ...."
    )


def test_a_fault_of_another_field_is_told_as_it_is() -> None:
    """The named field is there, so the name is not at fault."""
    one, other = x(1) | {"y": np.zeros(2)}, x(2, 3) | {"y": np.zeros(3)}

    assert message_of(one, other).startswith("field 'y': sample 10 gives float64 of shape (2,)")


@pytest.mark.parametrize("names", [(["x"],), (0,), (("x", "y"),)])
def test_names_are_text(names: Any) -> None:
    """A list of them, or the position in a tuple, is refused with what to write in its place."""
    with pytest.raises(hr.ConfigError, match=r"names: wanted the names .* as text.*one by one"):
        hr.PadCollator(*names)


@pytest.mark.parametrize(
    ("knobs", "width"),
    [
        ({}, 3),
        ({"multiple": 4}, 4),
        ({"multiple": 3}, 3),
        ({"max_length": 5}, 3),
        ({"max_length": 5, "pad_to": "max_length"}, 5),
        ({"max_length": 5, "pad_to": "max_length", "multiple": 4}, 8),
        ({"max_length": 2, "too_long": "cut"}, 2),
        ({"max_length": 2, "too_long": "cut", "multiple": 8}, 8),
    ],
)
def test_the_width_follows_from_the_longest_row(knobs: dict[str, Any], width: int) -> None:
    """Rounded up to the multiple; or one width for all batches."""
    batch = collated(x(1, 2, 3), x(4), pad_value=9, **knobs)

    kept = [[1, 2, 3][: knobs["max_length"]] if "too_long" in knobs else [1, 2, 3], [4]]
    assert batch["x"].tolist() == [row + [9] * (width - len(row)) for row in kept]
    assert batch["x/lengths"].tolist() == [len(row) for row in kept]
    assert batch["x/mask"].sum(1).tolist() == [len(row) for row in kept]


def test_a_row_that_is_too_long_is_refused() -> None:
    """Nothing is cut unless that is asked for."""
    assert message_of(x(1), x(1, 2, 3), max_length=2) == (
        "field 'x': sample 11 has 3 elements, wanted at most max_length=2. Raise it, or say "
        "too_long='cut'."
    )


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"multiple": 0}, "multiple: wanted an int >= 1"),
        ({"max_length": 0}, "max_length: wanted an int >= 1"),
        ({"too_long": "drop", "max_length": 4}, "too_long: wanted one of 'error', 'cut'"),
        ({"pad_to": "all", "max_length": 4}, "pad_to: wanted one of 'longest', 'max_length'"),
        ({"too_long": "cut"}, "max_length: wanted an int >= 1, got None"),
        ({"pad_to": "max_length"}, "max_length: wanted an int >= 1, got None"),
        ({"names": ()}, "names: wanted the names of the fields to pad"),
        ({"names": ("x", "x")}, "names: wanted the names of the fields to pad"),
        ({"pad_value": {"y": 1}}, r"pad_value: wanted values for \['x'\]"),
    ],
)
def test_knobs_are_checked_where_the_collator_is_made(knobs: dict[str, Any], message: str) -> None:
    """Not at the first batch."""
    with pytest.raises(hr.ConfigError, match=message):
        collated(**knobs)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("u1", -1), ("u1", 256), ("i8", 0.5), ("i4", float("nan")), ("f4", "0"), ("f4", 1j)],
)
def test_a_pad_value_fits_the_dtype(dtype: str, value: Any) -> None:
    """It never wraps: -1 is no byte."""
    with pytest.raises(hr.ConfigError, match="pad_value: wanted a number that"):
        collated({"x": np.zeros(2, dtype)}, pad_value=value)


@pytest.mark.parametrize(
    ("dtype", "value"), [("f4", float("nan")), ("f4", -0.0), ("f2", float("-inf")), ("c8", 1j)]
)
def test_any_number_of_the_dtype_pads(dtype: str, value: Any) -> None:
    """Rows hold what they held, to the bit, also beside what is no number."""
    real = np.array([np.inf, np.nan, -0.0], dtype)

    batch = collated({"x": real}, {"x": real[:1]}, pad_value=value)["x"].numpy()

    assert batch[0].tobytes() == real.tobytes()
    assert batch[1].tobytes() == np.array([np.inf, value, value], dtype).tobytes()


@given(
    rows=st.lists(st.lists(st.integers(-5, 5), max_size=6), min_size=1, max_size=6),
    multiple=st.integers(1, 5),
    pad_value=st.integers(-3, 3),
)
def test_padding_agrees_with_slices(rows: list[list[int]], multiple: int, pad_value: int) -> None:
    """Whatever the lengths: row by row in plain Python gives the same."""
    rows.append([1])
    width = -(-max(map(len, rows)) // multiple) * multiple

    batch = collated(*(x(*row) for row in rows), multiple=multiple, pad_value=pad_value)

    assert batch["x"].tolist() == [row + [pad_value] * (width - len(row)) for row in rows]
    assert batch["x/lengths"].tolist() == [len(row) for row in rows]
    assert batch["x/mask"].tolist() == [[p < len(row) for p in range(width)] for row in rows]


def test_rows_may_be_wider_than_narrow_numbers_count() -> None:
    """Beyond 32,767 positions the mask is compared in 64 bits."""
    batch = collated({"x": np.ones(40_000, np.int8)}, {"x": np.ones(33_000, np.int8)})

    assert batch["x/mask"].sum(1).tolist() == batch["x"].sum(1).tolist() == [40_000, 33_000]
