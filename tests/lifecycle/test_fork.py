"""Forked and spawned children (B25): new ones work, live ones say at once what to do."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.sources.local import LocalSource
from headrace.sources.mapped import MappedSource
from headrace.sources.memory import MemorySource
from headrace.sources.source import Source
from tests.lifecycle.children import CLEANLY, LIMIT_S, ROOT, Ended
from tests.lifecycle.data import KINDS, all_ids, epoch_of, loader_of

Run = Callable[[str], Ended]

# What a script does in a forked child; the parent then asks how the child ended.
FORK = """
import asyncio, faulthandler, gc, os, signal, sys, threading
import headrace as hr
from headrace.threads import start_thread
from tests.lifecycle.data import *

faulthandler.register(signal.SIGALRM, chain=True)
def in_child(what):
    pid = os.fork()
    if pid == 0:
        # A child that hangs says where, and ends.
        signal.alarm(20)
        try:
            what()
        except BaseException:
            import traceback; traceback.print_exc(); sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code: print("the child ended with", code)
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_child_makes_a_loader_of_its_own(kind: str, workers: int, run: Run) -> None:
    """After use in the parent, a child makes a loader over the very same data (B25)."""
    ended = run(f"""{FORK}
data = KINDS[{kind!r}](100)
def whole():
    with hr.Loader(data, 4, workers={workers}, probe=False) as loader:
        assert all_ids(loader) == epoch_of(loader, 0)
        async def awaited():
            return await all_ids_awaited(loader)
        assert asyncio.run(awaited()) == epoch_of(loader, 1)
loader = hr.Loader(data, 4, workers={workers}, probe=False)
stream = iter(loader)
next(stream)
in_child(whole)
rest = all_ids(stream)
assert rest == epoch_of(loader, 0)[1:], rest
""")

    assert ended == CLEANLY


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_live_loader_refuses_to_work_in_a_child(kind: str, workers: int, run: Run) -> None:
    """Loader and stream raise ForkedError at once, whatever lock was held at the fork (B25).

    What asks for nothing works: the state, `len`, `repr`; closing and dropping do nothing.
    """
    ended = run(f"""{FORK}
loader = loader_of({kind!r}, workers={workers}, prefetch=4)
stream = loader.epoch(0)
next(stream)

def refused(call):
    try:
        call()
    except hr.ForkedError as error:
        assert "Make the loader in the child" in str(error)
        return
    raise AssertionError(call)

def anext_of(stream):
    async def main(): await anext(stream)
    asyncio.run(main())

def live():
    global loader, stream
    refused(lambda: next(stream))
    refused(lambda: anext_of(stream))
    refused(lambda: next(iter(loader)))
    refused(lambda: loader.epoch(1))
    refused(lambda: loader.batch_at(3))
    refused(lambda: loader.load_state_dict(loader.state_dict()))
    refused(lambda: loader.stats())
    refused(lambda: loader.explain())
    refused(lambda: loader.skip_step(7))
    refused(lambda: loader.set_prefetch_depth(3))
    assert loader.state_dict()["next_step"] == 1
    assert len(loader) == 25
    repr(loader), repr(stream), loader.why(3)
    with stream: pass
    loader.close()
    with loader: pass
    asyncio.run(loader.aclose())
    del stream, loader
    gc.collect()

def dropped():
    global loader, stream
    del stream, loader
    gc.collect()

run = loader._engine._run
if hasattr(run, "ring"):
    # The worst moment for a fork: another thread is inside every lock.
    held, done = threading.Event(), threading.Event()
    engine = loader._engine
    def hold():
        from headrace.budget import process_budget
        with run.ring.lock, engine._lock, engine.pool._lock, process_budget()._lock:
            held.set(); done.wait()
    holder = start_thread(hold, "holder"); held.wait()
    in_child(live)
    in_child(dropped)
    done.set(); holder.join()
else:
    in_child(live)
    in_child(dropped)
assert all_ids(stream) == epoch_of(loader, 0)[1:]
""")

    assert ended == CLEANLY


def test_children_of_children_and_many(run: Run) -> None:
    """A child's child makes its own again; forks while reading are frequent and all end."""
    ended = run(f"""{FORK}
data = Rows(400)
def use():
    with hr.Loader(data, 4, workers=2, prefetch=4) as mine:
        assert all_ids(mine) == epoch_of(mine, 0)
def grandchild():
    use()
    in_child(use)
with hr.Loader(data, 4, workers=2, prefetch=4) as loader:
    stream = iter(loader)
    for _ in range(8):
        next(stream)
        in_child(grandchild)
""")

    assert ended == CLEANLY


def test_batches_of_the_parent_live_in_the_child(run: Run) -> None:
    """A batch taken before the fork is whole in the child, and dropping it there harms nothing."""
    ended = run(f"""{FORK}
loader = loader_of("rows", workers=2)
stream = iter(loader)
batch = next(stream)
def look():
    global batch
    assert ids_of(batch) == epoch_of(loader, 0)[0]
    view = batch["x"][1:]
    del batch
    gc.collect()
    assert view.sum() > 0
in_child(look)
del batch
assert all_ids(stream) == epoch_of(loader, 0)[1:]
""")

    assert ended == CLEANLY


