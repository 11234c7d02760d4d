"""Some delivered columns of any bulk dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices
from headrace.datasets.dataset import BulkDataset, Layout, Location, Out
from headrace.datasets.names import wanted_names
from headrace.datasets.rows import OverRows


class SelectRows(OverRows):
    """Some delivered columns of a bulk dataset; all stored ones are still read."""

    def __init__(self, base: BulkDataset, names: Sequence[str]) -> None:
        self.parts = (base,)
        columns = {column.name: column for column in base.delivered}
        self._delivered = tuple(columns[name] for name in wanted_names(names, columns))
        self._left_out = tuple(c for c in base.delivered if c not in self._delivered)

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def delivered(self) -> Layout:
        return self._delivered

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        return self.parts[0].sizes(indices)

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        self.parts[0].read_into_blocking(indices, out, rows)

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        await self.parts[0].read_into(indices, out, rows)

    def deliver(self, stored: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
        base = self.parts[0]
        if base.delivered == base.layout:
            for name, column in out.items():
                column.copy_(stored[name])
            return
        base.deliver(stored, {**out, **scratch_like(self._left_out, stored)})

    def locate(self, index: int) -> Location | None:
        return self.parts[0].locate(index)

    def fingerprint(self) -> dict[str, Any]:
        return {
            **self.parts[0].fingerprint(),
            "columns": [column.name for column in self._delivered],
        }

    def __repr__(self) -> str:
        return f"{self.parts[0]!r}.select({', '.join(c.name for c in self._delivered)})"


def scratch_like(columns: Layout, stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give fresh memory for delivered columns, as long and on the device as the stored ones.

    An open column is as long as the stored one of its name.
    """
    some = next(iter(stored.values()))
    return {
        column.name: torch.empty(
            (len(stored[column.name] if column.is_open else some), *column.unit_shape),
            dtype=torch.from_numpy(np.empty(0, column.dtype)).dtype,
            device=some.device,
        )
        for column in columns
    }
