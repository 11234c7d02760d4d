"""The contract of a source: ranged bytes by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Bytes `[start, stop)` of an object."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"a byte range needs 0 <= start <= stop, got {self}")

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.stop})"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a source knows of an object without reading it.

    Attributes:
        name: Name relative to the root of the source, '/'-separated.
        size_bytes: Length in bytes.
        version: Version id or strong ETag; None where the store has none (local files), so it
            never enters a fingerprint that another machine must reproduce.
    """

    name: str
    size_bytes: int
    version: str | None = None


class Source(ABC):
    """Ranged bytes by name, asynchronous.

    Duties of an implementation:
        - `read_into` writes to the caller's writable, contiguous memoryviews and nowhere else.
          It does not return, raise or propagate cancellation while anything may still write to
          them (late writers): what cannot be stopped writes into scratch, or is waited for.
        - A short, cut or long body is never delivered: it is a ShortReadError.
        - Methods do not block the loop. File descriptors and connections are bounded.
        - `open` makes what is tied to a loop, lazily per (pid, loop); `aclose` ends it. Both may
          be called again. After a fork, a fresh or unpickled source works.
        - A pickle or repr carries configuration only, never handles or secrets.
    """

    async def open(self) -> None:
        """Make what is tied to the running loop; called once per loop before reads."""

    async def aclose(self) -> None:
        """End what `open` made; called on the same loop."""

    @abstractmethod
    async def list(self, prefix: str = "") -> list[ObjectInfo]:
        """Give the objects whose name starts with `prefix`, sorted by the bytes of the name."""

    @abstractmethod
    async def stat(self, name: str) -> ObjectInfo:
        """Give the facts of one object.

        Raises:
            NotFoundError: There is none of this name.
        """

    @abstractmethod
    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        """Fill each buffer with its range of the object.

        Args:
            name: Object name.
            ranges: What to read; they may overlap and come in any order.
            buffers: One writable, C-contiguous byte view per range, of exactly its length. The
                caller owns them and must not look before this returns.

        Raises:
            NotFoundError: There is no such object.
            ShortReadError: The object ends inside a range.
        """

    async def read(self, name: str, range: ByteRange | None = None) -> bytes:
        """Give the bytes of a range, or of the whole object."""
        if range is None:
            range = ByteRange(0, (await self.stat(name)).size_bytes)
        data = bytearray(len(range))
        await self.read_into(name, [range], [memoryview(data)])
        return bytes(data)
