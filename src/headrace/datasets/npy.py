"""The header of .npy files, versions 1, 2 and 3, read without pickle.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import FormatError

MAGIC = b"\x93NUMPY"
PREAMBLE_BYTES = 12
"""Enough of a file for `header_end`, in every version."""
LARGEST_HEADER_BYTES = 64 * 1024
"""A 1-D header takes about 120 bytes; 64 KiB is what version 1 can say at most."""
_ENCODINGS = {1: "latin-1", 2: "latin-1", 3: "utf-8"}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of a .npy file says.

    Attributes:
        dtype: As stored, so its byte order may not be the machine's.
        shape: Shape of the array.
        fortran_order: Whether the first dimension runs fastest.
        data_start_bytes: Where the data begins in the file.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    data_start_bytes: int

    @property
    def data_bytes(self) -> int:
        """Bytes of data that the file must hold after the header."""
        count = 1
        for size in self.shape:
            count *= size
        return count * self.dtype.itemsize


def header_end(name: str, preamble: bytes) -> int:
    """Give the bytes from the start of the file to the end of the header.

    Args:
        name: File, for messages.
        preamble: The first PREAMBLE_BYTES of the file, or all of a shorter one.

    Raises:
        FormatError: It is no .npy file, of an unknown version, cut off, or says that its header
            is over 64 KiB.
    """
    if not preamble.startswith(MAGIC):
        raise FormatError(
            name,
            "a .npy file",
            f"first bytes {preamble[:6].hex(' ') or 'none (empty file)'}",
            _cure(preamble),
        )
    version, width = _version(name, preamble)
    stop = 8 + width
    if len(preamble) < stop:
        raise FormatError(name, "a .npy header", f"a file of {len(preamble)} bytes")
    length = int.from_bytes(preamble[8:stop], "little")
    if length > LARGEST_HEADER_BYTES:
        raise FormatError(
            name,
            "a .npy header of at most 64 KiB",
            f"a length of {length} bytes",
            f"The file says version {version}.0; it is damaged or no .npy file.",
        )
    return stop + length


def _cure(preamble: bytes) -> str:
    if preamble.startswith(b"PK"):
        return "It is an archive (.npz): np.save each array of np.load(path) to a file of its own."
    if preamble.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")):
        return "It is compressed: unpack it first, since maps need the plain bytes."
    name = "TokenShards.raw(paths, dtype, seq_len)"
    return f"Headerless dumps, also under the name .npy, open by {name}."


def parse_header(name: str, head: bytes) -> NpyHeader:
    """Read a header.

    Args:
        name: File, for messages.
        head: The file up to `header_end`; more does no harm.

    Raises:
        FormatError: The header is cut off, malformed, or of a dtype that would need pickle.
    """
    end = header_end(name, head[:PREAMBLE_BYTES])
    version, width = _version(name, head)
    if len(head) < end:
        raise FormatError(name, f"a .npy header of {end} bytes", f"a file of {len(head)} bytes")
    fields = _fields(name, head[8 + width : end], version)
    dtype = _dtype(name, fields["descr"])
    shape, fortran = fields["shape"], fields["fortran_order"]
    if not _is_shape(shape) or not isinstance(fortran, bool):
        raise FormatError(name, "a shape and a fortran_order", f"{shape!r} and {fortran!r}")
    return NpyHeader(dtype, shape, fortran, end)


def _version(name: str, head: bytes) -> tuple[int, int]:
    """Give the major version and the width of its length field."""
    major, minor = (head[6:8] + b"\0\0")[:2]
    if major not in _ENCODINGS or minor != 0:
        raise FormatError(name, ".npy version 1.0, 2.0 or 3.0", f"version {major}.{minor}")
    return major, 2 if major == 1 else 4


def _fields(name: str, text: bytes, version: int) -> dict[str, Any]:
    try:
        fields = ast.literal_eval(text.decode(_ENCODINGS[version]).strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise FormatError(name, "a .npy header", f"{text[:60]!r}...") from error
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise FormatError(name, "descr, fortran_order and shape in its header", f"{fields!r:.80}")
    return fields


def _dtype(name: str, descr: object) -> np.dtype[Any]:
    try:
        dtype = np.dtype(descr)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise FormatError(name, "a numpy dtype", f"descr {descr!r:.80}") from error
    if dtype.hasobject:
        raise FormatError(
            name, "numbers", f"dtype {descr!r:.80}", "Python objects would have to be unpickled."
        )
    return dtype  # type: ignore[no-any-return]


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape
    )
