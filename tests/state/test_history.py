"""The history of a state: an additive digest of what was delivered, which can be replayed."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import headrace as hr
from headrace.errors import StateError
from headrace.pick import Picks
from headrace.samplers import Shuffled
from headrace.state import History, pick_hashes, step_digests
from tests.state import loaders
from tests.state.loaders import REPLAYING, SEEKING

WORD = 2**64


def total(picks: Picks) -> int:
    hashes: list[int] = pick_hashes(picks).tolist()
    return sum(hashes) % WORD


def history(made: hr.Loader) -> tuple[int, int]:
    """Give the first step and the digest of a loader's history."""
    facts = made.state_dict()["history"]
    return facts["from_step"], int(facts["digest"], 16)


# -- the digest ------------------------------------------------------------------------------


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**31),
    st.integers(0, 10**12),
    st.integers(0, 2**20),
)
def test_a_hash_is_the_one_that_is_written_down(
    step: int, slot: int, sample: int, repeat: int
) -> None:
    """The vectorised hash is the formula of its docstring, in plain integers."""
    a, b, c, d = 0x910A2DEC89025CC1, 0xBEEB8DA1658EEC67, 0xF893A2EEFB32555F, 0x71C18690EE42C90B
    z = ((step * 2**32 + slot) * a + sample * b + repeat * c) % WORD
    z ^= z >> 32
    z = z * d % WORD
    z ^= z >> 29
    row = np.array([step]), np.array([slot]), np.array([sample]), np.array([repeat], np.int32)

    assert pick_hashes(Picks(*row)).tolist() == [z]


def test_any_other_pick_gives_another_digest() -> None:
    """Another sample, view, slot or step, and two samples that changed places."""
    step, slot, sample, repeat = (
        np.zeros(4, int),
        np.arange(4),
        np.array([5, 7, 9, 11]),
        np.zeros(4),
    )

    def digest(
        step: Any = step, slot: Any = slot, sample: Any = sample, repeat: Any = repeat
    ) -> int:
        return total(Picks(step, slot, sample, np.asarray(repeat, np.int32)))

    digests = [
        digest(),
        digest(sample=np.array([5, 7, 9, 12])),
        digest(sample=np.array([7, 5, 9, 11])),
        digest(sample=np.array([6, 6, 9, 11])),
        digest(repeat=np.array([0, 0, 0, 1])),
        digest(slot=slot + 1),
        digest(step=step + 1),
        digest(step=np.array([0, 0, 1, 1])),
    ]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("cut", [1, 7, 13])
def test_slices_of_slots_add_up(cut: int) -> None:
    """What ranks deliver, each its slots of every step, sums to the whole."""
    sampler = Shuffled(100, 16, augment=2)
    steps = range(3, 11)

    parts = [sampler.picks(steps, slots) for slots in (slice(0, cut), slice(cut, 16))]

    assert sum(map(total, parts)) % WORD == total(sampler.picks(steps))


def test_digests_by_step_are_sums_of_hashes() -> None:
    """Steps of unequal length, an empty one among them, and sums that overflow."""
    hashes = np.array([2**64 - 1, 5, 7, 11], np.uint64)

    assert step_digests(hashes, np.array([0, 2, 2, 3, 4])) == [4, 0, 7, 11]


def test_histories_add_mod_2_to_the_64() -> None:
    """A digest is one word, written as 16 hex digits."""
    history = History(3).plus(WORD - 1).plus(5)

    assert history == History(3, 4)
    assert history.to_json() == {"from_step": 3, "digest": "0000000000000004"}


# -- through the loader ----------------------------------------------------------------------


@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
def test_a_history_is_the_sum_over_the_picks_delivered(order: str) -> None:
    """Over any number of steps and epochs, for every order."""
    with loaders.loader(order) as made:
        steps = len([None for epoch in made.epochs(2) for _ in epoch])

        assert history(made) == (0, total(made.sampler.picks(range(steps))))


def test_pieces_of_a_run_add_up() -> None:
    """Consecutive pieces, each from a jump, sum to the history of the run in one piece."""
    digests, contents = [], []
    with loaders.loader(content_digest=True) as made:
        for start, steps in ((0, 4), (7, 6), (4, 3)):
            for _ in made.stream(start=start, steps=steps):
                pass
            state = made.state_dict()
            assert state["history"]["from_step"] == state["content"]["from_step"] == start
            digests.append(int(state["history"]["digest"], 16))
            contents.append(int(state["content"]["digest"], 16))
    with loaders.loader(content_digest=True) as made:
        for _ in made.stream(steps=13):
            pass
        whole = made.state_dict()

    assert sum(digests) % WORD == int(whole["history"]["digest"], 16)
    assert sum(contents) % WORD == int(whole["content"]["digest"], 16)


