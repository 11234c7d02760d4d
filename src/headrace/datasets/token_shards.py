"""Pre-tokenised corpora: files of token ids, read through memory maps."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.datasets.bounds import Indices, check_index
from headrace.datasets.dataset import Location
from headrace.datasets.gather import RowGather
from headrace.datasets.shard_paths import Paths, common_root, find_files, name_in
from headrace.datasets.shards import Shard, ShardTable
from headrace.datasets.token_files import (
    check_same_dtype,
    raw_tokens,
    token_dtype,
    token_header,
)
from headrace.datasets.windows import TokenWindows
from headrace.errors import FormatError
from headrace.sources.mapped import MappedSource
from headrace.sources.source import ByteRange


class TokenShards(TokenWindows):
    """Non-overlapping windows of `seq_len` tokens out of 1-D `.npy` shards.

    Sample i is the i-th window, shards one after another in the order of the paths; the target
    is the input shifted by one. Windows never cross from one shard into the next, and a tail
    that fills no window is dropped. Delivered as int64 "input" and "target" `[rows, seq_len]`,
    stored as the shards' own dtype "tokens" `[rows, seq_len + 1]`.

    Opening reads headers only. Shards are mapped at the first read, so a corpus larger than RAM
    costs none up front; any thread may read. A pickle carries paths and headers, no maps.

    Args:
        paths: A directory (every `.npy` in it), a file, a pattern, or a list of these. Files of
            a directory or pattern are sorted by the bytes of their path; a list keeps its order.
        seq_len: Tokens of one window.
        vocab_size: Where given, every id read must be below it. A file read with the wrong
            width gives ids beyond any vocabulary, and nothing else would notice.

    Raises:
        ConfigError: `seq_len` is below 1, or no file is given or found.
        NotFoundError: A file does not exist.
        FormatError: A shard is no whole 1-D `.npy` of |u1, <u2, <u4, <i4 or <i8, shards differ
            in dtype, or none holds a full window.
    """

    def __init__(self, paths: Paths, seq_len: int, *, vocab_size: int | None = None) -> None:
        files = find_files(paths, ".npy")
        headers = [token_header(file) for file in files]
        check_same_dtype(files, [header.dtype for header in headers])
        sizes = [(header.shape[0], header.data_start_bytes) for header in headers]
        self._settle(files, sizes, headers[0].dtype, seq_len, vocab_size)

    @classmethod
    def raw(
        cls, paths: Paths, dtype: DTypeLike, seq_len: int, *, vocab_size: int | None = None
    ) -> TokenShards:
        """Give windows of headerless dumps, whose dtype must be said.

        A prefix of a dump is a dump too and has the same first windows. Give `vocab_size`: it
        is the only check that the width is right.

        Raises:
            ConfigError: As for `.npy` shards, or the dtype is none of theirs.
            FormatError: A file is a `.npy` file, or its size is no multiple of the dtype's.
        """
        kind = token_dtype(dtype)
        files = find_files(paths, None)
        sizes = [(raw_tokens(file, kind), 0) for file in files]
        made = cls.__new__(cls)
        made._settle(files, sizes, kind, seq_len, vocab_size)
        return made

    def _settle(
        self,
        files: Sequence[str],
        sizes: Sequence[tuple[int, int]],
        dtype: np.dtype[Any],
        seq_len: int,
        vocab_size: int | None,
    ) -> None:
        """Keep what the files were found to be: tokens and start of data of each."""
        super().__init__(seq_len, dtype, vocab_size)
        self._root = common_root(files)
        self._dtype = dtype
        self._table = ShardTable(
            [
                Shard(name_in(self._root, file), tokens, start_bytes, os.path.getsize(file))
                for file, (tokens, start_bytes) in zip(files, sizes, strict=True)
            ],
            seq_len,
        )
        self._maps: _Maps | None = None
        _check_any_window(self._root, self._table)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def total_tokens(self) -> int:
        """Tokens in all shards, the dropped tails included."""
        return self._table.total_tokens

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The files, in the order in which windows are numbered."""
        return self._table.shards

    def thread_open(self) -> None:
        self._mapped()

    def check(self) -> None:
        if self._maps is not None:
            self._maps.source.check()

    async def aclose(self) -> None:
        self._maps = None

    def locate(self, index: int) -> Location:
        shard, position = self._table.place(check_index(index, len(self), self))
        start = shard.data_start_bytes + position * self._dtype.itemsize
        stop = start + (self.seq_len + 1) * self._dtype.itemsize
        return Location(shard.name, ByteRange(start, stop), f"token {position}")

    def fingerprint(self) -> dict[str, Any]:
        listed = "\n".join(f"{shard.name}\t{shard.size_bytes}" for shard in self.shards)
        return {
            "kind": "TokenShards",
            "samples": len(self),
            "seq_len": self.seq_len,
            "dtype": self._dtype.str,
            "columns": [column.name for column in self.delivered],
            "shards": len(self.shards),
            "bytes": sum(shard.size_bytes for shard in self.shards),
            "names_and_sizes": hashlib.sha256(os.fsencode(listed)).hexdigest()[:16],
        }

    def _copy(self, indices: Indices, tokens: NDArray[Any], rows: Indices) -> None:
        maps = self._mapped()
        offsets = indices * maps.step_bytes
        offsets += maps.shift_bytes[self._table.shard_of(indices)]
        maps.gather.read(offsets, tokens, rows)

    def _place(self, index: int) -> tuple[str, int]:
        shard, position = self._table.place(index)
        return os.path.join(self._root, shard.name), position

    def _mapped(self) -> _Maps:
        # Two threads may both map at first: the maps are equal and one pair dies unused.
        maps = self._maps
        if maps is None:
            maps = self._maps = _Maps(self._root, self._table, self._dtype)
        return maps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": None}

    def __repr__(self) -> str:
        return f"TokenShards({self._root!r}, seq_len={self.seq_len}, shards={len(self.shards)})"


class _Maps:
    """The mapped shards, and how a window's number becomes a byte offset.

    Attributes:
        source: What holds the maps.
        step_bytes: From one window to the next.
        shift_bytes: By shard: window i of the dataset, if in this shard, begins at
            `i * step_bytes + shift_bytes` of the gather.
    """

    def __init__(self, root: str, table: ShardTable, dtype: np.dtype[Any]) -> None:
        self.source = MappedSource(root)
        # An empty file cannot be mapped, and a shard without a window is never read.
        used = [number for number, shard in enumerate(table.shards) if shard.windows(table.seq_len)]
        arrays = [
            self.source.array(
                table.shards[number].name,
                dtype,
                table.shards[number].data_start_bytes,
                table.shards[number].tokens,
            )
            for number in used
        ]
        self.step_bytes = table.seq_len * dtype.itemsize
        self.gather = RowGather(arrays, self.step_bytes + dtype.itemsize)
        self.shift_bytes = np.zeros(len(table.shards), np.int64)
        self.shift_bytes[used] = (
            self.gather.starts_bytes - table.first_window[:-1][used] * self.step_bytes
        )


def _check_any_window(root: str, table: ShardTable) -> None:
    if len(table):
        return
    longest = max(table.shards, key=lambda shard: shard.tokens)
    raise FormatError(
        root,
        f"a shard with a full window of {table.seq_len} + 1 tokens",
        f"at most {longest.tokens} tokens (in {longest.name})",
        "Use a smaller seq_len.",
    )
