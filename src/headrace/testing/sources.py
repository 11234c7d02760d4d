"""Sources for tests: counting, failing, gated, slow by a manual clock, and late to stop.

Each wraps another source and passes on what it does not change. Gates, clocks and counts stay
behind when one is pickled: the copy begins anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.sources.fill import check_views
from headrace.sources.source import ByteRange, ObjectInfo, Source
from headrace.testing.gates import Gate, ManualClock
from headrace.threads import BlockingCalls


class WrappedSource(Source):
    """Another source, unchanged."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner

    async def open(self) -> None:
        await self.inner.open()

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def list(self, prefix: str = "") -> list[ObjectInfo]:
        return await self.inner.list(prefix)

    async def stat(self, name: str) -> ObjectInfo:
        return await self.inner.stat(name)

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        await self.inner.read_into(name, ranges, buffers)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


class CountingSource(WrappedSource):
    """Counts what is asked. Safe from any thread.

    Attributes:
        calls: Method name to number of calls.
        reads: `(name, ranges)` of each read_into, in the order asked.
        in_flight: Reads that have not returned.
        peak_in_flight: The most there were at once.
    """

    def __init__(self, inner: Source) -> None:
        super().__init__(inner)
        self.calls = {"list": 0, "stat": 0, "read_into": 0}
        self.reads: list[tuple[str, tuple[ByteRange, ...]]] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self._lock = threading.Lock()

    @property
    def read_bytes(self) -> int:
        """Bytes of all ranges asked so far."""
        return sum(len(range_) for _, ranges in self.reads for range_ in ranges)

    async def list(self, prefix: str = "") -> list[ObjectInfo]:
        self._count("list")
        return await super().list(prefix)

    async def stat(self, name: str) -> ObjectInfo:
        self._count("stat")
        return await super().stat(name)

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        self._count("read_into")
        with self._lock:
            self.reads.append((name, tuple(ranges)))
            self.in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            await super().read_into(name, ranges, buffers)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _count(self, method: str) -> None:
        with self._lock:
            self.calls[method] += 1


class FlakySource(WrappedSource):
    """Fails some reads by a plan, before anything is read.

    Attributes:
        failures: How many reads have failed so far.
    """

    def __init__(self, inner: Source, plan: Iterable[Exception | None] = ()) -> None:
        """Take the plan: the error of the first read, of the second, ...; None lets it pass.

        Reads after the end of the plan pass.
        """
        super().__init__(inner)
        self.failures = 0
        self._plan = iter(list(plan))
        self._lock = threading.Lock()

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        with self._lock:
            error = next(self._plan, None)
            self.failures += error is not None
        if error is not None:
            raise error
        await super().read_into(name, ranges, buffers)


class GatedSource(WrappedSource):
    """Reads wait at a gate before they begin; cancellation takes effect at once there.

    Attributes:
        gate: Shut at first.
    """

    def __init__(self, inner: Source) -> None:
        super().__init__(inner)
        self.gate = Gate()

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        await self.gate.wait()
        await super().read_into(name, ranges, buffers)


class SlowSource(WrappedSource):
    """Reads take a time on a clock that the test moves.

    Attributes:
        clock: The clock; shared between sources if the test says so.
    """

    def __init__(
        self,
        inner: Source,
        clock: ManualClock | None = None,
        read_s: Callable[[str], float] = lambda name: 1.0,
    ) -> None:
        """Take the clock and how long a read of an object takes on it."""
        super().__init__(inner)
        self.clock = clock or ManualClock()
        self._read_s = read_s

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        await self.clock.sleep(self._read_s(name))
        await super().read_into(name, ranges, buffers)


class LateSource(WrappedSource):
    """Writes from a thread that cannot be stopped: half of the bytes, a gate, then the rest.

    It keeps the rule of late writers: a cancelled read ends only after its thread has written
    its last byte. Code that gives memory away before a read has ended shows here.

    Attributes:
        gate: Open at first; shut it to hold writers in the middle.
        wrote: Reads whose thread has written its last byte.
    """

    def __init__(self, inner: Source) -> None:
        super().__init__(inner)
        self.gate = Gate(is_open=True)
        self.wrote = 0
        self._lock = threading.Lock()
        self._calls = BlockingCalls(threads=16, name="late")

    async def aclose(self) -> None:
        await self._calls.aclose()
        await super().aclose()

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        check_views(ranges, buffers)
        parts = [bytearray(len(range_)) for range_ in ranges]
        await super().read_into(name, ranges, [memoryview(part) for part in parts])
        await self._calls.run(self.write, parts, buffers)

    def write(self, parts: Sequence[bytearray], buffers: Sequence[memoryview]) -> None:
        """Write what was read to where the caller wants it, on the calling thread."""
        for part, view in zip(parts, buffers, strict=True):
            view[: len(part) // 2] = part[: len(part) // 2]
        self.gate.wait_blocking()
        for part, view in zip(parts, buffers, strict=True):
            view[len(part) // 2 :] = part[len(part) // 2 :]
        with self._lock:
            self.wrote += 1
