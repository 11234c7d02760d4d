"""A state as it was read: every field is checked before any is believed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from headrace.errors import StateError
from headrace.state import FORMAT_VERSION, BadSample, History, Schedule

T = TypeVar("T")

_REQUIRED = object()
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BadSamples:
    """What a state tells of the samples that were survived.

    Attributes:
        count: How many.
        last: The last of them.
    """

    count: int
    last: tuple[BadSample, ...]


@dataclass(frozen=True, slots=True)
class SavedState:
    """The fields of a state.

    Attributes:
        facts: All fields as they were read; the identity among them is still to be compared.
        next_step: Global step of the batch that comes next.
        epoch: Epoch of `next_step`.
        step_in_epoch: Step in that epoch.
        schedule: Pieces `(from_step, global_batch, data_revision)`.
        revisions: Samples of each data revision.
        order_check: Digest of the picks of the step before, as hex; "" where there is none.
        history: Digest of the picks delivered.
        content: Digest of the bytes delivered, where the state has one.
        skips: Steps that the user skips.
        bad: Samples survived.
        nested: State of stateful user objects, by role.
        sampler_epoch: What the epoch of a replayed sampler starts from.
    """

    facts: Mapping[str, Any]
    next_step: int
    epoch: int
    step_in_epoch: int
    schedule: Schedule
    revisions: tuple[int, ...]
    order_check: str
    history: History
    content: History | None
    skips: frozenset[int]
    bad: BadSamples
    nested: Mapping[str, Any]
    sampler_epoch: tuple[str, ...]


def read_state(state: Any) -> SavedState:
    """Read what `state_dict` gave, straight or through JSON.

    Raises:
        StateError: It is no state of this version, or fields are missing or damaged; each is
            named.
    """
    if isinstance(state, str | bytes):
        found = {"version": (None, FORMAT_VERSION)}
        raise StateError(found, "This is no state of a Loader but text: use json.loads.")
    if not isinstance(state, Mapping) or "version" not in state:
        raise StateError({"version": (None, FORMAT_VERSION)}, "This is no state of a Loader.")
    if state["version"] != FORMAT_VERSION:
        found = {"version": (state["version"], FORMAT_VERSION)}
        raise StateError(found, "It was written by another version of headrace.")
    fields = _Fields(state)
    for name in ("seed", "global_batch", "sampler", "dataset"):
        fields.take(name, "a field", _anything)
    read = SavedState(
        facts=state,
        next_step=fields.take("next_step", "a step from 0 on", _whole),
        epoch=fields.take("epoch", "an epoch from 0 on", _whole),
        step_in_epoch=fields.take("step_in_epoch", "a step from 0 on", _whole),
        schedule=fields.take("schedule", "pieces [from_step, batch, revision]", _schedule),
        revisions=fields.take("data_revisions", "samples of each revision", _revisions),
        order_check=fields.take("order_check", '16 hex digits or ""', _order_check),
        history=fields.take("history", '{"from_step", "digest"}', _history),
        content=fields.take("content", '{"from_step", "digest"}', _history, None),
        skips=fields.take("skips", "steps from 0 on", _skips, frozenset()),
        bad=fields.take("bad_samples", '{"count", "last"}', _bad_samples, BadSamples(0, ())),
        nested=fields.take("nested", "states by role", _by_name, {}),
        sampler_epoch=fields.take("sampler_epoch", "texts", _texts, ()),
    )
    fields.check()
    _check_together(read)
    return read


class _Fields:
    """Takes fields one by one and keeps what is wrong with them, to tell all at once."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._wrong: dict[str, tuple[Any, Any]] = {}

    def take(self, name: str, wanted: str, read: Callable[[Any], T], default: Any = _REQUIRED) -> T:
        """Give a field; what is given for a wrong one is not used, since `check` raises."""
        absent: T = default
        if name not in self._state:
            if default is _REQUIRED:
                self._wrong[name] = (None, wanted)
            return absent
        try:
            return read(self._state[name])
        except (TypeError, ValueError, LookupError):
            self._wrong[name] = (self._state[name], wanted)
            return absent

    def check(self) -> None:
        if self._wrong:
            raise StateError(
                self._wrong, "The state is incomplete, damaged, or one of another kind of loader."
            )


def _anything(value: Any) -> Any:
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return list(value)


def _by_name(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(value)
    return dict(value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _listed(value)))


def _wholes(value: Any) -> tuple[int, ...]:
    return tuple(map(_whole, _listed(value)))


def _skips(value: Any) -> frozenset[int]:
    return frozenset(_wholes(value))


def _digest(value: Any) -> int:
    if not re.fullmatch("[0-9a-f]{16}", _text(value)):
        raise ValueError(value)
    return int(value, 16)


def _order_check(value: Any) -> str:
    if value != "":
        _digest(value)
    return str(value)


def _history(value: Any) -> History:
    facts = _by_name(value)
    return History(_whole(facts["from_step"]), _digest(facts["digest"]))


def _revisions(value: Any) -> tuple[int, ...]:
    samples = _wholes(value)
    if not samples or any(after < before for before, after in pairwise(samples)):
        raise ValueError(value)
    return samples


def _schedule(value: Any) -> Schedule:
    schedule = tuple((first, batch, revision) for first, batch, revision in map(_wholes, value))
    if not schedule or schedule[0][0] != 0 or not all(batch for _, batch, _ in schedule):
        raise ValueError(value)
    for before, after in pairwise(schedule):
        if after[0] <= before[0] or after[2] < before[2]:
            raise ValueError(value)
    return schedule


def _bad_samples(value: Any) -> BadSamples:
    facts = _by_name(value)
    return BadSamples(_whole(facts["count"]), tuple(map(_bad_sample, _listed(facts["last"]))))


def _bad_sample(value: Any) -> BadSample:
    step, index, where, reason = _listed(value)
    return BadSample(_whole(step), _whole(index), _text(where), _text(reason))


def _check_together(read: SavedState) -> None:
    """Check what one field says of another."""
    wrong: dict[str, tuple[Any, Any]] = {}
    step, last = read.next_step, read.schedule[-1]
    if last[0] > step or last[2] >= len(read.revisions):
        wanted = f"pieces up to step {step} of {len(read.revisions)} data revisions"
        wrong["schedule"] = (read.facts["schedule"], wanted)
    if last[1] != read.facts["global_batch"]:
        wanted = f"{last[1]}, with which its schedule ends"
        wrong["global_batch"] = (read.facts["global_batch"], wanted)
    for name, history in (("history", read.history), ("content", read.content)):
        if history is not None and history.from_step > step:
            wrong[name] = (history.to_json(), f"a start up to step {step}")
    if wrong:
        raise StateError(wrong, "The state is damaged.")
