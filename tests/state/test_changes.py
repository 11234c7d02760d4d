"""A run may go on with another batch size or appended data, and the state keeps the schedule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import headrace as hr
from headrace.errors import StateError
from headrace.samplers import BlockShuffled, Mixing, Shuffled
from tests.state import loaders

Pieces = list[tuple[int, int, int]]
BOTH = ("dataset", "global_batch")


def order(epoch: int, samples: int) -> list[int]:
    """Give the ids of an epoch in the keyed order of seed 42."""
    one_by_one = Shuffled(samples, 1, 42)
    ids: list[int] = one_by_one.picks(range(epoch * samples, (epoch + 1) * samples)).sample.tolist()
    return ids


def joined(batches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


def naive(pieces: Pieces, drop_last: bool) -> Iterator[list[int]]:
    """Give the ids of each step: epochs one after another, cut by whatever batch size holds.

    An epoch is over when what is left fills no batch, of the size before or of the one after.
    """
    step, epoch = 0, 0

    def piece() -> tuple[int, int, int]:
        return [each for each in pieces if each[0] <= step][-1]

    while True:
        left, least = order(epoch, piece()[2]), 1
        while len(left) >= max(least, piece()[1] if drop_last else 1):
            yield left[: piece()[1]]
            left = left[piece()[1] :]
            least = piece()[1] if drop_last else 1
            step += 1
        epoch += 1


def take(
    count: int, state: Any, batch: int, samples: int, drop_last: bool = True, **knobs: Any
) -> tuple[list[list[int]], dict[str, Any]]:
    """Go on from a state, with anything allowed; give the ids of some batches, and the state."""
    arguments = {"batch": batch, "samples": samples, "drop_last": drop_last, **knobs}
    with loaders.loader(**arguments) as made:
        if state is not None:
            made.load_state_dict(json.loads(json.dumps(state)), allow=BOTH)
        taken = [loaders.ids(batch) for batch in made.stream(steps=count)]
        return taken, made.state_dict()


@pytest.mark.parametrize("knobs", [{"workers": 0}, {"workers": 3, "prefetch": 9}])
def test_a_new_batch_size_holds_at_once_and_loses_no_pick(knobs: dict[str, Any]) -> None:
    """The rest of the epoch is cut anew: every id once, in the order of the epoch."""
    before, state = take(3, None, batch=4, samples=23, drop_last=False, **knobs)
    after, state = take(4, state, batch=3, samples=23, drop_last=False, **knobs)

    ids = joined(before + after)
    assert [len(batch) for batch in before + after] == [4, 4, 4, 3, 3, 3, 2]
    assert ids == order(0, 23)
    assert (state["epoch"], state["step_in_epoch"]) == (1, 0)
    assert state["schedule"] == [[0, 4, 0], [3, 3, 0]]
    assert state["global_batch"] == 3


@pytest.mark.parametrize("knobs", [{"workers": 0}, {"workers": 3, "prefetch": 9}])
def test_appended_data_comes_in_with_the_next_epoch(knobs: dict[str, Any]) -> None:
    """The epoch under way keeps its samples; the next one has them all."""
    before, state = take(3, None, batch=4, samples=20, **knobs)
    after, state = take(2 + 7, state, batch=4, samples=28, **knobs)

    assert joined(before + after[:2]) == order(0, 20)
    assert joined(after[2:]) == order(1, 28)
    assert state["schedule"] == [[0, 4, 0], [3, 4, 1]]
    assert state["data_revisions"] == [20, 28]
    assert state["dataset"]["samples"] == 28


def test_both_may_change_at_once() -> None:
    """The size at once, the data with the next epoch, in one piece of the schedule."""
    before, state = take(2, None, batch=4, samples=20)
    after, state = take(6 + 5, state, batch=2, samples=30)
    last, state = take(10, state, batch=2, samples=30)

    assert joined(before + after[:6]) == order(0, 20)
    assert joined(after[6:] + last) == order(1, 30)
    assert state["schedule"] == [[0, 4, 0], [2, 2, 1]]


CHANGES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 12)), min_size=1, max_size=5
)


@settings(max_examples=60)
@given(changes=CHANGES, drop_last=st.booleans(), more=st.integers(0, 12))
def test_any_changes_one_after_another_give_what_the_schedule_says(
    changes: list[tuple[int, int, int]], drop_last: bool, more: int
) -> None:
    """Takes, then another size and more data, again and again, then resumed unchanged: the
    same as epochs cut by hand, and the history can be verified."""
    state: Any = None
    samples, batch, taken = 12, 4, []
    for count, batch, growth in changes:
        samples += growth
        part, state = take(count, state, batch, samples, drop_last, workers=0)
        taken += part

    with loaders.loader(
        batch=batch, samples=samples, drop_last=drop_last, workers=0, content_digest=True
    ) as made:
        made.load_state_dict(state)
        taken += [loaders.ids(batch) for batch in made.stream(steps=more)]
        state = made.state_dict()
        made.verify(state)

    pieces = [
        (first, size, state["data_revisions"][revision])
        for first, size, revision in state["schedule"]
    ]
    assert state["next_step"] == len(taken)
    assert taken == list(islice(naive(pieces, drop_last), len(taken)))


@pytest.mark.parametrize("workers", [0, 2])
def test_any_step_of_a_changed_run_can_be_looked_at(workers: int) -> None:
    """`batch_at`, `why` and `len` know every piece, also one of larger batches than now."""
    first, state = take(3, None, batch=9, samples=23, drop_last=False)
    second, state = take(5, state, batch=2, samples=30, drop_last=False)

    with loaders.loader(batch=5, samples=30, drop_last=False, workers=workers) as made:
        made.load_state_dict(state, allow={"global_batch"})
        third = [loaders.ids(batch) for batch in made.stream(steps=3)]
        looked_at = [loaders.ids(made.batch_at(step)) for step in range(11)]
        why = [[origin.sample for origin in made.why(step)] for step in range(11)]
        length = len(made)

    assert looked_at == why == first + second + third
    # Of the epoch, 10 ids were taken two by two, and the other 20 come in fives.
    assert length == 9


def test_a_changed_run_resumes_at_every_step() -> None:
    """With the pieces in the state, no later load needs an allowance."""
    _, state = take(3, None, batch=4, samples=23)
    with loaders.loader(batch=3, samples=30, content_digest=True) as made:
        made.load_state_dict(state, allow=BOTH)
        whole = list(loaders.run(made))

    for count in range(1, len(whole)):
        with loaders.loader(batch=3, samples=30, content_digest=True) as made:
            made.load_state_dict(whole[count - 1][1])
            assert list(loaders.run(made)) == whole[count:]


def test_a_change_and_back_is_three_pieces() -> None:
    """The schedule tells the whole story, and a change before any step leaves no trace."""
    state = None
    for batch in (4, 2, 4):
        _, state = take(2, state, batch=batch, samples=23)
        _, state = take(0, state, batch=7, samples=23)

    assert state is not None
    assert state["schedule"] == [[0, 4, 0], [2, 2, 0], [4, 4, 0], [6, 7, 0]]
    _, state = take(0, None, batch=4, samples=23)
    _, state = take(1, state, batch=5, samples=25)
    assert (state["schedule"], state["data_revisions"]) == ([[0, 5, 1]], [23, 25])


def test_an_allowance_that_is_not_needed_changes_nothing() -> None:
    """The same loader with everything allowed is the run as it was."""
    with loaders.loader(content_digest=True) as made:
        whole = list(loaders.run(made))

    with loaders.loader(content_digest=True) as made:
        made.load_state_dict(whole[3][1], allow=BOTH)
        assert list(loaders.run(made)) == whole[4:]


def test_only_what_is_named_is_allowed() -> None:
    """One allowance does not cover the other difference, and never any third."""
    _, state = take(3, None, batch=4, samples=23)
    cases: list[tuple[dict[str, Any], Any, set[str]]] = [
        (
            {"batch": 5, "samples": 30},
            {"global_batch"},
            {"dataset/samples", "sampler/num_samples"},
        ),
        ({"batch": 5, "samples": 30}, {"dataset"}, {"global_batch"}),
        ({"batch": 5, "seed": 1}, BOTH, {"seed", "sampler/seed"}),
    ]

    for arguments, allow, fields in cases:
        with loaders.loader(**arguments) as made, pytest.raises(StateError) as refused:
            made.load_state_dict(state, allow=allow)
        assert set(refused.value.differences) == fields


def test_data_cannot_be_taken_away() -> None:
    """Fewer samples are refused, allowed or not."""
    _, state = take(3, None, batch=4, samples=23)

    with loaders.loader(samples=22) as made, pytest.raises(StateError) as refused:
        made.load_state_dict(state, allow=BOTH)

    assert refused.value.differences == {"dataset/samples": (23, 22)}
    assert "appended, not taken away" in str(refused.value)


def test_a_batch_that_no_epoch_fills_is_refused() -> None:
    """With drop_last, a batch larger than the data would leave no step to go on with."""
    _, state = take(3, None, batch=4, samples=23)

    with loaders.loader(batch=24) as made, pytest.raises(StateError) as refused:
        made.load_state_dict(state, allow=BOTH)

    assert refused.value.differences == {"global_batch": (4, 24)}
    assert "at most the 23 picks of an epoch, got 24" in str(refused.value)


def test_what_was_read_ahead_under_another_schedule_is_dropped() -> None:
    """A loader that reads into its next epoch and then loads a state there gives that state's."""
    _, state = take(7, None, batch=4, samples=23)
    wanted, _ = take(3, state, batch=3, samples=23)

    with loaders.loader(batch=3, epochs=3) as made:
        assert len([batch.step for batch in made]) == 7
        made.load_state_dict(state, allow=BOTH)
        taken = [loaders.ids(batch) for batch in made.stream(steps=3)]

    assert taken == wanted


