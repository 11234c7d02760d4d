"""Maps: plain arrays over files, their life, and files that change under them."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import ConfigError, NotFoundError, ShortReadError, SourceChangedError
from headrace.sources.mapped import MappedSource
from headrace.testing.source_contract import fill


def mapped_paths(folder: Path) -> list[str]:
    """Files below a folder that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted(Path(line.split()[-1]).name for line in maps if f" {folder}/" in line)


def test_an_array_is_plain_and_read_only(tmp_path: Path) -> None:
    """Numbers of a file as an ndarray, not a np.memmap, that nothing can write to."""
    numbers = np.arange(100, dtype=np.uint16)
    numbers.tofile(tmp_path / "shard.bin")
    source = MappedSource(tmp_path)

    tokens = source.array("shard.bin", np.uint16, offset_bytes=20, count=50)

    assert type(tokens) is np.ndarray
    assert tokens.dtype == np.uint16
    np.testing.assert_array_equal(tokens, np.arange(10, 60))
    assert not tokens.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        tokens.flags.writeable = True


def test_an_array_copies_nothing(tmp_path: Path) -> None:
    """All arrays of a file, and views of them, share its one map."""
    np.arange(1000, dtype=np.uint8).tofile(tmp_path / "shard.bin")
    source = MappedSource(tmp_path)

    whole = source.array("shard.bin", np.uint8)
    part = source.array("shard.bin", "<u4", offset_bytes=4)

    assert np.shares_memory(whole, part)
    address = whole.__array_interface__["data"][0]
    assert part.__array_interface__["data"][0] == address + 4


@pytest.mark.parametrize("dtype", [">i4", "<f8", "|u1", ">u2", "<i8", "<f2"])
def test_any_byte_order_and_any_alignment(tmp_path: Path, dtype: str) -> None:
    """The array says the dtype of the file, at offsets that are not aligned too (B08)."""
    numbers = np.array([1, 2, 3, 100], dtype)
    (tmp_path / "odd").write_bytes(b"x" + numbers.tobytes())

    found = MappedSource(tmp_path).array("odd", dtype, offset_bytes=1)

    np.testing.assert_array_equal(found, [1, 2, 3, 100])
    assert found.dtype == np.dtype(dtype)


def test_a_map_lives_as_long_as_an_array_over_it(tmp_path: Path) -> None:
    """Arrays outlive the source; the file is unmapped with the last view."""
    np.arange(5000, dtype=np.int64).tofile(tmp_path / "shard.bin")
    source = MappedSource(tmp_path)
    tail = source.array("shard.bin", np.int64)[4000:].reshape(10, 100)[::2]

    asyncio.run(source.aclose())
    del source
    gc.collect()

    assert mapped_paths(tmp_path) == ["shard.bin"]
    assert int(tail.sum()) == sum(sum(range(4000 + k, 4100 + k)) for k in range(0, 1000, 200))
    del tail
    gc.collect()
    assert mapped_paths(tmp_path) == []


def test_maps_use_no_descriptors(tmp_path: Path) -> None:
    """1,200 mapped shards fit a process that may open 256 files."""
    for number in range(1200):
        (tmp_path / f"{number}").write_bytes(number.to_bytes(4, "little"))
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from headrace.sources.mapped import MappedSource
source = MappedSource({str(tmp_path)!r})
arrays = [source.array(str(number), "<u4") for number in range(1200)]
print(sum(int(array[0]) for array in arrays))
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=80, check=False
    )

    assert (ended.stdout, ended.stderr) == ("719400\n", "")


