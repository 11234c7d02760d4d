"""Random numbers: the published bits, and the same bits by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pick import PickKey, PickKeys, Picks
from headrace.rng import SampleRng, SampleRngs, Stream, derive, derive_rows, mix, mix_rows
from tests.order.vectors import cases, word

words = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("case", cases("rng", has="mix"))
def test_mix_gives_the_published_words(case: dict[str, Any]) -> None:
    """Mix of one word and of an array are the vectors' (S1-15)."""
    x, mixed = word(case["x"]), word(case["mix"])

    assert mix(x) == mixed
    assert mix_rows(np.array([x, 0, x], np.uint64)).tolist() == [mixed, mix(0), mixed]


@pytest.mark.parametrize("case", cases("rng", has="outputs"))
def test_an_rng_draws_the_published_words(case: dict[str, Any]) -> None:
    """SplitMix64 gives its published outputs, alone and by row (S1-01, S1-14)."""
    state, outputs = word(case["state"]), [word(output) for output in case["outputs"]]
    one, rows = SampleRng(state), SampleRngs(np.array([state, 7], np.uint64))

    assert [one.next_u64() for _ in outputs] == outputs
    assert [int(rows.next_u64()[0]) for _ in outputs] == outputs


@pytest.mark.parametrize("case", [*cases("derive"), *cases("own_keys")])
def test_derive_gives_the_golden_keys(case: dict[str, Any]) -> None:
    """Keys of all streams, from integers and from arrays (S1-20, S1-21)."""
    names = ("seed", "epoch", "step", "slot", "stream")
    place, key = [word(case[name]) for name in names], word(case["key"])

    assert derive(*place) == key
    assert derive_rows(*place).tolist() == [key]
    for arrays in range(1, 32):
        mixed = [
            np.array([v % 2**64] * 2, np.uint64) if arrays >> i & 1 else v
            for i, v in enumerate(place)
        ]
        assert derive_rows(*mixed).tolist() == [key, key]
    assert [SampleRng(key).next_u64()] == [word(w) for w in case.get("first_outputs", [])][:1] or (
        "first_outputs" not in case
    )


def test_the_streams_are_as_the_specification_numbers_them() -> None:
    """No two uses share a stream (S1-21)."""
    numbers = {stream.name: stream.value for stream in Stream}

    assert numbers == {
        "TRANSFORM": 0,
        "AUGMENTATION": 1,
        "PICK_KEY": 2,
        "SHUFFLE_BUFFER": 3,
        "REPLACEMENT": 4,
        "ORDER": 101,
        "MIXING": 102,
        "BUCKET_ORDER": 103,
        "BUCKET_PLACE": 104,
        "BLOCK_ORDER": 105,
        "BLOCK_WINDOW": 106,
        "PACK_ORDER": 107,
        "PACK_PLACE": 108,
        "REPLAYED": 109,
        "UNIFORM": 110,
    }


@given(seed=st.integers(-(2**70), 2**70), place=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 4))
def test_derive_takes_any_integer_mod_2_64(seed: int, place: tuple[int, ...]) -> None:
    """A negative or wide value is its residue, for integers and for int64 arrays alike."""
    key = derive(seed % 2**64, *(value % 2**64 for value in place))

    assert derive(seed, *place) == key
    assert derive_rows(seed, *(np.array([v], np.int64) for v in place)).tolist() == [key]


def test_derive_of_arrays_broadcasts() -> None:
    """A column of steps and a row of slots give a key for each pair."""
    steps, slots = np.arange(3)[:, None], np.arange(4, dtype=np.int32)

    keys = derive_rows(-5, 9, steps, slots, Stream.MIXING)

    assert keys.tolist() == [[derive(-5, 9, s, j, 102) for j in range(4)] for s in range(3)]


@pytest.mark.parametrize("case", cases("floats"))
def test_floats_have_the_golden_bits(case: dict[str, Any]) -> None:
    """Singles, doubles and normals to the bit (S1-16, S1-17, S1-19)."""
    bits = [word(b) for b in case["bits"]]
    float_type, int_type = (
        (np.float64, np.uint64) if case["kind"] == "double" else (np.float32, np.uint32)
    )
    one, rows = SampleRng(word(case["state"])), SampleRngs(word(case["state"]))
    draw = f"next_{case['kind']}"

    alone = np.array([getattr(one, draw)() for _ in bits], float_type)
    by_row = np.concatenate([getattr(rows, draw)() for _ in bits])

    assert alone.view(int_type).tolist() == bits
    assert by_row.dtype == float_type
    assert by_row.view(int_type).tolist() == bits


@pytest.mark.parametrize("case", cases("next_int"))
def test_next_int_draws_and_redraws_as_the_vectors_do(case: dict[str, Any]) -> None:
    """Values and final states, where words are drawn again too (S1-18)."""
    n, values = word(case["n"]), [word(value) for value in case["values"]]
    one, rows = SampleRng(word(case["state"])), SampleRngs([1, word(case["state"]), 2])

    assert [one.next_int(n) for _ in values] == values
    assert [int(rows.next_int(n)[1]) for _ in values] == values
    assert one.state == word(case["state_after"]) == int(rows.state[1])


