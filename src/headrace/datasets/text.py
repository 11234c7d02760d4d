"""Raw text as characters: small, and a model can be trained on it in minutes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, check_index
from headrace.datasets.dataset import Location
from headrace.datasets.gather import RowGather
from headrace.datasets.shard_paths import local_path, not_found
from headrace.datasets.windows import TokenWindows
from headrace.errors import DataError, FormatError


class Text(TokenWindows):
    """Non-overlapping windows of `seq_len` characters of a UTF-8 file.

    Ids number the characters that occur, sorted by code point. The target is the input shifted
    by one; the tail that fills no window is dropped. The whole text is held in memory as ids.

    Args:
        path: A UTF-8 file. `Text.from_string` takes the text itself.
        seq_len: Characters of one window.

    Raises:
        ConfigError: `seq_len` is below 1, or `path` is none, or remote.
        NotFoundError: The file does not exist.
        FormatError: It is a directory, not UTF-8, or shorter than one window.

    Attributes:
        vocabulary: Every character that occurs, sorted; its position is its id.
    """

    def __init__(self, path: str | os.PathLike[str], seq_len: int) -> None:
        name = local_path(path, "path")
        if os.path.isdir(name):
            raise FormatError(name, "a text file", "a directory", "Join its files into one.")
        if not os.path.exists(name):
            raise not_found(os.path.abspath(name))
        try:
            # Line ends are kept as they are, so that the ids do not depend on the machine.
            text = Path(name).read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(name, "UTF-8 text", f"other bytes at {error.start}") from error
        self._settle(text, seq_len, name)

    @classmethod
    def from_string(cls, text: str, seq_len: int) -> Text:
        """Give windows of a string."""
        made = cls.__new__(cls)
        made._settle(text, seq_len, "text")
        return made

    def _settle(self, text: str, seq_len: int, name: str) -> None:
        self.vocabulary = "".join(sorted(set(text)))
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        dtype = np.min_scalar_type(max(len(self.vocabulary) - 1, 0))
        super().__init__(seq_len, dtype, None)
        self._name = name
        self._ids = self._table(dtype)[points]
        self._gather: RowGather | None = None
        if not len(self):
            raise FormatError(
                name,
                f"at least {seq_len} + 1 characters",
                f"{len(points)}",
                "Use a smaller seq_len.",
            )

    def _table(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Give the id of every code point up to the highest."""
        table = np.zeros(ord(self.vocabulary[-1]) + 1 if self.vocabulary else 0, dtype)
        table[[ord(character) for character in self.vocabulary]] = np.arange(len(self.vocabulary))
        return table

    def __len__(self) -> int:
        return max(len(self._ids) - 1, 0) // self.seq_len

    @property
    def total_tokens(self) -> int:
        """Characters of the text, the dropped tail included."""
        return len(self._ids)

    def encode(self, text: str) -> NDArray[np.int64]:
        """Give the ids of a text, int64 `[characters]`.

        Raises:
            DataError: A character does not occur in the dataset's text.
        """
        numbers = {character: number for number, character in enumerate(self.vocabulary)}
        unknown = sorted(set(text) - numbers.keys())
        if unknown:
            raise DataError(f"{unknown[0]!r} does not occur in {self!r}, so it has no id.")
        return np.array([numbers[character] for character in text], np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of some ids (an array or tensor will do)."""
        return "".join(self.vocabulary[int(number)] for number in ids)

    def locate(self, index: int) -> Location:
        start = check_index(index, len(self), self) * self.seq_len
        stop = start + self.seq_len + 1
        return Location(os.path.basename(self._name), None, f"characters [{start}, {stop})")

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "Text",
            "samples": len(self),
            "seq_len": self.seq_len,
            "columns": [column.name for column in self.delivered],
            "characters": len(self._ids),
            "vocabulary": len(self.vocabulary),
            "content": self._digest(),
        }

    def _digest(self) -> str:
        digest = hashlib.sha256(self.vocabulary.encode("utf-8", "surrogatepass"))
        digest.update(memoryview(self._ids).cast("B"))
        return digest.hexdigest()[:16]

    def _copy(self, indices: Indices, tokens: NDArray[Any], rows: Indices) -> None:
        step_bytes = self.seq_len * self._ids.itemsize
        if self._gather is None:
            self._gather = RowGather([self._ids], step_bytes + self._ids.itemsize)
        self._gather.read(indices * step_bytes, tokens, rows)

    def _place(self, index: int) -> tuple[str, int]:
        return self._name, index * self.seq_len

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_gather": None}

    def __repr__(self) -> str:
        return f"Text({self._name!r}, seq_len={self.seq_len})"
