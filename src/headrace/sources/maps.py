"""Memory maps that need no descriptor, however many there are."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """Owns one map; numpy arrays over it keep it alive, and it is unmapped with the last one.

    Python's own mmap keeps a copy of the descriptor for as long as the map lives, so a corpus
    of a thousand shards would use up the usual limit of 1,024 descriptors.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._address: int | None = None
        address = _libc.mmap(None, size_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address is None or address == _FAILED:
            errno = ctypes.get_errno()
            raise OSError(errno, f"cannot map {size_bytes} bytes: {os.strerror(errno)}")
        self._address = address

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": (self._size_bytes,),
            "typestr": "|u1",
            "data": (self._address, True),
        }

    def __del__(self, munmap: Any = _libc.munmap) -> None:
        if self._address is not None:
            munmap(self._address, self._size_bytes)


def map_file(descriptor: int, size_bytes: int) -> NDArray[np.uint8]:
    """Give the bytes of an open file as a read-only array over its map, `[size_bytes]`.

    The descriptor may be closed afterwards. Reading where the file has been cut off since ends
    the process (SIGBUS).
    """
    if size_bytes == 0:
        empty = np.empty(0, np.uint8)
        empty.flags.writeable = False
        return empty
    return np.asarray(_Mapping(descriptor, size_bytes))
