"""Local files: names, links, changes, descriptors, odd system calls, hops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from headrace.errors import ConfigError, NotFoundError, ShortReadError, SourceChangedError
from headrace.sources import local
from headrace.sources.local import LocalSource
from headrace.sources.source import ByteRange
from headrace.testing.source_contract import fill


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[LocalSource]:
    """A source over the test's own folder, opened and closed again."""
    source = LocalSource(tmp_path)
    await source.open()
    yield source
    await source.aclose()


def open_files(folder: Path) -> list[str]:
    """Names of the files below a folder that this process has open."""
    paths = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile by another thread
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(Path(path).name for path in paths if path.startswith(f"{folder}/"))


async def test_a_missing_name_is_told_with_near_ones(source: LocalSource, tmp_path: Path) -> None:
    """The error names the source, the folder looked into, and what is like the name."""
    (tmp_path / "shards").mkdir()
    for number in range(3):
        (tmp_path / "shards" / f"train-00{number}.npy").touch()

    with pytest.raises(NotFoundError) as caught:
        await source.stat("shards/train-03.npy")

    assert str(caught.value) == (
        f"'shards/train-03.npy' is not in LocalSource({str(tmp_path)!r}). "
        "In shards: Near: 'train-002.npy', 'train-001.npy', 'train-000.npy'."
    )


async def test_a_root_that_is_no_folder_is_not_found(tmp_path: Path) -> None:
    """An empty list would look like data that is not there."""
    source = LocalSource(tmp_path / "none", threads=0)

    with pytest.raises(NotFoundError, match="root is not a folder"):
        await source.list()


async def test_links_are_followed_unless_told_otherwise(tmp_path: Path) -> None:
    """A link out of the root is read by default; follow_links=False refuses and hides it."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "far").write_bytes(b"far")
    (root / "near").write_bytes(b"near")
    (root / "file-link").symlink_to(outside / "far")
    (root / "folder-link").symlink_to(outside)
    (root / "inner-link").symlink_to("near")
    (root / "broken-link").symlink_to("nothing")
    free, strict = LocalSource(root, threads=0), LocalSource(root, threads=0, follow_links=False)

    assert [info.name for info in await free.list()] == [
        "file-link",
        "folder-link/far",
        "inner-link",
        "near",
    ]
    assert await free.read("file-link") == b"far"
    assert [info.name for info in await strict.list()] == ["inner-link", "near"]
    assert await strict.read("inner-link") == b"near"
    for name in ["file-link", "folder-link/far"]:
        with pytest.raises(NotFoundError, match="link leads out of the root"):
            await strict.read(name)


async def test_a_linked_root_is_no_way_out(tmp_path: Path) -> None:
    """The root may itself be a link, also with follow_links=False."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "one").write_bytes(b"1")
    (tmp_path / "root").symlink_to("real")

    assert await LocalSource(tmp_path / "root", threads=0, follow_links=False).read("one") == b"1"


