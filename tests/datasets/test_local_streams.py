"""The datasets of local files in the loader: one stream, however it is read and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Batch, BulkDataset, Cifar10Disk, Loader, Mnist, PadCollator, Ragged, Records

SAMPLES = 23


def ragged(folder: Path) -> BulkDataset:
    lengths = np.arange(SAMPLES) * 7 % 10
    np.save(folder / "values.npy", np.arange(lengths.sum(), dtype=np.int32))
    np.save(folder / "lengths.npy", lengths)
    labels = {"label": np.arange(SAMPLES)}
    return Ragged(folder / "values.npy", lengths=folder / "lengths.npy", fixed=labels)


def records(folder: Path, mapped: bool = True) -> BulkDataset:
    for name in "ab":
        rows = np.random.default_rng(ord(name)).bytes(7 * (SAMPLES // 2 + (name == "a")))
        (folder / name).write_bytes(rows)
    paths = [folder / "a", folder / "b"]
    return Records(paths, [("x", ">i2"), ("y", "u1", (5,))], mapped=mapped)


def mnist(folder: Path) -> BulkDataset:
    images = bytes.fromhex("00000803 00000017 00000002 00000001") + bytes(range(46))
    labels = bytes.fromhex("00000801 00000017") + bytes(range(23))
    (folder / "images").write_bytes(images)
    (folder / "labels").write_bytes(labels)
    return Mnist.files(folder / "images", folder / "labels")


def cifar(folder: Path) -> BulkDataset:
    rows = np.random.default_rng(0).integers(0, 256, (SAMPLES, 3073), np.uint8)
    rows[:, 0] %= 10
    (folder / "pictures.bin").write_bytes(rows.tobytes())
    return Cifar10Disk.files(folder)


Make = Callable[[Path], BulkDataset]
KINDS: dict[str, tuple[Make, dict[str, Any]]] = {
    "Ragged": (ragged, {}),
    "Ragged, padded": (ragged, {"collate": PadCollator("values", pad_value=-1)}),
    "Records, mapped": (records, {}),
    "Records, positioned": (lambda folder: records(folder, mapped=False), {}),
    "Mnist": (mnist, {}),
    "Cifar10Disk": (cifar, {}),
}


def held(batch: Batch) -> dict[str, Any]:
    return {name: batch[name].tolist() for name in batch.names}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_is_the_same_however_it_is_read(kind: str, tmp_path: Path) -> None:
    """Threads, prefetch, `for` and `async for` move no value; each sample comes once."""
    make, knobs = KINDS[kind]
    data = make(tmp_path)
    streams = []
    for workers, prefetch in ((0, 1), (1, 3), (2, 8)):
        with Loader(
            data, batch_size=4, seed=5, workers=workers, prefetch=prefetch, **knobs
        ) as loader:
            streams.append([held(batch) for batch in loader.epoch(1)])
            streams.append([held(batch) async for batch in loader.epoch(1)])

    assert len(streams[0]) == SAMPLES // 4
    assert all(stream == streams[0] for stream in streams)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_where_it_was_left(kind: str, tmp_path: Path) -> None:
    """A state in mid-epoch, as JSON, resumes in a loader over the files opened anew."""
    make, knobs = KINDS[kind]
    with Loader(make(tmp_path), batch_size=4, seed=5, **knobs) as loader:
        stream = iter(loader.epoch(0))
        next(stream)
        next(stream)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [held(batch) for batch in stream]

    with Loader(make(tmp_path), batch_size=4, seed=5, workers=0, **knobs) as resumed:
        resumed.load_state_dict(state)
        found = [held(batch) for batch in resumed.epoch(0)]

    assert len(rest) == 3
    assert found == rest