# -- samplers --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sequential", "shuffled", "augmented", "uniform", "blocks"])
def test_orders_by_position_change_without_loss(name: str) -> None:
    """Every id of the epoch comes as often as it should, whichever order."""
    with loaders.loader(name, samples=24) as made:
        taken = [loaders.ids(batch) for batch in made.stream(steps=3)]
        state = made.state_dict()
    with loaders.loader(name, samples=24, batch=6) as made:
        made.load_state_dict(state, allow=BOTH)
        taken += [loaders.ids(batch) for batch in made]

    views = 2 if name == "augmented" else 1
    assert sorted(joined(taken)) == sorted([*range(24)] * views)


def test_mixing_changes_its_batch_size_but_not_its_sources() -> None:
    """Draws are independent, so any size may follow; other sources are another sampler."""

    def mixed(batch: int, size: int = 10) -> hr.Loader:
        sampler = Mixing([(0, size), (10, 13)], [1, 2], batch, steps_per_epoch=5)
        return hr.Loader(loaders.arrays(23), sampler=sampler, workers=0)

    with mixed(4) as made:
        next(made.stream())
        state = made.state_dict()
    with mixed(6) as made:
        made.load_state_dict(state, allow=BOTH)
        assert [batch.num_rows for batch in made] == [6, 6, 6, 6]
        assert made.state_dict()["epoch"] == 1
    with mixed(4, size=9) as made, pytest.raises(StateError, match="sampler/sources"):
        made.load_state_dict(state, allow=BOTH)


