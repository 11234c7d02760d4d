"""The purity probe: the same index must give the same bytes, from no global generator.

Tiers and resumes rest on it. One double fetch of a few samples finds what nearly all impure
datasets do; `probe=False` or HEADRACE_PROBE=off leaves it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from headrace.errors import PurityError
from headrace.nesting import level_of, parts_of

CURES = (
    "Draw randomness from the key that sample_transform(sample, key) gets, or in "
    "transform(batch, pick_keys): it is then the same in every run. If samples must stay random, "
    "pass pure=False (no tier keeps them), with one reader thread."
)

Frozen = dict[str, tuple[str, str, tuple[int, ...], Any]]
"""Place in a nested sample to (kind, dtype, shape, value), independent of the sample's memory."""


_COMPARED = (str, bytes, bytearray, int, complex, type(None))
_WITH_NAN = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)


def probe_purity(get: Callable[[int], Any], indices: Sequence[int], what: str = "dataset") -> None:
    """Fetch some samples twice and compare.

    The states of `random`, `numpy.random` and torch are looked at before and after, and put
    back, so probing changes no draw of the program. Call it where no other thread draws.

    Args:
        get: Gives one sample, on the calling thread.
        indices: Which samples.
        what: Name of the dataset, for messages.

    Raises:
        PurityError: A sample differs from its first fetch in structure, dtype, shape or bytes
            (NaN equals NaN), was overwritten by a later fetch, or moved a global generator.
    """
    with _generators_put_back():
        first_of_all: list[tuple[int, Any, Frozen]] = []
        for index in indices:
            states = [_states()]
            samples = []
            for _ in range(2):
                samples.append(get(index))
                states.append(_states())
                if len(samples) == 1:
                    first = freeze(samples[0])
            first_of_all.append((index, samples[0], first))
            _compare(first, freeze(samples[1]), f"{what}, sample {index}: two fetches differ")
            _refuse_draws(states, f"{what}, sample {index}")
    for index, sample, frozen in first_of_all:
        _compare(
            frozen,
            freeze(sample),
            f"{what}, sample {index}: its memory was written again by a later fetch",
            "Give each sample memory of its own (a copy).",
        )


def freeze(sample: Any) -> Frozen:
    """Give a sample as plain comparable facts, one for each leaf."""
    frozen: Frozen = {}
    for place, leaf in _leaves(sample, ""):
        frozen[place] = _facts(leaf)
    return frozen


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    level = level_of(value)
    if level is None:
        yield place, value
        return
    kind, keys = level
    # The level counts too: an empty list is not the same as no field.
    yield f"{place}/", f"{kind.__name__} of {len(keys)}"
    for key, part in zip(keys, parts_of(value, kind, keys), strict=True):
        yield from _leaves(part, f"{place}/{key}" if place else str(key))


def _facts(leaf: Any) -> tuple[str, str, tuple[int, ...], Any]:
    kind = type(leaf).__name__
    if isinstance(leaf, torch.Tensor):
        return kind, str(leaf.dtype), tuple(leaf.shape), _bytes_of(leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        array = np.array(leaf)
        if array.dtype.kind in "fc":
            array[np.isnan(array)] = np.nan
        value: Any = array.tolist() if array.dtype.hasobject else array.tobytes()
        return kind, str(array.dtype), array.shape, value
    if isinstance(leaf, float):
        return kind, "", (), np.float64(np.nan if leaf != leaf else leaf).tobytes()
    # Of other objects only the type counts: they may be equal to themselves alone.
    return kind, "", (), leaf if isinstance(leaf, _COMPARED) else None


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """Give the values of a tensor as bytes, every NaN alike."""
    dense = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    flat = dense.cpu().resolve_conj().resolve_neg().reshape(-1)
    if not len(flat):
        return b""
    if flat.dtype in _WITH_NAN:
        flat = torch.where(flat.isnan(), torch.full_like(flat, torch.nan), flat)
    return flat.contiguous().view(torch.uint8).numpy().tobytes()


def _compare(first: Frozen, second: Frozen, what: str, cures: str = CURES) -> None:
    for place in {**first, **second}:
        if first.get(place) != second.get(place):
            name = place.rstrip("/") or "the sample itself"
            raise PurityError(f"{what} at {name}: {_difference(first, second, place)}. {cures}")


def _difference(first: Frozen, second: Frozen, place: str) -> str:
    missing = ("nothing", "", (), None)
    one, two = first.get(place, missing), second.get(place, missing)
    named = [" ".join(str(part) for part in facts[:3] if part) for facts in (one, two)]
    if named[0] != named[1]:
        return f"first {named[0]}, then {named[1]}"
    return f"{named[0]} of different values"


def _states() -> dict[str, bytes]:
    legacy: Any = np.random.get_state()
    name, keys, position, has_gauss, gauss = legacy
    return {
        "random": repr(random.getstate()).encode(),
        "numpy.random": repr((name, position, has_gauss, gauss)).encode() + keys.tobytes(),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }


def _refuse_draws(states: Sequence[Mapping[str, bytes]], what: str) -> None:
    """Refuse a generator that moved in BOTH fetches; once may have been another thread."""
    before, between, after = states
    for name in before:
        if before[name] != between[name] != after[name]:
            raise PurityError(f"{what} draws from the global generator of {name}. {CURES}")


@contextmanager
def _generators_put_back() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
