"""Makes the data of the workloads: the same bytes on every machine, and only once.

python benchmarks/generate.py --workloads T,S
python benchmarks/generate.py --scale 1/64
"""

from __future__ import annotations

import argparse
import json
import shutil
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
from workload import FOLDER, File, folder_of
from workloads import WORKLOADS

VERSION = 1
"""Raised when the bytes change, so that older data is made again."""

CHUNK_BYTES = 8 << 20


def make(name: str, scale: Fraction, data: Path = FOLDER) -> Path:
    """Make a workload, or find that it is there whole; read it, so that it is page-cached.

    Returns:
        The folder of the data.
    """
    folder = folder_of(name, scale, data)
    if not is_whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in WORKLOADS[name].files(scale):
            write(folder, file)
        write_manifest(folder, name)
    return folder


def write(folder: Path, file: File) -> None:
    """Write one file, and the folder that it lies in."""
    path = folder / file[0]
    path.parent.mkdir(exist_ok=True)
    if isinstance(file[1], bytes):
        path.write_bytes(file[1])
    else:
        np.save(path, file[1])


def write_manifest(folder: Path, name: str) -> None:
    """Write what is needed to know the data again, last: without it the data is made again."""
    facts = {"version": VERSION, "workload": name, "files": checksums(folder)}
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1))


def is_whole(folder: Path) -> bool:
    """Say whether every file is as its manifest says, byte for byte."""
    try:
        facts = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(facts["version"] == VERSION and facts["files"] == checksums(folder))


def checksums(folder: Path) -> dict[str, int]:
    """Give the CRC-32 of each file of the data, by its name below the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".npy", ".jpg"))
    return {path.relative_to(folder).as_posix(): checksum(path) for path in paths}


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
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--scale", type=Fraction, default=Fraction(1), help="such as 1/64")
    parser.add_argument("--data", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    for name in arguments.workloads.split(","):
        print(make(name, arguments.scale, arguments.data))


if __name__ == "__main__":
    main()
