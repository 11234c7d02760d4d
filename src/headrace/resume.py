"""Writing a state, and going back to one: exactly, or with a named difference allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from headrace.errors import ConfigError, StateError
from headrace.samplers.sampler import Sampler
from headrace.state import (
    FORMAT_VERSION,
    BadSample,
    Cursor,
    History,
    Identity,
    Schedule,
    check_version,
    differences,
    order_check,
    pick_hashes,
    schedule_from_json,
    step_digests,
)

ALLOWED = ("dataset", "global_batch")
# A state stays near a kilobyte, so it names this many bad samples and counts the rest.
LISTED_BAD_SAMPLES = 8
# Steps whose picks `verify` works out at once.
_VERIFY_ROWS = 1 << 16


@runtime_checkable
class Replayed(Protocol):
    """A sampler whose epochs are drawn from a generator of the user's."""

    def epoch_state(self, epoch: int) -> list[str]:
        """Give what an epoch starts from."""
        ...

    def restore_epoch(self, epoch: int, state: list[str]) -> None:
        """Let an epoch start from what `epoch_state` gave."""
        ...


@dataclass(frozen=True, slots=True)
class Position:
    """Where a loader stands: what it delivers from here on, and what it delivered.

    Attributes:
        sampler: The order, under the schedule.
        schedule: Pieces `(from_step, global_batch, data_revision)`.
        revisions: Samples of each data revision.
        cursor: What was taken.
        skips: Steps that the user skips.
    """

    sampler: Sampler
    schedule: Schedule
    revisions: tuple[int, ...]
    cursor: Cursor
    skips: frozenset[int] = frozenset()


def identity_of(seed: int, sampler: Sampler, dataset: Mapping[str, Any]) -> Identity:
    """Give the facts that a state must agree with; sizes are left to the schedule."""
    facts = dict(sampler.fingerprint())
    facts.pop("global_batch", None)
    facts.pop("num_samples", None)
    return Identity(seed, sampler.global_batch_size, facts, dataset)


def compose(position: Position, cursor: Cursor, identity: Identity) -> dict[str, Any]:
    """Give the state as of a cursor, as plain JSON."""
    sampler, step = position.sampler, cursor.next_step
    epoch, in_epoch = _locate(sampler, step)
    state: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "next_step": step,
        "epoch": epoch,
        "step_in_epoch": in_epoch,
        **identity.to_json(),
        "schedule": [list(piece) for piece in position.schedule],
        "data_revisions": list(position.revisions),
        "order_check": _order_check(sampler, step),
        "history": cursor.history.to_json(),
        "resume": sampler.resume,
    }
    if isinstance(sampler, Replayed):
        state["sampler_epoch"] = sampler.epoch_state(epoch)
    if position.skips:
        state["skips"] = sorted(position.skips)
    if cursor.content is not None:
        state["content"] = cursor.content.to_json()
    if cursor.bad_samples:
        listed = [bad.to_json() for bad in cursor.bad]
        state["bad_samples"] = {"count": cursor.bad_samples, "last": listed}
    if cursor.nested:
        state["nested"] = dict(cursor.nested)
    return state


def restore(
    state: Mapping[str, Any],
    identity: Identity,
    sampler: Sampler,
    allow: Collection[str] = (),
    with_content: bool = False,
) -> Position:
    """Give the position that a state describes, for a loader of this identity.

    Args:
        state: What `compose` gave.
        identity: The loader that goes on.
        sampler: Its order from step 0, with its own sizes.
        allow: "global_batch": another batch size from the next step on. "dataset": appended
            data, from the next epoch on.
        with_content: Whether the loader hashes content.

    Raises:
        StateError: Fields differ that are not allowed to; it names each with both values.
        ConfigError: The sampler cannot change its schedule that way.
    """
    unknown = set(allow) - set(ALLOWED)
    if unknown:
        raise ConfigError("allow", f"some of {ALLOWED}", sorted(unknown))
    check_version(state)
    found = differences(state, identity, allow)
    if found:
        raise StateError(found, _cure(found))
    step = int(state["next_step"])
    schedule, revisions = _schedule(state, identity, sampler)
    if isinstance(sampler, Replayed):
        _restore_replayed(sampler, state)
    before = _under(sampler, schedule, revisions)
    _check_order(before, step, str(state["order_check"]))
    schedule, revisions = _changed(schedule, revisions, step, identity, sampler, allow)
    bad = state.get("bad_samples", {"count": 0, "last": []})
    content = state.get("content")
    cursor = Cursor(
        next_step=step,
        history=History.from_json(state["history"]),
        content=(History.from_json(content) if content else History(step))
        if with_content
        else None,
        bad=tuple(BadSample(*each) for each in bad["last"]),
        bad_samples=int(bad["count"]),
        nested=dict(state.get("nested", {})),
    )
    under = _under(sampler, schedule, revisions)
    return Position(under, schedule, revisions, cursor, frozenset(state.get("skips", ())))