def test_a_big_file_costs_no_memory(tmp_path: Path) -> None:
    """Mapping a sparse file of 4 GiB grows the process by less than 8 MiB (S0-16, B11)."""
    with open(tmp_path / "big.bin", "wb") as file:
        file.truncate(4294971392)
        file.seek(4294967296)
        file.write(bytes([7, 0, 8, 0, 9, 0]))
    source = MappedSource(tmp_path)
    before = resident_bytes()

    tokens = source.array("big.bin", "<u2")

    assert tokens.size == 2147485696
    assert tokens[2147483648:2147483651].tolist() == [7, 8, 9]
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    """An array that ends behind the file would end the process at its first touch."""
    (tmp_path / "short").write_bytes(bytes(10))
    source = MappedSource(tmp_path)

    with pytest.raises(ShortReadError, match=r"wanted bytes \[4, 12\), got 6"):
        source.array("short", np.uint32, offset_bytes=4, count=2)
    with pytest.raises(ShortReadError):
        source.array("short", np.uint8, offset_bytes=11, count=1)
    assert source.array("short", np.uint32, offset_bytes=4).size == 1
    with pytest.raises(ShortReadError):
        source.array("short", np.uint32, offset_bytes=12)
    assert source.array("short", np.uint32, offset_bytes=10).size == 0


@pytest.mark.parametrize("change", ["cut", "grown", "replaced", "removed", "touched"])
def test_check_notices_a_file_that_changed(tmp_path: Path, change: str) -> None:
    """The loader's check and every new array compare mapped files with what they were."""
    path = tmp_path / "shard"
    path.write_bytes(bytes(10))
    source = MappedSource(tmp_path)
    source.array("shard", np.uint8)
    source.check()

    if change == "cut":
        os.truncate(path, 5)
    elif change == "grown":
        path.write_bytes(bytes(11))
    elif change == "replaced":
        (tmp_path / "new").write_bytes(bytes(10))
        os.replace(tmp_path / "new", path)
    elif change == "removed":
        path.unlink()
    else:
        os.utime(path, ns=(1, 1))

    with pytest.raises(SourceChangedError, match="shard"):
        source.check()
    with pytest.raises(SourceChangedError, match="shard"):
        source.array("shard", np.uint8)
    with pytest.raises(SourceChangedError, match="shard"):
        asyncio.run(fill(source, "shard", [(0, 1)]))
    asyncio.run(source.aclose())


def test_an_empty_file_is_an_empty_array(tmp_path: Path) -> None:
    """Nothing can be mapped of no bytes."""
    (tmp_path / "empty").touch()

    empty = MappedSource(tmp_path).array("empty", np.int32)

    assert empty.shape == (0,)
    assert not empty.flags.writeable


def test_what_cannot_be_numbers_is_refused(tmp_path: Path) -> None:
    """Objects, dtypes of no size and negative places are errors that name the knob."""
    (tmp_path / "one").write_bytes(bytes(8))
    source = MappedSource(tmp_path)

    with pytest.raises(ConfigError, match="dtype: wanted a dtype of numbers"):
        source.array("one", object)
    with pytest.raises(ConfigError, match="dtype"):
        source.array("one", "S0")
    with pytest.raises(ConfigError, match="offset_bytes"):
        source.array("one", np.uint8, offset_bytes=-1)
    with pytest.raises(ConfigError, match="count"):
        source.array("one", np.uint8, count=-1)
    with pytest.raises(NotFoundError):
        source.array("../one", np.uint8)


def test_a_forked_child_reads_the_parents_maps(tmp_path: Path) -> None:
    """Arrays made before a fork stay good in the child, which may also make new ones (B25)."""
    np.arange(100, dtype=np.uint8).tofile(tmp_path / "shard")
    source = MappedSource(tmp_path)
    program = f"""
import os, signal
import numpy as np
from headrace.sources.mapped import MappedSource
source = MappedSource({str(tmp_path)!r})
before = source.array("shard", np.uint8)
if (pid := os.fork()) == 0:
    signal.alarm(10)
    after = source.array("shard", np.uint8, offset_bytes=50)
    os._exit(int(before[7]) + int(after[0]))
del before
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), source.array("shard", np.uint8)[3])
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=80, check=False
    )

    assert (ended.stdout, ended.stderr) == ("57 3\n", "")
    assert source.array("shard", np.uint8)[99] == 99
