"""Local files: positioned reads, one hop to a thread for all ranges of a call.

Large sequential reads go the same way. aiofiles reads them no faster, does not wait for a writer
that is late, and uses the loop's executor, whose threads Python joins at exit.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.errors import ConfigError, ShortReadError
from headrace.sources.descriptors import Descriptors
from headrace.sources.files import Files
from headrace.sources.fill import check_views, runs, views_after
from headrace.sources.source import ByteRange, ObjectInfo, Source
from headrace.threads import BlockingCalls, at_fork

# `read` gives the bytes object that the system call made; a second piece would cost a copy of
# all. A piece is also what a cancelled read may still wait for: about 0.1 s from memory.
PIECE_BYTES = 256 << 20

IsStopped = Callable[[], bool]


class LocalSource(Source):
    """Files below a folder.

    A name is the path below the root with '/' between its parts. Absolute names and names with
    '..' are refused; links are followed unless `follow_links` is False. A file that is written
    to, replaced or removed after its first read is a SourceChangedError at the next read.
    `aclose` on the last loop ends the run: files may then be others.

    One object serves any loops and threads. Reads are waited for when cancelled, between two
    system calls at the latest. A pickle carries root and knobs only.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        threads: int = 4,
        open_files: int = 64,
        follow_links: bool = True,
    ) -> None:
        """Take the folder; nothing is opened.

        Args:
            root: The folder. Relative to the working directory of this moment.
            threads: How many reads run at once. 0 reads on the caller's loop, which it blocks.
            open_files: How many descriptors stay open between reads.
            follow_links: Whether links may lead out of the root.
        """
        if threads < 0:
            raise ConfigError("threads", "0 or more", threads)
        if open_files < 1:
            raise ConfigError("open_files", "1 or more", open_files)
        self.root = os.fspath(root)
        self._knobs = (threads, open_files, follow_links)
        self._path = os.path.abspath(self.root)
        self._files = Files(self, self._path, follow_links)
        self._descriptors = Descriptors(open_files)
        self._calls = BlockingCalls(threads, "local")
        self._reset_child()
        at_fork(self._reset_child)

    async def open(self) -> None:
        """Note that the running loop uses this source; reads open files when they need them."""
        with self._lock:
            self._loops.add(asyncio.get_running_loop())

    async def aclose(self) -> None:
        """End the threads and close the files, if no other loop uses this source."""
        with self._lock:
            self._loops.discard(asyncio.get_running_loop())
            is_used = any(not loop.is_closed() for loop in self._loops)
        if not is_used:
            await self._calls.aclose()
            self._release()

    async def list(self, prefix: str = "") -> list[ObjectInfo]:
        """Give the regular files below the root, hidden ones too, sorted by bytes."""
        return await self._calls.run(self._files.list, prefix)

    async def stat(self, name: str) -> ObjectInfo:
        return await self._calls.run(self._files.stat, name)

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        check_views(ranges, buffers)
        await self._calls.run_until_stopped(
            lambda is_stopped: self._fill(name, ranges, buffers, is_stopped)
        )

    def read_into_blocking(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        """Do as `read_into` does, on the calling thread."""
        check_views(ranges, buffers)
        self._fill(name, ranges, buffers, lambda: False)

    async def read(self, name: str, range: ByteRange | None = None) -> bytes:
        """Give the bytes of a range, or of the whole object: one hop, no copy up to 256 MiB."""
        if range is None:
            return await self._calls.run_until_stopped(lambda stop: self._whole(name, stop))
        wanted = range
        return await self._calls.run_until_stopped(lambda stop: self._part(name, wanted, stop))

    def _fill(
        self,
        name: str,
        ranges: Sequence[ByteRange],
        views: Sequence[memoryview],
        is_stopped: IsStopped,
    ) -> None:
        """Fill the views on this thread; a stopped call leaves the rest as it is."""
        with self._opened(name) as (path, descriptor):
            for run in runs(ranges):
                if is_stopped():
                    return
                end = _fill_run(descriptor, ranges[run.start].start, views[run])
                if end < ranges[run.stop - 1].stop:
                    self._files.check(name, path)
                    raise self._short(name, ranges[run], end)
            # Compared after the reads: bytes of two versions are then never delivered.
            self._files.check(name, path)

    def _whole(self, name: str, is_stopped: IsStopped) -> bytes:
        """Read all of a file, open to close; whole objects leave the kept descriptors alone."""
        path = self._files.path(name)
        descriptor = self._files.open(name, path)
        try:
            status = os.fstat(descriptor)
            self._files.pin(name, status)
            data = _read_pieces(descriptor, ByteRange(0, status.st_size), is_stopped)
            self._files.check(name, path)
        finally:
            os.close(descriptor)
        return self._all_of(name, ByteRange(0, status.st_size), data, is_stopped)

    def _part(self, name: str, range_: ByteRange, is_stopped: IsStopped) -> bytes:
        with self._opened(name) as (path, descriptor):
            data = _read_pieces(descriptor, range_, is_stopped)
            self._files.check(name, path)
        return self._all_of(name, range_, data, is_stopped)

    def _all_of(self, name: str, range_: ByteRange, data: bytes, is_stopped: IsStopped) -> bytes:
        if len(data) < len(range_) and not is_stopped():
            raise ShortReadError(self, name, range_, len(data))
        return data

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[str, int]]:
        """Give path and descriptor of a file, pinned at its first open."""
        path = self._files.path(name)

        def open_pinned() -> int:
            descriptor = self._files.open(name, path)
            try:
                self._files.pin(name, os.fstat(descriptor))
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

        with self._descriptors.borrowed(path, open_pinned) as descriptor:
            yield path, descriptor

    def _short(self, name: str, ranges: Sequence[ByteRange], end: int) -> ShortReadError:
        """Tell of the first range that ends behind the end of the file."""
        cut = next(range_ for range_ in ranges if range_.stop > end)
        return ShortReadError(self, name, cut, max(0, end - cut.start))

    def _release(self) -> None:
        self._descriptors.close()
        self._files.forget_pins()

    def _reset_child(self) -> None:
        self._lock = threading.Lock()
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._descriptors.reset_child()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self._path, self._knobs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"


def _remade(cls: type[LocalSource], root: str, knobs: tuple[int, int, bool]) -> LocalSource:
    threads, open_files, follow_links = knobs
    return cls(root, threads=threads, open_files=open_files, follow_links=follow_links)


def _fill_run(descriptor: int, start: int, views: Sequence[memoryview]) -> int:
    """Fill views with consecutive bytes from `start`; give the offset that was reached.

    A system call may fill less than was asked (signals, 2 GiB at most); only 0 is the end.
    """
    left = views_after(views, 0)
    while left:
        got_bytes = os.preadv(descriptor, left, start)
        if got_bytes == 0:
            break
        start += got_bytes
        left = views_after(left, got_bytes)
    return start


def _read_pieces(descriptor: int, range_: ByteRange, is_stopped: IsStopped) -> bytes:
    """Give the bytes of a range, or fewer at the end of the file or when stopped."""
    pieces: list[bytes] = []
    start = range_.start
    while start < range_.stop and not is_stopped():
        piece = os.pread(descriptor, min(PIECE_BYTES, range_.stop - start), start)
        if not piece:
            break
        start += len(piece)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