async def test_a_link_to_a_folder_above_is_walked_once(tmp_path: Path) -> None:
    """Links in a circle do not make the list endless."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").touch()
    (tmp_path / "a" / "up").symlink_to(tmp_path)

    listed = await LocalSource(tmp_path, threads=0).list()

    assert [info.name for info in listed] == ["a/one"]


async def test_hidden_files_are_listed_and_pipes_are_not(
    source: LocalSource, tmp_path: Path
) -> None:
    """All regular files are objects; opening a pipe neither waits nor reads."""
    (tmp_path / ".hidden").touch()
    os.mkfifo(tmp_path / "pipe")

    assert [info.name for info in await source.list()] == [".hidden"]
    with pytest.raises(NotFoundError, match="not a regular file"):
        await source.read("pipe")
    with pytest.raises(NotFoundError, match="not a regular file"):
        await source.stat("pipe")


async def test_a_name_that_is_not_utf8_is_read(source: LocalSource, tmp_path: Path) -> None:
    """Names of any bytes sort by them and can be read."""
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")).write_bytes(b"odd")
    (tmp_path / "z").touch()

    names = [info.name for info in await source.list()]

    assert names == ["z", "\udcff\udcfe"]
    assert await source.read(names[1]) == b"odd"


def change(path: Path, how: str) -> None:
    """Make a file another one, in a way that its facts show."""
    if how == "overwritten":
        path.write_bytes(b"other")
        os.utime(path, ns=(1, 1))
    elif how == "grown":
        path.write_bytes(b"first, and more")
    elif how == "cut":
        os.truncate(path, 2)
    elif how == "replaced":
        path.with_name("new").write_bytes(b"other")
        os.replace(path.with_name("new"), path)
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["overwritten", "grown", "cut", "replaced", "removed"])
@pytest.mark.parametrize("range_", [None, ByteRange(0, 5)])
async def test_a_file_that_changes_during_the_run_is_noticed(
    source: LocalSource, tmp_path: Path, how: str, range_: ByteRange | None
) -> None:
    """Batches never mix two versions of a file, whether it is still open or opened again."""
    (tmp_path / "shard").write_bytes(b"first")
    assert await source.read("shard", range_) == b"first"

    change(tmp_path / "shard", how)

    with pytest.raises(SourceChangedError, match="shard in LocalSource"):
        await source.read("shard", range_)
    with pytest.raises(SourceChangedError):
        await fill(source, "shard", [(0, 2)])


async def test_a_new_run_takes_files_as_they_are(source: LocalSource, tmp_path: Path) -> None:
    """After the last aclose a changed file is read without complaint."""
    (tmp_path / "shard").write_bytes(b"first")
    await source.read("shard")
    await source.aclose()
    (tmp_path / "shard").write_bytes(b"second")

    assert await source.read("shard") == b"second"


def test_a_run_lasts_until_the_last_loop_has_closed(tmp_path: Path) -> None:
    """Closing on one loop forgets nothing that another loop's reads rely on."""
    (tmp_path / "shard").write_bytes(b"first")
    source = LocalSource(tmp_path, threads=0)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(source.open())
        first.run(source.read("shard", ByteRange(0, 5)))
        second.run(source.open())

        second.run(source.aclose())
        kept_open = open_files(tmp_path)
        (tmp_path / "shard").write_bytes(b"second")

        with pytest.raises(SourceChangedError):
            first.run(source.read("shard", ByteRange(0, 5)))
        first.run(source.aclose())
    assert kept_open == ["shard"]
    assert open_files(tmp_path) == []


async def test_descriptors_are_bounded_and_reused(tmp_path: Path) -> None:
    """Of 20 files the 3 used last stay open; whole reads leave none open."""
    for number in range(20):
        (tmp_path / f"{number:02}").write_bytes(b"data")
    source = LocalSource(tmp_path, open_files=3)

    await source.read("00")
    after_whole = open_files(tmp_path)
    for number in [*range(20), 17]:
        await source.read(f"{number:02}", ByteRange(0, 4))

    assert after_whole == []
    assert open_files(tmp_path) == ["17", "18", "19"]
    await source.aclose()
    assert open_files(tmp_path) == []


async def test_many_readers_of_many_files_keep_few_open(tmp_path: Path) -> None:
    """64 reads at once over 40 files with 4 threads never hold more than the bound."""
    for number in range(40):
        (tmp_path / f"{number:02}").write_bytes(bytes([number]) * 100)
    source = LocalSource(tmp_path, threads=4, open_files=4)
    most: list[int] = []

    async def read(number: int) -> bytes:
        data = await source.read(f"{number % 40:02}", ByteRange(10, 20))
        most.append(len(open_files(tmp_path)))
        return data

    data = await asyncio.gather(*(read(number) for number in range(64)))
    await source.aclose()

    assert data == [bytes([number % 40]) * 10 for number in range(64)]
    assert max(most) <= 8  # the bound, and one being opened or closed by each thread


async def test_a_dropped_source_leaves_no_descriptor(tmp_path: Path) -> None:
    """Without aclose, descriptors and threads go with the source."""
    (tmp_path / "one").write_bytes(b"1")
    source = LocalSource(tmp_path)
    await source.read("one", ByteRange(0, 1))
    assert open_files(tmp_path) == ["one"]

    del source
    gc.collect()

    assert open_files(tmp_path) == []


