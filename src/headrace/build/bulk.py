"""Building from rows of a stored layout: no Python per sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.build.bad_samples import Substitution
from headrace.build.builder import Builder, Finish, Hop, indices_of
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt, attempt_awaited
from headrace.collate import OFFSETS, Columns
from headrace.datasets.dataset import BulkDataset, Layout, RaggedColumn
from headrace.datasets.names import check_distinct
from headrace.errors import RowErrors
from headrace.pick import Picks
from headrace.plan import Span
from headrace.ring.blocks import ALIGN_BYTES, Block, BlockPool, capacity_for

# A small column gets storage of its own, so that a kept label never holds a block.
OWN_STORAGE_BYTES = 64 << 10
OWN_STORAGE_SHARE = 1 / 16


class Form:
    """Where the columns of some rows lie: in a block, or in storage of their own.

    Attributes:
        columns: The layout.
        rows: How many rows.
        capacity_bytes: What the block must hold; 0 where there is none.
        places: Byte offset of each column in the block; None for storage of its own.
        shapes: Shape of each column as a whole.
    """

    __slots__ = ("capacity_bytes", "columns", "places", "rows", "shapes")

    def __init__(self, columns: Layout, rows: int, counts: list[int], in_block: list[bool]) -> None:
        self.columns = columns
        self.rows = rows
        self.shapes = [(n, *c.unit_shape) for c, n in zip(columns, counts, strict=True)]
        self.places: list[int | None] = []
        need = 0
        for column, count, is_in_block in zip(columns, counts, in_block, strict=True):
            self.places.append(need if is_in_block else None)
            if is_in_block:
                need += -(-count * column.unit_bytes // ALIGN_BYTES) * ALIGN_BYTES
        self.capacity_bytes = capacity_for(need) if need else 0

    def arrays(self, block: Block | None) -> list[NDArray[Any]]:
        """Give one array per column, contents undefined."""
        return [
            np.empty(shape, column.dtype)
            if place is None or block is None
            else block.array(place, shape, column.dtype)
            for column, shape, place in zip(self.columns, self.shapes, self.places, strict=True)
        ]


class Shelf:
    """Memory for the columns of one span, as numpy and torch see it.

    Attributes:
        form: Where the columns lie.
        arrays: One array per column: `[rows, *shape]`, or flat `[elements, *unit shape]`.
        offsets: Row offsets of open columns, int64 `[rows + 1]`.
        block: The block behind the large columns, if any.
    """

    __slots__ = ("_leased", "_tensors", "arrays", "block", "form", "offsets")

    def __init__(
        self,
        form: Form,
        arrays: list[NDArray[Any]],
        offsets: dict[str, NDArray[np.int64]],
        block: Block | None,
        tensors: dict[str, torch.Tensor] | None = None,
    ) -> None:
        self.form = form
        self.arrays = arrays
        self.offsets = offsets
        self.block = block
        self._tensors = tensors
        self._leased: list[NDArray[Any]] | None = None

    def out(self) -> dict[str, NDArray[Any] | RaggedColumn]:
        """Give the columns as a dataset writes them."""
        offsets = self.offsets
        return {
            column.name: RaggedColumn(array, offsets[column.name]) if column.is_open else array
            for column, array in zip(self.form.columns, self.arrays, strict=True)
        }

    def tensors(self) -> dict[str, torch.Tensor]:
        """Give the columns as tensors, for `deliver`, which must not keep them."""
        if self._tensors is None:
            self._tensors = _tensors(self.form, self.arrays)
        return self._tensors

    def step(self, rows: slice) -> tuple[torch.Tensor, ...]:
        """Hand out the columns of one step; views keep the block as long as they live."""
        values: list[torch.Tensor] = []
        for column, array in zip(self.form.columns, self._leases(), strict=True):
            start, stop = rows.start, rows.stop
            if column.is_open:
                at = self.offsets[column.name]
                start, stop = int(at[start]), int(at[stop])
            # A tensor of a part of an array has storage of its own extent, so that what pickles
            # it takes none of its neighbours along.
            values.append(torch.from_numpy(array[start:stop]))
            if column.is_open:
                values.append(torch.from_numpy(at[rows.start : rows.stop + 1] - at[rows.start]))
        return tuple(values)

    def _leases(self) -> list[NDArray[Any]]:
        """Give the columns as arrays that keep the block; one lease each for all steps."""
        if self._leased is None:
            form, block = self.form, self.block
            self._leased = [
                array
                if place is None or block is None
                else block.lease(place, array.shape, array.dtype.str)
                for array, place in zip(self.arrays, form.places, strict=True)
            ]
        return self._leased

    def let_go(self) -> None:
        """End the builder's hold on the block."""
        if self.block is not None:
            self.block.let_go()


