"""The contract suite of sources: subclass it, say how to make one, and pytest does the rest.

```python
class TestMySource(SourceContract):
    @pytest.fixture
    def make_source(self, tmp_path):
        def make(objects):  # name to bytes
            ...
            return MySource(...)
        return make
```
The class must be importable by its module's name, since some tests run in a process of their
own. No plugin for asynchronous tests is needed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest

from headrace.errors import NotFoundError, ShortReadError
from headrace.sources.source import ByteRange, ObjectInfo, Source
from headrace.testing.gates import Gate
from headrace.threads import start_thread

T = TypeVar("T")
MakeSource = Callable[[Mapping[str, bytes]], Source]

# For a source, or a fork of it, that hangs.
LIMIT_S = 10.0
# For a new process to import what it needs, on a busy machine.
START_S = 60.0
POISON = 0xA5

OBJECTS: dict[str, bytes] = {
    "a/one.bin": bytes(range(256)) * 16,
    "a/two.bin": random.Random(7).randbytes(100_000),
    "a2": b"between",
    "b/10": b"ten",
    "b/9": b"nine",
    "empty": b"",
    "z\u00e4hler/\u00fc.txt": b"name beyond ASCII",
}


class SourceContract:
    """Every duty of a source. Override the fixture, and the two hooks if writers can be held."""

    @pytest.fixture
    def make_source(self) -> MakeSource:
        """Give a function that makes a source holding exactly these objects."""
        raise NotImplementedError("override the fixture make_source")

    def hold_writers(self, source: Source) -> None:
        """Have reads that begin from here on stop in the middle of their writing, if it can."""

    def let_writers_end(self, source: Source) -> None:
        """Let every writer that was held finish."""

    @pytest.fixture
    def source(self, make_source: MakeSource) -> Source:
        """A source that holds OBJECTS."""
        return make_source(OBJECTS)

    @pytest.fixture(autouse=True)
    def nothing_left(self) -> Iterator[None]:
        """After `aclose` no thread and no descriptor of the source is left."""
        threads, descriptors = set(threading.enumerate()), _descriptors()
        yield
        assert set(threading.enumerate()) <= threads
        assert _descriptors() <= descriptors

    def test_list_is_sorted_by_bytes(self, source: Source) -> None:
        """Names come in the order of their bytes, with their sizes, whatever the store's own."""
        listed = run(source, lambda: source.list())

        expected = sorted(OBJECTS, key=lambda name: name.encode())
        assert [(info.name, info.size_bytes) for info in listed] == [
            (name, len(OBJECTS[name])) for name in expected
        ]

    @pytest.mark.parametrize(
        ("prefix", "names"),
        [
            ("a", ["a/one.bin", "a/two.bin", "a2"]),
            ("a/", ["a/one.bin", "a/two.bin"]),
            ("a/t", ["a/two.bin"]),
            ("b/", ["b/10", "b/9"]),
            ("b/9", ["b/9"]),
            ("none", []),
            ("none/", []),
        ],
    )
    def test_list_takes_a_prefix_of_the_name(
        self, source: Source, prefix: str, names: list[str]
    ) -> None:
        """A prefix is a beginning of names, not a folder."""
        listed = run(source, lambda: source.list(prefix))

        assert [info.name for info in listed] == names

    def test_stat_knows_the_size(self, source: Source) -> None:
        """The facts of an object are those that the list gives."""

        async def both() -> tuple[list[ObjectInfo], list[ObjectInfo]]:
            listed = await source.list()
            return listed, [await source.stat(info.name) for info in listed]

        listed, alone = run(source, both)

        assert alone == listed

    def test_read_gives_a_whole_object(self, source: Source) -> None:
        """Without a range all bytes come, also none."""

        async def every() -> dict[str, bytes]:
            return {name: await source.read(name) for name in OBJECTS}

        assert run(source, every) == OBJECTS

    def test_read_gives_a_range(self, source: Source) -> None:
        """A range is [start, stop)."""
        assert run(source, lambda: source.read("a/one.bin", ByteRange(250, 260))) == bytes(
            [250, 251, 252, 253, 254, 255, 0, 1, 2, 3]
        )

    @pytest.mark.parametrize(
        "ranges",
        [
            [],
            [(0, 10), (10, 20), (20, 1000)],
            [(5000, 6000), (0, 10), (4999, 5001)],
            [(0, 100), (50, 150), (0, 100)],
            [(3, 3), (0, 0), (1, 4), (100_000, 100_000)],
            [(position, position + 7) for position in range(0, 7 * 3000, 7)],
            [(position, position + 3) for position in range(90_000, 0, -97)],
            [(0, 100_000)],
        ],
        ids=["none", "adjacent", "unordered", "overlapping", "empty", "3000", "backwards", "all"],
    )
    def test_read_into_fills_each_buffer(
        self, source: Source, ranges: list[tuple[int, int]]
    ) -> None:
        """Ranges may touch, overlap, repeat, be empty, be many, and come in any order."""
        wanted = [OBJECTS["a/two.bin"][start:stop] for start, stop in ranges]

        assert run(source, lambda: fill(source, "a/two.bin", ranges)) == wanted

    def test_read_into_writes_nowhere_else(self, source: Source) -> None:
        """Bytes around the buffers stay as they were."""
        memory = bytearray([POISON] * 100)

        run(
            source,
            lambda: source.read_into(
                "a/one.bin",
                [ByteRange(5, 15), ByteRange(1, 3)],
                [memoryview(memory)[20:30], memoryview(memory)[50:52]],
            ),
        )

        around = bytes([POISON])
        assert bytes(memory) == (
            around * 20 + bytes(range(5, 15)) + around * 20 + bytes([1, 2]) + around * 48
        )

    @pytest.mark.parametrize("ranges", [[(0, 8)], [(0, 4), (4, 9)], [(7, 8)], [(100, 101)]])
    def test_a_range_past_the_end_is_a_short_read(
        self, source: Source, ranges: list[tuple[int, int]]
    ) -> None:
        """What an object does not have is never delivered as if it had."""
        with pytest.raises(ShortReadError, match="a2") as caught:
            run(source, lambda: fill(source, "a2", ranges))

        assert caught.value.wanted == ByteRange(*ranges[-1])
        assert caught.value.got_bytes == max(0, 7 - ranges[-1][0])
        with pytest.raises(ShortReadError):
            run(source, lambda: source.read("a2", ByteRange(*ranges[-1])))

    @pytest.mark.parametrize("name", ["a/none.bin", "a", "a/", "", "../a2", "a/../a2", "/a2"])
    def test_a_name_that_is_not_there_is_not_found(self, source: Source, name: str) -> None:
        """Missing names, folders and ways out of the root are NotFoundError, for every method."""
        reads: list[Callable[[], Awaitable[object]]] = [
            lambda: source.stat(name),
            lambda: source.read(name),
            lambda: source.read(name, ByteRange(0, 1)),
            lambda: fill(source, name, [(0, 1)]),
        ]

        for read in reads:
            with pytest.raises(NotFoundError) as caught:
                run(source, read)
            assert caught.value.name == name

    def test_buffers_must_fit_their_ranges(self, source: Source) -> None:
        """A wrong number, a wrong length or read-only memory is a ValueError, nothing is read."""
        one = ByteRange(0, 4)
        wrong: list[list[memoryview]] = [
            [],
            [memoryview(bytearray(3))],
            [memoryview(bytearray(5))],
            [memoryview(bytes(4))],
            [memoryview(bytearray(8))[::2]],
        ]

        for views in wrong:
            with pytest.raises(ValueError):
                run(source, lambda views=views: source.read_into("a2", [one], views))  # type: ignore[misc]

    def test_64_readers_at_once(self, source: Source) -> None:
        """Reads of the same and of other objects do not disturb each other."""
        seeds = range(64)

        async def all_at_once() -> list[bool]:
            return await asyncio.gather(*(_reads_right(source, seed) for seed in seeds))

        assert run(source, all_at_once) == [True] * 64

    def test_a_cancelled_read_writes_nothing_afterwards(self, source: Source) -> None:
        """Once a read has ended, by cancellation too, its buffers are the caller's again."""

        async def cancel_many() -> list[bool]:
            return [await self._leaves_poison(source, turns) for turns in range(40)]

        assert run(source, cancel_many) == [True] * 40

    def test_a_failed_read_writes_nothing_afterwards(self, source: Source) -> None:
        """An error ends a read as cancellation does: nothing is written after it."""
        memory = bytearray(200_000)
        views = [memoryview(memory)[:100_000], memoryview(memory)[100_000:]]
        ranges = [ByteRange(0, 100_000), ByteRange(1, 100_001)]

        async def fail() -> bool:
            with pytest.raises(ShortReadError):
                await source.read_into("a/two.bin", ranges, views)
            memory[:] = bytes([POISON]) * len(memory)
            await _reads_right(source, 1)
            return memory.count(POISON) == len(memory)

        assert run(source, fail)

    def test_open_and_aclose_may_be_called_again(self, source: Source) -> None:
        """Closing twice, and opening after a close, on one loop and on the next."""

        async def twice() -> bytes:
            await source.open()
            await source.read("a2")
            await source.aclose()
            await source.aclose()
            await source.open()
            data = await source.read("a2")
            await source.aclose()
            return data

        assert asyncio.run(twice()) == b"between"
        assert asyncio.run(twice()) == b"between"

    def test_two_loops_at_once(self, source: Source) -> None:
        """One object serves loops of two threads, and closing it on one leaves the other."""
        results: list[bool] = []
        first_done, second_open = Gate(), Gate()

        async def first() -> None:
            async with opened(source):
                await second_open.wait()
                results.append(await _reads_right(source, 1))

        async def second() -> None:
            async with opened(source):
                second_open.open()
                await first_done.wait()
                results.append(await _reads_right(source, 2))

        def run_first() -> None:
            try:
                asyncio.run(first())
            finally:
                first_done.open()

        thread = start_thread(run_first, "first-loop")
        asyncio.run(second())
        thread.join(LIMIT_S)

        assert results == [True, True]

    def test_a_pickle_carries_configuration(self, source: Source) -> None:
        """A copy made while the source is open reads the same, and shows no handle."""

        async def copy() -> Source:
            await source.read("a2")
            return pickle.loads(pickle.dumps(source))  # type: ignore[no-any-return]

        copied = run(source, copy)

        assert run(copied, lambda: _reads_right(copied, 3))
        assert " at 0x" not in repr(source)
        assert type(copied) is type(source)

    def test_a_forked_child_reads(self, source: Source) -> None:
        """After a read, and a failed one, in the parent, a copy works in a forked child (B25).

        The source itself works there too, or refuses at once with an error of headrace.
        """
        ended = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK],
            input=pickle.dumps(source),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            timeout=START_S + LIMIT_S,
            check=False,
        )

        assert ended.returncode == 0, ended.stderr.decode()

    async def _leaves_poison(self, source: Source, turns: int) -> bool:
        """Cancel a read after some turns of the loop, poison its memory as soon as it ends."""
        memory = bytearray(len(OBJECTS["a/two.bin"]))

        def poison(_: object) -> None:
            memory[:] = bytes([POISON]) * len(memory)

        self.hold_writers(source)
        ranges = [ByteRange(start, start + 1000) for start in range(0, len(memory), 1000)]
        views = [memoryview(memory)[range_.start : range_.stop] for range_ in ranges]
        task = asyncio.create_task(source.read_into("a/two.bin", ranges, views))
        task.add_done_callback(poison)
        await _turns(turns)
        task.cancel()
        await _turns(5)
        self.let_writers_end(source)
        await asyncio.wait([task])
        # Threads that serve reads in turn have done with the old one when they serve these.
        await asyncio.gather(*(_reads_right(source, seed) for seed in range(4)))
        return memory.count(POISON) == len(memory)


