"""Whether an epoch delivers every sample, each with its own data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace.batch import Batch
from headrace.build.content import content_digest, row_digests
from headrace.errors import CoverageError
from headrace.loader import Loader
from headrace.samplers.bucketed import Bucketed
from headrace.samplers.positions import PositionSampler

Ids = str | Callable[[Batch], Iterable[Any]]

# An error names so many indices; all of them would fill a screen.
NAMED = 8


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an epoch delivered.

    Attributes:
        rows: Rows in all.
        samples: Different samples among them.
        missing: Samples that did not come.
        alike: Samples whose data, or id, is that of another one too.
    """

    rows: int
    samples: int
    missing: int
    alike: int


def check_coverage(
    loader: Loader, epoch: int = 0, ids: Ids | None = None, complete: bool | None = None
) -> Coverage:
    """Read an epoch and check that its rows are the samples that they are said to be.

    Four checks: (1) every sample comes as often as the sampler says, all of them once where
    nothing is dropped or augmented; (2) what came through the readers is what `batch_at` reads
    alone, so no two threads mixed their data; (3) samples of different indices differ: with
    `ids` every two of them, else not all are alike; (4) with `ids`, a sample that comes twice
    has the same id. A dataset that ignores its index fails the third.

    Moves the loader's cursor to the end of the epoch and keeps a hash per sample: give it a
    loader of its own, with workers as in training.

    Args:
        loader: The loader, of data in which samples that were survived as bad are missing.
        epoch: Which epoch.
        ids: What tells one sample from all others: a column name, or a function that gives a
            hashable id for each row of a batch.
        complete: Whether every sample must come; None where the sampler is one of headrace
            that deals out all of them.

    Returns:
        Counts of what came.

    Raises:
        CoverageError: A check failed; it names some of the indices.
    """
    if complete is None:
        complete = isinstance(loader.sampler, PositionSampler | Bucketed)
    counts: Counter[int] = Counter()
    known: dict[int, Any] = {}
    for batch in loader.epoch(epoch):
        _check_alone(loader, batch)
        counts.update(batch.indices.tolist())
        rows = _ids_of(batch, ids)
        for index, row in zip(batch.indices.tolist(), rows, strict=True):
            if ids is not None and known.setdefault(index, row) != row:
                raise CoverageError(
                    f"sample {index} came with the ids {known[index]!r} and {row!r}", (index,)
                )
            known.setdefault(index, row)
    if complete:
        _check_complete(loader, counts)
    alike = _check_different(known, strictly=ids is not None)
    return Coverage(counts.total(), len(counts), loader.num_samples - len(counts), alike)


def _ids_of(batch: Batch, ids: Ids | None) -> list[Any]:
    if ids is None:
        return row_digests(batch)
    found = batch[ids] if isinstance(ids, str) else ids(batch)
    listed = found.tolist() if hasattr(found, "tolist") else list(found)
    return [tuple(each) if isinstance(each, list) else each for each in listed]


def _check_alone(loader: Loader, batch: Batch) -> None:
    keys, alone = batch.pick_keys, loader.batch_at(batch.step)
    assert keys is not None
    if content_digest(alone, keys.slot) != content_digest(batch, keys.slot):
        raise CoverageError(
            f"step {batch.step} holds other data when it is read alone: the dataset gives other "
            "bytes for the same index, or cannot be read by several threads at once",
            tuple(batch.indices.tolist()[:NAMED]),
        )


def _check_complete(loader: Loader, counts: Counter[int]) -> None:
    views = getattr(loader.sampler, "augment", 1)
    too_many = [index for index, count in counts.items() if count > views]
    if too_many:
        raise CoverageError(
            f"{len(too_many)} samples came more than {views} times", _some(too_many)
        )
    if counts.total() + loader.samples_dropped != loader.num_samples * views:
        missing = [index for index in range(loader.num_samples) if index not in counts]
        raise CoverageError(f"{len(missing)} samples did not come", _some(missing))


def _check_different(known: dict[int, Any], strictly: bool) -> int:
    first: dict[Any, int] = {}
    alike = [index for index, row in known.items() if first.setdefault(row, index) != index]
    if len(known) > 1 and alike and (strictly or len(first) == 1):
        what = "the id" if strictly else "the data"
        raise CoverageError(
            f"{len(alike) + 1} samples of different indices have {what} of another one: does the "
            "dataset use its index?",
            _some([*alike, first[known[alike[0]]]]),
        )
    return len(alike)


def _some(indices: list[int]) -> tuple[int, ...]:
    return tuple(sorted(indices)[:NAMED])
