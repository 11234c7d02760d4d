"""The batch that a training loop receives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

from headrace.errors import IndexOutOfRangeError, UnknownColumnError

if TYPE_CHECKING:
    from headrace.nesting import Nesting
    from headrace.pick import PickKeys

_SHOWN_COLUMNS = 8  # a repr is for reading


class Batch:
    """The rows of one step as named columns, most of them tensors `[rows, ...]`.

    Columns are reached by name (`batch["image"]`) or position (`batch[0]`), and iterating gives
    the columns, so `x, y = batch` works. `len` is the number of columns; `num_rows` counts rows.
    It reads like a mapping (`keys`, `in`, `**batch`) without being registered as one, since
    libraries that walk mappings would iterate it by key.

    Nested samples have '/'-joined names and `rebuild` gives the nested form. Text and other
    values that are no tensors are lists of `num_rows` on the host. An open (ragged) column "x"
    has flat values, and "x/offsets", int64 `[rows + 1]`, says where its rows lie:
    row r is `batch["x"][offsets[r]:offsets[r + 1]]`.

    The memory of a column is free for another step only when no view of it is alive anywhere,
    so a batch or any part of it may be kept. A batch may be used in any thread, by one thread
    at a time. Pickled batches own their memory.

    Attributes:
        names: Column names, in order.
        columns: The columns, in order.
        num_rows: Rows in this batch, those of weight 0 included.
        step: Global step of the run.
        epoch: Epoch that the step belongs to.
        indices: Dataset index of each row, int64 `[rows]`.
        weight: What the mean loss of this rank's rows is multiplied by, so that the plain mean
            over ranks is the mean over the rows of all ranks; 1.0 where rows are equal.
        mask: bool `[rows]`, False for rows of weight 0 (padding, masked bad samples); None
            where every row counts.
        structure: How the columns nest; None where they are flat.
    """

    __slots__ = (
        "__weakref__",
        "_pick_keys",
        "columns",
        "epoch",
        "indices",
        "mask",
        "names",
        "num_rows",
        "step",
        "structure",
        "weight",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        columns: tuple[Any, ...],
        *,
        step: int,
        epoch: int,
        num_rows: int,
        indices: NDArray[np.int64],
        pick_keys: PickKeys | Callable[[], PickKeys] | None = None,
        weight: float = 1.0,
        mask: torch.Tensor | None = None,
        structure: Nesting | None = None,
    ) -> None:
        # No checks: one is made per step, by code that has checked its columns (and by torch's
        # pytrees, which put other things than tensors here).
        self.names = names
        self.columns = columns
        self.step = step
        self.epoch = epoch
        self.num_rows = num_rows
        self.indices = indices
        self._pick_keys = pick_keys
        self.weight = weight
        self.mask = mask
        self.structure = structure

    @property
    def pick_keys(self) -> PickKeys | None:
        """The keys of the rows, one for each, for draws in a transform."""
        keys = self._pick_keys
        if callable(keys):
            # Most batches are never asked, and making keys costs as much as making the batch.
            keys = self._pick_keys = keys()
        return keys

    def __iter__(self) -> Iterator[Any]:
        """Give the columns, not their names."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Count the columns; `num_rows` counts the rows."""
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, key: str | SupportsIndex) -> Any:
        """Give a column by name, or by position (negative ones count from the end).

        Raises:
            UnknownColumnError: No column has the name; a KeyError that lists those there are.
            IndexOutOfRangeError: No column has the position; an IndexError.
        """
        if isinstance(key, str):
            try:
                return self.columns[self.names.index(key)]
            except ValueError:
                raise UnknownColumnError(key, self.names) from None
        position = operator.index(key)
        if not -len(self.columns) <= position < len(self.columns):
            raise IndexOutOfRangeError(position, len(self.columns), "columns of a batch")
        return self.columns[position]

    def has(self, name: str) -> bool:
        """Say whether there is a column of this name."""
        return name in self.names

    def get(self, name: str, default: Any = None) -> Any:
        """Give a column by name, or the default where there is none."""
        return self[name] if name in self.names else default

    def keys(self) -> tuple[str, ...]:
        """Give the column names, in order."""
        return self.names

    def values(self) -> tuple[Any, ...]:
        """Give the columns, in order."""
        return self.columns

    def items(self) -> list[tuple[str, Any]]:
        """Give the columns with their names, in order."""
        return list(zip(self.names, self.columns, strict=True))

    def rebuild(self) -> Any:
        """Give the columns in the nested form of the samples they came from.

        A flat batch (bulk datasets) gives a dict of its columns. See `Nesting.rebuild` for the
        types that come back.
        """
        if self.structure is None:
            return dict(zip(self.names, self.columns, strict=True))
        return self.structure.rebuild(self.columns)

    def with_columns(self, columns: Mapping[str, Any]) -> Batch:
        """Give a batch of the same rows with these columns put in place or added at the end."""
        merged = dict(zip(self.names, self.columns, strict=True)) | dict(columns)
        made = self._like(tuple(merged.values()))
        if len(merged) > len(self.names):
            made.names, made.structure = tuple(merged), None
        return made

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> Batch:
        """Give the batch with its tensors and mask on a device; other columns stay on the host.

        As with torch, tensors that are there already are shared and not copied, and with
        `non_blocking` the copy from pinned memory may still be under way on return.
        """
        return self._map_tensors(lambda column: column.to(device, non_blocking=non_blocking))

    def pin(self) -> Batch:
        """Give the batch with its CPU tensors copied into torch's pinned (page-locked) memory.

        Without an accelerator that pins memory there is nothing to gain, and the batch itself
        is given back, so `batch.pin().to(device)` runs on every machine. The copy belongs to
        the calling thread's current device, as with `torch.Tensor.pin_memory`.
        """
        return self._map_tensors(_pinned) if _can_pin() else self

    def _map_tensors(self, change: Any) -> Batch:
        made = self._like(tuple(change(c) if isinstance(c, torch.Tensor) else c for c in self))
        made.mask = None if self.mask is None else change(self.mask)
        return made

    def _like(self, columns: tuple[Any, ...]) -> Batch:
        """Give a batch of the same rows with other columns under the same names."""
        return Batch(self.names, columns, **_facts_of(self))

    def __copy__(self) -> Batch:
        return self._like(self.columns)

    def __reduce__(self) -> tuple[Any, ...]:
        made = self._map_tensors(_owned)
        return _unpickled, (made.names, made.columns, _facts_of(made))

    def __repr__(self) -> str:
        shown = [
            f"{name}: {_describe(column)}"
            for name, column in zip(self.names[:_SHOWN_COLUMNS], self.columns, strict=False)
        ]
        if len(self.names) > _SHOWN_COLUMNS:
            shown.append(f"... {len(self.names) - _SHOWN_COLUMNS} more")
        head = f"step {self.step}, epoch {self.epoch}, {self.num_rows} rows"
        return f"Batch({head}; {', '.join(shown)})"


