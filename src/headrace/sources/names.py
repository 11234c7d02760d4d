"""Names of objects: how they sort, which are refused, which ones a wrong name is close to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

from headrace.errors import NotFoundError

# Enough to find the slip in a folder of shards; a folder of a million images is not compared.
COMPARED_NAMES = 10_000


def sort_key(name: str) -> bytes:
    """Give the bytes that names are ordered by: "10" < "9" < "a", the same on every machine."""
    return name.encode("utf-8", "surrogateescape")


def check_inside(source: object, name: str) -> str:
    """Give back a name that stays below the root of its source.

    Raises:
        NotFoundError: It is absolute, empty, or has an empty, "." or ".." part.
    """
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise NotFoundError(
            source, name, "Names are relative to the root, with '/' between parts and no '..'."
        )
    return name


def near_names(name: str, names: Iterable[str]) -> str:
    """Give a sentence that names those most like a missing one, or nothing."""
    near = difflib.get_close_matches(name, islice(names, COMPARED_NAMES), n=3, cutoff=0.6)
    return f"Near: {', '.join(map(repr, near))}." if near else ""
