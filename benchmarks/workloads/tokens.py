"""T: windows of 1,024 tokens, input and target, from 16 shards of uint16."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from noise import noise
from workload import Blocks, Columns, File, Rows, Workload, as_columns, mapped, scaled


class Tokens(Workload):
    """The shards are noise; the first two tokens of a window are its number."""

    name = "T"
    batch_rows = 64
    seq_len = 1024
    shards = 16
    full_windows = 32_768

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tokens = [mapped(path) for path in sorted(folder.glob("*.npy"))]
        self.windows = (len(self.tokens[0]) - 1) // self.seq_len
        self.rows = self.windows * len(self.tokens)

    @classmethod
    def files(cls, scale: Fraction) -> Iterator[File]:
        windows = scaled(cls.full_windows, scale)
        for shard in range(cls.shards):
            tokens = noise(shard, windows * cls.seq_len * 2 + 2).view(np.uint16)
            starts = np.arange(windows) * cls.seq_len
            rows = np.arange(windows) + shard * windows
            tokens[starts], tokens[starts + 1] = rows & 0xFFFF, rows >> 16
            yield f"shard-{shard:02}.npy", tokens

    def new_blocks(self) -> Blocks:
        shape = (self.batch_rows, self.seq_len)
        return np.empty(shape, np.int64), np.empty(shape, np.int64)

    def close(self) -> None:
        self.tokens.clear()

    def gather_into(self, rows: Rows, out: Blocks) -> Columns:
        length, tokens = self.seq_len + 1, self.tokens
        narrow = np.empty((len(rows), length), np.uint16)
        shards, windows = np.divmod(rows, self.windows)
        starts = windows * self.seq_len
        for row, (shard, start) in enumerate(zip(shards.tolist(), starts.tolist(), strict=True)):
            narrow[row] = tokens[shard][start : start + length]
        np.copyto(out[0], narrow[:, :-1])
        np.copyto(out[1], narrow[:, 1:])
        return as_columns(out)

    def identify(self, columns: Columns) -> Rows:
        first = columns[0][:, :2].long().numpy()
        return np.asarray(first[:, 0] + (first[:, 1] << 16), np.int64)

    def expected(self, rows: Rows) -> Columns:
        inputs, targets = [], []
        for row in rows.tolist():
            shard, window = divmod(row, self.windows)
            start = window * self.seq_len
            inputs.append(self.tokens[shard][start : start + self.seq_len].astype(np.int64))
            targets.append(self.tokens[shard][start + 1 : start + 1 + self.seq_len])
        return as_columns((np.stack(inputs), np.stack(targets).astype(np.int64)))
