"""Which files a dataset is made of."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from headrace.errors import ConfigError, FormatError, HeadraceError, NotFoundError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


def find_files(paths: Paths, suffix: str | None) -> list[str]:
    """Give absolute paths of files that exist.

    A list keeps its order. The files of a directory, or those that fit a pattern (`*`, `?`,
    `[..]`, `**`), come sorted by the bytes of their path, so the order is the same on every
    machine: "10.npy" before "9.npy". Names that begin with a dot are left out.

    Args:
        paths: A file, directory, pattern, `file://` URL, or a list of these.
        suffix: Which files of a directory count; None refuses directories.

    Raises:
        ConfigError: Nothing is given, a directory or pattern holds nothing, or a URL is remote.
        NotFoundError: A file does not exist.
    """
    if isinstance(paths, str | bytes | os.PathLike) or not isinstance(paths, Iterable):
        paths = [paths]
    found = [path for given in paths for path in _expand(local_path(given), suffix)]
    if not found:
        raise ConfigError("paths", "at least one shard", list(paths))
    return found


def common_root(paths: Sequence[str]) -> str:
    """Give the deepest directory that holds all files."""
    return os.path.commonpath([os.path.dirname(path) for path in paths])


def name_in(root: str, path: str) -> str:
    """Give a path relative to the root, '/'-separated, so it is the same on every machine."""
    return os.path.relpath(path, root).replace(os.sep, "/")


def local_path(given: str | os.PathLike[str], knob: str = "paths") -> str:
    """Give a path as a string, of a `file://` URL too.

    Raises:
        ConfigError: It is no path, or a URL that is remote.
    """
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(path, str) or not path:
        several = "a path, a pattern, or a list of these"
        raise ConfigError(knob, several if knob == "paths" else "a path", given)
    if path.startswith("file://"):
        return unquote(urlsplit(path).path)
    if _SCHEME.match(path):
        raise ConfigError(
            knob,
            "local files",
            _without_secrets(path),
            "Remote buckets are not in this version: copy the shards to a local directory.",
        )
    return path


def not_found(path: str, wanted: str = "a file", hint: str = "") -> HeadraceError:
    """Give the error for an absolute path at which there is not what was wanted.

    Args:
        path: The path.
        wanted: "a file" or "a folder".
        hint: What else to say where there is nothing.
    """
    if os.path.exists(path):
        is_either = os.path.isdir(path) or os.path.isfile(path)
        kind = "a folder" if os.path.isdir(path) else "a file"
        return FormatError(path, wanted, kind if is_either else "neither a file nor a folder")
    folder, name = os.path.split(path)
    gone = "" if os.path.isdir(folder) else "There is no such folder."
    return NotFoundError(folder, name, " ".join(filter(None, (gone, hint))))


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _expand(path: str, suffix: str | None) -> list[str]:
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return _in_directory(path, suffix)
    # A file that exists is meant as it is, though its name may hold a bracket.
    if not os.path.exists(path) and glob.has_magic(path):
        return _in_pattern(path)
    if not os.path.isfile(path):
        raise not_found(path)
    return [path]


def _in_directory(path: str, suffix: str | None) -> list[str]:
    if suffix is None:
        raise ConfigError("paths", "files", path, "Name the files, or a pattern like dir/*.bin.")
    names = [
        name for name in os.listdir(path) if name.endswith(suffix) and not name.startswith(".")
    ]
    files = [file for name in names if os.path.isfile(file := os.path.join(path, name))]
    if not files:
        raise ConfigError(
            "paths", f"a directory that holds {suffix} files", path, _other_files(path)
        )
    return sorted(files, key=os.fsencode)


def _other_files(path: str) -> str:
    names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    if not names:
        return "It is empty."
    return (
        f"It holds {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}. Headerless dumps "
        "open by TokenShards.raw('dir/*.bin', dtype, seq_len)."
    )


def _in_pattern(pattern: str) -> list[str]:
    files = [file for file in glob.glob(pattern, recursive=True) if os.path.isfile(file)]
    if not files:
        raise ConfigError("paths", "a pattern that fits some files", pattern)
    return sorted(files, key=os.fsencode)
