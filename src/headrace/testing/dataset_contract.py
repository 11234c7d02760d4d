"""The duties of a dataset, as tests: subclass, say how to make one, and run with pytest."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.datasets.bounds import as_indices
from headrace.datasets.dataset import BulkDataset, Dataset
from headrace.datasets.probe import freeze
from headrace.errors import IndexOutOfRangeError, RowErrors
from headrace.testing.dataset_reads import (
    Memory,
    can_read,
    delivered_rows,
    get_samples,
    in_threads,
    raised,
    read_rows,
    spread_rows,
)


class BulkDatasetContract(ABC):
    """Duties of a BulkDataset.

    Attributes:
        bad_indices: Samples of the dataset made that cannot be read.
    """

    bad_indices: tuple[int, ...] = ()

    @abstractmethod
    def make(self) -> BulkDataset:
        """Give a fresh dataset of at least 4 samples, the same every time."""

    @abstractmethod
    def stored_row(self, index: int) -> Mapping[str, Any]:
        """Give what each stored column must hold, by other means than the dataset."""

    def good_indices(self, dataset: BulkDataset) -> list[int]:
        """Give the samples that can be read."""
        return [index for index in range(len(dataset)) if index not in self.bad_indices]

    def test_rows_hold_the_samples_asked_for(self) -> None:
        """Row i holds sample indices[i]."""
        dataset = self.make()
        indices = self.good_indices(dataset)

        rows = read_rows(dataset, indices)

        self.assert_rows(rows, indices)

    def test_indices_repeat_and_come_in_any_order(self) -> None:
        """Backwards, twice, and one sample in every row."""
        dataset = self.make()
        good = self.good_indices(dataset)
        indices = [*reversed(good), *good, good[-1], good[-1], good[0]]

        rows = read_rows(dataset, indices)

        self.assert_rows(rows, indices)

    def test_rows_may_be_any_rows(self) -> None:
        """Rows come scattered as well as one after another, and only those named are written."""
        dataset = self.make()
        indices = self.good_indices(dataset)[:3]
        first, second, third = indices
        memory = Memory(dataset, [third, first, first, second, first])

        memory.read([first, third, second], [4, 0, 3])

        assert memory.row_is_poison(1)
        assert memory.row_is_poison(2)
        rows = memory.rows()
        self.assert_rows([rows[4], rows[0], rows[3]], [first, third, second])

    def test_nothing_is_read_for_no_index(self) -> None:
        """An empty read writes nothing."""
        dataset = self.make()
        memory = Memory(dataset, self.good_indices(dataset)[:1])

        memory.read([], [])

        assert memory.row_is_poison(0)

    def test_an_index_outside_is_refused(self) -> None:
        """Neither end wraps, and the error names the index (S4-03)."""
        dataset = self.make()
        for index in (len(dataset), -1, 2**40, -(2**40)):
            memory = Memory(dataset, self.good_indices(dataset)[:1])
            error = raised(IndexOutOfRangeError, partial(memory.read, [index], [0]))
            assert error.index == index
            assert error.length == len(dataset)

    def test_no_view_of_the_memory_is_kept(self) -> None:
        """Once read and dropped, the memory is free: blocks are recycled by that."""
        dataset = self.make()
        memory = Memory(dataset, self.good_indices(dataset)[:2])
        memory.read(self.good_indices(dataset)[:2], [0, 1])
        kept = [weakref.ref(array) for array in memory.arrays()]

        del memory
        gc.collect()

        assert [ref() for ref in kept] == [None] * len(kept)

    def test_bad_rows_are_told_after_the_others_are_filled(self) -> None:
        """RowErrors names rows of `out`; good rows are right."""
        dataset = self.make()
        good = self.good_indices(dataset)
        indices = [good[0], *self.bad_indices, good[1]]
        memory = Memory(dataset, indices)

        errors: dict[int, Exception] = {}
        try:
            memory.read(indices, list(range(len(indices))))
        except RowErrors as error:
            errors = error.errors

        assert sorted(errors) == list(range(1, 1 + len(self.bad_indices)))
        rows = memory.rows()
        self.assert_rows([rows[0], rows[-1]], [good[0], good[1]])

    def test_threads_may_read_at_once(self) -> None:
        """Eight threads read the same dataset and all get the right rows (S0-08, S1-13)."""
        dataset = self.make()
        indices = self.good_indices(dataset) * 5
        found = in_threads(8, lambda: read_rows(dataset, indices))
        for rows in found:
            self.assert_rows(rows, indices)

    def test_both_ways_of_reading_agree(self) -> None:
        """Where rows may be read on the loop and off it, they are the same rows."""
        dataset = self.make()
        indices = self.good_indices(dataset)
        ways = [is_awaited for is_awaited in (False, True) if can_read(dataset, is_awaited)]
        assert ways
        for is_awaited in ways:
            memory = Memory(dataset, indices)
            memory.read(indices, list(range(len(indices))), is_awaited)
            self.assert_rows(memory.rows(), indices)

    def test_rows_side_by_side_are_those_end_to_end(self) -> None:
        """Where a dataset reads them so: in several batches, as wide as rows are, and narrower."""
        dataset = self.make()
        if not dataset.reads_spread:
            return
        indices = [*reversed(self.good_indices(dataset)), *self.good_indices(dataset)[:2]]
        wanted = [self.stored_row(index) for index in indices]
        cuts = [0, 1, len(indices) - 2, len(indices)]
        open_names = [column.name for column in dataset.layout if column.is_open]
        widest = max(len(row[name]) for row in wanted for name in open_names)

        for width in (widest + 3, 1):
            rows = spread_rows(dataset, indices, cuts, width)
            for row, whole in zip(rows, wanted, strict=True):
                for name, value in whole.items():
                    kept = value[:width] if name in open_names else value
                    np.testing.assert_array_equal(row[name], kept)

    def test_sizes_are_the_lengths_of_open_columns(self) -> None:
        """`sizes` knows each open column, without a read, and no other."""
        dataset = self.make()
        indices = self.good_indices(dataset)

        sizes = dataset.sizes(as_indices(indices))

        wanted = {
            column.name: [len(self.stored_row(index)[column.name]) for index in indices]
            for column in dataset.layout
            if column.is_open
        }
        assert {name: lengths.tolist() for name, lengths in sizes.items()} == wanted

    def test_delivered_rows_depend_on_their_own_row_only(self) -> None:
        """Delivering many rows at once gives what one by one gives, and spoils no stored row."""
        dataset = self.make()
        indices = self.good_indices(dataset)

        together = delivered_rows(dataset, indices)
        alone = [delivered_rows(dataset, [index])[0] for index in indices]

        assert [freeze(row) for row in together] == [freeze(row) for row in alone]
        names_and_dtypes = [(name, value.numpy().dtype) for name, value in together[0].items()]
        assert names_and_dtypes == [(c.name, c.dtype) for c in dataset.delivered]

    def test_an_index_gives_the_row_as_it_is_delivered(self) -> None:
        """`dataset[i]` is row i, and neither end wraps (S4-03)."""
        dataset = self.make()
        if dataset.waits or type(dataset).__getitem__ is not BulkDataset.__getitem__:
            return
        indices = self.good_indices(dataset)

        rows = [dataset[index] for index in indices]

        wanted = delivered_rows(dataset, indices)
        assert [freeze(row) for row in rows] == [freeze(row) for row in wanted]
        for index in (len(dataset), -1):
            raised(IndexOutOfRangeError, partial(dataset.__getitem__, index))

    def test_the_fingerprint_is_short_json_and_stable(self) -> None:
        """Two objects over the same data agree, before and after reads."""
        dataset, other = self.make(), self.make()

        before = dataset.fingerprint()
        read_rows(dataset, self.good_indices(dataset))

        assert before["samples"] == len(dataset)
        assert dataset.fingerprint() == other.fingerprint() == before
        text = json.dumps(before)
        assert json.loads(text) == before
        assert len(text) < 1024

    def test_a_pickle_carries_configuration_only(self) -> None:
        """A pickle is as long after reads as before, and its copy reads the same rows (B25)."""
        dataset = self.make()
        before = len(pickle.dumps(dataset))
        indices = self.good_indices(dataset)
        read_rows(dataset, indices)

        pickled = pickle.dumps(dataset)
        copied = pickle.loads(pickled)

        assert len(pickled) <= before + 64
        assert copied.fingerprint() == dataset.fingerprint()
        self.assert_rows(read_rows(copied, indices), indices)

    def test_every_sample_can_be_told_apart(self) -> None:
        """`locate` says where a sample lives, or nothing for all of them."""
        dataset = self.make()

        places = [dataset.locate(index) for index in range(len(dataset))]

        told = [str(place) for place in places if place is not None]
        assert len(told) in (0, len(dataset))
        assert all(told)

    def assert_rows(self, rows: Sequence[Mapping[str, Any]], indices: Sequence[int]) -> None:
        """Check rows against the oracle."""
        assert len(rows) == len(indices)
        for row, index in zip(rows, indices, strict=True):
            wanted = self.stored_row(index)
            assert set(row) == set(wanted)
            for name, value in wanted.items():
                np.testing.assert_array_equal(row[name], value, err_msg=f"sample {index}: {name}")


class DatasetContract(ABC):
    """Duties of a per-sample Dataset."""

    @abstractmethod
    def make(self) -> Dataset:
        """Give a fresh dataset of at least 3 samples, the same every time."""

    @abstractmethod
    def sample(self, index: int) -> Any:
        """Give what a sample must be, by other means than the dataset."""

    def test_samples_match_their_index(self) -> None:
        """Sample i is the sample of i (S4-04)."""
        dataset = self.make()
        indices = range(len(dataset))

        assert self.frozen(get_samples(dataset, indices)) == self.wanted(indices)

    def test_indices_repeat_and_come_in_any_order(self) -> None:
        """A sample does not depend on what was asked before (S0-59, S1-13)."""
        dataset = self.make()
        indices = [*reversed(range(len(dataset))), 0, 0, len(dataset) - 1]

        assert self.frozen(get_samples(dataset, indices)) == self.wanted(indices)

    def test_an_index_outside_is_refused(self) -> None:
        """Neither end wraps (S4-03)."""
        dataset = self.make()
        for index in (len(dataset), -1):
            raised(IndexError, partial(get_samples, dataset, [index]))

    def test_threads_may_read_at_once(self) -> None:
        """Several threads get the right samples, each with its own event loop (S0-08)."""
        dataset = self.make()
        indices = list(range(len(dataset))) * 3
        for samples in in_threads(4, lambda: get_samples(dataset, indices)):
            assert self.frozen(samples) == self.wanted(indices)

    def test_the_fingerprint_is_short_json_and_stable(self) -> None:
        """Two objects over the same data agree, before and after reads."""
        dataset, other = self.make(), self.make()

        before = dataset.fingerprint()
        get_samples(dataset, [0, 1])

        assert before["samples"] == len(dataset)
        assert dataset.fingerprint() == other.fingerprint() == before
        assert json.loads(json.dumps(before)) == before

    def test_a_pickled_copy_gives_the_same_samples(self) -> None:
        """A pickle can be made after reads, and its copy works."""
        dataset = self.make()
        get_samples(dataset, [0])

        copied = pickle.loads(pickle.dumps(dataset))

        indices = range(len(dataset))
        assert self.frozen(get_samples(copied, indices)) == self.wanted(indices)

    def frozen(self, samples: Iterable[Any]) -> list[Any]:
        """Give samples as comparable facts."""
        return [freeze(sample) for sample in samples]

    def wanted(self, indices: Iterable[int]) -> list[Any]:
        """Give the facts that samples must have."""
        return [freeze(self.sample(index)) for index in indices]
