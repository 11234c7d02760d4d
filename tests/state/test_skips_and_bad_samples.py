"""Steps that are skipped and samples that were bad are part of the state and of the stream."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import headrace as hr
from headrace.datasets.dataset import Location
from headrace.errors import ConfigError, TooManyBadSamplesError
from headrace.sources.source import ByteRange
from tests.state import loaders, stateful

KNOBS: list[dict[str, Any]] = [{"workers": 0}, {"workers": 1}, {"workers": 3, "prefetch": 16}]


def steps(made: hr.Loader, epochs: int = 2) -> list[int]:
    return [batch.step for epoch in made.epochs(epochs) for batch in epoch]


def until_error(made: hr.Loader, epochs: int = 9) -> tuple[list[int], Any]:
    """Give the steps up to an error of the loader, and the error."""
    taken = []
    try:
        for epoch in made.epochs(epochs):
            for batch in epoch:
                taken.append(batch.step)  # noqa: PERF401 - kept when the loop raises
    except hr.HeadraceError as error:
        return taken, error
    raise AssertionError("no error")


# -- skips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("knobs", KNOBS)
def test_a_skipped_step_is_left_out_though_it_was_read_ahead(knobs: dict[str, Any]) -> None:
    """Skipping steps while they wait in the ring, or are built, leaves out just those."""
    with loaders.loader(**knobs) as made:
        stream = made.stream()
        taken = [next(stream).step]
        made.skip_step(3)
        made.skip_step(1)
        taken += [next(stream).step for _ in range(4)]

        assert taken == [0, 2, 4, 5, 6]
        assert made.state_dict()["skips"] == [1, 3]
        assert made.stats()["skipped_steps"] == 2


@pytest.mark.parametrize("knobs", KNOBS)
def test_skips_go_with_the_state(knobs: dict[str, Any]) -> None:
    """A resumed loader skips what is still to come, and its history is that of the other."""
    with loaders.loader(content_digest=True) as made:
        made.skip_step(2)
        made.skip_step(4)
        made.skip_step(8)
        whole = list(loaders.run(made, epochs=2))

    assert [batch["step"] for batch, _ in whole] == [0, 1, 3, 5, 6, 7, 9]
    for count in range(len(whole)):
        with loaders.loader(content_digest=True, **knobs) as made:
            made.load_state_dict(json.loads(json.dumps(whole[count][1])))
            assert list(loaders.run(made, epochs=2)) == whole[count + 1 :]


def test_a_loaded_state_brings_its_skips_and_no_others() -> None:
    """Skips of before the load are forgotten, so the run is that of the state."""
    with loaders.loader() as made:
        fresh = made.state_dict()
        made.skip_step(1)
        skipping = made.state_dict()
        made.load_state_dict(fresh)
        assert steps(made, epochs=1) == [0, 1, 2, 3, 4]
        made.load_state_dict(skipping)
        assert steps(made, epochs=1) == [0, 2, 3, 4]


def test_a_history_with_skips_can_be_verified() -> None:
    """Skipped steps count as not delivered; a state that hides one is found out."""
    with loaders.loader() as made:
        made.skip_step(1)
        steps(made)
        state = made.state_dict()

        assert made.verify(state) == 10
        with pytest.raises(hr.StateError, match="history"):
            made.verify({**state, "skips": []})
        with pytest.raises(hr.StateError, match="history"):
            made.verify({**state, "skips": [1, 2]})


def test_a_step_that_fails_is_skipped_from_its_state_on() -> None:
    """Load the state of before, skip, go on: the rest of the run is as planned."""

    class Broken(loaders.Get):
        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 11:
                raise OSError("denied")
            return super().__getitem__(index)

    with hr.Loader(Broken(20), 4, shuffle=False, workers=2) as made:
        taken, error = until_error(made)
        made.load_state_dict(made.state_dict())
        made.skip_step(error.step)
        taken += [batch.step for batch in made]

    assert isinstance(error, OSError)
    assert taken == [0, 1, 3, 4]


def test_a_step_that_was_taken_cannot_be_skipped() -> None:
    """It stands in the history; the error says to go back before it."""
    with loaders.loader() as made:
        stream = made.stream(start=3)
        next(stream)
        with pytest.raises(ConfigError, match=r"a step to come, from 4 on, got 3\. Load the state"):
            made.skip_step(3)
        made.skip_step(2)

        assert [next(stream).step, made.state_dict()["skips"]] == [4, [2]]


def test_whole_epochs_may_be_skipped() -> None:
    """An epoch of skipped steps is empty, and the next one follows."""
    with loaders.loader() as made:
        for step in range(5):
            made.skip_step(step)

        assert [[batch.step for batch in made] for _ in range(2)] == [[], [5, 6, 7, 8, 9]]
        assert made.state_dict()["history"]["from_step"] == 0


def test_a_skipped_batch_can_still_be_looked_at() -> None:
    """`batch_at` and `why` give any batch of the run."""
    with loaders.loader() as made:
        before = loaders.seen(made.batch_at(1))
        made.skip_step(1)

        assert loaders.seen(made.batch_at(1)) == before
        assert [origin.sample for origin in made.why(1)] == before["ids"]


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("kind", ["samples", "awaited samples", "collate"])
def test_stateful_objects_never_see_a_skipped_step(kind: str, knobs: dict[str, Any]) -> None:
    """What was built on a step that is then skipped is built again without it."""
    with stateful.loader(kind, workers=0) as made:
        made.skip_step(1)
        made.skip_step(4)
        wanted = [stateful.seen(batch) for batch in made.stream(steps=8)]

    with stateful.loader(kind, **knobs) as made:
        stream = made.stream(steps=8)
        taken = [stateful.seen(next(stream))]
        made.skip_step(1)
        taken += [stateful.seen(next(stream)) for _ in range(2)]
        made.skip_step(4)
        taken += [stateful.seen(batch) for batch in stream]

    assert taken == wanted


@pytest.mark.parametrize("workers", [0, 3])
def test_a_step_may_be_skipped_while_the_consumer_waits_for_it(workers: int) -> None:
    """Another thread skips the step that is being built: the consumer gets the one after, as if
    the step had never been begun."""

    class Gated(stateful.Samples):
        reached, gate = threading.Event(), threading.Event()

        def __getitem__(self, index: int) -> dict[str, Any]:
            if self.state["calls"] == 4:
                self.reached.set()
                self.gate.wait(30)
            return super().__getitem__(index)

    with hr.Loader(Gated(), 3, workers=workers) as made, ThreadPoolExecutor(1) as pool:
        Gated.reached.clear()
        Gated.gate.clear()
        stream = made.stream(steps=4)
        taken = [stateful.seen(next(stream))]
        waiting = pool.submit(next, stream)
        assert Gated.reached.wait(30)
        made.skip_step(1)
        Gated.gate.set()
        taken += [stateful.seen(waiting.result(30)), *map(stateful.seen, stream)]

    assert [step for step, _, _ in taken] == [0, 2, 3]
    assert [calls for _, _, calls in taken] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


# -- bad samples -----------------------------------------------------------------------------


class Bad(hr.Dataset):
    """Samples of which some have bad bytes, with a long story about each."""

    bad = frozenset({3, 8, 17})

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.bad:
            raise ValueError(f"checksum of sample {index}\n is wrong: {'ff' * 200}")
        return loaders.sample(index)

    def locate(self, index: int) -> Location:
        return Location(f"shard-{index // 10}", ByteRange(index % 10, index % 10 + 1))

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "Bad", "samples": 23}


def bad_loader(on_bad_sample: Any = "replace", **knobs: Any) -> hr.Loader:
    arguments: dict[str, Any] = {"on_bad_sample": on_bad_sample, "content_digest": True, **knobs}
    return hr.Loader(Bad(), 4, **{"workers": 2, **arguments})


@pytest.mark.parametrize("on_bad_sample", ["replace", "mask"])
@pytest.mark.parametrize("knobs", KNOBS)
def test_bad_samples_go_with_the_state(on_bad_sample: str, knobs: dict[str, Any]) -> None:
    """Replacements, their count and their places are the same after a resume."""
    with bad_loader(on_bad_sample) as made:
        whole = list(loaders.run(made))

    assert whole[-1][1]["bad_samples"]["count"] > 4
    for count in range(0, len(whole), 3):
        with bad_loader(on_bad_sample, **knobs) as made:
            made.load_state_dict(json.loads(json.dumps(whole[count][1])))
            assert list(loaders.run(made)) == whole[count + 1 :]


def test_a_state_tells_where_bad_samples_are_in_few_words() -> None:
    """Step, sample, place and one short line each, of the last eight; the state stays small."""
    with bad_loader() as made:
        state = [state for _, state in loaders.run(made, epochs=12)][-1]

    bad = state["bad_samples"]
    step, index, where, reason = bad["last"][-1]
    assert (len(bad["last"]), bad["count"]) == (8, made.stats()["bad_samples"])
    assert index in [origin.sample for origin in made.why(step)]
    assert where == f"shard-{index // 10}, bytes [{index % 10}, {index % 10 + 1})"
    assert reason.startswith(f"ValueError: checksum of sample {index} is wrong: ffff")
    assert all(len(reason) == 120 for *_, reason in bad["last"])
    assert len(json.dumps(state)) < 2500


def test_the_bound_on_bad_samples_holds_over_resumes() -> None:
    """Those of before the resume count."""
    with bad_loader(max_bad_samples=4) as made:
        whole, error = until_error(made)
    with bad_loader(max_bad_samples=4) as made:
        next(made.stream(steps=3))
        state = [made.state_dict() for _ in made.stream(steps=3)][-1]

    with bad_loader(max_bad_samples=4) as made:
        made.load_state_dict(state)
        rest, same_error = until_error(made)

    assert (state["next_step"], state["bad_samples"]["count"]) == (4, 2)
    assert [0, 1, 2, 3, *rest] == whole
    assert isinstance(error, TooManyBadSamplesError)
    assert str(same_error) == str(error)


def test_the_history_of_a_run_with_replacements_is_that_of_its_picks() -> None:
    """A replacement is pure, so `verify` holds by the picks alone."""
    with bad_loader() as made:
        steps(made)

        assert made.verify(made.state_dict()) == 10
