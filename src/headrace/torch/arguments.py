"""What torch's DataLoader refuses, refused under the same conditions in words of our own."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from headrace.datasets.dataset import BatchDataset, BulkDataset, Dataset
from headrace.errors import ConfigError


def check_reading(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    """Check how batches are to be read.

    Raises:
        ConfigError: An argument is negative, or needs threads and there are none.
    """
    if num_workers < 0:
        cure = "num_workers=0 reads on the calling thread."
        raise ConfigError("num_workers", "0 or more threads", num_workers, cure)
    if timeout < 0:
        raise ConfigError("timeout", "0 (wait for ever) or more seconds", timeout)
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ConfigError("prefetch_factor", "0 or more batches for each thread", prefetch_factor)
    if num_workers == 0 and prefetch_factor is not None:
        cure = "Nothing is read ahead without threads: set num_workers, or leave this out."
        raise ConfigError("prefetch_factor", "None with num_workers=0", prefetch_factor, cure)
    if num_workers == 0 and persistent_workers:
        cure = "There are no threads to keep: set num_workers, or leave this out."
        raise ConfigError("persistent_workers", "False with num_workers=0", True, cure)


def check_order(
    batch_size: int | None, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    """Check what decides the order and the batches.

    Raises:
        ConfigError: Two arguments say the same thing.
    """
    if sampler is not None and shuffle:
        cure = "The sampler decides the order: leave shuffle out."
        raise ConfigError("sampler", "None with shuffle=True", sampler, cure)
    if batch_sampler is not None:
        given = {"shuffle": shuffle, "sampler": sampler is not None, "drop_last": drop_last}
        named = [name for name, is_given in given.items() if is_given]
        named += ["batch_size"] if batch_size != 1 else []
        if named:
            cure = "A batch sampler decides the batches whole: leave the others out."
            raise ConfigError("batch_sampler", f"None with {', '.join(named)}", batch_sampler, cure)
    elif batch_size is None and drop_last:
        cure = "batch_size=None makes no batches, so there is no short one to drop."
        raise ConfigError("drop_last", "False with batch_size=None", drop_last, cure)


def check_dataset(dataset: Any) -> None:
    """Check that samples can be had by key.

    Raises:
        ConfigError: It is a stream, or a dataset of headrace that must be awaited.
    """
    if isinstance(dataset, IterableDataset):
        raise ConfigError(
            "dataset",
            "a map-style dataset",
            f"{type(dataset).__name__}, an IterableDataset",
            "Streams are not in this version: read them with torch.utils.data.DataLoader.",
        )
    if isinstance(dataset, BulkDataset):
        is_readable = not dataset.waits
    else:
        is_readable = hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    if isinstance(dataset, BulkDataset | BatchDataset | Dataset) and not is_readable:
        cure = "Read it with headrace.Loader, which awaits samples."
        raise ConfigError("dataset", "samples by key, without await", dataset, cure)
