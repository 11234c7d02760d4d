"""Bytes in memory as a source: for tests, small data, and what a program made itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import NotFoundError, ShortReadError
from headrace.sources.fill import check_views
from headrace.sources.names import near_names, sort_key
from headrace.sources.source import ByteRange, ObjectInfo, Source

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MemorySource(Source):
    """Objects by name over bytes-like values, which are not copied and must not change.

    Nothing is opened and nothing waits. A pickle carries the bytes. Safe from any thread.
    """

    def __init__(self, objects: Mapping[str, Buffer]) -> None:
        """Take the objects.

        Args:
            objects: Name to bytes, bytearray, memoryview, or array in C order.
        """
        self._objects = {
            name: memoryview(objects[name]).cast("B").toreadonly()
            for name in sorted(objects, key=sort_key)
        }

    async def list(self, prefix: str = "") -> list[ObjectInfo]:
        return [
            ObjectInfo(name, data.nbytes)
            for name, data in self._objects.items()
            if name.startswith(prefix)
        ]

    async def stat(self, name: str) -> ObjectInfo:
        return ObjectInfo(name, self._data(name).nbytes)

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        self.read_into_blocking(name, ranges, buffers)

    def read_into_blocking(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        """Do as `read_into` does, on the calling thread."""
        check_views(ranges, buffers)
        data = self._data(name)
        for range_, view in zip(ranges, buffers, strict=True):
            if len(range_) and range_.stop > data.nbytes:
                got_bytes = max(0, data.nbytes - range_.start)
                raise ShortReadError(self, name, range_, got_bytes)
            view.cast("B")[:] = data[range_.start : range_.stop]

    def _data(self, name: str) -> memoryview:
        try:
            return self._objects[name]
        except KeyError:
            raise NotFoundError(self, name, near_names(name, self._objects)) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ({name: bytes(data) for name, data in self._objects.items()},)

    def __repr__(self) -> str:
        return f"MemorySource({len(self._objects)} objects)"
