"""MNIST and the sets that come in its form: Fashion-MNIST, KMNIST, EMNIST, QMNIST images."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from headrace.config import flag
from headrace.datasets.arrays import Arrays
from headrace.datasets.bounds import check_index
from headrace.datasets.dataset import Location
from headrace.datasets.idx import read_idx
from headrace.datasets.shard_paths import local_path, not_found
from headrace.errors import FormatError, NotFoundError

IMAGES_MAGIC, LABELS_MAGIC = bytes([0, 0, 8, 3]), bytes([0, 0, 8, 1])
PREFIXES = {True: "train", False: "t10k"}
# As they are offered, and as some tools unpack them.
NAMES = {
    "images": ("images-idx3-ubyte", "images.idx3-ubyte"),
    "labels": ("labels-idx1-ubyte", "labels.idx1-ubyte"),
}


class Mnist(Arrays):
    """Digits in memory: "image" uint8 `[1, height, width]` and "label" int64.

    `Mnist("data/MNIST/raw")` finds the four files as they are offered, packed by gzip or not;
    `Mnist.files(images, labels)` takes any two. Nothing is downloaded. Whether a file is packed
    is told by its first bytes. A pickle carries the paths: its copy reads the files again.

    Args:
        folder: Where `train-images-idx3-ubyte` and its like are, with or without `.gz`.
        train: Whether to read the training set or the test set (`t10k-...`).

    Raises:
        NotFoundError: A file is missing.
        FormatError: A file is no whole idx file of its kind, or there are not as many labels as
            images.
    """

    def __init__(self, folder: str | os.PathLike[str], train: bool = True) -> None:
        root = os.path.abspath(local_path(folder, "folder"))
        prefix = PREFIXES[flag("train", train)]
        self._read(*(_find(root, prefix, kind) for kind in ("images", "labels")))

    @classmethod
    def files(cls, images: str | os.PathLike[str], labels: str | os.PathLike[str]) -> Mnist:
        """Give the digits of two files, whatever their names."""
        made = cls.__new__(cls)
        made._read(*(os.path.abspath(local_path(path)) for path in (images, labels)))
        return made

    def _read(self, images: str, labels: str) -> None:
        self._files = images, labels
        pixels = read_idx(images, magic=IMAGES_MAGIC)
        classes = read_idx(labels, magic=LABELS_MAGIC)
        if len(pixels) != len(classes):
            raise FormatError(
                labels, f"{len(pixels)} labels, as many as images in {images}", str(len(classes))
            )
        super().__init__({"image": pixels[:, np.newaxis], "label": classes.astype(np.int64)})

    def locate(self, index: int) -> Location:
        return Location(self._files[0], None, f"image {check_index(index, len(self), self)}")

    def fingerprint(self) -> dict[str, Any]:
        labels = self.columns["label"].astype(np.uint8).tobytes()
        return {
            "kind": "Mnist",
            "samples": len(self),
            "image": list(self.layout[0].shape),
            "labels": hashlib.sha256(labels).hexdigest()[:16],
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Mnist.files, self._files

    def __repr__(self) -> str:
        return f"Mnist({os.path.dirname(self._files[0])!r}: {len(self)} images)"


def _find(root: str, prefix: str, kind: str) -> str:
    if not os.path.isdir(root):
        raise not_found(root, "a folder")
    names = [f"{prefix}-{name}{end}" for name in NAMES[kind] for end in ("", ".gz")]
    for name in names:
        if os.path.isfile(path := os.path.join(root, name)):
            return path
    raise NotFoundError(root, names[0], f"Nor is {', '.join(names[1:])}.")
