"""Token shards of a text that every machine has: the source of Python's standard library."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError, NotFoundError

# A token is a byte; one more says where a file ends.
END_OF_FILE = 256
VOCABULARY = 257
SHARDS = 6
MANIFEST = "manifest.json"
# Packages that others installed, and what Python compiled.
_NOT_STANDARD = {"site-packages", "dist-packages", "__pycache__"}

Tokens = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of the corpus as it was written."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """What was written, and from what.

    Attributes:
        recipe: Everything that decides the tokens; another recipe means other shards.
        files: Source files that went in.
        text_bytes: Bytes of their text.
        tokens: Tokens in all shards.
        shards: The files, in order.
    """

    recipe: dict[str, Any]
    files: int
    text_bytes: int
    tokens: int
    shards: tuple[ShardFile, ...]


def build(folder: Path, text_bytes: int, source: Path | None = None) -> Corpus:
    """Write the corpus into a folder, in place of one of another recipe.

    The manifest is written last, so a folder without it is an unfinished one.

    Args:
        folder: Where to; made if it is not there.
        text_bytes: Whole files are taken in the order of their paths up to this much text.
        source: Folder of Python source; None for the running Python's standard library.

    Raises:
        ConfigError: The folder holds files that are not ours.
        NotFoundError: There is no source text.
    """
    root = _standard_library() if source is None else source
    _clear(folder)
    texts = list(_texts(root, text_bytes))
    if not texts:
        raise NotFoundError(str(root), "*.py", "This Python came without its source files.")
    shards = tuple(
        _write(folder / f"shard-{number:03}.npy", tokens)
        for number, tokens in enumerate(_shards(texts, text_bytes // SHARDS))
    )
    total = sum(map(len, texts))
    made = Corpus(_recipe(root, text_bytes), len(texts), total, total + len(texts), shards)
    _write_manifest(folder / MANIFEST, made)
    return made


def find(folder: Path, text_bytes: int, source: Path | None = None) -> Corpus | None:
    """Give the corpus that a folder holds, if it is of this recipe and every byte is right."""
    root = _standard_library() if source is None else source
    try:
        facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        shards = tuple(ShardFile(**shard) for shard in facts.pop("shards"))
        found = Corpus(shards=shards, **facts)
        is_right = found.recipe == _recipe(root, text_bytes) and all(
            _describe(folder / shard.name) == shard for shard in found.shards
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if is_right else None


def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _recipe(root: Path, text_bytes: int) -> dict[str, Any]:
    return {
        "format": 1,
        "python": sys.version,
        "source": str(root),
        "text_bytes": text_bytes,
        "shards": SHARDS,
    }


def _texts(root: Path, text_bytes: int) -> Iterator[bytes]:
    """Give whole files, in the order of their paths, while they fit."""
    left = text_bytes
    for path in sorted(_sources(root)):
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            continue  # what may not be read is left out
        if len(text) > left:
            return
        left -= len(text)
        yield text


def _sources(root: Path) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in _NOT_STANDARD]
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def _shards(texts: list[bytes], shard_bytes: int) -> Iterator[Tokens]:
    """Give runs of whole files, each a shard."""
    run: list[Tokens] = []
    size = 0
    for text in texts:
        run += [np.frombuffer(text, np.uint8).astype(np.uint16), _END]
        size += len(text)
        if size >= shard_bytes:
            yield np.concatenate(run)
            run, size = [], 0
    if run:
        yield np.concatenate(run)


_END: Tokens = np.array([END_OF_FILE], np.uint16)


def _write(path: Path, tokens: Tokens) -> ShardFile:
    # TokenShards reads little-endian ids.
    np.save(path, tokens.astype("<u2"))
    return _describe(path)


def _describe(path: Path) -> ShardFile:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    return ShardFile(path.name, path.stat().st_size, digest)


def _write_manifest(path: Path, made: Corpus) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(made), indent=2), encoding="utf-8")
    partial.replace(path)


def _clear(folder: Path) -> None:
    """Make an empty folder; only what an earlier corpus left is taken away."""
    folder.mkdir(parents=True, exist_ok=True)
    left = list(folder.iterdir())
    foreign = [path.name for path in left if not _is_ours(path.name)]
    if foreign:
        raise ConfigError(
            "--dir", f"no files of others in {str(folder)!r}", sorted(foreign)[0], "Name another."
        )
    for path in sorted(left, key=lambda path: path.name != MANIFEST):
        path.unlink()


def _is_ours(name: str) -> bool:
    return name in (MANIFEST, "manifest.partial") or (
        name.startswith("shard-") and name.endswith(".npy")
    )
