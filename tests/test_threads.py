"""Threads: blocking calls of a loop, cancellation, close, fork and exit."""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headrace
from headrace.errors import CannotStartThreadError, ClosedError
from headrace.threads import BlockingCalls, start_thread

LIMIT_S = 20
# For a new process to import what it needs, on a busy machine.
START_S = 60


@pytest.fixture
async def calls() -> AsyncIterator[BlockingCalls]:
    """Two threads, ended after the test."""
    pool = BlockingCalls(threads=2, name="test")
    yield pool
    await pool.aclose()


@pytest.fixture
async def one() -> AsyncIterator[BlockingCalls]:
    """A single thread, ended after the test."""
    pool = BlockingCalls(threads=1, name="test")
    yield pool
    await pool.aclose()


class Block:
    """A function that says when it began and returns when it is let go."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False

    def __call__(self) -> None:
        self.has_begun.set()
        assert self.may_end.wait(LIMIT_S)
        self.has_ended = True

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.has_begun.wait, LIMIT_S)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_call_runs_on_a_named_daemon_thread(calls: BlockingCalls) -> None:
    """A blocking function runs off the loop's thread and its result comes back."""
    thread = await calls.run(threading.current_thread)

    assert thread.daemon
    assert thread.name == "headrace-test-0"
    assert await calls.run(divmod, 17, 5) == (3, 2)


async def test_threads_start_only_when_all_are_busy(calls: BlockingCalls) -> None:
    """Calls one after the other share the first thread; calls at once get more, up to the bound."""
    names = {(await calls.run(threading.current_thread)).name for _ in range(20)}
    blocks = [Block() for _ in range(3)]

    tasks = [asyncio.create_task(calls.run(block)) for block in blocks]
    await blocks[0].begun()
    await blocks[1].begun()

    assert names == {"headrace-test-0"}
    assert not blocks[2].has_begun.is_set()
    for block in blocks:
        block.may_end.set()
    await asyncio.gather(*tasks)


async def test_errors_come_back_as_they_were_raised(calls: BlockingCalls) -> None:
    """The error of the function is raised where it is awaited; StopIteration hangs nothing."""

    def ends() -> None:
        raise StopIteration

    with pytest.raises(ValueError, match="invalid literal"):
        await calls.run(int, "x")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await calls.run(ends)

    assert await calls.run(int, "7") == 7


async def test_a_call_cancelled_before_it_starts_never_runs(one: BlockingCalls) -> None:
    """While the only thread is busy, a waiting call ends at once by cancellation."""
    busy, ran = Block(), []
    first = asyncio.create_task(one.run(busy))
    await busy.begun()
    second = asyncio.create_task(one.run(ran.append, 1))
    await turns(2)

    second.cancel()
    await asyncio.wait([second])

    assert second.cancelled()
    assert not busy.has_ended
    busy.may_end.set()
    await first
    assert await one.run(len, ran) == 0


async def test_cancellation_waits_for_a_call_that_has_started(calls: BlockingCalls) -> None:
    """A task cancelled during its call stays until the function returned (late writers)."""
    block = Block()
    task = asyncio.create_task(calls.run(block))
    await block.begun()

    task.cancel()
    await turns(20)
    waited = not task.done()
    task.cancel()
    await turns(20)

    assert waited
    assert not task.done()
    block.may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert block.has_ended


async def test_a_timeout_still_reads_as_a_timeout(calls: BlockingCalls) -> None:
    """asyncio.timeout around a started call gives TimeoutError once the call has returned."""
    block, limit = Block(), asyncio.timeout(None)

    async def bounded() -> None:
        async with limit:
            await calls.run(block)

    task = asyncio.create_task(bounded())
    await block.begun()
    limit.reschedule(0)
    await turns(5)
    block.may_end.set()

    with pytest.raises(TimeoutError):
        await task


async def test_a_cancelled_call_may_ask_whether_to_stop(calls: BlockingCalls) -> None:
    """A long call sees that nobody wants it any more, and leaves early."""
    begun, steps = threading.Event(), []

    def long(is_stopped: object) -> None:
        assert callable(is_stopped)
        begun.set()
        while not is_stopped():
            steps.append(1)

    task = asyncio.create_task(calls.run_until_stopped(long))
    assert await asyncio.to_thread(begun.wait, LIMIT_S)

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert await calls.run(len, steps) == len(steps)


