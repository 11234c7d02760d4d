"""Everything at once, at random, with threads that switch all the time and poisoned memory.

Some twenty seconds here, minutes under `--full`. `--seed` replays what is done.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import headrace.loader
from headrace.budget import Budget
from headrace.threads import join_all, start_thread
from tests.lifecycle.children import Child
from tests.lifecycle.data import KINDS, loader_of, steps_of
from tests.lifecycle.soak import Soak

LIMIT_S = 250


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Let the interpreter switch threads as often as it can; look for garbage cheaply."""
    before = sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    gc.unfreeze()


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("number", range(3))
def test_one_loader(number: int, seed: int, full: bool) -> None:
    """One consumer does everything; every batch is right, and stays right where it is kept."""
    soak = Soak(seed + number)

    soak.run(10_000 if full else 400)

    assert soak.checked > 1000


@pytest.mark.timeout(LIMIT_S)
def test_three_loaders(seed: int, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and two validations on threads of their own share a budget that has little room."""
    budget = Budget(lambda: 40_000)
    monkeypatch.setattr(headrace.loader, "process_budget", lambda: budget)
    soaks = [Soak(seed + 100 + number, workers=(1, 2)) for number in range(3)]
    failures: list[BaseException] = []

    def run(soak: Soak) -> None:
        try:
            soak.run(5000 if full else 150)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [start_thread(lambda soak=soak: run(soak), "soak") for soak in soaks]  # type: ignore[misc]

    assert not join_all(threads, LIMIT_S)
    assert not failures
    del soaks
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("headrace"):
            thread.join(20)
    assert budget.taken_bytes == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_killed_again_and_again(
    kind: str, start: Callable[[str], Child], seed: int, full: bool
) -> None:
    """Killed hard at any moment, and started from the last state it told, it misses nothing."""
    random_ = random.Random(seed)
    seen: list[list[int]] = []
    state = None
    for _ in range(20 if full else 4):
        with start(f"""
        import json, sys
        from tests.lifecycle.data import *
        sys.setswitchinterval(1e-6)
        loader = loader_of({kind!r}, 60, workers=2, prefetch=5)
        state = {state!r}
        if state is not None:
            loader.load_state_dict(json.loads(state))
        for batch in loader.stream():
            print(json.dumps([ids_of(batch), loader.state_dict()]), flush=True)
        """) as child:
            for _ in range(random_.randrange(1, 12)):
                ids, told = json.loads(child.line())
                seen.append(ids)
            child.signal(signal.SIGKILL)
            state = json.dumps(told)

    with loader_of(kind, 60) as loader:
        assert seen == steps_of(loader, range(len(seen)))
        assert loader.verify(json.loads(state or "")) == len(seen)
