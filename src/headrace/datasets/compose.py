"""Datasets out of datasets: `Concat`, `Subset`, `split`, `select`, `map`.

What is made of bulk datasets stays bulk, with their stored layout and their speed, save `map`,
whose function sees one sample at a time. Filters are lists of indices: `Subset`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.config import whole
from headrace.datasets.adapt import as_dataset
from headrace.datasets.bounds import Indices, as_indices, check_indices
from headrace.datasets.dataset import BatchDataset, BulkDataset, Dataset
from headrace.datasets.routes import Chained, Chosen, Mapped, Parts
from headrace.datasets.row_samples import BlockingRowSamples, WaitingRowSamples
from headrace.datasets.rows import ConcatRows, SubsetRows
from headrace.datasets.samples import routed
from headrace.errors import ConfigError
from headrace.rng.words import GAMMA, Words, derive, mix_rows

# The last value of `derive` for which sample goes to which part of a split.
SPLIT_STREAM = 111


def Concat(*datasets: Any) -> Dataset | BulkDataset:  # noqa: N802 - named as the datasets are
    """Give datasets one after another, as one.

    Bulk datasets need equal columns and give a bulk dataset; others may be of any kind.

    Raises:
        ConfigError: None is given, or one list of them, columns differ, or bulk ones are mixed
            with others.
    """
    if len(datasets) == 1 and isinstance(datasets[0], list | tuple):
        found = f"one {type(datasets[0]).__name__}"
        raise ConfigError("Concat", "datasets", found, "Pass them one by one: Concat(*datasets).")
    parts = [_indexed(dataset, "Concat") for dataset in datasets]
    bulk = [part for part in parts if isinstance(part, BulkDataset)]
    if not parts:
        raise ConfigError("Concat", "at least one dataset", "none")
    if len(bulk) == len(parts):
        return ConcatRows(bulk)
    if bulk:
        raise ConfigError(
            "Concat",
            "only bulk datasets, or none",
            f"{bulk[0]!r} among others",
            "Give bulk ones as samples: data.map(function).",
        )
    return routed(parts, Chained([len(part) for part in parts]))


def Subset(  # noqa: N802 - named as the datasets are
    dataset: Any, indices: Iterable[int] | NDArray[Any]
) -> Dataset | BulkDataset:
    """Give the samples of some indices, in this order; they may repeat.

    Raises:
        ConfigError: The indices are no list of whole numbers.
        IndexOutOfRangeError: An index is none of the dataset's.
    """
    base = _indexed(dataset, "Subset")
    try:
        chosen = as_indices(indices)
    except TypeError as error:
        cure = "Of a mask give np.flatnonzero(mask), of a slice range(start, stop)."
        raise ConfigError("indices", "a list of whole numbers", indices, cure) from error
    if isinstance(base, BulkDataset):
        return SubsetRows(base, chosen)
    check_indices(chosen, len(base), base)
    return routed([base], Chosen(chosen))


def split(
    dataset: Any, sizes: Sequence[float], seed: int | None = 42
) -> tuple[Dataset | BulkDataset, ...]:
    """Give disjoint subsets that together are the dataset.

    Which sample goes where depends on its index, the number of samples, the sizes and the seed
    only, never on the machine. Each subset keeps its samples in ascending order.

    Args:
        dataset: Any dataset with indices.
        sizes: Shares that sum to 1 (rounded by largest remainder), or whole counts that sum to
            the length.
        seed: Any integer; None cuts in order.

    Raises:
        ConfigError: The sizes are no list of numbers, or do not add up.
    """
    base = _indexed(dataset, "split")
    counts = _counts(sizes, len(base))
    order = np.arange(len(base)) if seed is None else _shuffled(len(base), seed)
    ends = np.cumsum(counts)
    return tuple(
        Subset(base, np.sort(order[end - count : end]))
        for end, count in zip(ends.tolist(), counts, strict=True)
    )


def map_samples(dataset: Any, function: Callable[[Any], Any]) -> Dataset:
    """Give a dataset of `function(sample)`; see `Dataset.map`."""
    return routed([_as_samples(_indexed(dataset, "map"))], Mapped(function))


def select_parts(dataset: Dataset, keys: Sequence[Hashable]) -> Dataset:
    """Give a dataset of some parts of each sample; see `Dataset.select`.

    Raises:
        ConfigError: No key is given.
    """
    if not keys:
        raise ConfigError("select", "at least one key", "none")
    return routed([dataset], Mapped(Parts(keys)))


def _indexed(dataset: Any, what: str) -> Dataset | BulkDataset:
    adapted = as_dataset(dataset)
    if isinstance(adapted, BatchDataset):
        raise ConfigError(
            what,
            "a dataset of samples",
            f"{adapted!r}, which gives whole batches",
            "Compose the indices in a sampler instead.",
        )
    return adapted


def _as_samples(dataset: Dataset | BulkDataset) -> Dataset:
    if isinstance(dataset, Dataset):
        return dataset
    return WaitingRowSamples(dataset) if dataset.waits else BlockingRowSamples(dataset)


def _counts(sizes: Sequence[float], samples: int) -> list[int]:
    if not isinstance(sizes, Sequence | np.ndarray) or not all(map(_is_number, sizes)):
        raise ConfigError("sizes", "a list of shares or counts", sizes)
    if all(isinstance(size, int | np.integer) for size in sizes) and sum(sizes) == samples:
        counts = [int(size) for size in sizes]
    else:
        counts = _by_largest_remainder(sizes, samples)
    if not counts or min(counts) < 0:
        raise ConfigError("sizes", "one or more sizes, none negative", list(sizes))
    return counts


def _is_number(size: Any) -> bool:
    return isinstance(size, int | float | np.integer | np.floating)


def _by_largest_remainder(shares: Sequence[float], samples: int) -> list[int]:
    if not np.isclose(sum(shares), 1.0, rtol=0, atol=1e-9):
        raise ConfigError(
            "sizes", f"shares that sum to 1, or counts that sum to {samples}", list(shares)
        )
    exact = [share * samples for share in shares]
    counts = [int(np.floor(count)) for count in exact]
    # Equal remainders go to the earlier part: sorted() keeps their order.
    neediest = sorted(range(len(shares)), key=lambda i: counts[i] - exact[i])
    for part in neediest[: samples - sum(counts)]:
        counts[part] += 1
    return counts


def _shuffled(samples: int, seed: int) -> Indices:
    """Give all indices in an order that is uniform over seeds: sorted by a random word each."""
    key = derive(whole("seed", seed), 0, 0, 0, SPLIT_STREAM)
    # Word i is the i-th draw of the rng whose state is the key.
    draws: Words = np.arange(samples, dtype=np.uint64) * np.uint64(GAMMA) + np.uint64(key)
    return np.argsort(mix_rows(draws), kind="stable")
