"""A state that is not of this loader, or is damaged, is refused with every difference named."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import headrace as hr
from headrace.errors import ConfigError, StateError
from headrace.resume import ALLOWED
from headrace.samplers import BlockShuffled, Bucketed, Mixing, Shuffled
from tests.state import loaders

KEYED = {"kind": "Shuffled", "drop_last": True, "augment": 1, "seed": 42, "order": "keyed"}


def saved(takes: int = 3, **arguments: Any) -> dict[str, Any]:
    """Give a state after some takes, as it comes back from JSON."""
    with loaders.loader(**arguments) as made:
        stream = made.stream()
        for _ in range(takes):
            next(stream)
        state: dict[str, Any] = json.loads(json.dumps(made.state_dict()))
        return state


def refused(made: hr.Loader, state: Any, allow: Any = ()) -> StateError:
    with pytest.raises(StateError) as error:
        made.load_state_dict(state, allow=allow)
    return error.value


# -- other loaders ---------------------------------------------------------------------------

DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, Any]]]] = {
    "seed": ({"seed": 7}, {"seed": (42, 7), "sampler/seed": (42, 7)}),
    "batch size": ({"batch": 5}, {"global_batch": (4, 5)}),
    "drop_last": ({"drop_last": False}, {"sampler/drop_last": (True, False)}),
    "augment": ({"augment": 3}, {"sampler/augment": (1, 3)}),
    "order": ({"order": "uniform"}, {"sampler/order": ("keyed", "uniform")}),
    "less data": (
        {"samples": 22},
        {"dataset/samples": (23, 22), "sampler/num_samples": (23, 22)},
    ),
    "more data": (
        {"samples": 24},
        {"dataset/samples": (23, 24), "sampler/num_samples": (23, 24)},
    ),
    "a sampler of another kind": (
        {"order": "sequential-dropping"},
        {
            "sampler/kind": ("Shuffled", "Sequential"),
            "sampler/order": ("keyed", None),
            "sampler/seed": (42, None),
        },
    ),
    "a dataset of another kind": (
        {"data": "list"},
        {
            "dataset/kind": ("Arrays", "list"),
            "dataset/columns": ([["id", "<i8", [1]], ["x", "<f4", [3]]], None),
        },
    ),
    "several things": (
        {"seed": 7, "batch": 5, "samples": 40},
        {
            "seed": (42, 7),
            "global_batch": (4, 5),
            "sampler/seed": (42, 7),
            "dataset/samples": (23, 40),
            "sampler/num_samples": (23, 40),
        },
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_field_that_differs_is_named_with_both_values(name: str) -> None:
    """Seed, sizes, sampler and dataset are compared field by field. (S4-76)"""
    arguments, differences = DIFFERENT[name]

    with loaders.loader(**arguments) as made:
        error = refused(made, saved())

    assert error.differences == differences
    for field, (theirs, ours) in differences.items():
        assert f"{field}: the state has {theirs!r}, this loader has {ours!r}" in str(error)


def test_the_error_says_what_to_do() -> None:
    """A new batch size and appended data have a cure of their own."""
    state = saved()
    cures = {"batch": 'allow={"global_batch"}', "samples": 'allow={"dataset"}', "seed": "as it was"}

    for argument, cure in cures.items():
        different: dict[str, Any] = {argument: 30}
        with loaders.loader(**different) as made:
            assert cure in str(refused(made, state))


SAMPLERS: dict[str, tuple[Any, Any, str]] = {
    "block": (
        BlockShuffled(23, 4, block=4, window=2),
        BlockShuffled(23, 4, block=5, window=2),
        "sampler/block",
    ),
    "window": (
        BlockShuffled(23, 4, block=4, window=2),
        BlockShuffled(23, 4, block=4, window=3),
        "sampler/window",
    ),
    "shares": (
        Mixing([(0, 10), (10, 13)], [1, 2], 4, 5),
        Mixing([(0, 10), (10, 13)], [1, 3], 4, 5),
        "sampler/sources",
    ),
    "steps_per_epoch": (
        Mixing([(0, 10), (10, 13)], [1, 2], 4, 5),
        Mixing([(0, 10), (10, 13)], [1, 2], 4, 6),
        "sampler/steps_per_epoch",
    ),
    "pool_batches": (
        Bucketed(range(23), 4, 2),
        Bucketed(range(23), 4, 3),
        "sampler/pool_batches",
    ),
    "lengths": (
        Bucketed(range(23), 4, 2),
        Bucketed(range(1, 24), 4, 2),
        "sampler/lengths",
    ),
    "fewer samples": (Shuffled(20, 4), Shuffled(22, 4), "sampler/num_samples"),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_arguments_of_samplers_are_compared(name: str) -> None:
    """Each argument that decides the order is in the fingerprint. (S4-39, S4-76)"""
    ours, other, field = SAMPLERS[name]
    data = loaders.arrays(23)
    with hr.Loader(data, sampler=ours) as made:
        next(made.stream())
        state = made.state_dict()

    with hr.Loader(data, sampler=other) as made:
        assert list(refused(made, state).differences) == [field]


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"id": np.zeros((23, 1), np.int32), "x": np.zeros((23, 3), np.float32)}, "columns"),
        ({"id": np.zeros((23, 1), np.int64), "x": np.zeros((23, 4), np.float32)}, "columns"),
        ({"id": np.zeros((23, 1), np.int64), "y": np.zeros((23, 3), np.float32)}, "columns"),
    ],
)
def test_arrays_of_other_columns_are_refused(columns: dict[str, Any], field: str) -> None:
    """Name, dtype and shape of every column stand in the fingerprint of arrays. (S4-76)"""
    with hr.Loader(columns, 4) as made:
        assert list(refused(made, saved()).differences) == [f"dataset/{field}"]


def test_a_fingerprint_of_the_users_own_survives_json() -> None:
    """Tuples and keys that JSON changes are compared as JSON has them."""

    class Versioned(loaders.Get):
        def __init__(self, version: Any) -> None:
            super().__init__(23)
            self.version = version

        def fingerprint(self) -> dict[str, Any]:
            return {"kind": "Versioned", "parts": (1, self.version), "names": {1: "a"}}

    with hr.Loader(Versioned("2024"), 4, workers=0) as made:
        next(made.stream())
        state = json.loads(json.dumps(made.state_dict()))

    with hr.Loader(Versioned("2024"), 4) as made:
        made.load_state_dict(state)
    with hr.Loader(Versioned("2025"), 4) as made:
        differences = refused(made, state).differences
    assert differences == {"dataset/parts": ([1, "2024"], [1, "2025"])}
    with pytest.raises(ConfigError, match=r"fingerprint: wanted JSON facts of the dataset"):
        hr.Loader(Versioned(object()), 4)


def test_a_state_of_another_order_is_found_by_its_last_picks() -> None:
    """Where all facts agree and the order does not, the order check tells."""
    state = saved()
    with loaders.loader() as made:
        error = refused(made, {**state, "order_check": "00000000000000ff"})

    assert list(error.differences) == ["order_check"]
    assert "The picks of step 2 are not those that were delivered" in str(error)


def test_a_state_of_another_version_is_refused() -> None:
    """The format version comes first: of another one nothing else is read. (S4-76)"""
    with loaders.loader() as made:
        error = refused(made, {"version": 2, "what": "ever"})
        assert error.differences == {"version": (2, 1)}
        assert "another version of headrace" in str(error)
        assert refused(made, {"epoch": 3}).differences == {"version": (None, 1)}


@pytest.mark.parametrize("state", [None, 7, "state", [1], {}, b"", object()])
def test_what_is_no_state_is_refused(state: Any) -> None:
    """With a StateError, which is a ValueError."""
    with loaders.loader() as made, pytest.raises(ValueError, match="This is no state of a Loader"):
        made.load_state_dict(state)


def test_unknown_allowances_are_refused() -> None:
    """`allow` takes the two names that there are."""
    with loaders.loader() as made, pytest.raises(ConfigError, match="allow: wanted some of"):
        made.load_state_dict(made.state_dict(), allow={"seed"})


def test_a_state_that_is_still_text_is_told_to_be_read() -> None:
    """As `json.dumps` gave it, it is no mapping yet."""
    with loaders.loader() as made, pytest.raises(StateError, match=r"but text: use json\.loads"):
        made.load_state_dict(json.dumps(made.state_dict()))  # type: ignore[arg-type]


def test_one_allowance_is_written_as_a_set() -> None:
    """Text would be taken for its letters."""
    with loaders.loader() as made, pytest.raises(ConfigError) as caught:
        made.load_state_dict(made.state_dict(), allow="global_batch")

    assert str(caught.value) == (
        "allow: wanted a set of names, got 'global_batch'. Write allow={'global_batch'}."
    )


def test_the_cursor_model_of_the_course() -> None:
    """Nine items, four taken, saved: the rest is 4 to 8; other data or a position outside is
    a ValueError. (S4-76)"""

    def over(samples: int) -> hr.Loader:
        return hr.Loader(list(range(samples)), 1, shuffle=False, workers=0)

    with over(9) as first:
        stream = iter(first)
        taken = [next(stream)[0].item() for _ in range(4)]
        state = first.state_dict()
        tail = [batch[0].item() for batch in stream]

    with over(9) as second:
        second.load_state_dict(state)
        assert [batch[0].item() for batch in second] == tail == [4, 5, 6, 7, 8]
        for position in (-1, 10**30, 4.0, "4", True):
            with pytest.raises(ValueError, match="next_step"):
                second.load_state_dict({**state, "next_step": position})
    with over(8) as other, pytest.raises(ValueError, match="dataset/samples"):
        other.load_state_dict(state)
    assert taken == [0, 1, 2, 3]


# -- nothing changes until a state fits ------------------------------------------------------


@pytest.mark.parametrize("order", ["shuffled", "torch-generator", "torch-batches"])
def test_a_refused_state_changes_nothing(order: str) -> None:
    """The loader goes on as if it had not been asked, in the middle of a stream."""
    with loaders.loader(order, content_digest=True) as made:
        whole = list(loaders.run(made))
    _, later = whole[7]
    damages: list[dict[str, Any]] = [
        {"order_check": "00000000000000ff"},
        {"next_step": 6},
        {"seed": 1},
        {"schedule": [[0, 3, 0]]},
        {"nested": {"dataset": {}}},
    ]

    with loaders.loader(order, content_digest=True) as made:
        taken = []
        for one in loaders.run(made):
            taken.append(one)
            for damage in damages:
                with pytest.raises(StateError):
                    made.load_state_dict({**later, **damage})

    assert taken == whole


# -- damage ----------------------------------------------------------------------------------

RICH_STATES: dict[str, tuple[dict[str, Any], Any]] = {
    "plain": ({"content_digest": True}, lambda: saved(7, content_digest=True)),
    "short batches": ({"order": "bucketed-short"}, lambda: saved(7, order="bucketed-short")),
    "torch generator": ({"order": "torch-generator"}, lambda: saved(7, order="torch-generator")),
    "scheduled": ({"batch": 3}, lambda: scheduled()),
    "skips": ({}, lambda: skipping()),
}
"""Arguments of a loader, and a state that it may load."""


def scheduled() -> dict[str, Any]:
    with loaders.loader(batch=3) as made:
        made.load_state_dict(saved(7), allow={"global_batch"})
        stream = made.stream()
        next(stream)
        return made.state_dict()


def skipping() -> dict[str, Any]:
    with loaders.loader() as made:
        made.skip_step(1)
        next(made.stream())
        return made.state_dict()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of every value in nested JSON."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "0" * 16, "f" * 16, "0x" + "1" * 14, "1_" * 8, "AAAA", -1, 0, 1, 2**63]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("name", RICH_STATES)
def test_a_damaged_state_is_refused_or_harmless(name: str) -> None:
    """Whatever stands in whichever place: a StateError, or a state that can be gone on from."""
    arguments, save = RICH_STATES[name]
    state = json.loads(json.dumps(save()))

    with loaders.loader(workers=0, **arguments) as made:

        @settings(max_examples=150)
        @given(place=st.sampled_from(list(places(state))), damage=JSON, drop=st.booleans())
        def damaged(place: tuple[Any, ...], damage: Any, drop: bool) -> None:
            broken = copy.deepcopy(state)
            inner = broken
            for key in place[:-1]:
                inner = inner[key]
            if drop:
                del inner[place[-1]]
            else:
                inner[place[-1]] = damage
            if loads(made, broken) or loads(made, broken, ALLOWED):
                assert next(made.stream()).num_rows > 0

        damaged()


def loads(made: hr.Loader, state: Any, allow: Any = ()) -> bool:
    """Load a state; give False where it is refused."""
    try:
        made.load_state_dict(state, allow=allow)
    except StateError as refusal:
        return not refusal.differences
    return True


ANY_FIELD = [
    *("next_step", "epoch", "step_in_epoch", "seed", "global_batch", "sampler", "dataset"),
    *("schedule", "data_revisions", "order_check", "history", "content", "skips", "nested"),
    *("bad_samples", "sampler_epoch"),
]


@given(state=st.dictionaries(st.sampled_from(ANY_FIELD), JSON))
def test_nonsense_is_refused(state: dict[str, Any]) -> None:
    """Any JSON at all: always a StateError."""
    with hr.Loader(np.zeros(9), 2, workers=0) as made:
        refused(made, {**state, "version": 1})


def test_all_damaged_fields_are_named_at_once() -> None:
    """One look at the error is enough."""
    broken = {**saved(), "next_step": -1, "history": {"from_step": 0}, "skips": "none"}
    del broken["seed"], broken["epoch"]

    with loaders.loader() as made:
        error = refused(made, broken)

    assert set(error.differences) == {"seed", "epoch", "next_step", "history", "skips"}
    assert "incomplete, damaged, or one of another kind of loader" in str(error)


@pytest.mark.parametrize("digest", [7, "", "f" * 15, "f" * 17, "0x" + "f" * 14, "F" * 16, "g" * 16])
def test_a_digest_is_sixteen_hex_digits(digest: Any) -> None:
    """Nothing else that a number could be read from."""
    with loaders.loader(content_digest=True) as made:
        state = made.state_dict()
        for field in ("history", "content"):
            damaged = {**state, field: {"from_step": 0, "digest": digest}}
            assert list(refused(made, damaged).differences) == [field]
        if digest:
            assert list(refused(made, {**state, "order_check": digest}).differences) == [
                "order_check"
            ]


def test_fields_must_agree_with_each_other() -> None:
    """A schedule beyond the step, a batch size beside its schedule, a history from the future."""
    state = saved()
    contradictions: dict[str, dict[str, Any]] = {
        "schedule": {"schedule": [[0, 4, 0], [9, 4, 0]]},
        "global_batch": {"schedule": [[0, 5, 0]]},
        "history": {"history": {"from_step": 4, "digest": "0" * 16}},
        "epoch and step_in_epoch": {"epoch": 1},
    }

    with loaders.loader() as made:
        for field, damage in contradictions.items():
            assert list(refused(made, {**state, **damage}).differences) == [field]