async def test_no_call_writes_after_its_task_ended(calls: BlockingCalls, seed: int) -> None:
    """Cancelled at random moments, a call has either never run or has wholly returned."""
    import random

    random_ = random.Random(seed)
    written: list[int] = []

    def write(number: int) -> None:
        written.append(number)
        written.append(number)

    for number in range(500):
        task = asyncio.create_task(calls.run(write, number))
        await turns(random_.randrange(4))
        task.cancel()
        await asyncio.wait([task])

        seen = written.count(number)
        assert seen in (0, 2)
        assert task.cancelled() or seen == 2
    counts = len(written)
    await calls.run(int)
    await calls.aclose()
    assert len(written) == counts


async def test_an_idle_thread_keeps_nothing_of_the_last_call(calls: BlockingCalls) -> None:
    """Arguments and results die with the caller's references, so leased memory goes home."""

    class Memory:
        pass

    memory = Memory()
    watched = weakref.ref(memory)
    assert await calls.run(id, memory) == id(memory)

    del memory

    await calls.run(int)
    assert watched() is None


async def test_the_result_of_a_cancelled_call_is_not_kept(one: BlockingCalls) -> None:
    """What a call gave after its task was cancelled dies at once, though its thread stays idle."""
    block, made = Block(), []

    class Memory:
        pass

    def make() -> Memory:
        block()
        memory = Memory()
        made.append(weakref.ref(memory))
        return memory

    task = asyncio.create_task(one.run(make))
    await block.begun()
    task.cancel()
    block.may_end.set()
    await asyncio.wait([task])
    del task, make

    await turns(3)
    while one._crew._unfinished:
        await turns(1)
    gc.collect()
    assert [ref() for ref in made] == [None]


async def test_close_fails_what_waits_and_lets_what_runs_end(one: BlockingCalls) -> None:
    """Closing does not block the loop: what runs ends, what waits gets ClosedError."""
    block = Block()
    running = asyncio.create_task(one.run(block))
    await block.begun()
    waiting = asyncio.create_task(one.run(int))
    await turns(2)

    closing = asyncio.create_task(one.aclose())
    with pytest.raises(ClosedError):
        await waiting
    is_early = closing.done()
    block.may_end.set()
    await closing

    assert not is_early
    await running
    assert await one.run(int) == 0


def test_one_pool_serves_many_loops() -> None:
    """Loops of several threads use one pool at once, and loops may end and come again."""
    pool = BlockingCalls(threads=2, name="test")
    sums: list[int] = []

    async def add(first: int) -> int:
        return sum(await asyncio.gather(*(pool.run(int, first + i) for i in range(50))))

    threads = [
        start_thread(lambda k=k: sums.append(asyncio.run(add(100 * k))), f"loop-{k}")  # type: ignore[misc]
        for k in range(4)
    ]
    for thread in threads:
        thread.join(LIMIT_S)
    pool.close()

    assert sorted(sums) == [1225, 6225, 11225, 16225]
    assert asyncio.run(add(0)) == 1225
    pool.close()


def test_a_call_whose_loop_has_closed_is_dropped() -> None:
    """A loop closed while its call runs gets no answer and breaks no thread."""
    pool, block = BlockingCalls(threads=1, name="test"), Block()
    loop = asyncio.new_event_loop()
    task = loop.create_task(pool.run(block))
    loop.run_until_complete(block.begun())
    loop.run_until_complete(loop.shutdown_default_executor())

    loop.close()
    block.may_end.set()

    assert asyncio.run(pool.run(int)) == 0
    pool.close()
    assert block.has_ended
    task._log_destroy_pending = False  # type: ignore[attr-defined] - left pending on purpose


def test_a_dropped_pool_ends_its_threads() -> None:
    """Without close, the threads go when the pool does."""
    pool = BlockingCalls(threads=1, name="test")
    thread = asyncio.run(pool.run(threading.current_thread))

    del pool
    gc.collect()
    thread.join(LIMIT_S)

    assert not thread.is_alive()


