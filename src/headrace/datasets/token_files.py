"""What a file of token ids must be, found out without reading the ids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from headrace.datasets.npy import LARGEST_HEADER_BYTES, MAGIC, NpyHeader, parse_header
from headrace.errors import ConfigError, FormatError

TOKEN_DTYPES = ("|u1", "<u2", "<u4", "<i4", "<i8")


def token_header(path: str) -> NpyHeader:
    """Give the header of a `.npy` shard.

    Raises:
        FormatError: It is none, not 1-D, of a dtype that token ids do not have, or truncated.
    """
    with open(path, "rb") as file:
        header = parse_header(path, file.read(LARGEST_HEADER_BYTES + 16))
    if header.dtype.str not in TOKEN_DTYPES:
        raise FormatError(
            path,
            f"token ids of {', '.join(TOKEN_DTYPES)}",
            f"dtype {header.dtype.str}",
            "Convert it once: np.save(path, np.load(path).astype('<u4')).",
        )
    if len(header.shape) != 1 or header.fortran_order:
        order = " in Fortran order" if header.fortran_order else ""
        raise FormatError(path, "a 1-D array of token ids", f"shape {header.shape}{order}")
    wanted, size = header.data_start_bytes + header.data_bytes, os.path.getsize(path)
    if size < wanted:
        raise FormatError(
            path, f"{wanted} bytes by its header", f"{size}", "The file is truncated."
        )
    return header


def check_same_dtype(files: Sequence[str], dtypes: Sequence[np.dtype[Any]]) -> None:
    """Refuse shards of different dtypes.

    Raises:
        FormatError: Names the first file that differs from the first of all.
    """
    for file, dtype in zip(files, dtypes, strict=True):
        if dtype != dtypes[0]:
            raise FormatError(
                file,
                f"dtype {dtypes[0].str} as in {files[0]}",
                f"dtype {dtype.str}",
                "Shards of one dataset share a dtype.",
            )


def token_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Give the dtype of a headerless dump.

    Raises:
        ConfigError: It is none of TOKEN_DTYPES.
    """
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise ConfigError("dtype", f"one of {', '.join(TOKEN_DTYPES)}", dtype) from None
    if found.str not in TOKEN_DTYPES:
        raise ConfigError("dtype", f"one of {', '.join(TOKEN_DTYPES)}", found.str)
    return found


def raw_tokens(path: str, dtype: np.dtype[Any]) -> int:
    """Give how many ids a headerless dump holds.

    Raises:
        FormatError: It is a .npy file, whose header would be read as ids, or its size is no
            multiple of the dtype's.
    """
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            raise FormatError(
                path,
                "ids without a header",
                "a .npy file",
                "Open it by TokenShards(path, seq_len).",
            )
    size = os.path.getsize(path)
    tokens, rest = divmod(size, dtype.itemsize)
    if rest:
        raise FormatError(
            path,
            f"a multiple of {dtype.itemsize} bytes ({dtype.str})",
            f"{size} bytes",
            "Is the dtype right, and the file whole?",
        )
    return tokens
