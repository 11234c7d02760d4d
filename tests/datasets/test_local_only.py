"""Bundled datasets read local files and nothing else: no network, no code out of data."""

from __future__ import annotations

import gzip
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import (
    BulkDataset,
    Cifar10,
    Cifar10Disk,
    Mnist,
    Ragged,
    Records,
    Text,
    TokenShards,
    read_idx,
)
from headrace.errors import ConfigError, FormatError
from headrace.testing.dataset_reads import delivered_rows


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a dataset opened a socket or a pickle")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of each form."""
    np.save(tmp_path / "values.npy", np.arange(20, dtype=np.uint16))
    np.save(tmp_path / "offsets.npy", np.array([0, 5, 20]))
    (tmp_path / "text.txt").write_text("hello, world")
    (tmp_path / "test_batch.bin").write_bytes(bytes(2 * 3073))
    images = bytes.fromhex("00000803 00000002 00000001 00000002 01020304")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(images)
    labels = bytes.fromhex("00000801 00000002 0506")
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return tmp_path


KINDS: dict[str, Callable[[Path], BulkDataset]] = {
    "TokenShards": lambda folder: TokenShards(folder / "values.npy", 3),
    "Text": lambda folder: Text(folder / "text.txt", 4),
    "Ragged": lambda folder: Ragged(folder / "values.npy", folder / "offsets.npy"),
    "Records": lambda folder: Records(folder / "test_batch.bin", record_bytes=7),
    "Mnist": Mnist,
    "Cifar10": lambda folder: Cifar10(folder, train=False),
    "Cifar10Disk": lambda folder: Cifar10Disk(folder, train=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_read_without_network_or_pickle(kind: str, folder: Path) -> None:
    """Every bundled kind of files opens and reads with both out of reach (S0-09)."""
    rows = delivered_rows(KINDS[kind](folder), [1, 0])

    assert len(rows) == 2


def test_objects_in_files_are_refused(tmp_path: Path) -> None:
    """An array of objects is a pickle, whoever calls it .npy: it is not opened (S0-09)."""
    path = tmp_path / "values.npy"
    np.save(path, np.array([Trap(tmp_path / "sprung")], object), allow_pickle=True)
    opens: list[Callable[[], object]] = [
        lambda: Ragged(path, np.array([0, 1])),
        lambda: Ragged(np.arange(1), path),
        lambda: TokenShards(path, 1),
        lambda: read_idx(path),
        lambda: Cifar10.files(path),
    ]
    for open_ in opens:
        with pytest.raises(FormatError):
            open_()

    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("path", ["", None, ["data"]])
@pytest.mark.parametrize("kind", [Mnist, Cifar10, read_idx])
def test_what_is_no_path_is_refused(kind: Callable[[Any], object], path: Any) -> None:
    """An empty text too, which would stand for the folder one is in."""
    with pytest.raises(ConfigError, match="wanted a path, got"):
        kind(path)