@given(states=st.lists(words, min_size=1, max_size=6), data=st.data())
def test_rows_draw_what_their_own_rngs_draw(states: list[int], data: st.DataObject) -> None:
    """Any mix of draws, row by row and together, agrees to the bit and leaves equal states."""
    rows, alone = SampleRngs(np.array(states, np.uint64)), [SampleRng(s) for s in states]
    sizes = [data.draw(st.integers(1, 2**64 - 1)) for _ in states]
    draws = [("next_u64",), ("next_single",), ("next_double",), ("next_normal",), ("f32",)]
    draws += [("next_int", 10), ("usize", 2**63), ("bernoulli", 0.3)]

    for name, *arguments in data.draw(st.permutations(draws)):
        together = getattr(rows, name)(*arguments).tolist()
        assert together == [getattr(rng, name)(*arguments) for rng in alone]
    each = rows.next_int(np.array(sizes, np.uint64)).tolist()

    assert each == [rng.next_int(size) for rng, size in zip(alone, sizes, strict=True)]
    assert rows.state.tolist() == [rng.state for rng in alone]
    assert [rows[row].next_u64() for row in range(len(rows))] == [r.next_u64() for r in alone]


def test_integers_below_n_fit_an_index() -> None:
    """Bounded draws are int64, so that adding them to indices stays exact."""
    assert SampleRngs([1, 2]).next_int(2**63).dtype == np.int64
    assert SampleRngs([1, 2]).next_int(2**63 + 1).dtype == np.uint64
    assert SampleRngs(np.zeros(0, np.uint64)).next_int(np.zeros(0, np.uint64)).tolist() == []


@pytest.mark.parametrize("n", [0, -1, 2**64])
def test_next_int_refuses_a_range_that_is_none(n: int) -> None:
    """There is no draw below 0, and none above the words."""
    with pytest.raises(ValueError, match="n: wanted"):
        SampleRng(1).next_int(n)
    with pytest.raises(ValueError, match="n: wanted"):
        SampleRngs([1, 2]).next_int(n)


@pytest.mark.parametrize("case", cases("own_picks"))
def test_a_pick_key_draws_the_golden_words(case: dict[str, Any]) -> None:
    """Streams 2 and 0 of a pick, from one key and from the keys of a batch (S1-22)."""
    rng, slot_rng = ([word(w) for w in case.pop(name)] for name in ("rng", "slot_rng"))
    key = PickKey(**case)
    keys = PickKeys.of(_picks([key, key]), key.epoch, key.step_in_epoch, key.seed)
    view, place = key.rng(), key.slot_rng()
    views, places = keys.rngs(), keys.slot_rngs()

    assert list(keys) == [key, key]
    assert [view.next_u64() for _ in rng] == rng
    assert [place.next_u64() for _ in slot_rng] == slot_rng
    assert [views.next_u64().tolist() for _ in rng] == [[w, w] for w in rng]
    assert [places.next_u64().tolist() for _ in slot_rng] == [[w, w] for w in slot_rng]


def test_the_view_of_a_sample_does_not_move_with_its_place() -> None:
    """`rng` hangs on sample, repeat, epoch and seed; `slot_rng` on the place alone."""
    key = PickKey(sample=3, repeat=1, epoch=2, seed=42, step_in_epoch=5, slot=6)
    moved = PickKey(sample=3, repeat=1, epoch=2, seed=42, step_in_epoch=0, slot=0)
    other = PickKey(sample=4, repeat=0, epoch=2, seed=42, step_in_epoch=5, slot=6)

    assert key.rng().state == moved.rng().state != other.rng().state
    assert key.slot_rng().state == other.slot_rng().state != moved.slot_rng().state


def test_keys_are_sliced_like_the_batch() -> None:
    """A slice of the keys is the keys of a slice of the rows."""
    made = [PickKey(s, s % 2, 4, 42, 9, slot) for slot, s in enumerate([5, 3, 8, 1])]
    keys = PickKeys.of(_picks(made), 4, 9, 42)

    assert list(keys[1:3]) == made[1:3]
    assert keys[-1] == made[-1]
    assert len(keys) == 4


def test_picks_join_and_slice() -> None:
    """Joined parts are one struct of arrays, also when there is no part."""
    made = _picks([PickKey(s, 0, 0, 42, 0, slot) for slot, s in enumerate([5, 3, 8])])

    joined = Picks.joined([made[:1], made[1:]])

    assert joined.sample.tolist() == [5, 3, 8]
    assert joined.slot.tolist() == [0, 1, 2]
    assert len(Picks.joined([])) == 0


def _picks(keys: list[PickKey]) -> Picks:
    return Picks(
        step=np.array([key.step_in_epoch for key in keys], np.int64),
        slot=np.array([key.slot for key in keys], np.int64),
        sample=np.array([key.sample for key in keys], np.int64),
        repeat=np.array([key.repeat for key in keys], np.int32),
    )


def test_words_of_a_list_stay_exact() -> None:
    """Small and large words in one list are not rounded on the way; floats are refused."""
    states = [1, 2**64 - 1, 2**63 + 1]

    assert SampleRngs(states).state.tolist() == states
    assert SampleRngs([-1]).state.tolist() == [2**64 - 1]
    with pytest.raises(TypeError, match="wanted integers"):
        SampleRngs(np.array([1.0]))
