"""Arrays in memory, or mapped by the caller: one row per sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.bounds import Indices, as_run, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Column, Layout, Out
from headrace.datasets.names import wanted_names
from headrace.errors import ConfigError
from headrace.masked import is_masked_array

ArrayLike = np.ndarray[Any, np.dtype[Any]] | torch.Tensor


class Arrays(BulkDataset):
    """Columns given as numpy arrays or CPU tensors of equal length.

    `Arrays({"image": x, "label": y})` names the columns; `Arrays(x, y)` names them "0", "1".
    The arrays are kept as they are and never written: the caller's memory, a map included, is
    read in place, so do not change it while a loader runs. Native, contiguous arrays are read
    at the speed of np.take; others (big-endian, sliced, transposed) give native, right values
    somewhat slower and without a copy of the whole.

    Args:
        arrays: One mapping, or arrays one after another.

    Raises:
        ConfigError: No array, unequal lengths, a 0-d array, masked values, or a dtype or device
            that numpy or torch does not have.
    """

    def __init__(self, *arrays: ArrayLike | Mapping[str, ArrayLike]) -> None:
        self._columns = {
            name: as_numpy(f"data[{name!r}]", array) for name, array in _named(arrays).items()
        }
        self._length = _common_length(self._columns)
        self._layout: Layout = tuple(
            Column(name, native_dtype(array.dtype), array.shape[1:])
            for name, array in self._columns.items()
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Give a copy of one row as its columns, the sample that `map` and `collate` get."""
        row = check_index(index, self._length, self)
        return {
            column.name: torch.from_numpy(np.array(self._columns[column.name][row], column.dtype))
            for column in self._layout
        }

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """The arrays by name, without a copy."""
        return dict(self._columns)

    def select(self, *names: str) -> Arrays:
        """Give a dataset of some columns, which share this one's memory."""
        return Arrays({name: self._columns[name] for name in wanted_names(names, self._columns)})

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, self._length, self)
        run = as_run(rows)
        for name, array in self._columns.items():
            into = out[name]
            assert isinstance(into, np.ndarray)
            if run is None:
                into[rows] = array[indices]
            elif array.dtype.isnative and array.flags.c_contiguous:
                # Indices are checked: "clip" spares np.take its own check and a second copy.
                array.take(indices, 0, into[run], "clip")
            else:
                # np.take would first copy the whole of such an array.
                into[run] = array[indices]

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "Arrays",
            "samples": self._length,
            "columns": [[c.name, c.dtype.str, list(c.shape)] for c in self._layout],
        }

    def __repr__(self) -> str:
        return f"Arrays({', '.join(self._columns)}: {self._length} rows)"


def _named(
    arrays: tuple[ArrayLike | Mapping[str, ArrayLike], ...],
) -> Mapping[str, ArrayLike]:
    named: dict[str, ArrayLike] = {}
    for position, array in enumerate(arrays):
        if not isinstance(array, Mapping):
            named[str(position)] = array
        elif len(arrays) == 1:
            named.update(array)
        else:
            raise ConfigError("data", "one mapping, or arrays", "a mapping among others")
    if not named:
        raise ConfigError("data", "at least one array", "none")
    return named


def as_numpy(knob: str, array: ArrayLike) -> NDArray[Any]:
    """Give an array or a CPU tensor as a plain numpy array over the same memory.

    Raises:
        ConfigError: It is neither, has no dimension or masked values, or a dtype or device that
            numpy or torch does not have.
    """
    if isinstance(array, torch.Tensor):
        array = _tensor_as_numpy(knob, array)
    if not isinstance(array, np.ndarray):
        raise ConfigError(
            knob, "a numpy array or a CPU tensor", type(array).__name__, _cure_for(array)
        )
    if is_masked_array(array) and np.ma.is_masked(array):
        cure = "Fill them, array.filled(value), or give array.data and array.mask as two columns."
        raise ConfigError(knob, "an array without masked values", "some masked", cure)
    # A plain view: subclasses such as np.memmap cost several times as much per call.
    plain = np.asarray(array)
    if plain.ndim == 0:
        raise ConfigError(knob, "one row per sample", "a 0-d array")
    check_dtype(knob, plain.dtype)
    return plain


def _cure_for(given: Any) -> str:
    """Say how to make an array of what is none."""
    if isinstance(given, list | tuple) and any(hasattr(row, "__len__") for row in given):
        return (
            "Of equal rows give np.asarray of it; others go by Ragged(np.concatenate(rows), "
            "lengths=np.array([len(row) for row in rows]))."
        )
    return "Give np.asarray of it."


def check_dtype(knob: str, dtype: np.dtype[Any]) -> None:
    """Refuse a dtype that is none of numbers, or that torch does not have.

    Raises:
        ConfigError: It is refused.
    """
    if dtype.kind not in "biufc":
        raise ConfigError(
            knob,
            "numbers",
            f"dtype {dtype}",
            "Encode strings and dates as numbers, or give a list of samples.",
        )
    try:
        torch.from_numpy(np.empty(0, native_dtype(dtype)))
    except TypeError as error:
        cure = "Convert it once: array.astype(np.float64)."
        if dtype.kind == "c":
            cure = "Convert it once: array.astype(np.complex128)."
        raise ConfigError(knob, "a dtype that torch has", f"dtype {dtype}", cure) from error


def native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Give a dtype in the machine's byte order, and by the one of C's names that torch knows."""
    native = dtype.newbyteorder("=")
    return np.dtype(native.str) if native.kind in "iu" else native


def _tensor_as_numpy(knob: str, tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise ConfigError(
            knob,
            "a dense tensor on the CPU",
            f"{tensor.layout} on {tensor.device}",
            "Move it once: tensor.cpu().",
        )
    try:
        array: NDArray[Any] = tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise ConfigError(
            knob, "a dtype that numpy has", str(tensor.dtype), "Convert it once: tensor.float()."
        ) from error
    return array


def _common_length(columns: Mapping[str, NDArray[Any]]) -> int:
    (first, array), *others = columns.items()
    for name, other in others:
        if len(other) != len(array):
            raise ConfigError(
                "data",
                "columns of one length",
                f"{first}: {len(array)} rows, {name}: {len(other)} rows",
            )
    return len(array)
