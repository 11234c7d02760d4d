"""Which files a dataset of images is made of, and the class of each."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.path_table import PathTable
from headrace.errors import ConfigError, NotFoundError, SourceChangedError

Classes = Mapping[str, int] | Iterable[str]
"""Class names to class numbers, or names to be numbered in their order."""


class ImageFile(NamedTuple):
    """One file as a scan or a manifest found it: path below the root, class number, size."""

    name: str
    label: int
    size_bytes: int


class ImageFiles:
    """Names, labels and sizes of image files as arrays: about 50 bytes per file.

    Attributes:
        root: Folder that the names are relative to.
        names: Path of each file below it.
        labels: Class number of each file, int64 `[files]`.
        sizes_bytes: Size of each file when it was found, int64 `[files]`.
        class_to_index: Name of each class to its number.
    """

    def __init__(
        self, root: str, files: Iterable[ImageFile], class_to_index: Mapping[str, int]
    ) -> None:
        labels, sizes = array("q"), array("q")

        def named(file: ImageFile) -> str:
            labels.append(file.label)
            sizes.append(file.size_bytes)
            return file.name

        self.root = root
        self.names = PathTable(map(named, files))
        self.labels: NDArray[np.int64] = np.array(labels, np.int64)
        self.sizes_bytes: NDArray[np.int64] = np.array(sizes, np.int64)
        self.class_to_index = dict(class_to_index)

    def __len__(self) -> int:
        return len(self.names)

    def read(self, index: int) -> bytes:
        """Give the bytes of a file; it is closed again before this returns.

        Raises:
            NotFoundError: It is gone.
            SourceChangedError: It has another size than when it was found.
        """
        name = self.names[index]
        try:
            # Unbuffered: one system call for the size and one for all of the bytes.
            with open(os.path.join(self.root, name), "rb", buffering=0) as file:
                data = file.readall()
        except FileNotFoundError as error:
            raise NotFoundError(self.root, name, "It was there when it was listed.") from error
        wanted = int(self.sizes_bytes[index])
        if len(data) != wanted:
            raise SourceChangedError(self.root, name, f"{wanted} bytes", f"{len(data)} bytes")
        return data

    def facts(self) -> dict[str, Any]:
        """Give what a fingerprint must know."""
        listed = json.dumps(self.class_to_index, sort_keys=True)
        return {
            "classes": len(self.class_to_index),
            "class_to_index": hashlib.sha256(listed.encode()).hexdigest()[:16],
            "bytes": int(self.sizes_bytes.sum()),
            "names_labels_sizes": self.names.digest(self.labels, self.sizes_bytes),
        }


def class_numbers(classes: Classes) -> dict[str, int]:
    """Give class names to numbers as a plain dict.

    Raises:
        ConfigError: They are no names, a number is none, or a name comes twice.
    """
    if isinstance(classes, Mapping):
        numbers = dict(classes)
    else:
        names = [] if isinstance(classes, str) else list(classes)
        numbers = {name: number for number, name in enumerate(names)}
        if len(numbers) != len(names):
            raise ConfigError("classes", "each name once", names)
    is_right = all(
        isinstance(name, str) and isinstance(number, int) and not isinstance(number, bool)
        for name, number in numbers.items()
    )
    if not numbers or not is_right:
        raise ConfigError("classes", "a list of class names, or a mapping to numbers", classes)
    return numbers
