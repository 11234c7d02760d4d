"""What users have, as one of the three contracts."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, IterableDataset, TensorDataset
from torch.utils.data import Subset as TorchSubset

from headrace.datasets.access import access_of
from headrace.datasets.adapters import (
    Foreign,
    ForeignAwaitedBatch,
    ForeignBatch,
    ForeignFetch,
    ForeignGet,
    ForeignMany,
    ForeignOne,
)
from headrace.datasets.arrays import Arrays
from headrace.datasets.bounds import as_indices
from headrace.datasets.dataset import BatchDataset, BulkDataset, Dataset
from headrace.datasets.rows import ConcatRows, SubsetRows
from headrace.errors import ConfigError

AnyDataset = Dataset | BulkDataset | BatchDataset

WANTED = (
    "a headrace dataset, numpy arrays or CPU tensors, or an object with __len__ and one of: "
    "__getitem__, __getitems__, get, async get, async fetch and decode, get_batch"
)
# Reading these changes nothing in them, so all threads may share one.
_SAFE_SEQUENCES = (list, tuple, range)


def as_dataset(given: Any, pure: bool | None = None) -> AnyDataset:
    """Give any indexed data as one of the three contracts.

    - Datasets of headrace stay as they are.
    - Arrays, tensors, and mappings of these become `Arrays`; so does torch's TensorDataset, also
      behind torch's Subset and ConcatDataset: the same samples without Python for each.
    - Lists, tuples and ranges are samples one by one.
    - Other objects by what they have, in this order: `async fetch` and `decode`, `async get`,
      `get_batch`, `__getitems__`, `__getitem__`, `get`.

    Args:
        given: The data.
        pure: Whether an index of a foreign object always gives the same bytes; None asks the
            object's own `pure`, and takes it for impure where it has none.

    Raises:
        ConfigError: It is a stream, a path, or nothing with indices; or a dataset of headrace
            without a way to read it.
    """
    if isinstance(given, Dataset | BulkDataset | BatchDataset):
        _check_is_read(given)
        return given
    _refuse_what_has_no_index(given)
    arrays = _as_arrays(given)
    return _as_foreign(given, pure) if arrays is None else arrays


def _check_is_read(dataset: AnyDataset) -> None:
    """Refuse a subclass that lacks what its class leaves open."""
    if isinstance(dataset, Dataset):
        access_of(dataset)
    elif isinstance(dataset, BulkDataset):
        kind = type(dataset)
        ways = (kind.read_into, kind.read_into_blocking)
        if ways == (BulkDataset.read_into, BulkDataset.read_into_blocking):
            raise ConfigError("data", "read_into or read_into_blocking", kind.__name__)


def _refuse_what_has_no_index(given: Any) -> None:
    if isinstance(given, str | bytes | os.PathLike):
        raise ConfigError(
            "data",
            WANTED,
            given if isinstance(given, os.PathLike) else given[:60],
            "If it is a path: TokenShards(path, seq_len), Text(path, seq_len), ImageFolder(path) "
            "or Parquet(path) read files.",
        )
    streams = (IterableDataset, Iterator, AsyncIterator)
    if isinstance(given, streams) or inspect.iscoroutine(given):
        raise ConfigError(
            "data",
            WANTED,
            f"{type(given).__name__}, a stream without indices",
            "Streams are not in this version: use a map-style dataset, or collect it in a list.",
        )
    if isinstance(given, type):
        raise ConfigError("data", WANTED, f"the class {given.__name__}", "Call it first.")
    if not hasattr(given, "__len__"):
        raise ConfigError("data", WANTED, f"{type(given).__name__}, which has no __len__")


def _as_arrays(given: Any) -> BulkDataset | None:
    """Give data in memory as rows, where it is nothing else."""
    if isinstance(given, np.ndarray | torch.Tensor):
        return Arrays(given)
    if isinstance(given, Mapping):
        return _mapping_as_arrays(given)
    # Exact types: a subclass may change what an index gives.
    if type(given) is TensorDataset and all(_fits_arrays(tensor) for tensor in given.tensors):
        return Arrays(*given.tensors)
    if type(given) is TorchSubset:
        base = _as_arrays(given.dataset)
        return SubsetRows(base, as_indices(given.indices)) if base is not None else None
    if type(given) is ConcatDataset:
        parts = [part for dataset in given.datasets if (part := _as_arrays(dataset)) is not None]
        if len(parts) == len(given.datasets) and len({part.layout for part in parts}) == 1:
            return ConcatRows(parts)
    return None


def _mapping_as_arrays(given: Mapping[Any, Any]) -> Arrays:
    if all(isinstance(value, np.ndarray | torch.Tensor) for value in given.values()):
        return Arrays(given)
    cure = "Give list(mapping.values()) if its values are samples."
    if all(isinstance(value, np.ndarray | torch.Tensor | list | tuple) for value in given.values()):
        cure = "Give each column as an array: np.asarray(values)."
    raise ConfigError(
        "data",
        "a mapping of names to arrays, or a sequence of samples",
        f"{type(given).__name__} with keys {list(given)[:5]!r}",
        cure,
    )


def _fits_arrays(tensor: torch.Tensor) -> bool:
    try:
        Arrays(tensor)
    except ConfigError:
        return False
    return True


def _as_foreign(given: Any, pure: bool | None) -> AnyDataset:
    if type(given) in _SAFE_SEQUENCES:
        return ForeignOne(given, pure=pure is not False, thread_safe=True)
    kind = _kind_of(given)
    return kind(given, pure, True if is_safe(given) else None)  # type: ignore[return-value]


def _kind_of(given: Any) -> type[Foreign]:
    get = getattr(given, "get", None)
    if hasattr(given, "fetch") and hasattr(given, "decode"):
        return ForeignFetch
    if asyncio.iscoroutinefunction(get):
        return ForeignGet
    if hasattr(given, "get_batch"):
        awaited = asyncio.iscoroutinefunction(given.get_batch)
        return ForeignAwaitedBatch if awaited else ForeignBatch
    if hasattr(given, "__getitems__"):
        return ForeignMany
    if hasattr(given, "__getitem__") or callable(get):
        return ForeignOne
    raise ConfigError("data", WANTED, type(given).__name__)


def is_safe(given: Any) -> bool:
    """Whether reading changes nothing, through torch's own wrappers too."""
    if type(given) is TorchSubset:
        return is_safe(given.dataset)
    if type(given) is ConcatDataset:
        return all(is_safe(part) for part in given.datasets)
    return type(given) in (*_SAFE_SEQUENCES, TensorDataset) or bool(
        getattr(given, "thread_safe", False)
    )
