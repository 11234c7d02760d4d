"""One dataset for several threads: shared, copied, or served by one thread."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
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
# Scratch arrays, which each thread must have for itself, are small; larger arrays are data.
LARGE_ARRAY_BYTES = 16 << 20
# Pickling a list of so many texts takes 0.06 s, a million 6 s and 0.2 GB for each thread
# (one core of two). Lists that a sample is made in are shorter.
LARGE_ITEMS = 10_000
# A list of many small arrays is data too, which may not fit into memory once for each thread.
COPIED_BYTES = 256 << 20


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

    The copy is a pickle round trip which copies handles and small state, and not the data:

    - Arrays and CPU tensors of at most LARGE_ARRAY_BYTES are copied, COPIED_BYTES in all. Of
      the others arrays come as read-only views, so that an object which writes into one fails
      in place of disturbing other threads; tensors have no such views and come as they are.
    - Lists, tuples and dicts of LARGE_ITEMS and more plain values, or tuples of these, come as
      they are: paths, labels, annotations.
    - Large bytes, classes, modules, and functions without a closure come as they are. A function
      with one is made anew over copies of what it holds.

    It is taken when this is made: do that before the dataset is used, while handles that it
    opens late are not open.

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

    @property
    def copy_bytes(self) -> int:
        """What the copy of one thread holds, about: its pickle, and the arrays beside it."""
        copied = [each for each in self._references if isinstance(each, _Copied)]
        return len(self._pickled) + sum(each.nbytes for each in copied)

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
    """Give a pickle of a value and the objects outside it that it refers to."""
    into = io.BytesIO()
    pickler = _Pickler(into)
    pickler.dump(value)
    return into.getvalue(), pickler.references


def thread_copy(value: T) -> T:
    """Give a copy as a thread gets it; see `ThreadCopies`."""
    copied: T = _Unpickler(*pickled(value)).load()
    return copied


class Shared:
    """Holds an object that the copies of what holds it have in common.

    Attributes:
        value: The object; all threads may use it at once.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class _Copied:
    """An array or tensor as it was when the pickle was made, to be copied for each thread."""

    def __init__(self, value: Any) -> None:
        self._value = _copy_of(value)
        self.nbytes: int = value.nbytes

    def fresh(self) -> Any:
        return _copy_of(self._value)


class _Pickler(pickle.Pickler):
    def __init__(self, into: io.BytesIO) -> None:
        super().__init__(into, protocol=pickle.HIGHEST_PROTOCOL)
        self.references: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._values: list[Any] = []
        self._left_bytes = COPIED_BYTES

    def persistent_id(self, value: Any) -> int | None:
        """Give the number of an object that is kept outside the pickle; None pickles it."""
        number = self._numbers.get(id(value))
        if number is None:
            reference = self._reference(value)
            if reference is None:
                return None
            number = self._numbers[id(value)] = len(self.references)
            self.references.append(reference)
            # While this lives no other object has its id.
            self._values.append(value)
        return number

    def reducer_override(self, value: Any) -> Any:
        """Say how a function with a closure is copied; all else as pickle does."""
        if not isinstance(value, types.FunctionType) or not value.__closure__:
            return NotImplemented
        # Code and module are the same for all; what it holds is put in once it exists, since a
        # function may hold itself.
        parts = Shared((value.__code__, value.__globals__, value.__name__))
        held = [_content_of(cell) for cell in value.__closure__]
        facts = (held, value.__defaults__, value.__kwdefaults__, value.__dict__)
        return _empty_function, (parts,), facts, None, None, _fill_function

    def _reference(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, torch.Tensor):
            is_plain = value.device.type == "cpu" and value.layout is torch.strided
            return _Copied(value) if is_plain and self._fits(value.nbytes) else value
        return value if _is_unchanging(value) else None

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        if not array.flags.writeable:
            return array
        if self._fits(array.nbytes):
            # Objects in an array may be handles, which pickle copies one by one.
            return None if array.dtype.hasobject else _Copied(array)
        view = array.view()
        view.flags.writeable = False
        return view

    def _fits(self, size_bytes: int) -> bool:
        """Whether so many bytes are copied, and if so take them off what is left."""
        fits = size_bytes <= min(LARGE_ARRAY_BYTES, self._left_bytes)
        self._left_bytes -= size_bytes if fits else 0
        return fits


def _content_of(cell: types.CellType) -> tuple[Any, ...]:
    """Give what a cell holds, as one value, or nothing where it is empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _empty_function(parts: Shared) -> types.FunctionType:
    code, module, name = parts.value
    cells = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, module, name, None, cells)


def _fill_function(function: types.FunctionType, facts: tuple[Any, ...]) -> None:
    held, function.__defaults__, function.__kwdefaults__, own = facts
    function.__dict__.update(own)
    for cell, content in zip(function.__closure__ or (), held, strict=True):
        if content:
            (cell.cell_contents,) = content


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, references: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._references = references
        self._fresh: dict[int, Any] = {}

    def persistent_load(self, number: int) -> Any:
        """Give the object of a number, or one copy of it for this thread."""
        reference = self._references[number]
        if not isinstance(reference, _Copied):
            return reference
        if number not in self._fresh:
            self._fresh[number] = reference.fresh()
        return self._fresh[number]


def _copy_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if type(value) is torch.Tensor:
        # Not deepcopy, which copies the whole memory that a slice is cut from.
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value)


def _is_unchanging(value: Any) -> bool:
    """Whether threads may share an object: code, large plain data, or what is said to be."""
    if isinstance(value, types.FunctionType):
        return not value.__closure__
    if isinstance(value, types.BuiltinFunctionType):
        # One that is bound, as `file.read`, belongs to an object to be copied.
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType | type)
    if isinstance(value, type | types.ModuleType | Shared):
        return True
    if isinstance(value, bytes):
        return len(value) > LARGE_BYTES
    return type(value) in (list, tuple, dict) and len(value) >= LARGE_ITEMS and _is_plain(value)


_PLAIN = frozenset((str, int, float, complex, bool, bytes, type(None)))


def _is_plain(many: Any) -> bool:
    """Whether a container holds nothing but plain values, or tuples of them."""
    values = itertools.chain(many, many.values()) if isinstance(many, dict) else many
    return all(
        type(value) in _PLAIN or (type(value) is tuple and _PLAIN.issuperset(map(type, value)))
        for value in values
    )


def _warn_serial(dataset: Any, error: Exception) -> None:
    warnings.warn(
        f"{dataset!r} does not say thread_safe = True and cannot be copied for each reader "
        f"thread ({type(error).__name__}: {error}), so one thread reads it. Set thread_safe = "
        "True if calls from several threads are safe. Else open files and connections in "
        "thread_open, or at first use and leave them out of __getstate__: a dataset that was "
        "read from before it came to the loader has them open.",
        stacklevel=2,
    )