class Shelves:
    """Makes shelves of one layout out of recycled blocks.

    Args:
        layout: The columns.
        pool: Where blocks come from.
        batch_rows: Rows of a full batch, which decide what a small column is.

    Attributes:
        names: Names of the columns handed out, offsets of open ones included.
    """

    # Whole spans of 1 to MAX_SPAN_STEPS steps and a few short ones; more would be a leak.
    _KEPT_FORMS = 64

    def __init__(self, layout: Layout, pool: BlockPool, batch_rows: int) -> None:
        self._layout = layout
        self._pool = pool
        self._forms: dict[int, Form] = {}
        batch_bytes = batch_rows * row_bytes(layout)
        bound = max(OWN_STORAGE_BYTES, int(batch_bytes * OWN_STORAGE_SHARE))
        # An open column has no size of its own, so it always lives in a block.
        self._in_block = [c.is_open or c.unit_bytes * batch_rows >= bound for c in layout]
        self._is_all_in_block = all(self._in_block)
        self._has_open = any(column.is_open for column in layout)
        names: list[str] = []
        for column in layout:
            names += [column.name, column.name + OFFSETS] if column.is_open else [column.name]
        check_distinct(names)
        self.names = tuple(names)

    def take(self, rows: int, offsets: dict[str, NDArray[np.int64]]) -> Shelf:
        """Give memory for some rows, contents undefined."""
        form = self._form(rows, offsets)
        block = self._pool.lend(form.capacity_bytes) if form.capacity_bytes else None
        if block is None or not self._is_all_in_block or form is not self._forms.get(rows):
            return Shelf(form, form.arrays(block), offsets, block)
        # Views are made once per block and form: they cost more than a small gather.
        views = block.views.get(form)
        if views is None:
            arrays = form.arrays(block)
            views = block.views[form] = arrays, _tensors(form, arrays)
        return Shelf(form, views[0], offsets, block, views[1])

    def _form(self, rows: int, offsets: dict[str, NDArray[np.int64]]) -> Form:
        form = None if self._has_open else self._forms.get(rows)
        if form is None:
            counts = [int(offsets[c.name][-1]) if c.is_open else rows for c in self._layout]
            form = Form(self._layout, rows, counts, self._in_block)
            if len(self._forms) < self._KEPT_FORMS and not self._has_open:
                self._forms[rows] = form
        return form


