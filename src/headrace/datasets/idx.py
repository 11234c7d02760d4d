"""The idx format of MNIST and its like, plain or gzipped.

Format: http://yann.lecun.com/exdb/mnist/ (a magic of 00 00, type, number of dimensions; the size
of each dimension as 4 bytes; the values, the last dimension fastest; all of it big-endian).
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.shard_paths import local_path, not_found
from headrace.errors import FormatError

DTYPES = {0x08: "|u1", 0x09: "|i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP_MAGIC = b"\x1f\x8b"
# A header is believed only as far as bytes follow, so no more is asked for at once.
PIECE_BYTES = 16 << 20


class _Stream(Protocol):
    """What both a file and an unpacked one can do."""

    def read(self, size: int, /) -> bytes: ...


def read_idx(path: str | os.PathLike[str], *, magic: bytes | None = None) -> NDArray[Any]:
    """Give the array of an idx file, in native byte order, in memory of its own.

    Whether it is gzipped is told by its first bytes, whatever its name.

    Args:
        path: The file.
        magic: The first four bytes that it must have, for a file of one kind.

    Raises:
        ConfigError: The path is none, or a remote URL.
        NotFoundError: There is no such file.
        FormatError: It is no idx file or one of another kind, too short, or too long.
    """
    file = os.path.abspath(local_path(path, "path"))
    try:
        with open(file, "rb") as opened:
            is_gzip = opened.read(2) == GZIP_MAGIC
            opened.seek(0)
            if not is_gzip:
                return _parse(file, opened, magic)
            with gzip.GzipFile(fileobj=opened) as unpacked:
                return _parse(file, unpacked, magic)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise not_found(file, "an idx file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FormatError(file, "a whole gzip file", str(error), "Is it cut off?") from error


def _parse(path: str, stream: _Stream, wanted: bytes | None) -> NDArray[Any]:
    magic = stream.read(4)
    _check_magic(path, magic, wanted)
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise FormatError(path, f"{magic[3]} sizes of 4 bytes", f"{len(sizes)} bytes of them")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    dtype: np.dtype[Any] = np.dtype(DTYPES[magic[2]])
    body = _read_all(path, stream, shape, math.prod(shape) * dtype.itemsize)
    values = _shaped(path, np.frombuffer(body, dtype), shape)
    return values if dtype.isnative else values.astype(dtype.newbyteorder("="))


def _shaped(path: str, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Give values in their shape, which a header without any values may make up freely."""
    try:
        return values.reshape(shape)
    except ValueError as error:
        raise FormatError(path, "a shape that numpy has", f"{shape}", str(error)) from error


def _check_magic(path: str, magic: bytes, wanted: bytes | None) -> None:
    found = f"{magic.hex(' ')}" if magic else "an empty file"
    if wanted is not None and magic != wanted:
        raise FormatError(path, f"magic {wanted.hex(' ')} (idx)", found)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES or not magic[3]:
        kinds = ", ".join(f"{code:02x}" for code in DTYPES)
        raise FormatError(
            path, f"an idx magic: 00 00, a type out of {kinds}, dimensions from 01", found
        )


def _read_all(path: str, stream: _Stream, shape: tuple[int, ...], size: int) -> bytearray:
    """Give the bytes that the header promises, and see that they are all."""
    body = bytearray()
    while len(body) <= size and (piece := stream.read(min(PIECE_BYTES, size + 1 - len(body)))):
        body += piece
    if len(body) != size:
        found = f"{len(body)}" if len(body) < size else "more"
        raise FormatError(path, f"{size} bytes of values by its header, shape {shape}", found)
    return body