def test_a_child_that_exits_as_programs_do(run: Run) -> None:
    """Exit hooks in a forked child leave the parent's loader alone and close the child's own."""
    ended = run(f"""{FORK}
parent = loader_of("items", workers=2)
stream = iter(parent)
next(stream)
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    own = loader_of("items", workers=2)
    next(iter(own))
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
assert all_ids(stream) == epoch_of(parent, 0)[1:]
""")

    assert ended == CLEANLY


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_loader_is_a_fresh_one(kind: str) -> None:
    """A pickle, taken mid epoch, carries the configuration and no thread, lock or place (B25)."""
    with loader_of(kind, workers=2) as loader:
        next(iter(loader))

        with pickle.loads(pickle.dumps(loader)) as copy:
            assert copy.state_dict()["next_step"] == 0
            assert all_ids(copy) == epoch_of(loader, 0)
            assert copy.fingerprint == loader.fingerprint


def epoch_in_child(loader: hr.Loader, answers: Any) -> None:
    with loader:
        answers.put(all_ids(loader))


def test_a_spawned_child_gets_a_pickled_loader() -> None:
    """A loader given to a spawned process starts there, with threads of its own (B25)."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    with loader_of("rows", workers=2) as loader:
        next(iter(loader))
        child = context.Process(target=epoch_in_child, args=(loader, answers))
        child.start()
        child.join(LIMIT_S)
        code = child.exitcode
        child.kill()
        child.join()
        child.close()

        assert code == 0
        assert answers.get() == epoch_of(loader, 0)
        answers.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file whose byte i is i mod 251."""
    data = np.arange(4096, dtype=np.int64) % 251
    (tmp_path / "data.bin").write_bytes(data.astype(np.uint8).tobytes())
    return tmp_path


SOURCES: dict[str, Callable[[Path], Source]] = {
    "local": LocalSource,
    "mapped": MappedSource,
    "memory": lambda folder: MemorySource({"data.bin": (folder / "data.bin").read_bytes()}),
}

READ = """
import asyncio
from headrace.sources.source import ByteRange
async def read(source, name="data.bin"):
    await source.open()
    try: return await source.read(name, ByteRange(250, 253))
    finally: await source.aclose()
"""


@pytest.mark.parametrize("has_failed", [False, True], ids=["read", "failed"])
@pytest.mark.parametrize("name", ["local", "mapped"])
def test_a_source_after_a_fork(name: str, has_failed: bool, folder: Path, run: Run) -> None:
    """A source read in the parent, or that only failed to open a file, reads in a child (B25)."""
    ended = run(f"""{FORK}{READ}
from headrace.sources.local import LocalSource
from headrace.sources.mapped import MappedSource
source = {{"local": LocalSource, "mapped": MappedSource}}[{name!r}]({str(folder)!r})
async def parent():
    await source.open()
    if {has_failed}:
        try: await source.read("missing.bin")
        except hr.NotFoundError: pass
    else:
        assert await source.read("data.bin") is not None
asyncio.run(parent())
def child():
    assert asyncio.run(read(source)) == bytes([250, 0, 1])
in_child(child)
assert asyncio.run(read(source)) == bytes([250, 0, 1])
""")

    assert ended == CLEANLY


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_in_a_spawned_child(name: str, folder: Path) -> None:
    """A used source is pickled without handles and reads in a process that knows nothing (B25)."""
    import asyncio

    async def used() -> bytes:
        source = SOURCES[name](folder)
        await source.open()
        await source.read("data.bin")
        pickled = pickle.dumps(source)
        await source.aclose()
        return pickled

    script = f"""
import pickle, sys
{READ}
assert asyncio.run(read(pickle.loads({asyncio.run(used())!r}))) == bytes([250, 0, 1])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_token_shards_after_a_fork(tmp_path: Path, run: Run) -> None:
    """Files mapped and read in the parent are read in the child by a loader of its own (B25)."""
    np.save(tmp_path / "a.npy", np.arange(5000, dtype=np.uint16))
    ended = run(f"""{FORK}
data = hr.TokenShards({str(tmp_path)!r}, seq_len=16)
def epoch():
    with hr.Loader(data, 8, workers=2, seed=3) as loader:
        return [batch["input"].tolist() for batch in loader]
first = epoch()
def child():
    assert epoch() == first
in_child(child)
live = hr.Loader(data, 8, workers=2)
next(iter(live))
in_child(child)
""")

    assert ended == CLEANLY


def test_a_row_group_that_is_decoded_at_a_fork(run: Run) -> None:
    """The thread that decodes it is not in the child, which decodes it itself (B25)."""
    ended = run(f"""{FORK}
from headrace.datasets.kept_groups import KeptGroups
kept, inside, done = KeptGroups(100), threading.Event(), threading.Event()
def slow():
    inside.set(); done.wait()
    return {{}}
decoding = start_thread(lambda: kept.get(0, slow), "decoding"); inside.wait()
def child():
    assert kept.get(0, dict) == {{}}
in_child(child)
done.set(); decoding.join()
""")

    assert ended == CLEANLY
