"""Datasets made of datasets."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.datasets import Arrays, BulkDataset, Concat, Dataset, Subset, Text, split
from headrace.datasets.access import access_of
from headrace.datasets.samples import WaitingSamples
from headrace.errors import ConfigError, DataError, IndexOutOfRangeError, RowErrors
from headrace.testing.dataset_reads import get_samples, raised, read_rows
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows

IDS = np.arange(10, dtype=np.int64)


def ids(dataset: Any) -> list[int]:
    return [int(row["0"]) for row in read_rows(dataset, range(len(dataset)))]  # type: ignore[arg-type]


def test_compositions_of_rows_stay_rows() -> None:
    """Subset, Concat, split and select keep the fast path and the stored layout."""
    data = Text.from_string("hello, world", 2)
    made = [
        data.subset([2, 0]),
        Concat(data, data.subset([1])),
        *data.split([0.5, 0.5]),
        data.select("input"),
        Concat(data, data).subset([9, 0]).select("target"),
    ]

    assert all(isinstance(dataset, BulkDataset) for dataset in made)
    assert all(dataset.layout == data.layout for dataset in made)
    assert [column.name for column in made[-1].delivered] == ["target"]
    assert [row["tokens"].tolist() for row in read_rows(made[-1], [1])] == [
        row["tokens"].tolist() for row in read_rows(data, [0])
    ]


def test_rows_of_a_subset_come_in_its_order() -> None:
    """Indices may repeat; the first is sample 0."""
    assert ids(Subset(IDS, [9, 0, 0, 3])) == [9, 0, 0, 3]
    assert ids(Subset(Subset(IDS, [9, 0, 5]), [2, 2, 0])) == [5, 5, 9]


@pytest.mark.parametrize("index", [10, -1])
def test_a_subset_refuses_indices_of_no_sample(index: int) -> None:
    """At construction, for rows and for samples (S4-03)."""
    for base in (IDS, list(range(10))):
        with pytest.raises(IndexOutOfRangeError, match=f"index {index} is outside"):
            Subset(base, [0, index])


@given(st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=2, max_size=5))
def test_a_concatenation_is_its_parts_one_after_another(parts: list[list[int]]) -> None:
    """Empty parts and all; rows and samples alike."""
    wanted = [value for part in parts for value in part]

    assert ids(Concat(*(np.array(part, np.int64) for part in parts))) == wanted
    assert get_samples(Concat(*parts), range(len(wanted))) == wanted  # type: ignore[arg-type]


def test_parts_that_do_not_fit_are_refused_naming_both() -> None:
    """Other columns, other kinds, nothing at all."""
    with pytest.raises(ConfigError, match=r"0 int64 \[\], got '0 int64 \[2\] in Arrays"):
        Concat(IDS, np.zeros((3, 2), np.int64))
    with pytest.raises(ConfigError, match="only bulk datasets, or none"):
        Concat(IDS, [1, 2])
    with pytest.raises(ConfigError, match="at least one dataset"):
        Concat()
    with pytest.raises(ConfigError, match="whole batches"):
        Subset(Batches(), [0])


class Batches:
    """Gives whole batches."""

    def __len__(self) -> int:
        return 3

    def get_batch(self, indices: Sequence[int]) -> torch.Tensor:
        return torch.tensor(indices)


@given(
    st.integers(1, 60),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(-3, 2**70) | st.none(),
)
def test_a_split_is_disjoint_and_whole(samples: int, weights: list[int], seed: int | None) -> None:
    """Every sample is in exactly one part; parts are as large as their share, to one row."""
    shares = [weight / sum(weights) for weight in weights]

    parts = split(list(range(samples)), shares, seed)

    got = [get_samples(part, range(len(part))) for part in parts]  # type: ignore[arg-type]
    assert sorted(value for part in got for value in part) == list(range(samples))
    assert all(part == sorted(part) for part in got)
    for part, share in zip(got, shares, strict=True):
        assert abs(len(part) - share * samples) < 1


def test_a_split_is_the_same_everywhere() -> None:
    """Golden: changing it moves samples between a user's training and test set."""
    assert [ids(part) for part in split(IDS, [6, 4])] == GOLDEN_42
    assert [ids(part) for part in split(IDS, [0.6, 0.4], seed=1)] == GOLDEN_1
    assert [ids(part) for part in split(IDS, [0.5, 0.5], seed=None)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ]


