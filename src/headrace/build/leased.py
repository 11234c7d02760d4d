"""Memory for the columns of samples, out of recycled blocks."""

from __future__ import annotations

import math

import torch

from headrace.build.bulk import OWN_STORAGE_BYTES
from headrace.ring.blocks import BlockPool, capacity_for
from headrace.stack import NUMPY_DTYPES


class LeasedColumns:
    """Gives large columns a block each, which goes back when the last view has died.

    Fresh memory costs a page fault for every 4 KiB, which for a batch of images takes longer
    than to copy them. A small column gets storage of its own.

    Args:
        pool: Where blocks come from.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Give unset memory for a column."""
        native = NUMPY_DTYPES.get(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if native is None or nbytes < OWN_STORAGE_BYTES:
            return torch.empty(shape, dtype=dtype)
        block = self._pool.lend(capacity_for(nbytes))
        column = torch.from_numpy(block.lease(0, shape, native.str))
        block.let_go()
        return column
