"""The workloads: what data there is, what a batch of it must hold, and how to tell its rows.

Every row carries its own number, so that what a loader delivers can be checked against the data
itself and not against what another loader delivered.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Row numbers of one batch, int64 `[batch_rows]`."""

Columns = tuple[torch.Tensor, ...]
"""The columns of one batch, contiguous, in the order of the workload."""

Blocks = tuple[NDArray[Any], ...]
"""Memory that a batch is written to, one array per column."""

FOLDER = Path(__file__).resolve().parent / "data"


class Workload(ABC):
    """Data on disk, mapped and page-cached, and the batches that every loader makes of it.

    Attributes:
        name: One letter, as in the tables.
        folder: Where the files lie.
        rows: Samples in one epoch, a multiple of `batch_rows`.
        batch_rows: Samples in one batch.
        is_tuned: Whether `gather` is the fastest numpy instead of what people write first.
    """

    name: ClassVar[str]
    batch_rows: ClassVar[int]
    folder: Path
    rows: int
    is_tuned: bool = False

    @property
    def steps(self) -> int:
        """Batches in one epoch."""
        return self.rows // self.batch_rows

    @abstractmethod
    def new_blocks(self) -> Blocks:
        """Give memory for one batch."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files. Nothing can be gathered after this."""

    @abstractmethod
    def gather_into(self, rows: Rows, out: Blocks) -> None:
        """Write a batch into memory that is used again: the fastest numpy for one batch."""

    @abstractmethod
    def identify(self, columns: Columns) -> Rows:
        """Read the row numbers that the delivered rows carry."""

    @abstractmethod
    def expected(self, rows: Rows) -> Columns:
        """Give a batch by the plainest code there is, to compare with."""

    def gather(self, rows: Rows) -> Columns:
        """Give a batch in memory of its own, so that the caller may keep it.

        All peers that hand out batches to be kept are given this function.
        """
        blocks = self.new_blocks()
        self.gather_into(rows, blocks)
        return as_columns(blocks)


class Tokens(Workload):
    """T: windows of 1,024 tokens, input and target, from 16 shards of uint16."""

    name = "T"
    batch_rows = 64
    seq_len = 1024
    shards = 16
    full_windows = 32_768

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = [mapped(path) for path in sorted(folder.glob("*.npy"))]
        self.windows = (len(self.tokens[0]) - 1) // self.seq_len
        self.rows = self.windows * len(self.tokens)

    def new_blocks(self) -> Blocks:
        shape = (self.batch_rows, self.seq_len)
        return np.empty(shape, np.int64), np.empty(shape, np.int64)

    def close(self) -> None:
        self.tokens.clear()

    def gather_into(self, rows: Rows, out: Blocks) -> None:
        length, tokens = self.seq_len + 1, self.tokens
        narrow = np.empty((len(rows), length), np.uint16)
        shards, windows = np.divmod(rows, self.windows)
        starts = windows * self.seq_len
        for row, (shard, start) in enumerate(zip(shards.tolist(), starts.tolist(), strict=True)):
            narrow[row] = tokens[shard][start : start + length]
        np.copyto(out[0], narrow[:, :-1])
        np.copyto(out[1], narrow[:, 1:])

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


class Vectors(Workload):
    """S: 2 M rows of 64 float32."""

    name = "S"
    batch_rows = 1024
    width = 64
    full_rows = 2_097_152

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values = mapped(folder / "rows.npy")
        self.rows = len(self.values)

    def new_blocks(self) -> Blocks:
        return (np.empty((self.batch_rows, self.width), np.float32),)

    def close(self) -> None:
        self.values = np.empty((0, self.width), np.float32)

    def gather_into(self, rows: Rows, out: Blocks) -> None:
        # mode="clip" lets numpy write to `out` directly; the default makes a copy first.
        np.take(self.values, rows, axis=0, out=out[0], mode="clip")

    def gather(self, rows: Rows) -> Columns:
        # What people write. np.take into new memory takes half the time, but is rarely known.
        return super().gather(rows) if self.is_tuned else as_columns((self.values[rows],))

    def identify(self, columns: Columns) -> Rows:
        return columns[0][:, 0].numpy().astype(np.int64)

    def expected(self, rows: Rows) -> Columns:
        return as_columns((np.stack([self.values[row] for row in rows.tolist()]),))


WORKLOADS: dict[str, type[Tokens] | type[Vectors]] = {"T": Tokens, "S": Vectors}


def mapped(path: Path) -> NDArray[Any]:
    """Give a plain array over a mapped file: slices of np.memmap objects cost twice as much."""
    return np.asarray(np.load(path, mmap_mode="r"))


def as_columns(blocks: Blocks) -> Columns:
    """Show numpy memory as tensors, without a copy."""
    return tuple(torch.from_numpy(block) for block in blocks)


def folder_of(name: str, scale: Fraction, data: Path = FOLDER) -> Path:
    """Say where a workload of some scale lies."""
    return data / f"{name}-{scale.numerator}of{scale.denominator}"


def open_workload(folder: Path, is_tuned: bool = False) -> Workload:
    """Open what `generate.py` made."""
    manifest = json.loads((folder / "manifest.json").read_text())
    workload = WORKLOADS[manifest["workload"]](folder)
    workload.is_tuned = is_tuned
    return workload