async def test_without_threads_calls_run_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can start the result is the same, made on the caller (S1-12)."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool = BlockingCalls(threads=2, name="test")

    assert await pool.run(threading.current_thread) is threading.current_thread()
    with pytest.raises(ValueError, match="invalid literal"):
        await pool.run(int, "x")
    with pytest.raises(CannotStartThreadError, match="'mine': can't start new thread"):
        start_thread(int, "mine")
    await pool.aclose()


async def test_a_pool_of_no_threads_runs_calls_on_the_loop() -> None:
    """threads=0 starts nothing."""
    pool = BlockingCalls(threads=0, name="test")

    assert await pool.run(threading.current_thread) is threading.current_thread()


def test_a_platform_without_threads_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """WebAssembly builds of Python have no threads (S1-12)."""
    monkeypatch.setattr(sys, "platform", "emscripten")

    with pytest.raises(CannotStartThreadError, match="emscripten has no threads"):
        start_thread(int, "mine")


def script(text: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, for at most LIMIT_S."""
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text],
        capture_output=True,
        text=True,
        timeout=START_S + LIMIT_S,
        check=False,
    )


def test_a_program_that_leaves_a_pool_open_exits_cleanly() -> None:
    """Exit code 0 and no output, with an idle thread and with one that hangs for ever."""
    ended = script("""
import asyncio, threading
from headrace import threads
threads.EXIT_S = 0.05
pool = threads.BlockingCalls(2, "left")
asyncio.run(pool.run(int))
begun = threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
loop = asyncio.new_event_loop()
task = loop.create_task(pool.run(hang))
loop.run_until_complete(asyncio.sleep(0))
begun.wait()
task._log_destroy_pending = False
""")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_threads_are_joined_before_they_would_die() -> None:
    """The exit hook closes a pool that was left open, so no thread dies inside a call."""
    ended = script("""
import asyncio, atexit, threading
atexit.register(lambda: print("alive:", thread.is_alive()))  # runs after hooks registered later
from headrace.threads import BlockingCalls
pool = BlockingCalls(1, "left")
thread = asyncio.run(pool.run(threading.current_thread))
print("alive:", thread.is_alive())
""")

    assert (ended.stdout, ended.stderr) == ("alive: True\nalive: False\n", "")


def test_closers_run_newest_first_and_only_for_the_living() -> None:
    """Every closer runs, also after one that failed, whose error is then shown."""
    ended = script("""
from headrace.threads import at_exit
class Owner:
    def __init__(self, name): self.name = name; at_exit(self.close)
    def close(self):
        print(self.name)
        if self.name == "bad": raise ValueError("closer")
    # an owner that registers again is called once
first, bad, gone, last = map(Owner, ["first", "bad", "gone", "last"])
at_exit(first.close)
del gone
""")

    assert ended.stdout.split() == ["first", "last", "bad"]
    assert "ValueError: closer" in ended.stderr


def test_a_forked_child_has_threads_of_its_own() -> None:
    """The pool works in the child, even if its lock was held elsewhere during the fork (B25)."""
    ended = script("""
import asyncio, os, signal, threading
from headrace.threads import BlockingCalls, at_exit, start_thread
class Left:
    def close(self): print("closed in", "parent" if os.getpid() == parent else "child")
parent, left, pool = os.getpid(), Left(), BlockingCalls(1, "mine")
at_exit(left.close)
asyncio.run(pool.run(int))
held, done = threading.Event(), threading.Event()
def hold():
    with pool._lock:
        held.set(); done.wait()
holder = start_thread(hold, "holder")
held.wait()
if (pid := os.fork()) == 0:
    signal.alarm(10)
    assert asyncio.run(pool.run(int, "5")) == 5
    pool.close()
    raise SystemExit(3)
done.set(); holder.join()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
assert asyncio.run(pool.run(int, "6")) == 6
""")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed in parent\n", "")


def test_only_one_module_starts_threads() -> None:
    """Threads come from threads.py alone, and no executor that Python joins at exit (S1-11).

    Contract suites in `testing` run in a test, not in a loader, and may use executors.
    """
    starts = re.compile(
        r"\bThread\(|PoolExecutor|run_in_executor|to_thread|import _thread|\bmultiprocessing\b"
    )
    root = Path(headrace.__file__).parent

    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "testing" not in path.parts and starts.search(path.read_text(encoding="utf-8"))
    }

    assert found == {"threads.py"}