def test_a_jump_starts_a_new_piece_and_going_on_does_not() -> None:
    """The next epoch, a resume and a stream at the cursor go on; any other place is a jump."""
    with loaders.loader() as made:
        assert [batch.step for batch in made.epoch(0)] == [0, 1, 2, 3, 4]
        next(made.epoch(1))
        assert history(made)[0] == 0
        next(made.stream())
        assert history(made)[0] == 0
        made.load_state_dict(made.state_dict())
        next(iter(made))
        assert history(made)[0] == 0
        next(made.epoch(1))
        assert history(made)[0] == 5
        next(made.stream(start=9))
        assert history(made)[0] == 9


def test_a_resumed_history_is_that_of_the_whole_run() -> None:
    """The piece goes on in the other process, and verifies there."""
    with loaders.loader() as made:
        whole = list(loaders.run(made))
    with loaders.loader(workers=0) as made:
        made.load_state_dict(whole[6][1])
        rest = list(loaders.run(made))

        assert rest[-1][1]["history"] == whole[-1][1]["history"]
        assert made.verify(rest[-1][1]) == 15


# -- verify ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
def test_any_loader_like_it_verifies_a_state(order: str) -> None:
    """In a fresh loader, before and after it went on, and after a state was loaded."""
    with loaders.loader(order) as made:
        whole = list(loaders.run(made))
    states = [json.loads(json.dumps(state)) for _, state in whole]
    steps = list(range(1, len(states) + 1))

    with loaders.loader(order) as made:
        assert [made.verify(state) for state in states] == steps
        made.load_state_dict(states[7])
        assert [made.verify(state) for state in states] == steps
        assert list(loaders.run(made)) == whole[8:]
        assert [made.verify(state) for state in states] == steps


@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
def test_verifying_moves_nothing(order: str) -> None:
    """A run in which every state is verified as it comes is the run without."""
    with loaders.loader(order) as made:
        whole = list(loaders.run(made))

    with loaders.loader(order) as made:
        taken = []
        for batch, state in loaders.run(made):
            made.verify(state)
            made.verify(whole[-1][1])
            taken.append((batch, state))

    assert taken == whole


def test_a_history_that_is_not_of_this_loader_is_found_out() -> None:
    """Another digest, other steps, another place: each names the history with both digests."""
    with loaders.loader() as made:
        state = [state for _, state in loaders.run(made)][7]
        digest = state["history"]["digest"]
        damages = [
            {"from_step": 0, "digest": f"{int(digest, 16) ^ 1:016x}"},
            {"from_step": 1, "digest": digest},
            {"from_step": 8, "digest": digest},
            {"from_step": 0, "digest": "0" * 16},
        ]

        for damage in damages:
            with pytest.raises(StateError, match="were not those that this loader") as found:
                made.verify({**state, "history": damage})
            theirs, ours = found.value.differences["history"]
            assert theirs == damage["digest"] != ours
        assert made.verify({**state, "history": {"from_step": 8, "digest": "0" * 16}}) == 0


def test_states_of_other_loaders_are_found_out() -> None:
    """Another seed is another run; another batch size or appended data stand in the schedule."""
    with loaders.loader() as made:
        state = [state for _, state in loaders.run(made)][7]

    with loaders.loader(seed=1) as made, pytest.raises(StateError, match="seed"):
        made.verify(state)
    with loaders.loader(batch=5, samples=30) as made:
        assert made.verify(state) == 8


def test_an_order_that_changed_in_secret_is_found_out() -> None:
    """A sampler with the same facts and another order delivers other picks."""

    class Secret(Shuffled):
        wrong_step = 0

        def fingerprint(self) -> dict[str, Any]:
            return {**super().fingerprint(), "kind": "Shuffled"}

        def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
            picks = super().picks(steps, slots)
            sample = np.where(picks.step == self.wrong_step, picks.sample[::-1], picks.sample)
            return Picks(picks.step, picks.slot, sample, picks.repeat)

    def secret(wrong_step: int) -> Secret:
        sampler = Secret(23, 4)
        sampler.wrong_step = wrong_step
        return sampler

    data = loaders.arrays(23)
    with hr.Loader(data, sampler=Shuffled(23, 4)) as made:
        state = [state for _, state in loaders.run(made)][7]

    with hr.Loader(data, sampler=secret(2)) as made:
        made.load_state_dict(state)
        with pytest.raises(StateError, match="history"):
            made.verify(state)
    with hr.Loader(data, sampler=secret(7)) as made:
        with pytest.raises(StateError, match="order_check"):
            made.load_state_dict(state)
        with pytest.raises(StateError, match="order_check"):
            made.verify(state)


def test_verifying_reads_no_data() -> None:
    """It is arithmetic alone, also on a loader whose data is gone."""

    class Gone(loaders.Get):
        def __getitem__(self, index: int) -> dict[str, Any]:
            raise OSError("gone")

    with hr.Loader(loaders.Get(23), 4) as made:
        state = [state for _, state in loaders.run(made)][7]
    state["dataset"]["kind"] = hr.Loader(Gone(23), 4, workers=0).fingerprint["kind"]

    with hr.Loader(Gone(23), 4, workers=0) as made:
        assert made.verify(state) == 8
