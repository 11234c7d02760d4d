"""The content digest: proof by bytes that two streams are the same."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections.abc import Mapping
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
    A column that does not go by rows counts as a whole, at the first slot.

    Args:
        batch: The batch as it is delivered, its tensors on the host.
        slots: Global slot of each row, `[rows]`.
    """
    total = 0
    for name, column in batch.items():
        if name.endswith(OFFSETS) and batch.has(name.removesuffix(OFFSETS)):
            continue
        kind, rows = _rows(name, column, batch)
        total += _add_rows(batch.step, slots, kind, rows)
    return total & _MASK


def row_digests(batch: Batch) -> list[bytes]:
    """Hash what each row holds, at whichever step and slot it is: equal rows, equal hashes.

    Columns that do not go by rows are left out.
    """
    digests = [hashlib.blake2b(digest_size=16) for _ in range(batch.num_rows)]
    for name, column in batch.items():
        kind, rows = _rows(name, column, batch)
        if len(rows) == batch.num_rows and not name.endswith(OFFSETS):
            for digest, row in zip(digests, rows, strict=True):
                digest.update(f"{kind}|{len(row)}|".encode())
                digest.update(row)
    return [digest.digest() for digest in digests]


def _rows(name: str, column: Any, batch: Batch) -> tuple[str, list[Any]]:
    """Give what a column is, in words, and the bytes of each row; one row for a whole column.

    There are four cases: an open column, a tensor by rows, a list by rows, and anything else.
    """
    if isinstance(column, torch.Tensor):
        dense = _dense(column)
        kind = f"{name}|{dense.dtype}|{tuple(dense.shape[1:])}"
        if batch.has(name + OFFSETS):
            rows, at = _row_bytes(dense), batch[name + OFFSETS].tolist()
            return kind, [b"".join(rows[a:b]) for a, b in itertools.pairwise(at)]
        if dense.dim() and dense.shape[0] == batch.num_rows:
            return kind, _row_bytes(dense)
    elif isinstance(column, list | tuple) and len(column) == batch.num_rows:
        return f"{name}|host", [_host_bytes(value) for value in column]
    return f"{name}|whole", [_host_bytes(column)]


def _dense(column: torch.Tensor) -> torch.Tensor:
    dense = column.detach()
    if dense.layout is not torch.strided:
        dense = dense.to_dense()
    return dense.to("cpu").resolve_conj().resolve_neg().contiguous()


def _row_bytes(dense: torch.Tensor) -> list[Any]:
    rows = dense.shape[0]
    if not dense.numel():
        return [memoryview(b"")] * rows
    return [memoryview(row) for row in dense.reshape(rows, -1).view(torch.uint8).numpy()]


def _host_bytes(value: Any) -> bytes:
    """Give bytes that are equal for equal values of one type, in any process.

    Arrays count by their bytes, since their repr leaves out what is long; nested values by their
    parts; numbers, text and bytes by their repr; other objects by their pickle.
    """
    if isinstance(value, torch.Tensor):
        dense = _dense(value)
        flat = dense.reshape(-1).view(torch.uint8).numpy() if dense.numel() else np.zeros(0)
        return f"tensor {dense.dtype} {tuple(dense.shape)} ".encode() + flat.tobytes()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"array {value.dtype.str} {value.shape} ".encode() + value.tobytes()
    if isinstance(value, str | bytes | int | float | complex | None):
        return repr(value).encode()
    if isinstance(value, Mapping):
        value = [part for item in value.items() for part in item]
    if isinstance(value, list | tuple | np.ndarray):
        parts = [_host_bytes(part) for part in value]
        return b"".join([b"parts %d " % len(parts), *(b"%d:%b" % (len(p), p) for p in parts)])
    return pickle.dumps(value, protocol=4)


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
