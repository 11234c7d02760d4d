"""Ctrl-C, SIGTERM and SIGKILL (B28): the program ends at once, and the next start knows nothing.

Interrupts are sent to real processes at moments that these announce; `test_interrupts` puts
them at every point of a take instead.
"""

from __future__ import annotations

import glob
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lifecycle.children import Child, Ended
from tests.lifecycle.data import KINDS, WAITING

Start = Callable[[str], Child]
Run = Callable[[str], Ended]

WORKERS = (0, 2)
KIND_AND_WORKERS = [*itertools.product(KINDS, WORKERS)]

# Five batches, then the program says so and stays in the loop body.
IN_THE_BODY = """
import asyncio, threading
import headrace as hr
from tests.lifecycle.data import *
loader = loader_of({kind!r}, workers={workers}, prefetch=8)
count = 0
try:
    for batch in loader.epochs(2).__next__():
        count += 1
        if count == 5:
            print("five", flush=True)
            threading.Event().wait()
except KeyboardInterrupt:
    print("interrupted at step", loader.state_dict()["next_step"])
    raise
"""

# Step 5 never comes; the program waits for it, and a thread says so.
NEVER_COMES = """
import asyncio, threading
import headrace as hr
from tests.lifecycle.data import *
data = KINDS[{kind!r}](100, gated=20)
loader = hr.Loader(data, 4, shuffle=False, probe=False, workers={workers}, prefetch=8)
count, taken = 0, threading.Semaphore(0)
def announce():
    data.gate.arrived_blocking(1)
    # At workers=0 the gather of steps 3 to 6 holds up step 3 already.
    for _ in range(3 if {workers} == 0 and {kind!r} == "rows" else 5): taken.acquire()
    print("waiting", flush=True)
threading.Thread(target=announce, daemon=True).start()
"""

WAITING_FOR_A_BATCH = f"""{NEVER_COMES}
try:
    for batch in loader:
        count += 1
        taken.release()
except KeyboardInterrupt:
    print("interrupted", loader.state_dict()["next_step"] == count)
    raise
"""

AWAITING_A_BATCH = f"""{NEVER_COMES}
async def tick():
    # A signal that comes just before the loop sleeps is noticed at its next turn (CPython runs
    # handlers between bytecodes, and asyncio has no wake-up descriptor for SIGINT): let it turn.
    while True:
        await asyncio.sleep(0.05)
async def main():
    global count
    ticking = asyncio.create_task(tick())
    async for batch in loader:
        count += 1
        taken.release()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", loader.state_dict()["next_step"] == count)
    raise
"""

AGAIN = """
from tests.lifecycle.data import *
with loader_of({kind!r}, workers={workers}) as loader:
    assert all_ids(loader) == epoch_of(loader, 0)
print("again")
"""


def left_in_shared_memory() -> set[str]:
    """Names that outlive a process that is killed."""
    return set(glob.glob("/dev/shm/*"))


@pytest.mark.parametrize(("kind", "workers"), KIND_AND_WORKERS)
def test_ctrl_c_in_the_loop_body(kind: str, workers: int, start: Start, run: Run) -> None:
    """The loop body gets its KeyboardInterrupt, and the program ends by it (B28)."""
    with start(IN_THE_BODY.format(kind=kind, workers=workers)) as child:
        assert child.line() == "five"
        child.signal(signal.SIGINT)
        ended = child.end()

    assert (ended.code, ended.out) == (-signal.SIGINT, "interrupted at step 5\n")
    assert ended.err.splitlines()[-1] == "KeyboardInterrupt"
    assert run(AGAIN.format(kind=kind, workers=workers)) == Ended(0, "again\n", "")


@pytest.mark.parametrize(("kind", "workers"), KIND_AND_WORKERS)
def test_ctrl_c_while_waiting(kind: str, workers: int, start: Start) -> None:
    """A blocking wait for a batch is interrupted at once, whatever it waits for (B28).

    A reader that is stuck in user code is left behind within the bound of an exit.
    """
    with start(_quick(WAITING_FOR_A_BATCH).format(kind=kind, workers=workers)) as child:
        assert child.line() == "waiting"
        child.interrupt()
        ended = child.end()

    assert (ended.code, ended.out) == (-signal.SIGINT, "interrupted True\n")
    is_stuck = workers and kind not in WAITING
    assert ("still inside a read or user code" in ended.err) == bool(is_stuck)
    assert "KeyboardInterrupt" in ended.err.splitlines()