GOLDEN_42 = [[1, 3, 5, 6, 7, 8], [0, 2, 4, 9]]
GOLDEN_1 = [[1, 2, 3, 5, 7, 8], [0, 4, 6, 9]]


def test_splits_do_not_favour_an_index() -> None:
    """Over 2,000 seeds each index falls into a half about half of the time (5 sigma)."""
    counts = np.zeros(20, np.int64)
    for seed in range(2000):
        first, _ = split(np.zeros(20), [10, 10], seed)
        counts[first.chosen] += 1  # type: ignore[union-attr]

    assert abs(counts - 1000).max() < 5 * (2000 * 0.25) ** 0.5


@pytest.mark.parametrize("sizes", [["a", 0.5], 0.5, None, "ab"])
def test_sizes_that_are_no_numbers_are_refused(sizes: Any) -> None:
    """By name, not by a bare TypeError."""
    with pytest.raises(ConfigError, match="sizes: wanted a list of shares or counts"):
        split(IDS, sizes)


def test_a_seed_of_a_split_is_a_whole_number() -> None:
    """By name."""
    with pytest.raises(ConfigError, match=r"seed: wanted an int, got 1\.5"):
        split(IDS, [0.5, 0.5], 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("indices", [None, 5, slice(0, 5), "ab", [True, False], [0.5]])
def test_indices_that_are_no_list_of_numbers_are_refused(indices: Any) -> None:
    """With what to give in place of a mask or a slice."""
    with pytest.raises(ConfigError, match=r"indices: wanted a list.*flatnonzero.*range\(start"):
        Subset(IDS, indices)


@pytest.mark.parametrize("sizes", [[], [0.5], [0.6, 0.6], [5, 4], [11, -1], [1.5, -0.5]])
def test_sizes_that_do_not_add_up_are_refused(sizes: list[float]) -> None:
    """The error names what the sizes must sum to."""
    with pytest.raises(ConfigError, match="sizes"):
        split(IDS, sizes)


def double(sample: dict[str, torch.Tensor]) -> torch.Tensor:
    return sample["0"] * 2


def test_a_map_sees_rows_as_dicts_of_tensors() -> None:
    """Its samples come by one bulk read (S4-06)."""
    mapped = Arrays(IDS).map(double)

    assert access_of(mapped) == "many"
    assert [int(value) for value in get_samples(mapped, [3, 1])] == [6, 2]
    assert int(mapped[4]) == 8  # type: ignore[index]


def test_a_bad_row_is_the_error_of_its_own_sample() -> None:
    """Many at once report rows; one alone raises its own error (B24)."""
    mapped = RaggedRows([[1], [2], [3]], bad=[1]).map(dict)

    error = raised(RowErrors, lambda: mapped.__getitems__([0, 1, 2]))  # type: ignore[attr-defined]
    assert list(error.errors) == [1]
    with pytest.raises(DataError, match="sample 1 is bad"):
        mapped[1]  # type: ignore[index]
    joined = Concat([{"a": 1}], mapped)
    error = raised(RowErrors, lambda: joined.__getitems__([0, 1, 0, 2]))  # type: ignore[union-attr]
    assert list(error.errors) == [3]


class Failing(Dataset):
    """Fails for odd samples, on the loop."""

    def __len__(self) -> int:
        return 4

    async def get(self, index: int) -> int:
        await asyncio.sleep(0)
        if index % 2:
            raise ValueError(f"sample {index}")
        return index


def test_an_error_of_the_function_is_that_of_its_sample() -> None:
    """The other samples of the request are not to blame (B24)."""

    def inverse(sample: int) -> float:
        return 1 / sample

    mapped = Concat([1, 0], [2, 0]).map(inverse)

    error = raised(RowErrors, lambda: mapped.__getitems__([3, 2, 1]))  # type: ignore[attr-defined]
    assert {row: type(cause) for row, cause in error.errors.items()} == {
        0: ZeroDivisionError,
        2: ZeroDivisionError,
    }
    with pytest.raises(ZeroDivisionError):
        mapped[1]  # type: ignore[index]


def test_errors_of_awaited_samples_keep_their_rows() -> None:
    """Through two compositions, each failure is named by its row of the request (B24)."""
    made = Concat([10, 11], Subset(Failing(), [3, 0, 1]))
    assert isinstance(made, WaitingSamples)

    async def fetch() -> None:
        await made.fetch([4, 0, 3, 2])

    error = raised(RowErrors, lambda: asyncio.run(fetch()))

    assert {row: str(cause) for row, cause in error.errors.items()} == {
        0: "sample 1",
        3: "sample 3",
    }


def test_a_cancelled_read_of_many_parts_ends_after_its_writers() -> None:
    """No part writes once the read has ended (late writers)."""
    gate, ended = asyncio.Event(), []

    class Slow(AwaitedRows):
        async def read_into(self, indices: Any, out: Any, rows: Any) -> None:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                ended.append(indices.tolist())
                raise

    made = Concat(Slow(Arrays(IDS)), Slow(Arrays(IDS)))
    assert isinstance(made, BulkDataset)

    async def cancel() -> None:
        out = {"0": np.zeros(2, np.int64)}
        reading = asyncio.create_task(made.read_into(np.array([1, 12]), out, np.array([0, 1])))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(cancel())

    assert sorted(ended) == [[1], [2]]


def test_parts_of_samples_are_selected_by_key_or_position() -> None:
    """The sample becomes a dict of what was asked for."""
    data = Subset([{"a": 1, "b": 2}, {"a": 3, "b": 4}], [1])

    assert get_samples(data.select("b"), [0]) == [{"b": 4}]  # type: ignore[arg-type]
    assert get_samples(Concat([(1, 2)], []).select(1, 0), [0]) == [{1: 2, 0: 1}]  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least one key"):
        data.select()


def test_compositions_have_fingerprints_of_their_own() -> None:
    """Which samples, which parts, which function: all of it counts."""
    data, other = Arrays(IDS), Arrays(IDS[:5])
    made = [
        data,
        data.subset([0, 1]),
        data.subset([1, 0]),
        Concat(data, other),
        Concat(other, data),
        data.map(double),
        data.map(dict),
        Text.from_string("hello", 2).select("input"),
        Text.from_string("hello", 2).select("target"),
    ]

    digests = [str(dataset.fingerprint()) for dataset in made]

    assert len(set(digests)) == len(made)
    assert all(len(digest) < 400 for digest in digests)


def test_samples_are_located_through_compositions() -> None:
    """A message names the file of the part."""
    text = Text.from_string("hello, world", 2)
    made = Concat(text, Concat(text, text).subset([7])).map(dict)

    assert str(made.locate(5)) == str(text.locate(2)) == "text, characters [4, 7)"


def test_the_lifecycle_reaches_each_part_once() -> None:
    """Also a part that takes part twice."""

    class Counted(RaggedRows):
        calls: list[str]

        async def open(self) -> None:
            self.calls.append("open")

        async def aclose(self) -> None:
            self.calls.append("aclose")

        def thread_open(self) -> None:
            self.calls.append("thread_open")

        def thread_close(self) -> None:
            self.calls.append("thread_close")

    part = Counted([[1], [2]])
    part.calls = []
    made = Concat(part, part.subset([0])).map(dict)

    async def live() -> None:
        await made.open()
        made.thread_open()
        made.thread_close()
        await made.aclose()

    asyncio.run(live())

    once = ["open", "thread_open", "thread_close", "aclose"]
    assert part.calls == [call for call in once for _ in range(2)]
    part.calls = []
    asyncio.run(Concat(part, part).open())
    assert part.calls == ["open"]


def test_compositions_can_be_pickled() -> None:
    """Functions by name; a lambda cannot, as everywhere in Python."""
    made = Concat(Arrays(IDS), Arrays(IDS)).subset([11]).map(double)

    assert int(get_samples(pickle.loads(pickle.dumps(made)), [0])[0]) == 2


@pytest.mark.parametrize("given", [[np.arange(3), np.arange(4)], (np.arange(3),), []])
def test_a_list_of_datasets_is_passed_one_by_one(given: Any) -> None:
    """The form of torch's ConcatDataset would be one dataset whose samples are datasets."""
    with pytest.raises(ConfigError, match=r"Pass them one by one: Concat\(\*datasets\)"):
        Concat(given)


class Doubled:
    """A function that is an object, whose repr holds its address."""

    def __call__(self, sample: object) -> object:
        return sample


def test_a_mapped_function_has_the_same_name_in_every_process() -> None:
    """A fingerprint holds no address, or a state would fit no other process (S4-76)."""
    data = Arrays({"id": np.arange(4)})

    facts = [data.map(function).fingerprint() for function in (Doubled(), partial(Doubled()))]

    assert [fact["function"] for fact in facts] == ["Doubled", "partial(Doubled)"]
