"""Programs that end with a loader open: exit code 0, and not a word.

Also those that are stuck for ever in user code: they end within their bound and say where.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.lifecycle.children import CLEANLY, Ended
from tests.lifecycle.data import KINDS, WAITING

Run = Callable[[str], Ended]

# What a program has done with its loader when it ends. `loader` and `data` are there already.
STATES = {
    "untouched": "pass",
    "opened": "stream = loader.epoch(0)",
    "mid epoch": "stream = iter(loader); next(stream)",
    "after the epoch": "stream = loader.epoch(0); list(stream)",
    "between epochs": "epochs = loader.epochs(3); list(next(epochs))",
    "after a break": "for batch in loader: break",
    "after an error": """
loader = hr.Loader(data, 4, seed=1, probe=False, workers=workers, transform=boom)
stream = iter(loader)
try: next(stream)
except ZeroDivisionError: pass
""",
    "after close": "next(iter(loader)); loader.close(); loader.close()",
    "a batch kept": "kept = next(iter(loader))",
    "awaited": """
async def main():
    global stream
    stream = loader.epoch(0)
    await anext(stream)
asyncio.run(main())
""",
    "a thread takes": """
stream = iter(loader)
taken = threading.Event()
def take():
    for batch in stream: taken.set()
taker = threading.Thread(target=take, daemon=True)
taker.start(); taken.wait()
""",
    "any batch": "loader.batch_at(7)",
    "in a cycle": "stream = iter(loader); next(stream); loader.me = loader; stream.me = stream",
}

SCRIPT = """
import asyncio, sys, threading
import headrace as hr
from tests.lifecycle.data import KINDS
def boom(batch, keys): 1 / 0
workers = {workers}
data = KINDS[{kind!r}](100)
loader = hr.Loader(data, 4, seed=1, probe=False, workers=workers, prefetch=8)
{state}
"""


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_may_leave_a_loader_open(kind: str, workers: int, run: Run, full: bool) -> None:
    """In whatever state the loader is, the program ends with code 0 and without output."""
    first = [*KINDS].index(kind) + workers
    for name in [*STATES] if full else [*STATES][first % 3 :: 3]:
        script = SCRIPT.format(kind=kind, workers=workers, state=STATES[name])

        assert (name, run(script)) == (name, CLEANLY)


@pytest.mark.parametrize(("kind", "workers"), [*itertools.product(WAITING, (1, 2))])
def test_a_program_may_end_while_reads_wait(kind: str, workers: int, run: Run) -> None:
    """Reads that wait on the loop for ever are cancelled at exit."""
    ended = run(f"""
    import headrace as hr
    from tests.lifecycle.data import KINDS
    data = KINDS[{kind!r}](100, gated=6)
    loader = hr.Loader(data, 4, shuffle=False, probe=False, workers={workers}, prefetch=8)
    stream = iter(loader)
    next(stream)
    data.gate.arrived_blocking(1)
    """)

    assert ended == CLEANLY


@pytest.mark.parametrize("kind", ["rows", "items"])
def test_a_program_stuck_in_user_code_still_ends(kind: str, run: Run) -> None:
    """A read that never returns delays the exit by its bound; it is named with its line."""
    ended = run(f"""
    import threading
    import headrace as hr
    from headrace import threads
    from tests.lifecycle.data import KINDS
    threads.EXIT_S = 0.2
    begun = threading.Event()
    class Stuck(KINDS[{kind!r}]):
        def pass_blocking(self, indices):
            if 6 in indices:
                begun.set()
                threading.Event().wait()
    stuck = hr.Loader(Stuck(100), 4, shuffle=False, probe=False, workers=2)
    stream = iter(stuck)
    next(stream)
    begun.wait()
    """)

    assert (ended.code, ended.out) == (0, "")
    assert "these threads are still inside a read or user code" in ended.err
    assert "headrace-reader-" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_all_loaders_share_the_bound_at_exit(run: Run) -> None:
    """Five stuck loaders end together within one bound, not one after the other."""
    ended = run("""
    import atexit, threading, time
    import headrace as hr
    from headrace import threads
    threads.EXIT_S = 0.5
    begun = threading.Semaphore(0)
    class Stuck:
        thread_safe = pure = True
        def __len__(self): return 100
        def __getitem__(self, index):
            begun.release()
            threading.Event().wait()
    loaders = [hr.Loader(Stuck(), 4, probe=False, workers=3) for _ in range(5)]
    for loader in loaders:
        loader.begin(iter(loader))
    for _ in range(15): begun.acquire()
    ends = time.monotonic() + 1.5
    class Late:
        def report(self): print("late" if time.monotonic() > ends else "in time")
    import logging; logging.disable()
    atexit.unregister(threads._close_all)
    threads._close_all()
    Late().report()
    """)

    assert (ended.code, ended.out, ended.err) == (0, "in time\n", "")


def test_close_leaves_a_stuck_reader_behind(run: Run) -> None:
    """close() returns within its bound, names thread and line, and the program ends with 0."""
    ended = run("""
    import threading
    import headrace as hr
    from headrace import engine, threads
    engine.JOIN_S = threads.EXIT_S = 0.2
    begun = threading.Event()
    def hang(index):
        begun.set()
        threading.Event().wait()
    class Stuck:
        thread_safe = pure = True
        def __len__(self): return 100
        def __getitem__(self, index): hang(index)
    loader = hr.Loader(Stuck(), 4, probe=False, workers=1)
    stream = iter(loader)
    taker = threading.Thread(target=lambda: print(type(error(stream)).__name__))
    def error(stream):
        try: next(stream)
        except Exception as met: return met
    taker.start()
    begun.wait()
    loader.close()
    taker.join()
    print("closed")
    """)

    assert (ended.code, ended.out) == (0, "ClosedError\nclosed\n")
    first = ended.err.splitlines()[0]
    assert "closed, but these threads are still inside a read or user code" in first
    assert "headrace-reader-0 at " in first


def test_an_error_of_the_program_stays_its_own(run: Run) -> None:
    """A program that dies of its own error with a loader open shows that error alone."""
    ended = run("""
    import headrace as hr
    from tests.lifecycle.data import KINDS
    loader = hr.Loader(KINDS["rows"](100), 4, workers=2)
    for batch in loader:
        raise SystemExit("the program's own")
    """)

    assert ended == Ended(1, "", "the program's own\n")


def test_a_fresh_interpreter_ends_cleanly_too() -> None:
    """The same without a fork before it: a program run as users run theirs."""
    import subprocess
    import sys

    from tests.lifecycle.children import LIMIT_S, ROOT

    script = SCRIPT.format(kind="rows", workers=2, state=STATES["mid epoch"])
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_threads_of_a_loader_that_was_dropped_end_before_the_program(run: Run) -> None:
    """A reader inside a read when its loader was dropped is waited for: nobody else joins it."""
    ended = run("""
    import atexit, threading
    import headrace as hr
    import headrace.threads
    go, arrived = threading.Event(), threading.Event()
    class Gated:
        thread_safe = True
        def __len__(self):
            return 8
        def __getitem__(self, index):
            if index > 3:
                arrived.set()
                go.wait()
                for _ in range(3_000_000):  # takes many turns at the interpreter
                    pass
            return index
    def left():
        print([t.name for t in threading.enumerate() if t.name.startswith("headrace-reader")])
    # Called in turn from the last to the first.
    atexit.unregister(headrace.threads._close_all)
    atexit.register(left)
    atexit.register(headrace.threads._close_all)
    atexit.register(go.set)
    stream = iter(hr.Loader(Gated(), 4, shuffle=False, probe=False, workers=1))
    next(stream)
    arrived.wait()
    del stream
    reaped = threading.Event()
    headrace.threads.reap(reaped.set)
    reaped.wait()
    """)

    assert ended == Ended(0, "[]\n", "")
