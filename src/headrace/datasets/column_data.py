"""The values of one column as a user gives them: an array in memory, or a .npy file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.datasets.arrays import as_numpy, check_dtype
from headrace.datasets.npy import LARGEST_HEADER_BYTES, NpyHeader, parse_header
from headrace.datasets.shard_paths import local_path, not_found
from headrace.errors import ConfigError, FormatError, HeadraceError, SourceChangedError
from headrace.sources.mapped import MappedSource

Values = str | os.PathLike[str] | NDArray[Any] | torch.Tensor
"""An array or a CPU tensor, used where it is, or the path of a .npy file, which is mapped."""


class ColumnData:
    """One array, whose shape and dtype are known before any of it is read.

    Args:
        knob: How the user names it, for messages.
        given: Values.

    Attributes:
        name: The file's name, or the knob.
        dtype: As stored, native or not.
        shape: Shape of the whole.

    Raises:
        ConfigError: It is neither an array nor a path.
        NotFoundError: There is no such file.
        FormatError: The file is no whole .npy file in C order.
    """

    def __init__(self, knob: str, given: Any) -> None:
        self._file: str | None = None
        self._array: NDArray[Any] | None = None
        self._source: MappedSource | None = None
        self.start_bytes = 0
        if isinstance(given, str | os.PathLike):
            self._file = os.path.abspath(local_path(given, knob))
            self.name = os.path.basename(self._file)
            header = _header(self._file)
            check_dtype(self._file, header.dtype)
            self.dtype, self.shape = header.dtype, header.shape
            self.start_bytes = header.data_start_bytes
        else:
            self.name = knob
            self._array = as_numpy(knob, given)
            self.dtype, self.shape = self._array.dtype, self._array.shape

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_file(self) -> bool:
        """Whether it is a file."""
        return self._file is not None

    @property
    def is_contiguous(self) -> bool:
        """Whether the values lie in one piece, in C order."""
        return self._array is None or self._array.flags.c_contiguous

    def array(self) -> NDArray[Any]:
        """Give the values; a file is mapped at the first call. Safe from any thread.

        Raises:
            SourceChangedError: The file holds other values than when this was made.
        """
        if self._array is not None:
            return self._array
        source = self._source
        if source is None:
            # Two threads may both map at first: one of the maps dies unused.
            source = self._source = self._mapped()
        count = int(np.prod(self.shape, dtype=np.int64))
        return source.array(self.name, self.dtype, self.start_bytes, count).reshape(self.shape)

    def _mapped(self) -> MappedSource:
        """Map the file, which may be another by now: a pickle may be opened at any time."""
        assert self._file is not None
        source = MappedSource(os.path.dirname(self._file))
        head = source.array(self.name, np.uint8, 0, self.start_bytes)
        header = parse_header(self._file, head.tobytes())
        if (header.dtype, header.shape) != (self.dtype, self.shape):
            raise self.changed(*(f"{one.dtype} {list(one.shape)}" for one in (self, header)))
        return source

    def check(self) -> None:
        """Compare a mapped file with what it was.

        Raises:
            SourceChangedError: It was written to, cut, replaced or removed.
        """
        if self._source is not None:
            self._source.check()

    def close(self) -> None:
        """Let go of the map, which lives on as long as arrays over it do."""
        self._source = None

    def fingerprint(self) -> list[Any]:
        """Give its facts as JSON: name and size of a file, dtype and shape."""
        facts = [self.dtype.str, list(self.shape)]
        return [*facts, self.name, self._size_bytes] if self.is_file else facts

    @property
    def _size_bytes(self) -> int:
        count = int(np.prod(self.shape, dtype=np.int64))
        return self.start_bytes + count * self.dtype.itemsize

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    def wrong(self, wanted: str, found: str, cure: str = "") -> HeadraceError:
        """Give the error for values that cannot be used."""
        if self._file is not None:
            return FormatError(self._file, wanted, found, cure)
        return ConfigError(self.name, wanted, found, cure)

    def changed(self, wanted: str, found: str) -> SourceChangedError:
        """Give the error for values that are others than when this was made."""
        root = "memory" if self._file is None else os.path.dirname(self._file)
        return SourceChangedError(root, self.name, wanted, found)


def _header(file: str) -> NpyHeader:
    try:
        with open(file, "rb") as opened:
            header = parse_header(file, opened.read(LARGEST_HEADER_BYTES + 16))
            size = os.fstat(opened.fileno()).st_size
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise not_found(file, "a .npy file") from None
    wanted = header.data_start_bytes + header.data_bytes
    if size < wanted:
        raise FormatError(file, f"{wanted} bytes by its header", f"{size}", "It is truncated.")
    if size > wanted:
        raise FormatError(
            file, f"{wanted} bytes by its header", f"{size}", "What follows the array is unknown."
        )
    if not header.shape or (header.fortran_order and len(header.shape) > 1):
        order = " in Fortran order" if header.fortran_order else ""
        cure = "Convert it once: np.save(path, np.ascontiguousarray(np.load(path)))."
        raise FormatError(file, "an array in C order", f"shape {header.shape}{order}", cure)
    return header