@pytest.mark.parametrize(("kind", "workers"), [pair for pair in KIND_AND_WORKERS if pair[1]])
def test_ctrl_c_while_awaiting(kind: str, workers: int, start: Start) -> None:
    """asyncio cancels the consumer and raises KeyboardInterrupt out of its run (B28)."""
    with start(_quick(AWAITING_A_BATCH).format(kind=kind, workers=workers)) as child:
        assert child.line() == "waiting"
        child.interrupt()
        ended = child.end()

    assert (ended.code, ended.out) == (-signal.SIGINT, "interrupted True\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("kind", "workers"), KIND_AND_WORKERS)
def test_a_program_that_is_killed(
    kind: str, workers: int, number: signal.Signals, start: Start, run: Run
) -> None:
    """SIGTERM and SIGKILL leave nothing behind that the next start could meet (B28)."""
    before = left_in_shared_memory()
    script = IN_THE_BODY if workers else WAITING_FOR_A_BATCH
    with start(script.format(kind=kind, workers=workers)) as child:
        assert child.line() in ("five", "waiting")
        child.signal(number)
        ended = child.end()

    assert ended == Ended(-number, "", "")
    assert not left_in_shared_memory() - before
    assert run(AGAIN.format(kind=kind, workers=workers)) == Ended(0, "again\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_in_the_file_system(
    number: signal.Signals, start: Start, tmp_path: Path
) -> None:
    """A run over files writes none: no lock, no temporary file, whatever ends it (B28)."""
    with start(f"""
    import os, threading
    import numpy as np
    import headrace as hr
    os.environ["TMPDIR"] = {str(tmp_path / "tmp")!r}
    os.makedirs(os.environ["TMPDIR"])
    np.save({str(tmp_path / "a.npy")!r}, np.arange(5000, dtype=np.uint16))
    loader = hr.Loader(hr.TokenShards({str(tmp_path)!r}, seq_len=16), 4, workers=2)
    for batch in loader:
        print("reading", flush=True)
        threading.Event().wait()
    """) as child:
        assert child.line() == "reading"
        child.signal(number)
        assert child.end().code == -number

    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == ["a.npy", "tmp"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_interrupted_and_gone_on_with(kind: str, start: Start) -> None:
    """As in a notebook: after Ctrl-C the same stream goes on with the batch that was waited for."""
    with start(f"""
    import signal, threading
    import headrace as hr
    from tests.lifecycle.data import *
    data = KINDS[{kind!r}](100, gated=20)
    loader = hr.Loader(data, 4, shuffle=False, probe=False, workers=2, prefetch=8)
    stream = loader.epoch(0)
    taken = threading.Semaphore(0)
    def announce():
        data.gate.arrived_blocking(1)
        for _ in range(5): taken.acquire()
        print("waiting", flush=True)
    threading.Thread(target=announce, daemon=True).start()
    seen = []
    try:
        for batch in stream:
            seen.append(ids_of(batch))
            taken.release()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    data.gate.open()
    for batch in stream: seen.append(ids_of(batch))
    assert seen == [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(25)]
    loader.close()
    """) as child:
        assert child.line() == "waiting"
        child.interrupt()
        assert child.line() == "interrupted"
        assert child.end() == Ended(0, "", "")


def test_two_interrupts_in_a_row(start: Start) -> None:
    """A second Ctrl-C, while the program is ending, does not hang it."""
    with start(WAITING_FOR_A_BATCH.format(kind="items", workers=2)) as child:
        assert child.line() == "waiting"
        child.interrupt()
        assert child.line() == "interrupted True"
        child.signal(signal.SIGINT)
        ended = child.end()

    assert ended.code in (-signal.SIGINT, 0, 1)


def test_a_signal_handler_that_only_sets_a_flag(start: Start) -> None:
    """A handler of the program's own runs at once and the wait goes on (PEP 475)."""
    with start("""
    import os, signal, threading
    import headrace as hr
    from tests.lifecycle.data import *
    data = KINDS["items"](100, gated=0)
    loader = hr.Loader(data, 4, shuffle=False, probe=False, workers=1)
    flagged = []
    def flag(number, frame):
        flagged.append(number)
        data.gate.open()
    signal.signal(signal.SIGUSR1, flag)
    def announce():
        data.gate.arrived_blocking(1)
        os.kill(os.getpid(), signal.SIGUSR1)
    threading.Thread(target=announce, daemon=True).start()
    with loader:
        assert all_ids(loader) == [[4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3] for i in range(25)]
    assert flagged == [signal.SIGUSR1]
    """) as child:
        assert child.end() == Ended(0, "", "")


def _quick(script: str) -> str:
    """Have a program wait for stuck threads a short time only, at its exit."""
    return "from headrace import threads; threads.EXIT_S = 0.2\n" + script


def test_the_bound_of_an_exit_is_under_five_seconds() -> None:
    """What Ctrl-C waits for at most, over all loaders and sources (B28)."""
    from headrace import threads

    assert threads.EXIT_S < 5
    assert os.environ.get("HEADRACE_POISON") == "1"
