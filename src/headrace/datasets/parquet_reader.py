"""Reading Parquet through pyarrow; the only file that imports it, when a dataset is made."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.datasets.parquet_arrays import column_of
from headrace.datasets.parquet_columns import Group, GroupColumn, ParquetColumn
from headrace.datasets.parquet_groups import ParquetFile
from headrace.errors import (
    FormatError,
    HeadraceError,
    MissingExtraError,
    NotFoundError,
    SourceChangedError,
)


def read_footer(root: str, name: str) -> tuple[ParquetFile, list[ParquetColumn]]:
    """Give the row groups and columns of a file, from its footer alone.

    Raises:
        MissingExtraError: pyarrow is not installed.
        FormatError: It is no Parquet file, or two of its columns have one name.
    """
    path = os.path.join(root, name)
    with _damage_told(name, "a Parquet file"), _opened(path) as file:
        rows = _group_rows(file.metadata)
        columns = [_column_of(field) for field in file.schema_arrow]
    _check_distinct(name, columns)
    return ParquetFile(name, os.path.getsize(path), rows), columns


def decode_group(
    root: str,
    file: ParquetFile,
    group: int,
    columns: Sequence[ParquetColumn],
    fills: Mapping[str, Any],
) -> Group:
    """Decode some columns of a row group, on the calling thread and without the GIL.

    The file is open only within this call.

    Args:
        root: Folder of the file.
        file: The file as it was found.
        group: Number of the row group in it.
        columns: Which columns.
        fills: What takes the place of nulls, by column.

    Raises:
        NotFoundError: The file is gone.
        SourceChangedError: It has another size or other row groups than when it was found.
        FormatError: A column cannot be decoded; file, row group and column are named.
    """
    path = os.path.join(root, file.name)
    _check_size(root, file, path)
    found: dict[str, GroupColumn] = {}
    with (
        _damage_told(file.name, "a Parquet file"),
        _opened(path, page_checksum_verification=True) as opened,
    ):
        _check_rows(root, file, opened.metadata)
        for column in columns:
            wanted = f"column {column.name!r} ({column.type}) of row group {group}"
            with _damage_told(file.name, wanted):
                # Several threads read at once already, each a row group of its own.
                table = opened.read_row_group(group, columns=[column.name], use_threads=False)
                chunks = table.column(column.name)
                found[column.name] = column_of(chunks, column, fills.get(column.name))
    return found


@contextlib.contextmanager
def _opened(path: str, **options: Any) -> Iterator[Any]:
    """Open a file whose name may be any bytes; Parquet's own way takes UTF-8 only."""
    with (
        _arrow().OSFile(os.fsencode(path)) as source,
        _parquet().ParquetFile(source, **options) as opened,
    ):
        yield opened


@contextlib.contextmanager
def _damage_told(name: str, wanted: str) -> Iterator[None]:
    """Turn what pyarrow raises for damage into a FormatError.

    Damage to pages is an OSError as trouble of the system is, which has a number.
    """
    try:
        yield
    except (_arrow().ArrowException, OSError) as error:
        if isinstance(error, HeadraceError) or getattr(error, "errno", None) is not None:
            raise
        raise FormatError(name, wanted, f"damage: {error}") from error


def _check_size(root: str, file: ParquetFile, path: str) -> None:
    try:
        size_bytes = os.path.getsize(path)
    except FileNotFoundError as error:
        raise NotFoundError(root, file.name, "It was there when it was listed.") from error
    if size_bytes != file.size_bytes:
        wanted, found = f"{file.size_bytes} bytes", f"{size_bytes} bytes"
        raise SourceChangedError(root, file.name, wanted, found)


def _check_rows(root: str, file: ParquetFile, metadata: Any) -> None:
    """See that a file of the size of the one that was found has its rows too."""
    found = _group_rows(metadata)
    if found != file.group_rows:
        wanted = f"{sum(file.group_rows)} rows in {len(file.group_rows)} row groups"
        others = f"{sum(found)} rows in {len(found)} others"
        raise SourceChangedError(root, file.name, wanted, others)


def _group_rows(metadata: Any) -> tuple[int, ...]:
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def _check_distinct(name: str, columns: Sequence[ParquetColumn]) -> None:
    names = [column.name for column in columns]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise FormatError(name, "columns whose names all differ", f"{twice!r} twice")


def _column_of(field: Any) -> ParquetColumn:
    """Say what a column becomes, by its type."""
    types = _arrow().types
    kind, shape = _plain(field.type), []
    is_list = types.is_list(kind) or types.is_large_list(kind)
    inner = kind.value_type if is_list else kind
    while types.is_fixed_size_list(inner):
        shape.append(inner.list_size)
        inner = inner.value_type
    if not _is_number(inner):
        return ParquetColumn(field.name, "value", str(field.type))
    dtype = np.dtype(inner.to_pandas_dtype()).str
    return ParquetColumn(
        field.name, "open" if is_list else "fixed", str(field.type), dtype, tuple(shape)
    )


def _plain(kind: Any) -> Any:
    """Give the type of the values behind a dictionary."""
    return kind.value_type if _arrow().types.is_dictionary(kind) else kind


def _is_number(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _parquet() -> Any:
    _arrow()
    return importlib.import_module("pyarrow.parquet")


def _arrow() -> Any:
    try:
        arrow = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.types")
    except ImportError as error:
        raise MissingExtraError("parquet", "pyarrow", "Reading Parquet files") from error
    return arrow