def test_bucketing_changes_its_batch_size_between_epochs() -> None:
    """Inside an epoch its pools would change, so it says when it can. (S4-39)"""
    with loaders.loader("bucketed") as made:
        states = [state for _, state in loaders.run(made, epochs=1)]

    with loaders.loader("bucketed", batch=5) as made:
        with pytest.raises(StateError, match="change it between epochs"):
            made.load_state_dict(states[2], allow=BOTH)
        made.load_state_dict(states[-1], allow=BOTH)
        assert [batch.num_rows for batch in made] == [5, 5, 5, 5]


@pytest.mark.parametrize("name", ["torch-random", "torch-generator", "torch-epochs"])
def test_samplers_of_torch_do_not_change(name: str) -> None:
    """Only samplers of headrace know how; the loader is left as it was."""
    with loaders.loader(name) as made:
        next(made.stream())
        state = made.state_dict()

    with loaders.loader(name, batch=5) as made, pytest.raises(StateError) as refused:
        made.load_state_dict(state, allow=BOTH)

    assert refused.value.differences == {"global_batch": (4, 5)}
    assert "a sampler whose schedule can change" in str(refused.value)
    assert made.state_dict()["next_step"] == 0


def test_windows_of_blocks_take_in_appended_data() -> None:
    """Samplers given by hand change like those of the loader's own making."""

    def blocks(samples: int, batch: int) -> hr.Loader:
        sampler = BlockShuffled(samples, batch, block=4, window=2, drop_last=False)
        return hr.Loader(loaders.arrays(samples), sampler=sampler, workers=2)

    with blocks(20, 4) as made:
        next(made.stream(steps=2))
        state = made.state_dict()
    with blocks(31, 3) as made:
        made.load_state_dict(state, allow=BOTH)
        rest, whole = ([loaders.ids(batch) for batch in made] for _ in range(2))

    assert len(joined(rest)) == 16
    assert sorted(joined(whole)) == list(range(31))


