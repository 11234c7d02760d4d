"""Names of columns, checked."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.errors import ConfigError


def wanted_names(names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Give the names as a tuple, each known and named once.

    Raises:
        ConfigError: None is named, one is unknown, or one is named twice.
    """
    unknown = [name for name in names if name not in known]
    if not names or unknown or len(set(names)) != len(names):
        raise ConfigError(
            "columns", f"distinct names out of {', '.join(map(str, known))}", list(names)
        )
    return tuple(names)


def check_distinct(names: Sequence[str]) -> None:
    """Refuse rows of a layout that would give a batch two columns of one name.

    Raises:
        ConfigError: It names the first that comes twice.
    """
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        cure = "It is there twice: an open column 'x' adds others, such as 'x/offsets'. Rename one."
        raise ConfigError("data", "columns whose names all differ", twice, cure)
