"""The purity probe: the same index must give the same bytes, from no global generator.

Exact resumes rest on it. One double fetch of a few samples finds what nearly all impure
datasets do; `probe=False` or HEADRACE_PROBE=off leaves it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.errors import PurityError
from headrace.nesting import level_of, parts_of

CURES = (
    "Draw randomness from the key that sample_transform(sample, key) gets, or in "
    "transform(batch, pick_keys): it is then the same in every run. If samples must stay random, "
    "pass pure=False, which reads on one thread."
)

Frozen = dict[str, tuple[str, str, tuple[int, ...], Any]]
"""Place in a nested sample to (kind, dtype, shape, value), independent of the sample's memory."""

_COMPARED = (str, bytes, int, type(None))
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
        first_of_all = [(index, *_fetch_twice(get, index, what)) for index in indices]
    for index, sample, frozen in first_of_all:
        _compare(
            frozen,
            freeze(sample),
            f"{what}, sample {index}: its memory was written again by a later fetch",
            "Give each sample memory of its own (a copy).",
        )


def _fetch_twice(get: Callable[[int], Any], index: int, what: str) -> tuple[Any, Frozen]:
    """Give the first fetch of a sample, as it came and frozen, once a second one agreed."""
    before = _states()
    sample = get(index)
    between, first = _states(), freeze(sample)
    second = get(index)
    after = _states()
    _compare(first, freeze(second), f"{what}, sample {index}: two fetches differ")
    for name in before:
        # One that moved in only one fetch may have been moved by another thread.
        if before[name] != between[name] != after[name]:
            raise PurityError(
                f"{what}, sample {index} draws from the global generator of {name}. {CURES}"
            )
    return sample, first


def freeze(sample: Any) -> Frozen:
    """Give a sample as plain comparable facts, one for each leaf."""
    frozen: Frozen = {}
    _freeze(sample, "", frozen)
    return frozen


def _freeze(value: Any, place: str, frozen: Frozen) -> None:
    level = level_of(value)
    if level is None:
        frozen[place] = _facts(value)
        return
    kind, keys = level
    # The level counts too: an empty list is not the same as no field.
    frozen[f"{place}/"] = (kind.__name__, f"of {len(keys)} parts", (), None)
    for key, part in zip(keys, parts_of(value, kind, keys), strict=True):
        _freeze(part, f"{place}/{key}" if place else str(key), frozen)


def _facts(leaf: Any) -> tuple[str, str, tuple[int, ...], Any]:
    kind = type(leaf).__name__
    if isinstance(leaf, torch.Tensor):
        return kind, str(leaf.dtype), tuple(leaf.shape), _bytes_of(leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        array = np.array(leaf)
        return kind, str(array.dtype), array.shape, _values_of(array)
    if isinstance(leaf, float | complex):
        return kind, "", (), _values_of(np.array(leaf))
    if isinstance(leaf, bytearray):
        return kind, "", (), bytes(leaf)
    # Of other objects only the type counts: they may be equal to themselves alone.
    return kind, "", (), leaf if isinstance(leaf, _COMPARED) else None


def _values_of(array: NDArray[Any]) -> Any:
    """Give the values of an array of our own as bytes, every NaN alike."""
    if array.dtype.hasobject:
        # As text, since NaN is not even equal to itself.
        is_plain = all(isinstance(value, (*_COMPARED, float)) for value in array.flat)
        return repr(array.tolist()) if is_plain else None
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan
    return array.tobytes()


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


@contextmanager
def _generators_put_back() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
