"""The contract of a workload: what data there is, what a batch must hold, how to tell its rows.

Every row carries its own number, so that what a loader delivers can be checked against the data
itself and not against what another loader delivered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
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

File = tuple[str, "NDArray[Any] | bytes"]
"""A name below the folder of the data, and an array for a `.npy` file or the bytes of another."""

FOLDER = Path(__file__).resolve().parent / "data"


class Workload(ABC):
    """Data on disk, page-cached, and the batches that every loader makes of it.

    Attributes:
        name: One letter, as in the tables.
        check_scale: Share of the data that is enough to check contents and coverage.
        folder: Where the files lie.
        rows: Samples in one epoch, a multiple of `batch_rows`.
        batch_rows: Samples in one batch.
        is_tuned: Whether `gather` is the fastest numpy instead of what people write first.
    """

    name: ClassVar[str]
    batch_rows: ClassVar[int]
    check_scale: ClassVar[Fraction] = Fraction(1, 512)
    folder: Path
    rows: int
    is_tuned: bool = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def steps(self) -> int:
        """Batches in one epoch."""
        return self.rows // self.batch_rows

    @classmethod
    @abstractmethod
    def files(cls, scale: Fraction) -> Iterator[File]:
        """Give the files of the data, the same bytes everywhere."""

    @abstractmethod
    def new_blocks(self) -> Blocks:
        """Give memory for one batch, the largest that may come."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files. Nothing can be gathered after this."""

    @abstractmethod
    def gather_into(self, rows: Rows, out: Blocks) -> Columns:
        """Write a batch into memory that is used again: the fastest numpy for one batch.

        Returns:
            Views of `out`.
        """

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
        return self.gather_into(rows, self.new_blocks())


def mapped(path: Path) -> NDArray[Any]:
    """Give a plain array over a mapped file: slices of np.memmap objects cost twice as much."""
    return np.asarray(np.load(path, mmap_mode="r"))


def as_columns(blocks: Blocks) -> Columns:
    """Show numpy memory as tensors, without a copy."""
    return tuple(torch.from_numpy(block) for block in blocks)


def scaled(full: int, scale: Fraction) -> int:
    """Give the share of a size that a scale asks for.

    Raises:
        SystemExit: The share is not whole.
    """
    share = full * scale
    if share.denominator != 1 or share < 1:
        raise SystemExit(f"--scale {scale}: {full} times it must be a whole number, got {share}.")
    return int(share)


def folder_of(name: str, scale: Fraction, data: Path = FOLDER) -> Path:
    """Say where a workload of some scale lies."""
    return data / f"{name}-{scale.numerator}of{scale.denominator}"
