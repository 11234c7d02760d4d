"""Checked ranges of the knobs."""

from __future__ import annotations

import math
import operator
import os
import sys
from typing import Any, overload

from headrace.errors import ConfigError

# Slots of a ring are fixed when it is made; only the bound moves.
MAX_PREFETCH = 256
# Read ahead by default: enough bytes to ride out a slow read, within a fixed range of steps.
AUTO_PREFETCH_BYTES = 64 << 20
AUTO_PREFETCH_STEPS = (4, 32)
AUTO_WORKERS = 4
# Readers share one interpreter, so more than its cores only hide waiting; a thousand take a
# machine down when they start.
MAX_WORKERS = 64

# Steps end where JSON no longer keeps every integer; epochs, of many steps, earlier.
MAX_STEP = 2**53
MAX_EPOCH = 2**48


def whole(knob: str, value: Any) -> int:
    """Check a whole number of any size.

    Raises:
        ConfigError: It is no int (bool is none), nor anything that stands for one.
    """
    number = _whole(value)
    if number is None:
        raise ConfigError(knob, "an int", value)
    return number


def _whole(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def integer(knob: str, value: Any, low: int, high: int | None = None) -> int:
    """Check a whole number.

    Raises:
        ConfigError: It is no int (bool is none), or outside the range.
    """
    number = _whole(value)
    if number is None or number < low or (high is not None and number > high):
        wanted = f"an int >= {low}" if high is None else f"an int from {low} to {high}"
        raise ConfigError(knob, wanted, value)
    return number


def step(knob: str, value: Any) -> int:
    """Check a global step, or a count of steps."""
    return integer(knob, value, 0, MAX_STEP)


def epoch(knob: str, value: Any, least: int = 0) -> int:
    """Check an epoch, or a count of epochs."""
    return integer(knob, value, least, MAX_EPOCH)


def share(knob: str, value: Any) -> float:
    """Check a finite number, to be clamped by whoever uses it.

    Raises:
        ConfigError: It is no number, or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ConfigError(knob, "a number", value)
    return float(value)


def positive(knob: str, value: Any) -> float:
    """Check a number above zero, infinity included."""
    number = share(knob, value)
    if number <= 0:
        raise ConfigError(knob, "a number above 0", value)
    return number


def prefetch(value: Any) -> int:
    """Check a read-ahead in steps; 0 counts as 1."""
    return max(1, integer("prefetch", value, 0, MAX_PREFETCH))


def workers(value: Any) -> int:
    """Check a number of reader threads; None for as many as `auto_workers` says."""
    return auto_workers() if value is None else integer("workers", value, 0, MAX_WORKERS)


@overload
def flag(knob: str, value: Any) -> bool: ...
@overload
def flag(knob: str, value: Any, may_be_none: bool) -> bool | None: ...
def flag(knob: str, value: Any, may_be_none: bool = False) -> bool | None:
    """Check a flag: True or False and nothing that merely counts as one, such as "False".

    Raises:
        ConfigError: It is none.
    """
    if value is None and may_be_none:
        return None
    # numpy's own flags come out of comparisons of arrays.
    if type(value).__name__ not in ("bool", "bool_"):
        raise ConfigError(knob, "True, False or None" if may_be_none else "True or False", value)
    return bool(value)


def names(value: Any) -> tuple[str, ...] | None:
    """Check names of columns.

    Raises:
        ConfigError: It is no sequence of texts, or one of them is empty.
    """
    if value is None:
        return None
    listed = [value] if isinstance(value, str) or not hasattr(value, "__iter__") else list(value)
    are_names = all(isinstance(name, str) and name for name in listed)
    if isinstance(value, str) or not are_names:
        raise ConfigError("names", "a list of names, none empty", value)
    return tuple(listed)


def one_of(knob: str, value: Any, *wanted: Any) -> Any:
    """Check a choice."""
    if value not in wanted:
        raise ConfigError(knob, "one of " + ", ".join(map(repr, wanted)), value)
    return value


def auto_workers() -> int:
    """Give the default number of reader threads: the cores, at most AUTO_WORKERS."""
    return max(1, min(AUTO_WORKERS, os.cpu_count() or 1))


def auto_prefetch(step_bytes: int) -> int:
    """Give the default read-ahead in steps for batches of this size."""
    low, high = AUTO_PREFETCH_STEPS
    return max(low, min(high, AUTO_PREFETCH_BYTES // max(1, step_bytes)))


def is_probe_on(probe: bool | None) -> bool:
    """Whether the purity probe runs: the knob, else `HEADRACE_PROBE`, else unless `python -O`."""
    if probe is not None:
        return probe
    word = os.environ.get("HEADRACE_PROBE", "").lower()
    return word not in ("off", "0", "false", "no") if word else __debug__


def poisons_blocks() -> bool:
    """Whether returned blocks are overwritten (`HEADRACE_POISON=1`), to show dangling views."""
    return os.environ.get("HEADRACE_POISON", "0") not in ("", "0")


def check_platform() -> None:
    """Refuse Windows, where positioned reads and forks are not as this library needs them."""
    if sys.platform == "win32":
        raise ImportError("headrace runs on Linux and macOS; Windows is not supported")
