"""One dataset for several threads: shared, copied, or served by one thread."""

from __future__ import annotations

import inspect
import io
import pickle
import types
import warnings
from typing import Any, Literal, TypeVar

import numpy as np
import torch

T = TypeVar("T")
Sharing = Literal["shared", "copies", "serial"]

# Smaller bytes cost less to copy than to look up.
LARGE_BYTES = 64 * 1024

_BY_REFERENCE = (
    np.ndarray,
    torch.Tensor,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
)


def can_share(dataset: Any) -> bool:
    """Whether all threads may read one object at once; one read on the loop alone is shared."""
    return bool(getattr(dataset, "thread_safe", True)) or _is_read_on_loop(dataset)


def _is_read_on_loop(dataset: Any) -> bool:
    if hasattr(dataset, "decode"):
        return False
    return any(
        inspect.iscoroutinefunction(getattr(dataset, name, None)) for name in ("get", "get_batch")
    )


class ThreadCopies:
    """Gives each reader thread the dataset that it may use.

    The copy is a pickle round trip in which arrays, tensors, large bytes and functions pass by
    reference, so handles and small state are copied and the data is not. It is taken when this
    is made: do that before the dataset is used, while handles that it opens late are not open.

    Attributes:
        sharing: "shared": one object for all. "copies": one each. "serial": it cannot be copied,
            so one thread must do all reads.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._references: list[Any] = []
        self._pickled = b""
        self.sharing: Sharing = "shared"
        if not can_share(dataset):
            self._take()

    def for_thread(self) -> Any:
        """Give the dataset that the calling thread may use, a fresh copy where it needs one."""
        if self.sharing != "copies":
            return self._dataset
        return _Unpickler(self._pickled, self._references).load()

    def _take(self) -> None:
        try:
            self._pickled, self._references = pickled(self._dataset)
            self.sharing = "copies"
            # A pickle that cannot be read again shows here, not on a reader thread.
            self.for_thread()
        except Exception as error:  # noqa: BLE001 - user classes raise anything from a pickle
            self.sharing = "serial"
            _warn_serial(self._dataset, error)


def pickled(value: Any) -> tuple[bytes, list[Any]]:
    """Give a pickle of a value and the large objects that it refers to."""
    into = io.BytesIO()
    pickler = _Pickler(into)
    pickler.dump(value)
    return into.getvalue(), pickler.references


def thread_copy(value: T) -> T:
    """Give a copy that shares arrays, tensors, large bytes and functions with the value."""
    copied: T = _Unpickler(*pickled(value)).load()
    return copied


class _Pickler(pickle.Pickler):
    def __init__(self, into: io.BytesIO) -> None:
        super().__init__(into, protocol=pickle.HIGHEST_PROTOCOL)
        self.references: list[Any] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        """Give the number of an object that passes by reference; None copies it."""
        if not isinstance(value, _BY_REFERENCE) and not _is_large_bytes(value):
            return None
        number = self._numbers.setdefault(id(value), len(self.references))
        if number == len(self.references):
            self.references.append(value)
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, references: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._references = references

    def persistent_load(self, number: int) -> Any:
        """Give the object of a number."""
        return self._references[number]


def _is_large_bytes(value: Any) -> bool:
    return isinstance(value, bytes | bytearray) and len(value) > LARGE_BYTES


def _warn_serial(dataset: Any, error: Exception) -> None:
    warnings.warn(
        f"{dataset!r} does not say thread_safe = True and cannot be copied for each reader "
        f"thread ({type(error).__name__}: {error}), so one thread reads it. Set thread_safe = "
        "True if calls from several threads are safe, or open files and connections late (in "
        "thread_open or at first use) so that it can be pickled.",
        stacklevel=2,
    )
