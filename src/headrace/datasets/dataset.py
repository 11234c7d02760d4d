"""The contracts of a dataset: index to sample, indices to rows, indices to a batch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ConfigError
from headrace.sources.source import ByteRange

if TYPE_CHECKING:
    import torch

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """One named column of a row layout.

    Attributes:
        name: Name of the column; nested samples flatten to '/'-joined names.
        dtype: A native numpy dtype, never object.
        shape: Shape of one row. The first dimension may be None (open): its length differs by
            row and `sizes` gives it.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] = ()
    is_open: bool = field(init=False, repr=False, compare=False)
    """Whether the first dimension differs by row."""
    unit_shape: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Shape of a row, or of one element along the open dimension."""
    unit_bytes: int = field(init=False, repr=False, compare=False)
    """Bytes of a row, or of one element along the open dimension."""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "dtype", np.dtype(self.dtype))
        if self.dtype.hasobject or not self.dtype.isnative:
            raise ConfigError(f"column {self.name!r}", "numbers of this machine", str(self.dtype))
        if any(size is None for size in self.shape[1:]):
            wanted = "None as the first dimension alone"
            raise ConfigError(f"column {self.name!r}", wanted, self.shape)
        put(self, "is_open", bool(self.shape) and self.shape[0] is None)
        put(self, "unit_shape", tuple(size for size in self.shape if size is not None))
        put(self, "unit_bytes", math.prod(self.unit_shape) * self.dtype.itemsize)


Layout = tuple[Column, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RaggedColumn:
    """Where rows of an open column go: row r is `flat[offsets[r]:offsets[r + 1]]`.

    Attributes:
        flat: `[sum of lengths, *unit shape]`, writable, C-contiguous.
        offsets: int64 `[rows + 1]`, already filled from `sizes`.
    """

    flat: NDArray[Any]
    offsets: NDArray[np.int64]


Out = Mapping[str, "NDArray[Any] | RaggedColumn"]
"""Column name to where its rows go: `[rows, *shape]`, or a RaggedColumn where it is open."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a sample lives, for messages and `loader.why`.

    Attributes:
        object: File or object name.
        range: Byte range in it, where there is one.
        detail: Anything else that finds it (member, row group, key).
    """

    object: str
    range: ByteRange | None = None
    detail: str = ""

    def __str__(self) -> str:
        parts = [self.object]
        if self.range is not None:
            parts.append(f"bytes {self.range}")
        if self.detail:
            parts.append(self.detail)
        return ", ".join(parts)


class Opened:
    """What every dataset of headrace may override: lifecycle, identity, where a sample lives.

    `open` and `aclose` run once per loop, on it; `thread_open` and `thread_close` once on each
    reader thread. Handles and clients are made there and never in `__init__`, so that a pickle
    carries configuration only.
    """

    async def open(self) -> None:
        """Make what is tied to the running loop."""

    async def aclose(self) -> None:
        """End what `open` made, on the same loop."""

    def thread_open(self) -> None:
        """Make what is tied to the calling reader thread."""

    def thread_close(self) -> None:
        """End what `thread_open` made, on the same thread."""

    def check(self) -> None:
        """Compare what is open with what it was when opened; called before each run reads.

        Cheap, and from any thread: the consumer waits for it. Datasets that map files override
        it, since a file that was cut short ends the process when its map is read.

        Raises:
            SourceChangedError: An object was written to, cut, replaced or removed since.
        """

    def fingerprint(self) -> dict[str, Any]:
        """Give the JSON facts that identify the data: kind, samples, layout, objects.

        At most a few hundred bytes (digest long lists); the same on every machine that holds
        the same files. May be called before `open`, on any thread.
        """
        return {"kind": type(self).__name__, "samples": len(self)}  # type: ignore[arg-type]

    def locate(self, index: int) -> Location | None:
        """Say where a sample lives, without I/O; None when there is nothing to say."""
        return None


class Composable(Opened):
    """What both indexed kinds of dataset can be made into; see `headrace.datasets.compose`."""

    def subset(self, indices: Iterable[int] | NDArray[Any]) -> Any:
        """Give a dataset of some samples, in this order; they may repeat."""
        from headrace.datasets.compose import Subset

        return Subset(self, indices)

    def split(self, sizes: Sequence[float], seed: int | None = 42) -> tuple[Any, ...]:
        """Give disjoint datasets that together are this one: `train, test = data.split([.9, .1])`.

        Args:
            sizes: Shares that sum to 1, or counts that sum to the length.
            seed: Decides which sample goes where; None cuts in order.
        """
        from headrace.datasets.compose import split

        return split(self, sizes, seed)

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        """Give a dataset of `function(sample)`.

        The function must be pure and is called on reader threads, several at once. A sample of
        a BulkDataset is a dict of tensors, one per delivered column.
        """
        from headrace.datasets.compose import map_samples

        return map_samples(self, function)


class Dataset(Composable, ABC):
    """Index to sample. Implement `__len__` and exactly one way to get a sample:

    - `async get(index)`: may wait; runs on the engine's loop, many at once.
    - `__getitem__(index)`: may block; runs on reader threads. `__getitems__(indices)` is used
      in its place where present.
    - `async fetch(indices)` giving raw rows on the loop, and `decode(raw)` giving the sample of
      one raw row on a reader thread.

    Calls for many at once may raise RowErrors, by position, to say which samples failed.

    A sample is a tensor, array, number, string, or a nesting of these in tuples, lists and
    mappings. The same index must give the same bytes every time (draw randomness from the keys
    that `sample_transform` gets), and calls may come from several threads at once.

    Attributes:
        thread_safe: True: one object serves all reader threads. False: each thread gets its own
            copy by a pickle round trip.
        pure: True where the same index always gives the same bytes, your promise.
    """

    thread_safe: bool = True
    pure: bool = True

    @abstractmethod
    def __len__(self) -> int: ...

    def select(self, *keys: Hashable) -> Dataset:
        """Give a dataset of some parts of each sample, as a dict.

        Args:
            keys: Keys of a mapping, or positions of a tuple or list.
        """
        from headrace.datasets.compose import select_parts

        return select_parts(self, keys)


class BulkDataset(Composable, ABC):
    """Indices to rows of a stored layout: the fast path, with no Python per sample.

    Implement `__len__`, `layout` and one of `read_into` (may wait, runs on the loop) and
    `read_into_blocking` (memory-like data, runs on reader threads; preferred where both exist).

    Attributes:
        decodes: True where reading is work (decoding), so that several threads read sooner
            than one even where a step is small.
    """

    decodes: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Give one row as its delivered columns, each a tensor: to look at the data.

        Loaders read rows many at a time instead.

        Raises:
            TypeError: Rows must be awaited.
        """
        from headrace.datasets.row_samples import one_row

        return one_row(self, index)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The columns as they are stored, and as tiers, ring and bus hold them."""

    @property
    def delivered(self) -> Layout:
        """The columns as `deliver` hands them out. Open columns keep their open dimension."""
        return self.layout

    def select(self, *names: str) -> BulkDataset:
        """Give a dataset that delivers some columns, in the order named.

        Stored columns are still read whole, since any delivered one may need them; a dataset
        that knows better overrides this.
        """
        from headrace.datasets.select_rows import SelectRows

        return SelectRows(self, names)

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        """Give the length of each open column for each index, without I/O."""
        return {}

    async def read_into(self, indices: Indices, out: Out, rows: Indices) -> None:
        """Put sample `indices[i]` into row `rows[i]` of every column of `out`.

        Duties: indices may repeat and come in any order, and are checked (IndexOutOfRangeError);
        rows not named are left alone; no view of `out` is kept; the late-writer rule of Source
        holds. A bad row does not stop the others: RowErrors is raised after all are filled.

        Args:
            indices: int64 `[k]`, each in `[0, len(self))`.
            out: C-contiguous, writable, native columns, owned by the caller.
            rows: int64 `[k]`, distinct, each a row of `out`.
        """
        raise NotImplementedError

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        """Do as `read_into` does, on the calling thread."""
        raise NotImplementedError

    def read_spread_blocking(
        self,
        indices: Indices,
        fixed: Mapping[str, NDArray[Any]],
        spread: Sequence[Mapping[str, NDArray[Any]]],
    ) -> None:
        """Do as `read_into_blocking`, with rows of open columns side by side, for several batches.

        Optional: where a dataset does not have it, rows are read end to end and laid out again.

        Args:
            indices: int64 `[k]`, those of one batch after the other.
            fixed: Columns that are not open, `[k, *shape]`.
            spread: Open columns of each batch, `[rows, width, *unit shape]`, of `k` rows in all.
                What a row has beyond the width is left out. What is behind a shorter one does
                not matter: whoever asks overwrites it.
        """
        raise NotImplementedError

    @property
    def reads_spread(self) -> bool:
        """Whether there is a `read_spread_blocking`."""
        return type(self).read_spread_blocking is not BulkDataset.read_spread_blocking

    @property
    def waits(self) -> bool:
        """Whether reads must go to the event loop: true where no blocking twin exists."""
        return type(self).read_into_blocking is BulkDataset.read_into_blocking

    def deliver(self, stored: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
        """Turn stored rows into delivered rows: slicing and widening, where the batch lands.

        Pure and vectorised in torch; never called while `delivered` equals `layout`. Rows are
        those of several batches at once. Open columns arrive as their flat values.

        Args:
            stored: Column name to `[rows, *shape]`, one per column of `layout`.
            out: Column name to `[rows, *shape]` to be filled, one per column of `delivered`.
                It is recycled memory: fresh results per batch would cost page faults.
        """
        raise NotImplementedError


class BatchDataset(Opened, ABC):
    """Indices to a whole batch, opaque to headrace. No tier can keep its samples.

    Implement `__len__` and `get_batch` (blocking, on a reader thread) or make it a coroutine
    function (on the loop). A batch is a tensor, or a tuple, list or mapping of tensors, each
    `[rows, ...]`.
    """

    thread_safe: bool = True

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def get_batch(self, indices: Sequence[int]) -> Any:
        """Give the batch of these samples, in this order."""
