"""Local files through memory maps: arrays over the file itself, nothing copied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.errors import ConfigError, ShortReadError
from headrace.sources.local import IsStopped, LocalSource
from headrace.sources.maps import map_file
from headrace.sources.source import ByteRange


class MappedSource(LocalSource):
    """Files below a folder, each mapped whole at its first use.

    Maps cost address space and no memory of their own: pages come from the system's file cache
    when touched. A map keeps no descriptor and lives as long as any array over it.

    The one danger of maps: a file that is CUT SHORT while it is mapped ends the process with
    SIGBUS at the next touch of a lost page, before Python can raise anything. So a file that is
    too short is refused when its array is made, `check` compares all mapped files with what
    they were, and whoever rewrites shards must write new files and rename them.
    Names, links and changes are treated as LocalSource does.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        threads: int = 4,
        open_files: int = 64,
        follow_links: bool = True,
    ) -> None:
        """Take the folder; nothing is mapped. Arguments as of LocalSource."""
        self._maps: dict[str, NDArray[np.uint8]] = {}
        super().__init__(root, threads=threads, open_files=open_files, follow_links=follow_links)

    def array(
        self, name: str, dtype: DTypeLike, offset_bytes: int = 0, count: int | None = None
    ) -> NDArray[Any]:
        """Give numbers of a file as a plain, read-only array over its map, `[count]`.

        Blocks for opening the file, not for reading it. Safe from any thread.

        Args:
            name: Object name.
            dtype: Any dtype of numbers, in any byte order.
            offset_bytes: Where the first number begins; it need not be aligned.
            count: How many; None takes as many whole ones as follow.

        Raises:
            NotFoundError: There is no such file.
            ShortReadError: The file ends before the last number does.
            SourceChangedError: The file is not the one that was mapped.
        """
        kind = np.dtype(dtype)
        if kind.hasobject or kind.itemsize == 0:
            raise ConfigError("dtype", "a dtype of numbers", dtype)
        if offset_bytes < 0 or (count is not None and count < 0):
            raise ConfigError("offset_bytes, count", "0 or more", (offset_bytes, count))
        data = self._mapped(name)
        if count is None:
            count = max(0, data.size - offset_bytes) // kind.itemsize
        stop = offset_bytes + count * kind.itemsize
        if stop > data.size:
            raise self._too_short(name, ByteRange(offset_bytes, stop), data.size)
        return data[offset_bytes:stop].view(kind)

    def check(self) -> None:
        """Compare every mapped file with what it was when mapped; about 2 us each.

        The loader calls this now and then. It notices a file that was cut short in time only
        if no lost page is touched before.

        Raises:
            SourceChangedError: One was written to, cut, replaced or removed.
        """
        with self._lock:
            names = list(self._maps)
        for name in names:
            self._files.check(name, self._files.path(name))

    def _mapped(self, name: str) -> NDArray[np.uint8]:
        """Give the whole file, mapped at its first use and unchanged since."""
        path = self._files.path(name)
        with self._lock:
            data = self._maps.get(name)
        if data is None:
            mapped = self._map(name, path)
            with self._lock:
                data = self._maps.setdefault(name, mapped)
        self._files.check(name, path)
        return data

    def _map(self, name: str, path: str) -> NDArray[np.uint8]:
        descriptor = self._files.open(name, path)
        try:
            status = os.fstat(descriptor)
            self._files.pin(name, status)
            return map_file(descriptor, status.st_size)
        finally:
            os.close(descriptor)

    def _fill(
        self,
        name: str,
        ranges: Sequence[ByteRange],
        views: Sequence[memoryview],
        is_stopped: IsStopped,
    ) -> None:
        data = self._mapped(name)
        for range_, view in zip(ranges, views, strict=True):
            if is_stopped():
                return
            if len(range_) and range_.stop > data.size:
                raise self._too_short(name, range_, data.size)
            # numpy copies without the GIL, so a page that must come from disk holds up nobody.
            np.copyto(np.asarray(view.cast("B")), data[range_.start : range_.stop])

    def _too_short(self, name: str, range_: ByteRange, size_bytes: int) -> ShortReadError:
        return ShortReadError(self, name, range_, max(0, size_bytes - range_.start))

    def _release(self) -> None:
        with self._lock:
            self._maps.clear()
        super()._release()
