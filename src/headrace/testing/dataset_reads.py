"""Reads of datasets as the engine does them, into poisoned memory, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.access import Samples
from headrace.datasets.bounds import as_indices
from headrace.datasets.dataset import BulkDataset, Dataset, RaggedColumn
from headrace.datasets.shards import starts_of
from headrace.errors import RowErrors
from headrace.threads import start_thread

POISON = 0xA5
LIMIT_S = 20.0


class Memory:
    """Poisoned memory for some rows of a bulk dataset.

    Args:
        dataset: The dataset.
        indices: The sample that each row has room for.
    """

    def __init__(self, dataset: BulkDataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        sizes = dataset.sizes(as_indices(indices))
        self.out: dict[str, NDArray[Any] | RaggedColumn] = {}
        for column in dataset.layout:
            if column.is_open:
                offsets = starts_of(sizes[column.name])
                flat = _poisoned((int(offsets[-1]), *column.unit_shape), column.dtype)
                self.out[column.name] = RaggedColumn(flat, offsets)
            else:
                shape = (len(indices), *column.unit_shape)
                self.out[column.name] = _poisoned(shape, column.dtype)
        self._count = len(indices)

    def read(
        self,
        indices: Sequence[int],
        rows: Sequence[int],
        is_awaited: bool | None = None,
    ) -> None:
        """Have the dataset fill rows.

        Args:
            indices: What to read.
            rows: Where to.
            is_awaited: Whether to read on an event loop; None as the dataset prefers.
        """
        read_into(self.dataset, indices, self.out, rows, is_awaited)

    def rows(self) -> list[dict[str, NDArray[Any]]]:
        """Give copies of what the rows hold."""
        return [
            {name: self._row(name, row).copy() for name in self.out} for row in range(self._count)
        ]

    def row_is_poison(self, row: int) -> bool:
        """Whether nothing was written to a row."""
        return all(
            bool(
                (
                    np.ascontiguousarray(self._row(name, row)).reshape(-1).view(np.uint8) == POISON
                ).all()
            )
            for name in self.out
        )

    def arrays(self) -> list[NDArray[Any]]:
        """Give the memory itself."""
        return [c.flat if isinstance(c, RaggedColumn) else c for c in self.out.values()]

    def _row(self, name: str, row: int) -> NDArray[Any]:
        column = self.out[name]
        if isinstance(column, RaggedColumn):
            return column.flat[column.offsets[row] : column.offsets[row + 1]]
        # A slice first: of one bool numpy makes 0 or 1, whatever byte is there.
        return column[row : row + 1].reshape(column.shape[1:])


def can_read(dataset: BulkDataset, is_awaited: bool) -> bool:
    """Whether rows can be read on the loop, or off it."""
    if not is_awaited:
        return not dataset.waits
    if type(dataset).read_into is BulkDataset.read_into:
        return False
    # A composition can be awaited only where its parts can.
    parts = getattr(dataset, "parts", ())
    return dataset.waits or all(can_read(part, True) for part in parts)


def read_into(
    dataset: BulkDataset,
    indices: Sequence[int],
    out: Mapping[str, NDArray[Any] | RaggedColumn],
    rows: Sequence[int],
    is_awaited: bool | None = None,
) -> None:
    """Read as the engine does, with the lifecycle around it."""
    wanted, into = as_indices(indices), as_indices(rows)
    if not (dataset.waits if is_awaited is None else is_awaited):
        dataset.thread_open()
        dataset.read_into_blocking(wanted, out, into)
        dataset.thread_close()
        return

    async def read() -> None:
        await dataset.open()
        try:
            await dataset.read_into(wanted, out, into)
        finally:
            await dataset.aclose()

    asyncio.run(read())


def read_rows(dataset: BulkDataset, indices: Sequence[int]) -> list[dict[str, NDArray[Any]]]:
    """Give the stored rows of some samples."""
    memory = Memory(dataset, indices)
    memory.read(indices, list(range(len(indices))))
    return memory.rows()


def spread_rows(
    dataset: BulkDataset, indices: Sequence[int], cuts: Sequence[int], width: int
) -> list[dict[str, NDArray[Any]]]:
    """Give the stored rows of some samples, read side by side into several batches.

    Args:
        dataset: One that has `read_spread_blocking`.
        indices: What to read.
        cuts: Row at which each batch begins, and the end.
        width: Of all of them.
    """
    fixed, batches = _spread_memory(dataset, cuts, width)
    dataset.thread_open()
    dataset.read_spread_blocking(as_indices(indices), fixed, batches)
    dataset.thread_close()
    sizes = dataset.sizes(as_indices(indices))
    rows: list[dict[str, NDArray[Any]]] = [{} for _ in indices]
    for name in sizes:
        values = [row for batch in batches for row in batch[name]]
        for row, value, size in zip(rows, values, sizes[name].tolist(), strict=True):
            row[name] = value[:size]
    for name, column in fixed.items():
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


def _spread_memory(
    dataset: BulkDataset, cuts: Sequence[int], width: int
) -> tuple[dict[str, NDArray[Any]], list[dict[str, NDArray[Any]]]]:
    fixed = {
        column.name: _poisoned((cuts[-1], *column.unit_shape), column.dtype)
        for column in dataset.layout
        if not column.is_open
    }
    batches = [
        {
            column.name: _poisoned((end - first, width, *column.unit_shape), column.dtype)
            for column in dataset.layout
            if column.is_open
        }
        for first, end in pairwise(cuts)
    ]
    return fixed, batches


def delivered_rows(dataset: BulkDataset, indices: Sequence[int]) -> list[dict[str, torch.Tensor]]:
    """Give the rows of some samples as they are delivered."""
    memory = Memory(dataset, indices)
    memory.read(indices, list(range(len(indices))))
    stored = dict(zip(memory.out, map(torch.from_numpy, memory.arrays()), strict=True))
    offsets = {n: c.offsets for n, c in memory.out.items() if isinstance(c, RaggedColumn)}
    delivered = stored
    if dataset.delivered != dataset.layout:
        before = {name: column.clone() for name, column in stored.items()}
        delivered = {
            column.name: torch.from_numpy(
                _poisoned(
                    (
                        int(offsets[column.name][-1]) if column.is_open else len(indices),
                        *column.unit_shape,
                    ),
                    column.dtype,
                )
            )
            for column in dataset.delivered
        }
        dataset.deliver(stored, delivered)
        assert all(torch.equal(stored[name], before[name]) for name in stored)
    return [
        {
            name: column[offsets[name][row] : offsets[name][row + 1]]
            if name in offsets
            else column[row]
            for name, column in delivered.items()
        }
        for row in range(len(indices))
    ]


def get_samples(dataset: Dataset, indices: Iterable[int]) -> list[Any]:
    """Give samples as the engine gets them, with the lifecycle around it."""
    samples = Samples(dataset)
    wanted = list(indices)
    if not samples.waits:
        dataset.thread_open()
        got = samples.get_blocking(wanted)
        dataset.thread_close()
        return got

    async def fetch() -> list[Any]:
        await dataset.open()
        try:
            return await samples.fetch(wanted)
        except RowErrors as error:
            raise next(iter(error.errors.values())) from error
        finally:
            await dataset.aclose()

    return [samples.decode(raw) for raw in asyncio.run(fetch())]


def in_threads(count: int, call: Callable[[], Any]) -> list[Any]:
    """Give what a call gives on each of some threads that run it at once."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            found.append(error)

    threads = [start_thread(run, f"contract-{number}") for number in range(count)]
    for thread in threads:
        thread.join(LIMIT_S)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    assert len(found) == count
    return found


def raised(kind: type[Exception], call: Callable[[], object]) -> Any:
    """Give the error of a kind that a call raises.

    Raises:
        AssertionError: It raises none.
    """
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"wanted {kind.__name__}, but nothing was raised")


def _poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = POISON
    return array
