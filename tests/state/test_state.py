"""What a state is: plain JSON, small, of what was taken, from any thread."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from tests.state import loaders
from tests.state.loaders import REPLAYING, SEEKING

FIELDS = {
    "version",
    "next_step",
    "epoch",
    "step_in_epoch",
    "seed",
    "global_batch",
    "sampler",
    "dataset",
    "schedule",
    "data_revisions",
    "order_check",
    "history",
    "resume",
}


def test_a_state_of_a_fresh_loader_is_the_start_of_the_run() -> None:
    """Step 0 of epoch 0, nothing delivered, and the facts that another loader must share."""
    with loaders.loader(seed=7) as made:
        assert made.state_dict() == {
            "version": 1,
            "next_step": 0,
            "epoch": 0,
            "step_in_epoch": 0,
            "seed": 7,
            "global_batch": 4,
            "sampler": {
                "kind": "Shuffled",
                "drop_last": True,
                "augment": 1,
                "seed": 7,
                "order": "keyed",
            },
            "dataset": {
                "kind": "Arrays",
                "samples": 23,
                "columns": [["id", "<i8", [1]], ["x", "<f4", [3]]],
            },
            "schedule": [[0, 4, 0]],
            "data_revisions": [23],
            "order_check": "",
            "history": {"from_step": 0, "digest": "0000000000000000"},
            "resume": "seek",
        }


@pytest.mark.parametrize("prefetch", [1, 8])
def test_a_state_says_what_was_taken_not_what_was_read(prefetch: int) -> None:
    """With eight steps read ahead the state after three takes says three. (S4-75)"""
    with loaders.loader(samples=400, prefetch=prefetch) as made:
        stream = made.stream()
        for _ in range(3):
            next(stream)

        assert made.state_dict()["next_step"] == 3


@pytest.mark.parametrize("order", SEEKING)
def test_a_state_that_seeks_is_within_a_kilobyte(order: str) -> None:
    """Whatever the sampler of headrace, at step 10^9 of the run too."""
    with loaders.loader(order, content_digest=True) as made:
        made.load_state_dict(made.state_dict())
        next(made.stream(start=10**9))
        state = made.state_dict()

    assert state["resume"] == "seek"
    assert state["next_step"] == 10**9 + 1
    assert len(json.dumps(state)) <= 1024


def test_a_state_stays_small_over_many_files_and_parts(tmp_path: Path) -> None:
    """A thousand shards, and datasets of a hundred parts, are digests in the state."""
    for number in range(300):
        np.save(tmp_path / f"shard-{number}.npy", np.arange(70, dtype=np.uint16))
    shards = hr.TokenShards(str(tmp_path / "*.npy"), seq_len=16)
    parts = hr.Concat(*[hr.Arrays({"id": np.arange(5)}) for _ in range(100)])

    sizes = []
    for data in (shards, parts, hr.Subset(parts, range(0, 500, 2)), hr.split(parts, [0.5, 0.5])[0]):
        with hr.Loader(data, 4, content_digest=True) as made:
            next(made.stream())
            sizes.append(len(json.dumps(made.state_dict())))

    assert max(sizes) <= 1024


@pytest.mark.parametrize("order", [*SEEKING, *REPLAYING])
def test_a_state_is_plain_json(order: str) -> None:
    """It comes back from JSON as it went, so files, checkpoints and wires all keep it."""
    with loaders.loader(order) as made:
        states = [state for _, state in loaders.run(made, epochs=2)]

    assert [json.loads(json.dumps(state)) for state in states] == states
    replays = order in REPLAYING
    assert all(set(state) == FIELDS | ({"sampler_epoch"} if replays else set()) for state in states)
    assert {state["resume"] for state in states} == {"replay" if replays else "seek"}


def test_a_state_says_the_place_in_the_epoch() -> None:
    """Five steps an epoch: at its end the state says step 0 of the next. (B04)"""
    with loaders.loader() as made:
        states = [state for _, state in loaders.run(made, epochs=2)]

    places = [(state["next_step"], state["epoch"], state["step_in_epoch"]) for state in states]
    assert places == [
        (1, 0, 1),
        (2, 0, 2),
        (3, 0, 3),
        (4, 0, 4),
        (5, 1, 0),
        (6, 1, 1),
        (7, 1, 2),
        (8, 1, 3),
        (9, 1, 4),
        (10, 2, 0),
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_bucketing_stands_in_the_state(workers: int) -> None:
    """The settings of the buckets, and a digest of the lengths. (S4-39)"""
    with loaders.loader("bucketed", workers=workers) as made:
        facts = made.state_dict()["sampler"]

    assert {key: facts[key] for key in ("kind", "pool_batches", "drop_last", "seed")} == {
        "kind": "Bucketed",
        "pool_batches": 2,
        "drop_last": True,
        "seed": 42,
    }
    assert len(facts["lengths"]) == 32


# -- after= ----------------------------------------------------------------------------------


def test_a_state_as_of_a_batch_still_held() -> None:
    """Frameworks that take one batch ahead ask for the state of the batch before. (S4-75)"""
    with loaders.loader(content_digest=True) as made:
        whole = list(loaders.run(made, epochs=2))

    with loaders.loader(content_digest=True) as made:
        held = [batch for epoch in made.epochs(2) for batch in epoch]
        for batch, (_, state) in zip(held, whole, strict=True):
            assert made.state_dict(after=batch) == state


def test_a_state_as_of_a_held_batch_goes_on_with_the_next() -> None:
    """A framework that fetched ahead loses no batch and sees none twice."""
    with loaders.loader() as made:
        stream = made.stream()
        held, fetched = next(stream), next(stream)
        state = made.state_dict(after=held)

    with loaders.loader() as made:
        made.load_state_dict(state)
        assert loaders.seen(next(made.stream())) == loaders.seen(fetched)


def test_only_the_last_batches_are_remembered() -> None:
    """The last 256 batches taken; an older one, or one that was not taken, is an error."""
    with loaders.loader(samples=2000) as made:
        held = list(made.stream(steps=300))
        old, kept, never = held[43], held[44], made.batch_at(400)

        assert made.state_dict(after=kept)["next_step"] == 45
        for batch in (old, never):
            with pytest.raises(hr.ConfigError, match=f"256 batches taken, got 'step {batch.step}'"):
                made.state_dict(after=batch)
        step: Any = 299
        with pytest.raises(hr.ConfigError, match="after: wanted a Batch of this loader, got 299"):
            made.state_dict(after=step)


def test_a_batch_of_another_cursor_is_not_remembered() -> None:
    """Loading a state forgets what was taken before."""
    with loaders.loader() as made:
        stream = made.stream()
        batch = next(stream)
        state = made.state_dict()
        next(stream)
        made.load_state_dict(state)

        assert made.state_dict(after=batch) == state
        next(made.stream(start=3))
        with pytest.raises(ValueError, match="got 'step 0'"):
            made.state_dict(after=batch)


# -- threads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["shuffled", "torch-generator"])
def test_a_state_may_be_asked_for_from_any_thread_while_batches_come(order: str) -> None:
    """Every state that other threads see is one of those that the consumer sees."""
    with loaders.loader(order, samples=203, content_digest=True) as made:
        allowed = {json.dumps(made.state_dict())}
        allowed |= {json.dumps(state) for _, state in loaders.run(made, epochs=2)}

    found: list[set[str]] = [set(), set()]
    done = threading.Event()

    def watch(mine: set[str]) -> None:
        while not done.is_set():
            mine.add(json.dumps(made.state_dict()))

    with loaders.loader(order, samples=203, content_digest=True) as made:
        watchers = [threading.Thread(target=watch, args=(mine,)) for mine in found]
        for watcher in watchers:
            watcher.start()
        try:
            held: list[Any] = []
            for epoch in made.epochs(2):
                for batch in epoch:
                    held.append(batch)
                    assert made.state_dict(after=held[-1])["next_step"] == batch.step + 1
        finally:
            done.set()
            for watcher in watchers:
                watcher.join()

    assert found[0] | found[1] <= allowed
    assert len(found[0] | found[1]) > 1


def test_a_closed_loader_still_has_its_state() -> None:
    """What was taken is known after close, when most programs save."""
    with loaders.loader() as made:
        stream = made.stream()
        next(stream)
        state = made.state_dict()

    assert made.state_dict() == state
