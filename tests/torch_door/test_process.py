"""The second door at the ends of a process: forks, exits, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import headrace as hr
from tests.torch_door.data import OURS


def ended(script: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("kept", [False, True])
def test_a_program_may_leave_a_pass_open(kept: bool) -> None:
    """Threads that still read do not hold up the exit, nor change its code."""
    done = ended(
        f"""
        import headrace as hr

        loader = hr.torch.DataLoader(range(100_000), 1, num_workers=2, persistent_workers={kept})
        iterator = iter(loader)
        print(next(iterator).item())
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("kept", [False, True])
def test_a_child_process_reads_by_passes_of_its_own(kept: bool) -> None:
    """A pass of the parent says that it cannot be used in a forked child; a new one works."""
    loader = OURS(range(6), 2, num_workers=2, persistent_workers=kept)
    iterator = iter(loader)
    next(iterator)
    reading, writing = os.pipe()

    child = os.fork()
    if not child:
        os.write(writing, told_by_child(loader, iterator).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    told = os.read(reading, 1000).decode()
    os.close(reading)

    assert status == 0
    assert told == "ForkedError [[0, 1], [2, 3], [4, 5]]"
    assert [batch.tolist() for batch in iterator] == [[2, 3], [4, 5]]
    iterator.close()


def told_by_child(loader: Any, iterator: Any) -> str:
    try:
        next(iterator)
    except Exception as error:
        name = type(error).__name__
    return f"{name} {[batch.tolist() for batch in loader]}"


def test_an_interrupt_ends_a_wait_and_loses_no_batch() -> None:
    """Ctrl-C while a batch is awaited is raised at once, and the next take gives that batch."""
    done = ended(
        """
        import os, signal, threading
        import torch, headrace as hr

        class Gated(torch.utils.data.Dataset):
            thread_safe = True
            begun, gate, taking = (threading.Event() for _ in range(3))
            def __len__(self):
                return 4
            def __getitem__(self, index):
                self.begun.set()
                self.gate.wait()
                return index

        def interrupt():
            Gated.begun.wait()
            Gated.taking.wait()
            os.kill(os.getpid(), signal.SIGINT)

        iterator = iter(hr.torch.DataLoader(Gated(), 2, num_workers=1))
        threading.Thread(target=interrupt).start()
        try:
            Gated.taking.set()
            next(iterator)
        except KeyboardInterrupt:
            Gated.gate.set()
        print([batch.tolist() for batch in iterator])
        """
    )

    assert (done.stdout, done.returncode) == ("[[0, 1], [2, 3]]\n", 0), done.stderr


def test_an_interrupt_of_a_build_on_the_caller_can_be_tried_again() -> None:
    """Without threads Ctrl-C falls into the dataset, and the batch is built anew."""
    interrupts = [True]

    class Interrupted:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            if index == 2 and interrupts.pop():
                signal.raise_signal(signal.SIGINT)
            return index

    data: Any = Interrupted()
    iterator = iter(OURS(data, 2))
    interrupts.insert(0, False)
    first = next(iterator)

    with pytest.raises(KeyboardInterrupt):
        next(iterator)

    assert [first.tolist(), *(batch.tolist() for batch in iterator)] == [[0, 1], [2, 3]]
    assert isinstance(hr.torch.DataLoader, type)
