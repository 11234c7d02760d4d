"""What a table of images says: classes, splits and files, each line checked."""

from __future__ import annotations

import os
import re
from array import array
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.image_files import Classes, ImageFile, ImageFiles, class_numbers
from headrace.datasets.manifest_lines import ManifestLine, lines_of
from headrace.datasets.path_table import PathTable
from headrace.errors import ConfigError, FormatError, NotFoundError

# A class number beyond this is a mistake, and would size a model's last layer.
MAX_CLASS = 2**31 - 1

# What tables get where numbers were floats or signed on the way.
_OTHER_NUMBER = re.compile(r"[+-]\d+|[+-]?\d*\.\d+|[+-]?\d+\.")


def read_manifest(
    table: str, root: str, split: str | None, classes: Classes | None, *, allow_twice: bool
) -> ImageFiles:
    """Give the files of one split of a table; see `ImageManifest`."""
    rows = ManifestRows(table, root)
    numbers = rows.class_numbers(classes)
    if not allow_twice:
        rows.refuse_duplicates()
    chosen = rows.of_split(split)
    return ImageFiles(root, (rows.file(row, numbers) for row in chosen), numbers)


class ManifestRows:
    """All lines of a table, as arrays.

    Args:
        table: The CSV file.
        root: What its paths are relative to.
    """

    def __init__(self, table: str, root: str) -> None:
        self._table = table
        self._root = root
        self._lines, self._label_codes, self._split_codes = array("q"), array("q"), array("q")
        self._labels: dict[str, int] = {}
        self._splits: dict[str, int] = {}
        self._first_lines: list[int] = []
        self._paths = PathTable(self._kept(row) for row in lines_of(table))
        self._label_names = list(self._labels)

    @property
    def nbytes(self) -> int:
        """Memory that the lines take."""
        numbers = (self._lines, self._label_codes, self._split_codes)
        return self._paths.nbytes + sum(each.itemsize * len(each) for each in numbers)

    def _kept(self, row: ManifestLine) -> str:
        self._lines.append(row.line)
        if row.label not in self._labels:
            self._first_lines.append(row.line)
        self._label_codes.append(self._labels.setdefault(row.label, len(self._labels)))
        self._split_codes.append(self._splits.setdefault(row.split, len(self._splits)))
        return self._below_root(row)

    def _below_root(self, row: ManifestLine) -> str:
        """Give a path relative to the root, written in one way."""
        relative = os.path.relpath(os.path.join(self._root, row.path), self._root)
        if relative.split(os.sep)[0] == os.pardir:
            cure = "Give root=, a folder above all images."
            raise FormatError(self._at(row.line), f"a path below {self._root}", row.path, cure)
        return relative.replace(os.sep, "/")

    def class_numbers(self, classes: Classes | None) -> dict[str, int]:
        """Give label to class number, every label checked.

        Raises:
            FormatError: A label is not among the classes, or a name stands among numbers.
        """
        if classes is None:
            return self._own_numbers()
        numbers = class_numbers(classes)
        for label, line in zip(self._labels, self._first_lines, strict=True):
            if label not in numbers:
                known = ", ".join(list(numbers)[:10])
                raise FormatError(self._at(line), f"a label among classes ({known})", repr(label))
        return numbers

    def _own_numbers(self) -> dict[str, int]:
        self._refuse_other_numbers()
        are_numbers = [_is_class_number(label) for label in self._labels]
        if not any(are_numbers):
            return {label: n for n, label in enumerate(sorted(self._labels, key=os.fsencode))}
        if all(are_numbers):
            return {label: int(label) for label in sorted(self._labels, key=int)}
        # Which of the two is meant is said by the first line.
        odd = are_numbers.index(not are_numbers[0])
        wanted = f"a whole number from 0 to {MAX_CLASS}" if are_numbers[0] else "a class name"
        label = self._label_names[odd]
        cure = "Say what labels there are: classes=[...]."
        raise FormatError(self._at(self._first_lines[odd]), wanted, repr(label), cure)

    def _refuse_other_numbers(self) -> None:
        """Refuse labels such as "-1" and "1.0": numbered as names they would come as other ones."""
        for label, line in zip(self._labels, self._first_lines, strict=True):
            if _OTHER_NUMBER.fullmatch(label):
                wanted = f"a class name, or a whole number from 0 to {MAX_CLASS}"
                cure = "Say what labels there are: classes=[...]."
                raise FormatError(self._at(line), wanted, repr(label), cure)

    def refuse_duplicates(self) -> None:
        """Refuse a table that lists one path twice.

        Raises:
            FormatError: It names both lines.
        """
        twice = _first_pair(self._paths)
        if twice is not None:
            first, second = twice
            cure = "Take one out, or pass duplicates='keep'."
            found = f"{self._paths[second]} again (first in line {self._lines[first]})"
            raise FormatError(self._at(self._lines[second]), "each path once", found, cure)

    def of_split(self, split: str | None) -> NDArray[np.int64]:
        """Give the numbers of the rows of a split.

        Raises:
            ConfigError: There are none.
        """
        if split is None:
            return np.arange(len(self._paths))
        if split not in self._splits or not split:
            known = ", ".join(filter(None, self._splits)) or "none: it has no column 'split'"
            raise ConfigError("split", f"a split of {self._table} ({known})", split)
        return np.flatnonzero(np.array(self._split_codes) == self._splits[split])

    def file(self, row: int, numbers: dict[str, int]) -> ImageFile:
        """Give the file of a row.

        Raises:
            NotFoundError: It does not exist.
            FormatError: It is a folder.
        """
        name = self._paths[row]
        path = os.path.join(self._root, name)
        if os.path.isdir(path):
            raise FormatError(self._at(self._lines[row]), "an image", f"the folder {name}")
        if not os.path.isfile(path):
            raise NotFoundError(self._root, name, f"{self._at(self._lines[row])} lists it.")
        label = self._label_names[self._label_codes[row]]
        return ImageFile(name, numbers[label], os.path.getsize(path))

    def _at(self, line: int) -> str:
        return f"{self._table}, line {line}"


def _is_class_number(label: str) -> bool:
    """Whether a label is a whole number, written as one writes it."""
    is_short = label.isascii() and label.isdigit() and len(label) <= len(str(MAX_CLASS))
    return is_short and str(int(label)) == label and int(label) <= MAX_CLASS


def _first_pair(paths: PathTable) -> tuple[int, int] | None:
    """Give two rows of the same path, the later as early as can be; None where all differ."""
    marks = np.fromiter(
        (int.from_bytes(blake2b(os.fsencode(name), digest_size=8).digest()) for name in paths),
        np.uint64,
        len(paths),
    )
    order = np.argsort(marks, kind="stable")
    same = np.flatnonzero(marks[order[1:]] == marks[order[:-1]])
    pairs = [(int(order[at]), int(order[at + 1])) for at in same.tolist()]
    # Different paths share a mark about never; looking costs nothing then.
    real = [pair for pair in pairs if paths[pair[0]] == paths[pair[1]]]
    return min(real, key=lambda pair: pair[1], default=None)
