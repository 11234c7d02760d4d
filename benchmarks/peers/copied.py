"""What the libraries share that read data in a format of their own: it is written once."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from workload import Columns, Workload
from workloads.images import Images
from workloads.pictures import Pictures, cropped, decoded

from peers.peer import Peer

WORKER_PROCESSES = 2


class Copied(Peer):
    """A peer that reads a copy of the data, beside the data."""

    @classmethod
    def prepare(cls, workload: Workload) -> None:
        folder, manifest = copy_of(workload, cls), workload.folder / "manifest.json"
        made_of = folder / "made_of.json"
        if not made_of.exists() or made_of.read_bytes() != manifest.read_bytes():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            cls.write(workload, folder)
            shutil.copyfile(manifest, made_of)

    @classmethod
    @abstractmethod
    def write(cls, workload: Workload, folder: Path) -> None:
        """Write the copy into an empty folder."""


def copy_of(workload: Workload, peer: type[Copied]) -> Path:
    """Say where the copy of a peer lies."""
    return workload.folder.with_name(f"{workload.folder.name}-{peer.__name__.lower()}")


def stored(workload: Workload, row: int) -> tuple[NDArray[np.uint8] | bytes, int]:
    """Give an image as it is stored, pixels or the bytes of its file, and its label."""
    if isinstance(workload, Pictures):
        return Path(workload.paths[row]).read_bytes(), int(workload.labels[row])
    assert isinstance(workload, Images)
    return np.array(workload.images[row]), int(workload.labels[row])


def picture(image: Any) -> NDArray[np.uint8]:
    """Give an image as it is delivered."""
    if isinstance(image, bytes):
        return cropped(decoded(image))
    return np.asarray(image, np.uint8)


def stacked(samples: list[tuple[NDArray[np.uint8], int]]) -> Columns:
    """Make a batch of images and labels: one copy of each image, as the others make."""
    images, labels = zip(*samples, strict=True)
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)
