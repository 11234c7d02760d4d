"""Reading the lines of a table of images from a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.datasets.shard_paths import not_found
from headrace.errors import FormatError

PATH, LABEL, SPLIT = "path", "label", "split"


@dataclass(frozen=True, slots=True)
class ManifestLine:
    """One line of the table; `split` is empty where the table has no such column."""

    line: int
    path: str
    label: str
    split: str


def lines_of(table: str) -> Iterator[ManifestLine]:
    """Give the lines after the header, each whole.

    Raises:
        NotFoundError: There is no such file.
        FormatError: It is no CSV, a column or a field is missing, or no line follows.
    """
    if not os.path.isfile(table):
        raise not_found(table, "a CSV file")
    # utf-8-sig: spreadsheets write a mark before the header.
    with open(table, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            columns = _columns(table, next(reader, []))
            count = 0
            for fields in reader:
                if fields:
                    yield _row(table, reader.line_num, fields, columns)
                    count += 1
        except csv.Error as error:
            raise FormatError(f"{table}, line {reader.line_num}", "CSV", str(error)) from error
        except UnicodeDecodeError as error:
            raise FormatError(table, "UTF-8 text", str(error)) from error
    if not count:
        raise FormatError(table, "a line for each image after the header", "none")


def _columns(table: str, header: list[str]) -> list[str]:
    names = [name.strip().lower() for name in header]
    if names.count(PATH) != 1 or names.count(LABEL) != 1 or names.count(SPLIT) > 1:
        wanted = "a header with the columns path and label, and split where there are several"
        cure = "Put commas between the fields." if _has_other_commas(header) else ""
        raise FormatError(table, wanted, ", ".join(header) or "an empty file", cure)
    return names


def _has_other_commas(header: list[str]) -> bool:
    return len(header) == 1 and any(mark in header[0] for mark in ";\t|")


def _row(table: str, line: int, fields: list[str], columns: list[str]) -> ManifestLine:
    at = f"{table}, line {line}"
    if len(fields) != len(columns):
        cure = "Put a field that holds a comma in quotes."
        raise FormatError(at, f"{len(columns)} fields, as in the header", f"{len(fields)}", cure)
    found = {name: fields[columns.index(name)].strip() for name in columns}
    for name in (PATH, LABEL, SPLIT):
        if name in found and not found[name]:
            raise FormatError(at, f"a {name}", "an empty field")
    return ManifestLine(line, found[PATH], found[LABEL], found.get(SPLIT, ""))