def _facts_of(batch: Batch) -> dict[str, Any]:
    """Everything of a batch but its columns and their names, as keywords of the constructor."""
    return {
        "step": batch.step,
        "epoch": batch.epoch,
        "num_rows": batch.num_rows,
        "indices": batch.indices,
        "pick_keys": batch.pick_keys,
        "weight": batch.weight,
        "mask": batch.mask,
        "structure": batch.structure,
    }


def _unpickled(names: tuple[str, ...], columns: tuple[Any, ...], facts: dict[str, Any]) -> Batch:
    return Batch(names, columns, **facts)


def _describe(column: Any) -> str:
    if isinstance(column, torch.Tensor):
        place = "" if column.device.type == "cpu" else f" on {column.device}"
        shape = f"nested, {column.size(0)} rows" if column.is_nested else list(column.shape)
        return f"{str(column.dtype).removeprefix('torch.')} {shape}{place}"
    if isinstance(column, Sequence) and not isinstance(column, str):
        return f"{type(column).__name__} of {len(column)}"
    return repr(column)


def _owned(column: torch.Tensor) -> torch.Tensor:
    # torch pickles the whole storage under a view, which here may be a block of many steps.
    if column.is_nested or column.layout is not torch.strided:
        return column
    own_bytes = column.numel() * column.element_size()
    return column if column.untyped_storage().nbytes() == own_bytes else column.clone()


def _pinned(column: torch.Tensor) -> torch.Tensor:
    return column.pin_memory() if column.device.type == "cpu" else column


@cache
def _can_pin() -> bool:
    # MPS shares its memory with the CPU: a pinned copy would be a second copy for nothing.
    device = torch.accelerator.current_accelerator()
    return device is not None and torch.accelerator.is_available() and device.type != "mps"


class _Context:
    """What a pytree of a batch carries beside its columns; equal where the names are.

    Two batches of different steps can then be mapped together, as two dicts can.
    """

    __slots__ = ("facts", "names")

    def __init__(self, batch: Batch) -> None:
        self.names = batch.names
        self.facts = _facts_of(batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"step {self.facts['step']}, {list(self.names)}"


def _flatten(batch: Batch) -> tuple[list[Any], _Context]:
    return list(batch.columns), _Context(batch)


def _flatten_with_keys(batch: Batch) -> tuple[list[tuple[pytree.KeyEntry, Any]], _Context]:
    return [(pytree.MappingKey(name), column) for name, column in batch.items()], _Context(batch)


def _unflatten(columns: Any, context: _Context) -> Batch:
    return Batch(context.names, tuple(columns), **context.facts)


pytree.register_pytree_node(Batch, _flatten, _unflatten, flatten_with_keys_fn=_flatten_with_keys)