def test_shards_may_be_appended(tmp_path: Path) -> None:
    """New files of a token data set come in with the next epoch; what was there stays."""

    def shard(number: int) -> None:
        tokens = np.arange(number * 100, number * 100 + 41, dtype=np.uint16)
        np.save(tmp_path / f"shard-{number}.npy", tokens)

    def firsts(made: hr.Loader) -> list[int]:
        return [first for batch in made for first in batch["input"][:, 0].tolist()]

    for number in (0, 1):
        shard(number)
    with hr.Loader(hr.TokenShards(str(tmp_path), seq_len=8), 2, workers=0) as made:
        windows = len(made.dataset)
        stream = iter(made)
        seen = next(stream)["input"][:, 0].tolist()
        state = made.state_dict()
    shard(2)
    grown = hr.TokenShards(str(tmp_path), seq_len=8)

    with hr.Loader(grown, 2, workers=2) as made:
        with pytest.raises(StateError, match=r'allow={"dataset"}'):
            made.load_state_dict(state)
        made.load_state_dict(state, allow={"dataset"})
        rest, whole = firsts(made), firsts(made)

    assert (windows, len(grown)) == (10, 15)
    assert max(seen + rest) < 200
    assert len(set(seen + rest)) == 10
    assert sum(first >= 200 for first in whole) in (4, 5)


OTHER_DATA: dict[str, tuple[Any, str]] = {
    "another dtype": ({"x": np.arange(30, dtype=np.int32)}, "dataset/columns"),
    "one column less": ({"y": np.arange(30)}, "dataset/columns"),
    "another kind": (list(range(30)), "dataset/kind"),
    "another dtype below a subset": (
        hr.Subset(np.arange(40, dtype=np.int16), range(30)),
        "dataset/kind",
    ),
}


@pytest.mark.parametrize("name", OTHER_DATA)
def test_permission_for_appended_data_covers_nothing_else(name: str) -> None:
    """Whatever appending does not change must agree, and is named."""
    data, field = OTHER_DATA[name]
    with hr.Loader({"x": np.arange(20)}, 4) as made:
        state = made.state_dict()

    with hr.Loader(data, 4) as made, pytest.raises(StateError) as refused:
        made.load_state_dict(state, allow={"dataset"})

    assert field in refused.value.differences
    assert "dataset/samples" not in refused.value.differences
    assert "allow=" not in str(refused.value)


def test_windows_of_another_length_are_no_appended_data(tmp_path: Path) -> None:
    """A state of windows of 8 tokens does not fit windows of 4, whatever is allowed."""
    np.save(tmp_path / "shard.npy", np.arange(81, dtype=np.uint16))
    path = str(tmp_path)
    with hr.Loader(hr.TokenShards(path, seq_len=8), 2) as made:
        state = made.state_dict()

    with hr.Loader(hr.TokenShards(path, seq_len=4), 2) as made:
        with pytest.raises(StateError) as refused:
            made.load_state_dict(state, allow={"dataset"})
        with pytest.raises(StateError) as unasked:
            made.load_state_dict(state)

    assert refused.value.differences == {"dataset/seq_len": (8, 4)}
    assert "allow=" not in str(unasked.value)


def test_a_subset_may_grow_but_not_change_what_it_is_of() -> None:
    """The facts of the data below a subset are compared in turn."""
    with hr.Loader(hr.Subset(np.arange(20), range(10)), 5) as made:
        state = made.state_dict()

    with hr.Loader(hr.Subset(np.arange(30), range(15)), 5) as made:
        made.load_state_dict(state, allow={"dataset"})
        assert made.state_dict()["data_revisions"] == [10, 15]
    with (
        hr.Loader(hr.Subset(np.arange(30, dtype=np.int32), range(15)), 5) as made,
        pytest.raises(StateError) as refused,
    ):
        made.load_state_dict(state, allow={"dataset"})

    assert list(refused.value.differences) == ["dataset/of/columns"]


def test_the_cure_for_appended_data_is_for_more_samples_only() -> None:
    """Fewer samples, and other data of as many, are told to make the loader as it was."""
    with hr.Loader({"x": np.arange(20)}, 4) as made:
        state = made.state_dict()
    cured = {}

    for name, data in {
        "more": {"x": np.arange(30)},
        "fewer": {"x": np.arange(10)},
        "as many": {"x": np.arange(20, dtype=np.int32)},
    }.items():
        with hr.Loader(data, 4) as made, pytest.raises(StateError) as refused:
            made.load_state_dict(state)
        cured[name] = "allow=" in str(refused.value)

    assert cured == {"more": True, "fewer": False, "as many": False}