async def test_partial_and_interrupted_reads_are_carried_on(
    source: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system call may give one byte at a time; the views are filled all the same."""
    data = bytes(range(256))
    (tmp_path / "one").write_bytes(data)
    real, calls = os.preadv, []

    def one_byte(descriptor: int, views: Sequence[memoryview], offset: int) -> int:
        calls.append(offset)
        return real(descriptor, [views[0][:1]], offset)

    monkeypatch.setattr(os, "preadv", one_byte)

    assert await fill(source, "one", [(0, 100), (100, 101), (101, 256)]) == [
        data[:100],
        data[100:101],
        data[101:],
    ]
    assert calls == list(range(256))


async def test_adjacent_ranges_are_one_system_call(
    source: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges that touch share a call, up to what one call takes."""
    (tmp_path / "one").write_bytes(bytes(4000))
    real, views_of_calls = os.preadv, []

    def counted(descriptor: int, views: Sequence[memoryview], offset: int) -> int:
        views_of_calls.append(len(views))
        return real(descriptor, views, offset)

    monkeypatch.setattr(os, "preadv", counted)
    await fill(source, "one", [(position, position + 2) for position in range(0, 4000, 2)])

    assert views_of_calls == [1024, 976]


async def test_a_group_of_reads_is_one_hop(
    source: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranges of a call, the open and the check before and after go to one thread at once."""
    (tmp_path / "one").write_bytes(bytes(10_000))
    hops, real = [], source._calls.run_until_stopped

    async def counted(call: object) -> object:
        hops.append(call)
        return await real(call)  # type: ignore[arg-type]

    monkeypatch.setattr(source._calls, "run_until_stopped", counted)

    await fill(source, "one", [(start, start + 5) for start in range(9000, 0, -9)])
    await source.read("one")

    assert len(hops) == 2


async def test_a_cancelled_group_stops_between_system_calls(
    source: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled in its first of 1,000 reads, a group does not do the other 999."""
    (tmp_path / "one").write_bytes(bytes(2000))
    begun, go_on, offsets, real = threading.Event(), threading.Event(), [], os.preadv

    def held(descriptor: int, views: Sequence[memoryview], offset: int) -> int:
        offsets.append(offset)
        begun.set()
        assert go_on.wait(20)
        return real(descriptor, views, offset)

    monkeypatch.setattr(os, "preadv", held)
    ranges = [(start, start + 1) for start in range(0, 2000, 2)]
    task = asyncio.create_task(fill(source, "one", ranges))
    assert await asyncio.to_thread(begun.wait, 20)

    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait([task])

    assert task.cancelled()
    assert offsets == [0]


async def test_big_objects_come_in_pieces(
    source: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the size of a piece, the bytes are those of the file."""
    data = os.urandom(1000)
    (tmp_path / "one").write_bytes(data)
    monkeypatch.setattr(local, "PIECE_BYTES", 64)

    assert await source.read("one") == data
    assert await source.read("one", ByteRange(1, 999)) == data[1:999]


async def test_offsets_beyond_4_gib(source: LocalSource, tmp_path: Path) -> None:
    """Nothing in an offset is held in 32 bits: three tokens past 4 GiB of a sparse file (B11)."""
    (tmp_path / "big.bin").touch()
    os.truncate(tmp_path / "big.bin", 4294971392)
    descriptor = os.open(tmp_path / "big.bin", os.O_WRONLY)
    os.pwrite(descriptor, bytes([7, 0, 8, 0, 9, 0]), 4294967296)
    os.close(descriptor)

    tokens = await source.read("big.bin", ByteRange(4294967296, 4294967302))

    assert tokens == bytes([7, 0, 8, 0, 9, 0])
    with pytest.raises(ShortReadError):
        await source.read("big.bin", ByteRange(4294971390, 4294971393))


async def test_errors_of_the_system_pass_as_they_are(
    source: LocalSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing disk is the OSError that Python gives."""
    (tmp_path / "one").write_bytes(b"1234")

    def fails(descriptor: int, views: Sequence[memoryview], offset: int) -> int:
        raise OSError(errno.EIO, "disk")

    monkeypatch.setattr(os, "preadv", fails)

    with pytest.raises(OSError, match="disk") as caught:
        await fill(source, "one", [(0, 4)])
    assert caught.value.errno == errno.EIO


def test_reads_on_the_calling_thread(tmp_path: Path) -> None:
    """The blocking twin fills the same buffers, with no loop and no thread."""
    (tmp_path / "one").write_bytes(b"0123456789")
    source, memory = LocalSource(tmp_path), bytearray(5)

    source.read_into_blocking(
        "one",
        [ByteRange(8, 10), ByteRange(0, 3)],
        [memoryview(memory)[:2], memoryview(memory)[2:]],
    )

    assert memory == b"89012"


def test_knobs_are_checked() -> None:
    """A bound that cannot work is refused when the source is made."""
    with pytest.raises(ConfigError, match="threads: wanted 0 or more, got -1"):
        LocalSource(".", threads=-1)
    with pytest.raises(ConfigError, match="open_files: wanted 1 or more, got 0"):
        LocalSource(".", open_files=0)


async def test_a_relative_root_survives_chdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root is taken relative to where the program was when the source was made."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    source = LocalSource("data", threads=0)

    monkeypatch.chdir("/")

    assert await source.read("one") == b"1"
    assert repr(source) == "LocalSource('data')"