@asynccontextmanager
async def opened(source: Source) -> Any:
    """Open a source on the running loop and close it again."""
    await source.open()
    try:
        yield source
    finally:
        await source.aclose()


def run(source: Source, call: Callable[[], Awaitable[T]]) -> T:
    """Give what a coroutine gives, on a loop of its own on which the source is open."""

    async def main() -> T:
        async with opened(source), asyncio.timeout(6 * LIMIT_S):
            return await call()

    coroutine: Coroutine[Any, Any, T] = main()
    return asyncio.run(coroutine)


async def fill(source: Source, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Read ranges into memory of their own."""
    parts = [bytearray(stop - start) for start, stop in ranges]
    await source.read_into(
        name, [ByteRange(*range_) for range_ in ranges], [memoryview(part) for part in parts]
    )
    return [bytes(part) for part in parts]


async def _reads_right(source: Source, seed: int) -> bool:
    """Read random ranges of a random object and compare them."""
    random_ = random.Random(seed)
    name = random_.choice(["a/one.bin", "a/two.bin"])
    data = OBJECTS[name]
    starts = [random_.randrange(len(data) - 600) for _ in range(20)]
    ranges = [(start, start + random_.randrange(600)) for start in starts]
    return await fill(source, name, ranges) == [data[start:stop] for start, stop in ranges]


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _descriptors() -> set[str]:
    """Give what the open descriptors lead to, where the system tells."""
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        return set()
    found = set()
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):  # the descriptor of this listing itself
            found.add(f"{name} {os.readlink(f'{folder}/{name}')}")
    return found


FORK = """
import asyncio, os, pickle, signal, sys
from headrace.errors import HeadraceError
from headrace.testing.source_contract import OBJECTS, run

source = pickle.loads(sys.stdin.buffer.read())

async def use():
    await source.open()
    assert await source.read("a2") == b"between"
    try:
        await source.read("missing")
    except FileNotFoundError:
        return

def child():
    copy = pickle.loads(pickle.dumps(source))
    assert run(copy, lambda: copy.read("a/two.bin")) == OBJECTS["a/two.bin"]
    try:
        data = run(source, lambda: source.read("a/one.bin"))
    except HeadraceError:
        return
    assert data == OBJECTS["a/one.bin"]

asyncio.run(use())
if (pid := os.fork()) == 0:
    signal.alarm(%d)
    child()
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
asyncio.run(source.aclose())
sys.exit(code != 0)
""" % int(LIMIT_S)  # noqa: UP031 - braces are part of the program
