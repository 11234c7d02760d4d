"""Writing a state, and going back to one: exactly, or with a named difference allowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from headrace.errors import ConfigError, StateError
from headrace.samplers.sampler import Sampler
from headrace.saved_state import SavedState, read_state
from headrace.state import (
    FORMAT_VERSION,
    Cursor,
    History,
    Identity,
    Schedule,
    differences,
    has_only_grown,
    order_check,
    pick_hashes,
    plain_json,
    step_digests,
)

ALLOWED = ("dataset", "global_batch")
# A state stays near a kilobyte, so it names this many bad samples and counts the rest.
LISTED_BAD_SAMPLES = 8
# Rows whose picks `verify` works out at once.
_VERIFY_ROWS = 1 << 16


@runtime_checkable
class Replayed(Protocol):
    """A sampler whose epochs are drawn from something that changes with each of them."""

    def epoch_state(self, epoch: int) -> list[str]:
        """Give what an epoch starts from."""
        ...

    def restored(self, epoch: int, state: Sequence[str]) -> Sampler:
        """Give the sampler with an epoch that starts from what `epoch_state` gave."""
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


def identity_of(
    seed: int, sampler: Sampler, dataset: Mapping[str, Any], roles: Collection[str] = ()
) -> Identity:
    """Give the facts that a state must agree with; sizes are left to the schedule.

    Args:
        seed: Seed of the loader.
        sampler: Its order from step 0.
        dataset: Fingerprint of the dataset.
        roles: Names of the stateful user objects.

    Raises:
        ConfigError: A fingerprint is no JSON.
    """
    facts = plain_json("the sampler", sampler.fingerprint())
    facts.pop("global_batch", None)
    facts.pop("num_samples", None)
    dataset = plain_json("the dataset", dataset)
    return Identity(seed, sampler.global_batch_size, facts, dataset, tuple(sorted(roles)))


def compose(position: Position, cursor: Cursor, identity: Identity) -> dict[str, Any]:
    """Give the state as of a cursor, as plain JSON that shares nothing with the loader."""
    sampler, step = position.sampler, cursor.next_step
    epoch, in_epoch = _locate(sampler, step)
    state: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "next_step": step,
        "epoch": epoch,
        "step_in_epoch": in_epoch,
        **deepcopy(identity.to_json()),
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
        state["nested"] = deepcopy(dict(cursor.nested))
    return state


def restore(
    state: Mapping[str, Any],
    identity: Identity,
    sampler: Sampler,
    allow: Collection[str] = (),
    with_content: bool = False,
) -> Position:
    """Give the position that a state describes, for a loader of this identity; changes nothing.

    Args:
        state: What `compose` gave.
        identity: The loader that goes on.
        sampler: Its order from step 0, with its own sizes.
        allow: "global_batch": another batch size from the next step on. "dataset": appended
            data, from the next epoch on; whatever else differs in it is still refused.
        with_content: Whether the loader hashes content.

    Raises:
        StateError: Fields differ that are not allowed to, or that the sampler cannot change; it
            names each with both values.
    """
    saved = _compared(state, identity, sampler, allow)
    step = saved.next_step
    sampler = _at_epoch(sampler, saved)
    schedule, revisions = _changed(saved, identity, sampler, allow)
    try:
        before = _under(sampler, saved.schedule, saved.revisions)
        under = _under(sampler, schedule, revisions)
    except ConfigError as error:
        raise _cannot_change(saved, identity, error) from error
    _check_place(before, saved)
    _check_goes_on(under, saved, identity)
    content = (saved.content or History(step)) if with_content else None
    cursor = Cursor(
        step, saved.history, content, saved.bad.last, saved.bad.count, deepcopy(saved.nested)
    )
    return Position(under, schedule, revisions, cursor, saved.skips)


def verify(state: Mapping[str, Any], identity: Identity, sampler: Sampler) -> int:
    """Replay the history of a state by arithmetic and compare the digests.

    Args:
        state: The state.
        identity: The loader that delivered, or one like it.
        sampler: Its order from step 0.

    Returns:
        How many steps were replayed.

    Raises:
        StateError: The picks delivered were not those of this loader.
    """
    saved = _compared(state, identity, sampler, ALLOWED)
    at_epoch = _at_epoch(sampler, saved)
    first, last = saved.history.from_step, saved.next_step
    try:
        order = _under(at_epoch, saved.schedule, saved.revisions)
        _check_place(order, saved)
        # A sampler that was set to the epoch of the state cannot draw those before it.
        if first < last and _locate(order, first)[0] < saved.epoch:
            order = _under(sampler, saved.schedule, saved.revisions)
    except ConfigError as error:
        raise _cannot_change(saved, identity, error) from error
    replayed = _replayed(order, range(first, last), saved.skips)
    if replayed != saved.history:
        raise StateError(
            {"history": (saved.history.to_json()["digest"], replayed.to_json()["digest"])},
            "The batches delivered so far were not those that this loader would deliver.",
        )
    return last - first


def _replayed(order: Sampler, steps: range, skips: Collection[int]) -> History:
    history = History(steps.start)
    at_once = max(1, _VERIFY_ROWS // max(1, order.global_batch_size))
    for first in range(steps.start, steps.stop, at_once):
        for step, digest in _digests(order, range(first, min(first + at_once, steps.stop))):
            if step not in skips:
                history = history.plus(digest)
    return history


def _digests(sampler: Sampler, steps: range) -> list[tuple[int, int]]:
    picks = sampler.picks(steps)
    ends = np.searchsorted(picks.step, np.arange(steps.start, steps.stop + 1))
    return list(zip(steps, step_digests(pick_hashes(picks), ends), strict=True))


def _compared(
    state: Any, identity: Identity, sampler: Sampler, allow: Collection[str]
) -> SavedState:
    """Give the fields of a state that is of this loader."""
    if isinstance(allow, str):
        raise ConfigError("allow", "a set of names", allow, f"Write allow={{{allow!r}}}.")
    unknown = set(allow) - set(ALLOWED)
    if unknown:
        raise ConfigError("allow", f"some of {ALLOWED}", sorted(unknown))
    saved = read_state(state)
    found = differences(saved.facts, identity, allow)
    samples = saved.revisions[saved.schedule[-1][2]]
    if "dataset" not in allow and sampler.num_samples != samples:
        found["sampler/num_samples"] = (samples, sampler.num_samples)
    if tuple(sorted(saved.nested)) != identity.roles:
        found["nested"] = (sorted(saved.nested), list(identity.roles))
    if found:
        raise StateError(found, _cure(found))
    if sampler.resume == "none":
        raise StateError(
            {"resume": ("none", "seek or replay")},
            "Nothing makes this sampler yield an epoch again: give it a generator, or say "
            "replayable=True if it yields the same for the same set_epoch.",
        )
    return saved


def _at_epoch(sampler: Sampler, saved: SavedState) -> Sampler:
    if not isinstance(sampler, Replayed):
        return sampler
    try:
        return sampler.restored(saved.epoch, saved.sampler_epoch)
    except ConfigError as error:
        found = {"sampler_epoch": (saved.sampler_epoch, error.wanted)}
        raise StateError(found, "The state is of another sampler.") from error


def _locate(sampler: Sampler, step: int) -> tuple[int, int]:
    # An epoch of no steps is legal, and its loader's state is at the start.
    return sampler.locate(step) if sampler.steps_in(0) != 0 else (0, 0)


def _order_check(sampler: Sampler, next_step: int) -> str:
    if not next_step or sampler.steps_in(0) == 0 or sampler.resume == "none":
        return ""
    if isinstance(sampler, Replayed) and not sampler.locate(next_step)[1]:
        # The epoch before can no longer be drawn once this one was restored.
        return ""
    return order_check(sampler.picks(range(next_step - 1, next_step)))


def _check_place(sampler: Sampler, saved: SavedState) -> None:
    """Check that the step lies where the state says, and that the one before held its picks."""
    try:
        place = _locate(sampler, saved.next_step)
        check = _order_check(sampler, saved.next_step)
    except (ValueError, ArithmeticError, MemoryError) as error:
        damaged = {"next_step": (saved.next_step, f"no such step: {error}")}
        raise StateError(damaged, "The state is damaged.") from error
    if place != (saved.epoch, saved.step_in_epoch):
        found = {"epoch and step_in_epoch": ((saved.epoch, saved.step_in_epoch), place)}
        raise StateError(found, "The state is damaged.")
    if check != saved.order_check:
        raise StateError(
            {"order_check": (saved.order_check, check)},
            f"The picks of step {saved.next_step - 1} are not those that were delivered.",
        )


def _changed(
    saved: SavedState, identity: Identity, sampler: Sampler, allow: Collection[str]
) -> tuple[Schedule, tuple[int, ...]]:
    """Append a piece where the loader has another batch size or other data than the state."""
    schedule, revisions = saved.schedule, saved.revisions
    _, batch, revision = schedule[-1]
    if "dataset" in allow and sampler.num_samples != revisions[revision]:
        if sampler.num_samples < revisions[revision]:
            found = {"dataset/samples": (revisions[revision], sampler.num_samples)}
            raise StateError(found, "Data may be appended, not taken away.")
        revisions = (*revisions, sampler.num_samples)
        revision = len(revisions) - 1
    piece = (saved.next_step, identity.global_batch, revision)
    if piece[1:] == (batch, schedule[-1][2]):
        return schedule, revisions
    kept = tuple(each for each in schedule if each[0] < saved.next_step)
    # A change before the first step leaves nothing to keep.
    return (*kept, piece) if kept else ((0, *piece[1:]),), revisions


def _check_goes_on(sampler: Sampler, saved: SavedState, identity: Identity) -> None:
    """Check that there is a next step under a changed schedule."""
    try:
        _locate(sampler, saved.next_step)
    except ValueError as error:
        found = {"global_batch": (saved.facts["global_batch"], identity.global_batch)}
        raise StateError(found, str(error)) from error


def _cannot_change(saved: SavedState, identity: Identity, error: ConfigError) -> StateError:
    """Give the error of a sampler that cannot follow the schedule; it names what changed."""
    found = differences(saved.facts, identity)
    return StateError(found or {"schedule": (list(saved.schedule), error.wanted)}, str(error))


def _under(sampler: Sampler, schedule: Schedule, revisions: tuple[int, ...]) -> Sampler:
    pieces = [(first, batch, revisions[revision]) for first, batch, revision in schedule]
    if pieces == [(0, sampler.global_batch_size, sampler.num_samples)]:
        return sampler
    return sampler.rescheduled(pieces)


def _cure(found: Mapping[str, tuple[Any, Any]]) -> str:
    if all(name == "global_batch" for name in found):
        return 'To go on with the new batch size: load_state_dict(state, allow={"global_batch"}).'
    if has_only_grown(found):
        return 'If data was only appended: load_state_dict(state, allow={"dataset"}).'
    return "Make the loader as it was when the state was saved."