def _tensors(form: Form, arrays: list[NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {
        column.name: torch.from_numpy(array)
        for column, array in zip(form.columns, arrays, strict=True)
    }


def row_bytes(layout: Layout) -> int:
    """Give the bytes of a row, open columns counted as one element."""
    return sum(column.unit_bytes for column in layout)


# Lengths of so many rows tell the mean length within a few percent.
TYPICAL_ROWS = 1024


def typical_row_bytes(dataset: BulkDataset, layout: Layout) -> int:
    """Give the bytes of a row, of open columns by the mean length of rows all over the data."""
    count, nbytes = len(dataset), row_bytes(layout)
    if not count or not any(column.is_open for column in layout):
        return nbytes
    some = np.linspace(0, count - 1, min(count, TYPICAL_ROWS)).astype(np.int64)
    try:
        lengths = dataset.sizes(some)
    except Exception:  # noqa: BLE001 - raised again, at the step that asks for these sizes
        return nbytes
    means = {name: float(each.mean()) for name, each in lengths.items()}
    return int(sum(c.unit_bytes * (means[c.name] if c.is_open else 1) for c in layout))


class BulkBuilder(Builder):
    """Reads spans of rows into blocks and hands out each step as leased views."""

    joins_steps = True

    def __init__(
        self,
        dataset: BulkDataset,
        finish: Finish,
        pool: BlockPool,
        batch_rows: int,
        hop: Hop | None = None,
    ) -> None:
        super().__init__(finish, hop)
        self._dataset = dataset
        self._stored = Shelves(dataset.layout, pool, batch_rows)
        self._delivered = (
            None
            if dataset.delivered == dataset.layout
            else Shelves(dataset.delivered, pool, batch_rows)
        )
        self.names = self._names = (self._delivered or self._stored).names
        self._open = [column for column in dataset.layout if column.is_open]
        self._row_bytes = row_bytes(dataset.delivered)
        self._batch_rows = batch_rows
        self._rows: dict[int, NDArray[np.int64]] = {}

    @property
    def waits(self) -> bool:
        return self._dataset.waits

    @property
    def step_bytes(self) -> int:
        return self._batch_rows * self._row_bytes

    @property
    def typical_bytes(self) -> int:
        return self._batch_rows * typical_row_bytes(self._dataset, self._dataset.delivered)

    @property
    def beside_bytes(self) -> int:
        if self._delivered is None:
            return 0
        return self._batch_rows * typical_row_bytes(self._dataset, self._dataset.layout)

    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        rows = ends[1:] - ends[:-1]
        fixed = sum(c.unit_bytes for c in self._dataset.delivered if not c.is_open)
        nbytes = rows * fixed
        if self._open:
            lengths = self._dataset.sizes(picks.sample)
            for column in self._open:
                sums = np.zeros(len(picks) + 1, np.int64)
                np.cumsum(lengths[column.name], out=sums[1:])
                nbytes = nbytes + (sums[ends[1:]] - sums[ends[:-1]]) * column.unit_bytes
        result: list[int] = nbytes.tolist()
        return result

    # -- both twins ----------------------------------------------------------------------

    def build_blocking(self, span: Span) -> list[Built]:
        read = self._read_blocking(span.picks.sample)
        if not isinstance(read, Raised):
            built = self.assemble(self._hand_out, span, read)
            if built is not None:
                return built
        elif len(span.steps) == 1:
            return [self._build_alone_blocking(span, 0, read)]
        return [self._build_alone_blocking(span, at) for at in range(len(span.steps))]

    async def build(self, span: Span) -> list[Built]:
        read = await self._read(span.picks.sample)
        if not isinstance(read, Raised):
            built = await self.assemble_off_loop(self._hand_out, span, read)
            if built is not None:
                return built
        elif len(span.steps) == 1:
            return [await self._build_alone(span, 0, read)]
        return [await self._build_alone(span, at) for at in range(len(span.steps))]

    def _build_alone_blocking(
        self, span: Span, position: int, failed: Raised | None = None
    ) -> Built:
        """Build one step by itself, after a fault somewhere in its span.

        Args:
            span: The span.
            position: Which step of it.
            failed: What reading just this step gave; it is not read again to hear that twice.
        """
        substitution = self.finish.substitution(span, position)
        while True:
            read = failed or self._read_blocking(indices_of(substitution.samples))
            failed = None
            built = self.assemble(self._settle, span, position, substitution, read)
            if built is not None:
                return built

    async def _build_alone(self, span: Span, position: int, failed: Raised | None = None) -> Built:
        substitution = self.finish.substitution(span, position)
        while True:
            read = failed or await self._read(indices_of(substitution.samples))
            failed = None
            built = await self.assemble_off_loop(self._settle, span, position, substitution, read)
            if built is not None:
                return built

    def _read_blocking(self, samples: NDArray[np.int64]) -> Shelf | Raised:
        """Read samples onto a fresh shelf, which is given up where that fails."""
        began = self.times.clock()
        shelf = attempt(self._shelf, samples)
        if isinstance(shelf, Raised):
            return shelf
        numbers = self._row_numbers(len(samples))
        read = attempt(self._dataset.read_into_blocking, samples, shelf.out(), numbers)
        self.times.add_read(began)
        if not isinstance(read, Raised):
            return shelf
        shelf.let_go()
        return read

    async def _read(self, samples: NDArray[np.int64]) -> Shelf | Raised:
        began = self.times.clock()
        shelf = attempt(self._shelf, samples)
        if isinstance(shelf, Raised):
            return shelf
        numbers = self._row_numbers(len(samples))
        try:
            read = await attempt_awaited(self._dataset.read_into, samples, shelf.out(), numbers)
        except BaseException:
            shelf.let_go()
            raise
        self.times.add_read(began)
        if not isinstance(read, Raised):
            return shelf
        shelf.let_go()
        return read

    # -- the pure parts ------------------------------------------------------------------

    def _settle(
        self, span: Span, position: int, substitution: Substitution, read: Shelf | Raised
    ) -> Built | None:
        """Finish a step, fail it, or give None when it is to be read again."""
        if not isinstance(read, Raised):
            made = attempt(self._deliver, read)
            if isinstance(made, Raised):
                return self.finish.failed(span, position, made.error)
            rows = slice(0, len(substitution.samples))
            built = self._finish_step(span, position, made, rows, substitution)
            made.let_go()
            return built
        if not isinstance(read.error, RowErrors):
            return self.finish.failed(span, position, read.error)
        for row, error in sorted(read.error.errors.items()):
            index = substitution.samples[row]
            if not substitution.replace(row, error, self.finish.where(index)):
                return self.finish.failed(span, position, error, index)
        return None

    def _hand_out(self, span: Span, shelf: Shelf) -> list[Built] | None:
        """Finish the steps of a span; None when rows of it cannot be delivered."""
        made = shelf if self._delivered is None else attempt(self._deliver, shelf)
        if isinstance(made, Raised):
            return None
        built = [self._finish_step(span, at, made, span.rows(at)) for at in range(len(span.steps))]
        made.let_go()
        return built

    def _finish_step(
        self,
        span: Span,
        position: int,
        shelf: Shelf,
        rows: slice,
        substitution: Substitution | None = None,
    ) -> Built:
        names = self._names
        columns = Columns(names, shelf.step(rows), rows.stop - rows.start)
        return self.finish.finish(span, position, columns, substitution)

    def _deliver(self, stored: Shelf) -> Shelf:
        """Give the delivered form of a span; the stored shelf is given up either way."""
        if self._delivered is None:
            return stored
        try:
            delivered = self._delivered.take(stored.form.rows, stored.offsets)
            try:
                self._dataset.deliver(stored.tensors(), delivered.tensors())
            except BaseException:
                delivered.let_go()
                raise
            return delivered
        finally:
            stored.let_go()

    def _shelf(self, samples: NDArray[np.int64]) -> Shelf:
        offsets: dict[str, NDArray[np.int64]] = {}
        if self._open:
            lengths = self._dataset.sizes(samples)
            for column in self._open:
                at = offsets[column.name] = np.zeros(len(samples) + 1, np.int64)
                np.cumsum(lengths[column.name], out=at[1:])
        return self._stored.take(len(samples), offsets)

    def _row_numbers(self, rows: int) -> NDArray[np.int64]:
        """Give 0 to `rows`, the same array for the same count."""
        found = self._rows.get(rows)
        if found is None:
            found = self._rows[rows] = np.arange(rows, dtype=np.int64)
            found.flags.writeable = False
        return found
