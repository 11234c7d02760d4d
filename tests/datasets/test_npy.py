"""Headers of .npy files, without pickle."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as numpy_format

from headrace.datasets.npy import MAGIC, header_end, parse_header
from headrace.errors import FormatError

HEADER = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }"


def npy(text: str, version: int = 1, minor: int = 0) -> bytes:
    """Give the bytes of a header by hand."""
    body = text.encode("latin-1" if version < 3 else "utf-8")
    length = struct.pack("<H" if version == 1 else "<I", len(body))
    return MAGIC + bytes([version, minor]) + length + body


@given(
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
    st.sampled_from(["<i2", ">f8", "|u1", "<c16", "|b1"]),
    st.lists(st.integers(0, 5), max_size=3),
    st.booleans(),
)
def test_headers_of_numpy_are_read(
    version: tuple[int, int], descr: str, shape: list[int], fortran: bool
) -> None:
    """Versions 1, 2 and 3 say the same, and the data begins where numpy puts it (B09)."""
    file = io.BytesIO()
    array = np.zeros(tuple(shape), descr, order="F" if fortran else "C")
    numpy_format.write_array(file, array, version)
    whole = file.getvalue()

    header = parse_header("a.npy", whole)

    assert header.dtype == array.dtype
    assert header.shape == array.shape
    assert header.fortran_order == (array.flags.f_contiguous and not array.flags.c_contiguous)
    assert header.data_start_bytes + header.data_bytes == len(whole)
    assert header_end("a.npy", whole[:12]) == header.data_start_bytes


def test_no_length_is_a_multiple_of_anything() -> None:
    """A header that another program wrote, unpadded, is as good."""
    head = npy(HEADER)

    assert parse_header("a.npy", head + b"\1\0\2\0\3\0").data_start_bytes == len(head) == 67


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", r"a\.npy: wanted a \.npy file, found first bytes none \(empty file\).*raw"),
        (b"\1\0\2\0\3\0", r"found first bytes 01 00 02 00 03 00\. Headerless dumps.*raw"),
        (npy(HEADER, 9), r"a\.npy: wanted .* found version 9\.0"),
        (npy(HEADER, 1, 1), r"found version 1\.1"),
        (MAGIC + b"\2", r"found version 2\.0|found a file of 7 bytes"),
        (npy(HEADER)[:9], r"found a file of 9 bytes"),
        (npy(HEADER)[:40], r"wanted a \.npy header of 67 bytes, found a file of 40 bytes"),
        (npy(" " * 65_537, 2), r"at most 64 KiB, found a length of 65537 bytes"),
        (MAGIC + b"\3\0\xff\xff\xff\xff{", r"at most 64 KiB, found a length of 4294967295"),
        (npy("{'descr': '<u2'}"), r"wanted descr, fortran_order and shape"),
        (npy("[1, 2"), r"wanted a \.npy header"),
        (npy("__import__('os')"), r"wanted a \.npy header"),
        (npy("(" * 9000), r"wanted a \.npy header"),
        (npy(HEADER.replace("<u2", "nonsense")), r"wanted a numpy dtype, found descr 'nonsense'"),
        (npy(HEADER.replace("<u2", "|O")), r"wanted numbers.*unpickled"),
        (npy(HEADER.replace("(3,)", "(-3,)")), r"wanted a shape and a fortran_order"),
        (npy(HEADER.replace("(3,)", "3")), r"wanted a shape and a fortran_order"),
        (npy(HEADER.replace("(3,)", "(True,)")), r"wanted a shape and a fortran_order"),
        (npy(HEADER.replace("False", "0")), r"wanted a shape and a fortran_order"),
    ],
)
def test_what_is_no_header_is_refused(head: bytes, message: str) -> None:
    """Each error names the file, what was wanted and what was found (U-35, B09)."""
    with pytest.raises(FormatError, match=message) as caught:
        parse_header("a.npy", head)

    assert caught.value.name == "a.npy"


@given(st.binary(max_size=200))
def test_any_bytes_give_a_header_or_a_format_error(junk: bytes) -> None:
    """Nothing else escapes, whatever the file holds."""
    for head in (junk, MAGIC + junk, npy(HEADER)[:10] + junk, MAGIC + b"\1\0" + junk):
        try:
            parse_header("a.npy", head)
        except FormatError:
            continue
        assert head.startswith(MAGIC)
