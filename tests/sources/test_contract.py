"""Every source of headrace keeps the contract, and the suite catches one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headrace.sources.local import LocalSource
from headrace.sources.mapped import MappedSource
from headrace.sources.memory import MemorySource
from headrace.sources.source import ByteRange, Source
from headrace.testing.source_contract import OBJECTS, MakeSource, SourceContract
from headrace.testing.sources import CountingSource, LateSource
from headrace.threads import start_thread


def write_files(folder: Path, objects: Mapping[str, bytes]) -> Path:
    """Make a file of each object."""
    for name, data in objects.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


class TestMemorySource(SourceContract):
    """Bytes in memory."""

    @pytest.fixture
    def make_source(self) -> MakeSource:
        return MemorySource


class TestLocalSource(SourceContract):
    """Files by positioned reads."""

    @pytest.fixture
    def make_source(self, tmp_path: Path) -> MakeSource:
        return lambda objects: LocalSource(write_files(tmp_path, objects))


class TestLocalSourceWithoutThreads(SourceContract):
    """Files read on the caller's loop, as where no thread can start (S1-12)."""

    @pytest.fixture
    def make_source(self, tmp_path: Path) -> MakeSource:
        return lambda objects: LocalSource(write_files(tmp_path, objects), threads=0)


class TestLocalSourceWithOneDescriptor(SourceContract):
    """Files of which one stays open between reads."""

    @pytest.fixture
    def make_source(self, tmp_path: Path) -> MakeSource:
        return lambda objects: LocalSource(write_files(tmp_path, objects), open_files=1)


class TestMappedSource(SourceContract):
    """Files through maps."""

    @pytest.fixture
    def make_source(self, tmp_path: Path) -> MakeSource:
        return lambda objects: MappedSource(write_files(tmp_path, objects))


class TestCountingSource(SourceContract):
    """A wrapper changes nothing."""

    @pytest.fixture
    def make_source(self) -> MakeSource:
        return lambda objects: CountingSource(MemorySource(objects))


class TestLateSource(SourceContract):
    """A source whose threads write on after a cancellation, and which waits for them."""

    @pytest.fixture
    def make_source(self) -> MakeSource:
        return lambda objects: LateSource(MemorySource(objects))

    def hold_writers(self, source: Source) -> None:
        assert isinstance(source, LateSource)
        source.gate.shut()

    def let_writers_end(self, source: Source) -> None:
        assert isinstance(source, LateSource)
        source.gate.open()


class EarlySource(LateSource):
    """The mutant: its reads end at cancellation, while their thread still writes."""

    async def read_into(
        self, name: str, ranges: Sequence[ByteRange], buffers: Sequence[memoryview]
    ) -> None:
        parts = [bytearray(len(range_)) for range_ in ranges]
        await self.inner.read_into(name, ranges, [memoryview(part) for part in parts])
        loop, written = asyncio.get_running_loop(), asyncio.Event()

        def write() -> None:
            self.write(parts, buffers)
            loop.call_soon_threadsafe(written.set)

        start_thread(write, "early")
        await written.wait()


def test_the_suite_catches_reads_that_end_before_their_writers() -> None:
    """A source that returns early on cancellation breaks exactly the rule of late writers."""

    class OfEarlySource(TestLateSource):
        """The suite, called by hand."""

    suite, source = OfEarlySource(), EarlySource(MemorySource(OBJECTS))

    suite.test_64_readers_at_once(source)
    with pytest.raises(AssertionError):
        suite.test_a_cancelled_read_writes_nothing_afterwards(source)


def test_late_source_passes_where_the_mutant_fails() -> None:
    """The same call on the source that waits for its writers."""
    source = LateSource(MemorySource(OBJECTS))

    TestLateSource().test_a_cancelled_read_writes_nothing_afterwards(source)

    assert source.wrote > 0