def verify(state: Mapping[str, Any], sampler: Sampler) -> int:
    """Replay the history of a state by arithmetic and compare the digests.

    Args:
        state: The state.
        sampler: The order under the state's own schedule.

    Returns:
        How many steps were replayed.

    Raises:
        StateError: The picks delivered were not those of this sampler.
    """
    check_version(state)
    history = History.from_json(state["history"])
    last = int(state["next_step"])
    skips = set(state.get("skips", ()))
    at_once = max(1, _VERIFY_ROWS // max(1, sampler.global_batch_size))
    replayed = History(history.from_step)
    for first in range(history.from_step, last, at_once):
        for step, digest in _digests(sampler, range(first, min(first + at_once, last))):
            if step not in skips:
                replayed = replayed.plus(digest)
    if replayed != history:
        raise StateError(
            {"history": (history.to_json()["digest"], replayed.to_json()["digest"])},
            "The batches delivered so far were not those that this loader would deliver.",
        )
    return last - history.from_step


def _restore_replayed(sampler: Replayed, state: Mapping[str, Any]) -> None:
    if isinstance(sampler, Sampler) and sampler.resume == "none":
        raise StateError(
            {"resume": ("none", "seek or replay")},
            "Nothing makes this sampler yield an epoch again: give it a generator, or say "
            "replayable=True if it yields the same for the same set_epoch.",
        )
    sampler.restore_epoch(int(state["epoch"]), list(state.get("sampler_epoch", [])))


def _digests(sampler: Sampler, steps: range) -> list[tuple[int, int]]:
    picks = sampler.picks(steps)
    ends = np.searchsorted(picks.step, np.arange(steps.start, steps.stop + 1))
    return list(zip(steps, step_digests(pick_hashes(picks), ends), strict=True))


def _locate(sampler: Sampler, step: int) -> tuple[int, int]:
    # An epoch of no steps is legal, and its loader's state is at the start.
    return sampler.locate(step) if sampler.steps_in(0) != 0 else (0, 0)


def _order_check(sampler: Sampler, next_step: int) -> str:
    if not next_step or sampler.steps_in(0) == 0:
        return ""
    if isinstance(sampler, Replayed) and not sampler.locate(next_step)[1]:
        # The epoch before can no longer be drawn once this one was restored.
        return ""
    return order_check(sampler.picks(range(next_step - 1, next_step)))


def _check_order(sampler: Sampler, step: int, theirs: str) -> None:
    ours = _order_check(sampler, step)
    if ours != theirs:
        raise StateError(
            {"order_check": (theirs, ours)},
            f"The picks of step {step - 1} are not those that were delivered.",
        )


def _schedule(
    state: Mapping[str, Any], identity: Identity, sampler: Sampler
) -> tuple[Schedule, tuple[int, ...]]:
    default = [[0, identity.global_batch, 0]]
    schedule = schedule_from_json(state.get("schedule", default))
    revisions = tuple(int(n) for n in state.get("data_revisions", [sampler.num_samples]))
    return schedule, revisions


def _changed(
    schedule: Schedule,
    revisions: tuple[int, ...],
    step: int,
    identity: Identity,
    sampler: Sampler,
    allow: Collection[str],
) -> tuple[Schedule, tuple[int, ...]]:
    """Append a piece where the loader has another batch size or other data than the state."""
    _, batch, revision = schedule[-1]
    if "dataset" in allow and sampler.num_samples != revisions[revision]:
        if sampler.num_samples < revisions[revision]:
            found = {"dataset/samples": (revisions[revision], sampler.num_samples)}
            raise StateError(found, "Data may be appended, not taken away.")
        revisions = (*revisions, sampler.num_samples)
        revision = len(revisions) - 1
    piece = (step, identity.global_batch, revision)
    if piece[1:] == (batch, schedule[-1][2]):
        return schedule, revisions
    kept = tuple(each for each in schedule if each[0] < step)
    # A change before the first step leaves nothing to keep.
    return (*kept, piece) if kept else ((0, *piece[1:]),), revisions


def _under(sampler: Sampler, schedule: Schedule, revisions: tuple[int, ...]) -> Sampler:
    pieces = [(first, batch, revisions[revision]) for first, batch, revision in schedule]
    if pieces == [(0, sampler.global_batch_size, sampler.num_samples)]:
        return sampler
    return sampler.rescheduled(pieces)


def _cure(found: Mapping[str, tuple[Any, Any]]) -> str:
    if all(name == "global_batch" for name in found):
        return 'To go on with the new batch size: load_state_dict(state, allow={"global_batch"}).'
    if all(name.startswith("dataset/") for name in found):
        return 'If data was only appended: load_state_dict(state, allow={"dataset"}).'
    return "Make the loader as it was when the state was saved."
