"""Files of records of equal size: raw dumps of any program, behind a header or not."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from headrace.config import flag, integer
from headrace.datasets.bounds import Indices, check_index, check_indices
from headrace.datasets.dataset import BulkDataset, Column, Layout, Location, Out
from headrace.datasets.fields import Field, Fields, fields_of, row_dtype, split_rows
from headrace.datasets.names import wanted_names
from headrace.datasets.row_files import RowFiles
from headrace.datasets.row_readers import MappedRows, PositionedRows, RowReader
from headrace.datasets.shard_paths import Paths, find_files
from headrace.errors import ConfigError

RECORD = "record"


class Records(BulkDataset):
    """Records of one size, one after another in some files, split into named columns.

    `Records("*.bin", [("label", "u1"), ("pixels", "u1", (3, 32, 32))])` delivers a column per
    field, in native byte order. Without fields there is one column "record", uint8
    `[record_bytes]`. Stored, and read ahead, are the bytes as they are in the file.

    Opening looks at sizes only. Any thread may read. A pickle carries paths and sizes.

    Args:
        paths: A file, a pattern, or a list of these. Files of a pattern are sorted by the bytes
            of their path; a list keeps its order.
        fields: A structured numpy dtype, or a list of (name, dtype) and (name, dtype, shape)
            that follow each other without gaps. Fields of nested dtypes have '/'-joined names.
        record_bytes: Size of a record, where it is longer than its fields or has none.
        header_bytes: What to skip at the start of each file.
        mapped: True reads through memory maps, the quickest way by far where files are in the
            system's memory. False makes one positioned read per record, a few descriptors open:
            for files far larger than memory, and where files may be cut while they are read,
            which is an error then and ends the process where they are mapped.

    Raises:
        ConfigError: Neither fields nor record_bytes, or fields that cannot be columns.
        NotFoundError: A file does not exist.
        FormatError: The size of a file is not its header and a whole number of records, or
            there is no record at all.
    """

    def __init__(
        self,
        paths: Paths,
        fields: Fields | None = None,
        *,
        record_bytes: int | None = None,
        header_bytes: int = 0,
        mapped: bool = True,
    ) -> None:
        found, row_bytes = _form(fields, record_bytes)
        header_bytes = integer("header_bytes", header_bytes, 0)
        files = RowFiles(find_files(paths, None), row_bytes, header_bytes)
        self._settle(files, found, flag("mapped", mapped))

    def _settle(self, files: RowFiles, fields: Sequence[Field], mapped: bool) -> None:
        """Keep what the files were found to be, and the columns in the order of delivery."""
        self._files = files
        self._fields = tuple(fields)
        self._mapped = mapped
        self._readers: dict[bool, RowReader] = {}
        self._layout = _layout(self._fields, files.row_bytes)
        self._delivered: Layout = tuple(field.column for field in fields) or self._layout

    def __len__(self) -> int:
        return len(self._files)

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def delivered(self) -> Layout:
        return self._delivered

    def select(self, *names: str) -> Records:
        """Give a dataset that delivers some columns, in the order named."""
        columns = {column.name: column for column in self._delivered}
        chosen = copy.copy(self)
        chosen._delivered = tuple(columns[name] for name in wanted_names(names, columns))
        return chosen

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        check_indices(indices, len(self), self)
        into = out[self._layout[0].name]
        assert isinstance(into, np.ndarray)
        if len(indices):
            as_bytes = into.reshape(len(into), -1).view(np.uint8)
            self._opened().read(indices, as_bytes, rows)

    def deliver(self, stored: Mapping[str, torch.Tensor], out: Mapping[str, torch.Tensor]) -> None:
        split_rows(stored[RECORD], self._fields, out)

    def thread_open(self) -> None:
        self._opened().enter()

    def thread_close(self) -> None:
        if self._reader is not None:
            self._reader.leave()

    def check(self) -> None:
        if self._reader is not None:
            self._reader.check()

    async def aclose(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def locate(self, index: int) -> Location:
        file, range_ = self._files.place(check_index(index, len(self), self))
        return Location(file.name, range_, f"record {index}")

    def fingerprint(self) -> dict[str, Any]:
        listed = "\n".join(f"{file.name}\t{file.size_bytes}" for file in self._files.files)
        form = repr(
            [(f.column.name, f.dtype.str, f.column.shape, f.offset_bytes) for f in self._fields]
        )
        return {
            "kind": type(self).__name__,
            "samples": len(self),
            "record_bytes": self._files.row_bytes,
            "header_bytes": self._files.header_bytes,
            "columns": _digest(repr([c.name for c in self._delivered]) + form),
            "files": len(self._files.files),
            "names_and_sizes": _digest(listed),
        }

    @property
    def _reader(self) -> RowReader | None:
        return self._readers.get(self._mapped)

    def _opened(self) -> RowReader:
        reader = self._reader
        if reader is None:
            made = MappedRows(self._files) if self._mapped else PositionedRows(self._files)
            # Two threads may both open at first: one's dies unused, so that one counts them all.
            reader = self._readers.setdefault(self._mapped, made)
        return reader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files.root!r}: {len(self)} records)"


def _form(fields: Fields | None, record_bytes: int | None) -> tuple[tuple[Field, ...], int]:
    """Give the fields and the bytes of a record."""
    if fields is None:
        if record_bytes is None:
            raise ConfigError("fields, record_bytes", "at least one of them", "neither")
        return (), integer("record_bytes", record_bytes, 1)
    dtype = row_dtype(fields)
    found = fields_of(dtype)
    if record_bytes is None:
        return found, dtype.itemsize
    return found, integer("record_bytes", record_bytes, dtype.itemsize)


def _layout(fields: Sequence[Field], row_bytes: int) -> Layout:
    """Give how rows are stored: as bytes, or as their only field, which spares a copy."""
    if len(fields) == 1 and fields[0].is_whole(row_bytes):
        return (fields[0].column,)
    return (Column(RECORD, np.dtype(np.uint8), (row_bytes,)),)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
