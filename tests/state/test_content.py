"""The content digest changes with whatever is delivered, and with nothing else."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.batch import Batch
from headrace.build.content import content_digest
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows
from tests.state import loaders
from tests.state.loaders import DATA

ROWS = 3


def batch(columns: dict[str, Any], rows: int = ROWS, step: int = 5) -> Batch:
    return Batch(
        tuple(columns),
        tuple(columns.values()),
        step=step,
        epoch=0,
        num_rows=rows,
        indices=np.arange(rows),
    )


def digest(columns: dict[str, Any], rows: int = ROWS, step: int = 5, first_slot: int = 0) -> int:
    return content_digest(batch(columns, rows, step), np.arange(first_slot, first_slot + rows))


def columns() -> dict[str, Any]:
    """Give one column of every kind."""
    return {
        "id": torch.tensor([1, 2, 3]),
        "x": torch.arange(12, dtype=torch.float32).reshape(ROWS, 2, 2),
        "open": torch.arange(5, dtype=torch.int16),
        "open/offsets": torch.tensor([0, 2, 2, 5]),
        "text": ["a", "b", "c"],
        "arrays": [np.arange(4), np.arange(3000), np.arange(2)],
        "nested": [{"k": [1, b"2"]}, {"k": []}, {"k": [None]}],
        "scale": torch.tensor(2.0),
        "table": torch.arange(8).reshape(2, 4),
        "flag": "train",
    }


def changed(name: str, value: Any) -> dict[str, Any]:
    return {**columns(), name: value}


def with_element(tensor: torch.Tensor, place: Any, value: Any) -> torch.Tensor:
    other = tensor.clone()
    other[place] = value
    return other


def long_array(place: int) -> list[Any]:
    other = np.arange(3000)
    other[place] += 1
    return [np.arange(4), other, np.arange(2)]


CHANGED: dict[str, Any] = {
    "the first element": changed("id", torch.tensor([7, 2, 3])),
    "the last element": changed("x", with_element(columns()["x"], (2, 1, 1), -1.0)),
    "one bit of a float": changed("x", with_element(columns()["x"], (0, 0, 1), 1 + 2**-23)),
    "the sign of zero": changed("x", with_element(columns()["x"], (0, 0, 0), -0.0)),
    "rows in another order": changed("id", torch.tensor([2, 1, 3])),
    "dtype": changed("id", torch.tensor([1, 2, 3], dtype=torch.int32)),
    "dtype of one size": changed("id", torch.tensor([1, 2, 3]).view(torch.float64)),
    "shape": changed("x", columns()["x"].reshape(ROWS, 4)),
    "an element of an open column": changed("open", torch.tensor([0, 1, 2, 3, 9]).short()),
    "the bounds of an open column": changed("open/offsets", torch.tensor([0, 2, 3, 5])),
    "text": changed("text", ["a", "b", "d"]),
    "text or bytes": changed("text", ["a", "b", b"c"]),
    "the middle of a long array": changed("arrays", long_array(1500)),
    "dtype of a listed array": changed("arrays", [np.arange(4.0), *columns()["arrays"][1:]]),
    "a nested value": changed("nested", [{"k": [1, b"3"]}, {"k": []}, {"k": [None]}]),
    "a nested key": changed("nested", [{"j": [1, b"2"]}, {"k": []}, {"k": [None]}]),
    "nesting": changed("nested", [{"k": [[1, b"2"]]}, {"k": []}, {"k": [None]}]),
    "a single tensor": changed("scale", torch.tensor(3.0)),
    "a single tensor as a row": changed("scale", torch.tensor([2.0])),
    "a table": changed("table", with_element(columns()["table"], (1, 3), 0)),
    "the shape of a table": changed("table", columns()["table"].reshape(4, 2)),
    "a single value": changed("flag", "test"),
    "a column less": {name: value for name, value in columns().items() if name != "id"},
    "a column more": changed("more", torch.zeros(ROWS)),
    "a column of another name": {"ids" if n == "id" else n: v for n, v in columns().items()},
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_digest_changes_with_whatever_is_delivered(what: str) -> None:
    """Any element, dtype, shape, name, bound, or value on the host."""
    assert digest(CHANGED[what]) != digest(columns())


def test_a_digest_changes_with_any_byte() -> None:
    """Every bit of a row counts."""
    row = np.arange(32, dtype=np.uint8)
    found = {digest({"x": torch.from_numpy(row[None].copy())}, rows=1)}

    for bit in range(256):
        other = row.copy()
        other[bit // 8] ^= 1 << (bit % 8)
        found.add(digest({"x": torch.from_numpy(other[None])}, rows=1))

    assert len(found) == 257


def test_a_digest_changes_with_the_place() -> None:
    """The same rows at another step or in another slot are another stream."""
    places = [(step, slot) for step in range(20) for slot in range(20)]

    assert len({digest(columns(), step=step, first_slot=slot) for step, slot in places}) == 400


def test_a_digest_does_not_change_with_the_memory() -> None:
    """Strides, gradients, storage and the order of columns are no content."""
    plain = columns()
    other = {
        **dict(reversed(plain.items())),
        "x": plain["x"].permute(2, 1, 0).contiguous().permute(2, 1, 0).requires_grad_(),
        "id": torch.arange(10)[1:4],
        "arrays": [np.arange(8)[:4], *plain["arrays"][1:]],
    }

    assert digest(other) == digest(plain)


def test_every_dtype_has_a_digest() -> None:
    """Numbers of all kinds, among them those that numpy does not have, views and sparse ones."""
    dtypes = [torch.bool, torch.bfloat16, torch.float16, torch.complex64, torch.uint8, torch.int64]
    tensors = [torch.ones(ROWS, 2).to(dtype) for dtype in dtypes]
    tensors.append(torch.view_as_complex(torch.ones(ROWS, 2)).conj())
    tensors.append(torch.eye(ROWS).to_sparse())
    tensors.append(torch.empty(ROWS, 0))

    assert len({digest({"x": tensor}) for tensor in tensors}) == len(tensors)


def test_objects_count_by_their_value() -> None:
    """What is no number, text or array counts by its pickle, never by where it lies in memory."""

    def dated(day: int) -> int:
        return digest({"id": torch.arange(2), "day": [date(2024, 1, day), {day}]}, rows=2)

    def listed(value: Any) -> int:
        return digest({"id": torch.arange(1), "x": [np.array(["text", value], object)]}, rows=1)

    assert dated(3) == dated(3) != dated(4)
    assert listed("ab") == listed("".join(["a", "b"])) != listed("ac")


def test_slices_of_a_batch_add_up() -> None:
    """What ranks deliver of a step, each its own slots, sums to the digest of the step."""
    whole = {name: columns()[name] for name in ("id", "x", "text", "arrays")}

    def part(rows: slice) -> int:
        return digest(
            {name: value[rows] for name, value in whole.items()},
            rows=rows.stop - rows.start,
            first_slot=rows.start,
        )

    added = part(slice(0, 1)) + part(slice(1, 3))

    assert added % 2**64 == digest(whole)


# -- through the loader ----------------------------------------------------------------------


def content(made: hr.Loader) -> str:
    """Give the digest of two epochs."""
    with made:
        state = [state for _, state in loaders.run(made, epochs=2)][-1]
        digest: str = state["content"]["digest"]
        return digest


def test_equal_bytes_have_equal_digests_however_they_come() -> None:
    """Threads, prefetch and the kind of dataset leave no trace in the content."""
    knobs: list[dict[str, Any]] = [
        *({"data": data} for data in DATA),
        {"workers": 0},
        {"workers": 5, "prefetch": 32},
        {"workers": 1, "prefetch": 1},
        {"ring_bytes": 1},
    ]

    assert len({content(loaders.loader(content_digest=True, **each)) for each in knobs}) == 1


async def test_the_face_leaves_no_trace_in_the_content() -> None:
    """Awaited batches have the digest of the others."""
    async with loaders.loader(content_digest=True) as made:
        taken = await loaders.run_awaited(made, epochs=2)

    awaited = taken[-1][1]["content"]["digest"]
    assert awaited == content(loaders.loader(content_digest=True))


def test_open_columns_have_a_digest() -> None:
    """Rows of any length, read by threads or awaited, and one element changed."""

    def made(last: int, awaited: bool) -> hr.Loader:
        rows = RaggedRows([*(range(length) for length in (3, 0, 5, 1, 2)), [last]])
        data: Any = AwaitedRows(rows) if awaited else rows
        return hr.Loader(data, 2, content_digest=True)

    def digest_of(loader: hr.Loader) -> Any:
        with loader:
            return [loader.state_dict()["content"] for _ in loader][-1]

    assert digest_of(made(7, False)) == digest_of(made(7, True)) != digest_of(made(8, False))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_is_part_of_the_content(workers: int) -> None:
    """What is hashed is what the consumer gets."""

    def doubled(batch: hr.Batch, keys: hr.PickKeys) -> dict[str, Any]:
        return {**batch, "x": batch["x"] * 2}

    def kept(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        return batch

    plain = content(loaders.loader(content_digest=True))
    same = content(loaders.loader(content_digest=True, workers=workers, transform=kept))
    other = content(loaders.loader(content_digest=True, workers=workers, transform=doubled))

    assert plain == same != other


def test_content_changes_where_the_picks_do_not() -> None:
    """Edited data of one shape passes every check of facts and picks; its bytes tell."""
    edited = loaders.arrays(23)
    edited.columns["x"][11, 1] = 99

    with loaders.loader(content_digest=True) as made:
        plain = [state for _, state in loaders.run(made, epochs=1)][-1]
    with hr.Loader(edited, 4, content_digest=True) as made:
        other = [state for _, state in loaders.run(made, epochs=1)][-1]

    assert {key for key in plain if plain[key] != other[key]} == {"content"}


def test_content_begins_where_it_is_asked_for() -> None:
    """A state without content goes on in a loader with it, from that step; and the other way."""
    with loaders.loader() as made:
        plain = [state for _, state in loaders.run(made, epochs=1)][2]
    with loaders.loader(content_digest=True) as made:
        made.load_state_dict(json.loads(json.dumps(plain)))
        hashed = [state for _, state in loaders.run(made, epochs=1)][-1]
    with loaders.loader() as made:
        made.load_state_dict(hashed)
        assert "content" not in made.state_dict()

    assert "content" not in plain
    assert hashed["content"]["from_step"] == 3
    assert hashed["history"]["from_step"] == 0
