"""CIFAR-10 in its binary form: in memory, or read sample by sample."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.config import flag
from headrace.datasets.arrays import Arrays
from headrace.datasets.bounds import Indices, check_index
from headrace.datasets.dataset import Column, Location, Out
from headrace.datasets.fields import Field
from headrace.datasets.records import RECORD, Records
from headrace.datasets.row_files import RowFiles
from headrace.datasets.shard_paths import Paths, find_files, local_path, not_found
from headrace.errors import FormatError, NotFoundError, RowErrors

# Format: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
PIXEL_SHAPE = (3, 32, 32)
ROW_BYTES = 1 + 3 * 32 * 32
CLASSES = 10
TRAIN_NAMES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_NAMES = ("test_batch.bin",)
FIELDS = (
    Field(np.dtype(np.uint8), 1, Column("image", np.dtype(np.uint8), PIXEL_SHAPE)),
    Field(np.dtype(np.uint8), 0, Column("label", np.dtype(np.int64))),
)


class Cifar10(Arrays):
    """Pictures in memory: "image" uint8 `[3, 32, 32]` and "label" int64.

    Nothing is downloaded or unpickled: the Python form of the set is refused. A pickle carries
    the paths: its copy reads the files again.

    Args:
        folder: Where `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin` are.
        train: Whether to read the five training files or the test file.

    Raises:
        NotFoundError: A file is missing.
        FormatError: A file holds no whole number of pictures, or a label above 9, or the folder
            is of the Python form.
    """

    def __init__(self, folder: str | os.PathLike[str], train: bool = True) -> None:
        self._read(_batches(folder, train))

    @classmethod
    def files(cls, paths: Paths) -> Cifar10:
        """Give the pictures of some files of the same form, in this order."""
        made = cls.__new__(cls)
        made._read(find_files(paths, ".bin"))
        return made

    def _read(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        self._files = _row_files(paths)
        images = np.empty((len(self._files), *PIXEL_SHAPE), np.uint8)
        labels = np.empty(len(self._files), np.int64)
        first = 0
        for path, file in zip(paths, self._files.files, strict=True):
            rows = _rows_of(path, file.rows)
            images[first : first + file.rows] = rows[:, 1:].reshape(-1, *PIXEL_SHAPE)
            labels[first : first + file.rows] = rows[:, 0]
            first += file.rows
        super().__init__({"image": images, "label": labels})

    def locate(self, index: int) -> Location:
        return _place(self._files, check_index(index, len(self), self))

    def fingerprint(self) -> dict[str, Any]:
        labels = self.columns["label"].astype(np.uint8).tobytes()
        return {
            "kind": "Cifar10",
            "samples": len(self),
            "labels": hashlib.sha256(labels).hexdigest()[:16],
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Cifar10.files, (self._paths,)

    def __repr__(self) -> str:
        return f"Cifar10({self._files.root!r}: {len(self)} pictures)"


class Cifar10Disk(Records):
    """The pictures of Cifar10, one positioned read each and only when asked for.

    For sets of this form that are larger than memory. Samples equal those of Cifar10; a label
    above 9 is an error of its own sample. Columns, arguments and errors are those of Cifar10
    otherwise.
    """

    def __init__(self, folder: str | os.PathLike[str], train: bool = True) -> None:
        self._settle(_row_files(_batches(folder, train)), FIELDS, mapped=False)

    @classmethod
    def files(cls, paths: Paths) -> Cifar10Disk:
        """Give the pictures of some files of the same form, in this order."""
        made = cls.__new__(cls)
        made._settle(_row_files(find_files(paths, ".bin")), FIELDS, mapped=False)
        return made

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        super().read_into_blocking(indices, out, rows)
        pictures = out[RECORD]
        assert isinstance(pictures, np.ndarray)
        bad = np.flatnonzero(pictures[rows, 0] >= CLASSES).tolist()
        if bad:
            raise RowErrors(
                {
                    int(rows[i]): _label_error(
                        str(self.locate(int(indices[i]))), int(pictures[rows[i], 0])
                    )
                    for i in bad
                }
            )

    def locate(self, index: int) -> Location:
        return _place(self._files, check_index(index, len(self), self))


def _batches(folder: str | os.PathLike[str], train: bool) -> list[str]:
    """Give the files of one set, which must be there."""
    root = os.path.abspath(local_path(folder, "folder"))
    if not os.path.isdir(root):
        raise not_found(root, "a folder")
    names = TRAIN_NAMES if flag("train", train) else TEST_NAMES
    missing = [name for name in names if not os.path.isfile(os.path.join(root, name))]
    if missing and os.path.isfile(os.path.join(root, missing[0].removesuffix(".bin"))):
        raise _pickled(root)
    if missing:
        raise NotFoundError(root, missing[0], "Files of other names open by files(paths).")
    return [os.path.join(root, name) for name in names]


def _row_files(paths: Sequence[str]) -> RowFiles:
    for path in paths:
        with open(path, "rb") as file:
            head = file.read(2)
        # Protocols 2 to 5 begin so, and no label is 128.
        if len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
            raise _pickled(path)
    return RowFiles(paths, ROW_BYTES, 0)


def _rows_of(path: str, count: int) -> NDArray[np.uint8]:
    """Give the rows of a file as bytes, `[count, ROW_BYTES]`, their labels checked."""
    rows = np.empty((count, ROW_BYTES), np.uint8)
    with open(path, "rb") as file:
        got = file.readinto(rows.reshape(-1).data)
    if got != rows.size:
        raise FormatError(path, f"{rows.size} bytes, as before", str(got), "Is it being written?")
    bad = np.flatnonzero(rows[:, 0] >= CLASSES)
    if len(bad):
        raise _label_error(f"{path}, picture {bad[0]}", int(rows[bad[0], 0]))
    return rows


def _place(files: RowFiles, index: int) -> Location:
    file, range_ = files.place(index)
    return Location(file.name, range_, f"picture {index}")


def _label_error(where: str, label: int) -> FormatError:
    return FormatError(where, f"a label below {CLASSES}", str(label), "Is it CIFAR-10?")


def _pickled(path: str) -> FormatError:
    return FormatError(
        path,
        "the binary form of CIFAR-10 (data_batch_1.bin)",
        "the Python form",
        "It is pickled, and unpickling runs code of whoever wrote it: get the binary form.",
    )
