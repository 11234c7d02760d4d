"""What a state says and how two of them are compared; pure arithmetic on JSON facts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.pick import Picks

FORMAT_VERSION = 1
_MASK = (1 << 64) - 1

# Odd multipliers that spread the numbers of a pick over 64 bits: the first outputs of the
# mixer of section 2 from states 1 to 4, made odd.
_PLACE, _SAMPLE, _REPEAT, _FINISH = (
    np.uint64(value | 1)
    for value in (
        0x910A2DEC89025CC1,
        0xBEEB8DA1658EEC67,
        0xF893A2EEFB32555E,
        0x71C18690EE42C90B,
    )
)
_BY_32, _BY_29 = np.uint64(32), np.uint64(29)


# Facts of a dataset that change when data is appended to it; "of" may hold facts in turn.
GROWN = frozenset({"samples", "shards", "bytes", "names_and_sizes", "parts", "of", "indices"})


def pick_hashes(picks: Picks) -> NDArray[np.uint64]:
    """Give one 64-bit hash per pick, of (step, slot, sample, repeat).

    `z = (step * 2^32 + slot) * a + sample * b + repeat * c`, then `z ^= z >> 32; z *= d;
    z ^= z >> 29`, mod 2^64, with fixed odd a to d. Sums of these hashes are the digests of the
    state. Two multiplications and a few shifts: at 15 M picks a second a full mixer would cost
    a third of what the gather of 256-byte rows does.
    """
    h = np.left_shift(picks.step.view(np.uint64), _BY_32)
    h |= picks.slot.view(np.uint64)
    h *= _PLACE
    h += picks.sample.view(np.uint64) * _SAMPLE
    if picks.repeat.any():
        h += picks.repeat.astype(np.uint64) * _REPEAT
    h ^= h >> _BY_32
    h *= _FINISH
    h ^= h >> _BY_29
    return h


def step_digests(hashes: NDArray[np.uint64], ends: NDArray[np.int64]) -> list[int]:
    """Sum hashes by step, mod 2^64.

    Args:
        hashes: `[rows]`.
        ends: Row at which each step begins, and the end: `[steps + 1]`, ascending.
    """
    sums = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes, out=sums[1:])
    at = sums[ends]
    return [int(digest) for digest in (at[1:] - at[:-1]).tolist()]


def plain_json(what: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Give facts as they come back from JSON, so that they equal those of a saved state.

    Raises:
        ConfigError: They are no JSON.
    """
    try:
        plain: dict[str, Any] = json.loads(json.dumps(facts))
    except (TypeError, ValueError) as error:
        wanted = f"JSON facts of {what}"
        raise ConfigError("fingerprint", wanted, facts, f"{error}.") from error
    return plain


class History(NamedTuple):
    """An additive digest over what was delivered since a step.

    The sum mod 2^64 over delivered (step, global slot, sample, repeat), so that consecutive
    pieces and the ranks of a run add up; a jump of the cursor starts a new piece.
    """

    from_step: int
    digest: int = 0

    def plus(self, digest: int) -> History:
        """Give the history with one more step."""
        return History(self.from_step, (self.digest + digest) & _MASK)

    def to_json(self) -> dict[str, Any]:
        """Give JSON facts."""
        return {"from_step": self.from_step, "digest": f"{self.digest:016x}"}


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that could not be read and was survived.

    Attributes:
        step: Global step of the batch.
        index: Sample index.
        where: Key and byte range, where the dataset can tell.
        reason: The error, in a line.
    """

    step: int
    index: int
    where: str
    reason: str

    def to_json(self) -> list[Any]:
        """Give JSON facts."""
        return [self.step, self.index, self.where, self.reason]


class Cursor(NamedTuple):
    """What the consumer has taken: replaced as a whole, so any thread may read it.

    Attributes:
        next_step: Global step of the batch that comes next.
        history: Digest of the picks delivered so far.
        content: Digest of the bytes delivered so far, where asked for.
        bad: The last samples survived.
        bad_samples: How many samples were survived so far.
        nested: State of stateful user objects after the last batch taken, by role.
    """

    next_step: int
    history: History
    content: History | None = None
    bad: tuple[BadSample, ...] = ()
    bad_samples: int = 0
    nested: Mapping[str, Any] = MappingProxyType({})

    def jumped(self, step: int) -> Cursor:
        """Give the cursor at another step: a jump starts new pieces of history."""
        if step == self.next_step:
            return self
        content = None if self.content is None else History(step)
        return self._replace(next_step=step, history=History(step), content=content)


Schedule = tuple[tuple[int, int, int], ...]
"""Pieces `(from_step, global_batch, data_revision)`, ascending, the first from step 0."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts of a loader that a state must agree with.

    Attributes:
        seed: Seed of the loader.
        global_batch: Rows of a full global batch now.
        sampler: Fingerprint of the sampler, without its sizes (those are in the schedule).
        dataset: Fingerprint of the dataset.
        roles: Names of the stateful user objects, sorted.
    """

    seed: int
    global_batch: int
    sampler: Mapping[str, Any]
    dataset: Mapping[str, Any]
    roles: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give JSON facts, without the roles: a state has those as its nested states."""
        return {
            "seed": self.seed,
            "global_batch": self.global_batch,
            "sampler": dict(self.sampler),
            "dataset": dict(self.dataset),
        }


def differences(
    state: Mapping[str, Any], identity: Identity, allow: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Compare a state with a loader, field by field.

    Args:
        state: What `state_dict` gave.
        identity: The loader that is to go on from it.
        allow: "global_batch" is not compared where named; of "dataset" only what data that was
            appended does not change.

    Returns:
        Field name ('/'-joined) to (value in the state, value of the loader).
    """
    ours = identity.to_json()
    found: dict[str, tuple[Any, Any]] = {}
    for name, value in ours.items():
        if name == "global_batch" and name in allow:
            continue
        theirs, may_grow = state.get(name), name == "dataset" and name in allow
        if isinstance(value, dict) and isinstance(theirs, Mapping):
            found |= _unlike(name, theirs, value, may_grow)
        elif theirs != value:
            found[name] = (theirs, value)
    return found


def _unlike(
    name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any], may_grow: bool
) -> dict[str, tuple[Any, Any]]:
    """Give the facts that differ; where data may have grown, only those that this leaves alone."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(ours.keys() | theirs.keys(), key=str):
        place, one, two = f"{name}/{key}", theirs.get(key), ours.get(key)
        if one == two:
            continue
        if not may_grow or key not in GROWN:
            found[place] = (one, two)
        elif isinstance(one, Mapping) and isinstance(two, Mapping):
            found |= _unlike(place, one, two, may_grow)
    return found


def has_only_grown(found: Mapping[str, tuple[Any, Any]]) -> bool:
    """Whether data that was appended explains all differences that `differences` gave."""
    samples = found.get("sampler/num_samples", (0, 0))
    names = {name.removeprefix("dataset/") for name in found} - {"sampler/num_samples"}
    return names <= GROWN and samples[1] > samples[0]


def order_check(picks: Picks) -> str:
    """Give the digest of the global picks of one step, in order."""
    total = step_digests(pick_hashes(picks), np.array([0, len(picks)]))[0]
    return f"{total:016x}"
