"""Makes the data of the workloads: the same bytes on every machine, and only once.

python benchmarks/generate.py --workloads T,S
python benchmarks/generate.py --scale 1/64
"""

from __future__ import annotations

import argparse
import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from workload import FOLDER, Tokens, Vectors, folder_of

VERSION = 1
"""Raised when the bytes change, so that older data is made again."""

CHUNK_BYTES = 8 << 20


def token_shards(scale: Fraction) -> Iterator[tuple[str, NDArray[Any]]]:
    """Give the shards of T: noise, and the number of each window in its first two tokens."""
    windows = scaled(Tokens.full_windows, scale)
    for shard in range(Tokens.shards):
        tokens = noise(shard, windows * Tokens.seq_len * 2 + 2).view(np.uint16)
        starts = np.arange(windows) * Tokens.seq_len
        rows = np.arange(windows) + shard * windows
        tokens[starts], tokens[starts + 1] = rows & 0xFFFF, rows >> 16
        yield f"shard-{shard:02}.npy", tokens


def vector_rows(scale: Fraction) -> Iterator[tuple[str, NDArray[Any]]]:
    """Give the rows of S: values in [0, 1), and the number of each row as its first value."""
    rows = scaled(Vectors.full_rows, scale)
    bits = noise(1000, rows * Vectors.width * 4).view(np.uint32)
    values = ((bits >> 8) * np.float32(2**-24)).astype(np.float32).reshape(rows, Vectors.width)
    values[:, 0] = np.arange(rows)
    yield "rows.npy", values


MAKERS: dict[str, Callable[[Fraction], Iterator[tuple[str, NDArray[Any]]]]] = {
    "T": token_shards,
    "S": vector_rows,
}


def noise(stream: int, size_bytes: int) -> NDArray[np.uint8]:
    """Give bytes that are the same under every numpy: raw output of a bit generator is fixed."""
    words = np.random.PCG64(stream).random_raw(-(-size_bytes // 8))
    return np.asarray(words, "<u8").view(np.uint8)[:size_bytes]


def scaled(full: int, scale: Fraction) -> int:
    """Give the share of a size that a scale asks for.

    Raises:
        SystemExit: The share is not whole.
    """
    share = full * scale
    if share.denominator != 1 or share < 1:
        raise SystemExit(f"--scale {scale}: {full} times it must be a whole number, got {share}.")
    return int(share)


def make(name: str, scale: Fraction, data: Path = FOLDER) -> Path:
    """Make a workload, or find that it is there whole; read it, so that it is page-cached.

    Returns:
        The folder of the data.
    """
    folder = folder_of(name, scale, data)
    if not is_whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file, array in MAKERS[name](scale):
            np.save(folder / file, array)
        write_manifest(folder, name)
    return folder


def write_manifest(folder: Path, name: str) -> None:
    """Write what is needed to know the data again, last: without it the data is made again."""
    files = {path.name: checksum(path) for path in sorted(folder.glob("*.npy"))}
    facts = {"version": VERSION, "workload": name, "files": files}
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1))


def is_whole(folder: Path) -> bool:
    """Say whether every file is as its manifest says, byte for byte."""
    try:
        facts = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    present = {path.name for path in folder.glob("*.npy")}
    return (
        facts["version"] == VERSION
        and present == facts["files"].keys()
        and all(checksum(folder / file) == found for file, found in facts["files"].items())
    )


def checksum(path: Path) -> int:
    """Give the CRC-32 of a file. Reading all of it also brings it into the page cache."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc


def main() -> None:
    """Make the data that the arguments ask for."""
    parser = argparse.ArgumentParser(description="Make the data of the benchmarks.")
    parser.add_argument("--workloads", default="T,S")
    parser.add_argument("--scale", type=Fraction, default=Fraction(1), help="such as 1/64")
    parser.add_argument("--data", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    for name in arguments.workloads.split(","):
        print(make(name, arguments.scale, arguments.data))


if __name__ == "__main__":
    main()
