"""The content digest: proof by bytes that two streams are the same."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import numpy as np
import torch

from headrace.batch import Batch
from headrace.collate import OFFSETS

_MASK = (1 << 64) - 1


def content_digest(batch: Batch, slots: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    """Hash every delivered row of a batch and add the hashes mod 2^64.

    Per row and column, BLAKE2b (8 bytes) over step, global slot, column name, dtype, shape and
    bytes in row-major order, without padding. Additive, so pieces of a run and ranks add up.

    Args:
        batch: The batch as it is delivered, its tensors on the host.
        slots: Global slot of each row, `[rows]`.
    """
    total = 0
    for name, column in batch.items():
        if name.endswith(OFFSETS) and batch.has(name.removesuffix(OFFSETS)):
            continue
        kind, rows = _rows(name, column, batch)
        if len(rows) != batch.num_rows:
            # A column that is not by row counts as a whole, at the first slot.
            kind, rows = f"{kind}|whole", [b"".join(rows)]
        total += _add_rows(batch.step, slots, kind, rows)
    return total & _MASK


def _rows(name: str, column: Any, batch: Batch) -> tuple[str, list[Any]]:
    """Give what a column is, in words, and the bytes of each row."""
    if not isinstance(column, torch.Tensor):
        return f"{name}|host", [repr(value).encode() for value in column]
    dense = column.detach().to("cpu").contiguous()
    kind = f"{name}|{dense.dtype}|{tuple(dense.shape[1:])}"
    rows = _row_bytes(dense)
    if batch.has(name + OFFSETS):
        at = batch[name + OFFSETS].tolist()
        rows = [b"".join(rows[a:b]) for a, b in itertools.pairwise(at)]
    return kind, rows


def _row_bytes(dense: torch.Tensor) -> list[Any]:
    rows = dense.shape[0]
    flat = dense.reshape(rows, -1).view(torch.uint8) if dense.numel() else None
    if flat is None:
        return [memoryview(b"")] * rows
    return [memoryview(row) for row in flat.numpy()]


def _add_rows(
    step: int,
    slots: np.ndarray[Any, np.dtype[np.int64]],
    kind: str,
    rows: list[Any],
) -> int:
    total = 0
    for slot, row in zip(slots.tolist(), rows, strict=False):
        digest = hashlib.blake2b(f"{step}|{slot}|{kind}|".encode(), digest_size=8)
        digest.update(row)
        total += int.from_bytes(digest.digest(), "little")
    return total
