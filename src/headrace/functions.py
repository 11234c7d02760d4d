"""Whether the user's functions can be called as they will be."""

from __future__ import annotations

import inspect
from typing import Any

from headrace.datasets.dataset import BatchDataset
from headrace.errors import ConfigError

SAMPLE_TRANSFORM = ("sample", "key")
COLLATE = ("samples", "keys")
TRANSFORM = ("batch", "pick_keys")


def check(
    knob: str,
    given: Any,
    takes: tuple[str, ...],
    least: int | None = None,
    may_wait: bool = False,
) -> None:
    """Refuse what is no function, or one that cannot take its arguments by position.

    A function whose signature cannot be read is left alone.

    Args:
        knob: The keyword as the user writes it.
        given: The function, or None.
        takes: Names of what it will be given.
        least: How many of these it must take at least; all where None.
        may_wait: Whether it may be a coroutine function.

    Raises:
        ConfigError: It cannot be called so.
    """
    if given is None:
        return
    form = f"f({', '.join(takes)})"
    if not callable(given):
        raise ConfigError(knob, f"a function {form}", given)
    if inspect.iscoroutinefunction(given) and not may_wait:
        cure = "Await in `async get` of the dataset, or in `transform`."
        raise ConfigError(knob, f"a plain function {form}", given, cure)
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return
    counts = range(len(takes) if least is None else least, len(takes) + 1)
    if not any(_can_take(signature, count) for count in counts):
        name = getattr(given, "__name__", type(given).__name__)
        raise ConfigError(knob, f"a function {form}", f"{name}({', '.join(signature.parameters)})")


def check_seen(dataset: object, **per_sample: Any) -> None:
    """Refuse functions of samples beside a dataset that shows none; they would not be called.

    Raises:
        ConfigError: One is given.
    """
    for knob, given in per_sample.items():
        if given is not None and isinstance(dataset, BatchDataset):
            wanted = f"None beside {dataset!r}, which gives whole batches"
            raise ConfigError(knob, wanted, given, "Give transform=, which gets the batch.")


def _can_take(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
