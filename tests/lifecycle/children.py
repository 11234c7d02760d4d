"""Programs of their own, run to their end or until a limit; signals at moments they announce."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
# Only ends a child that hangs; one that does not takes a fraction of a second.
LIMIT_S = 30.0
# Longer than a program takes that leaves a stuck reader behind (5 s), half of the limit.
AGAIN_S = 8.0


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        code: Exit code; a negative number is the signal that killed it.
        out: What it printed.
        err: What it wrote to standard error.
    """

    code: int
    out: str
    err: str


CLEANLY = Ended(0, "", "")


class Zygote:
    """Starts children, one at a time, out of a process that has imported everything."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        # Without -W, Python says nothing of sockets and loops that are left open.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "always::ResourceWarning"),
                *("-m", "tests.lifecycle.zygote", str(theirs.fileno())),
            ],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._answers = self._socket.makefile("r")
        assert self._answers.readline() == "ready\n"

    def start(self, script: str) -> Child:
        """Start a program."""
        out, err = os.pipe(), os.pipe()
        message = textwrap.dedent(script).encode()
        socket.send_fds(self._socket, [message], [out[1], err[1]])
        os.close(out[1])
        os.close(err[1])
        pid = int(self._answers.readline())
        return Child(self, pid, out[0], err[0])

    def exit_code(self) -> int:
        """Wait for the child to end."""
        return int(self._answers.readline())

    def close(self) -> None:
        """End the process."""
        self._answers.close()
        self._socket.close()
        self._process.wait(LIMIT_S)


class Child:
    """A running program.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, zygote: Zygote, pid: int, out: int, err: int) -> None:
        self.pid = pid
        self._zygote = zygote
        self._out = os.fdopen(out)
        self._err = os.fdopen(err)
        self._ended: Ended | None = None
        self._again: threading.Timer | None = None
        self._limit = threading.Timer(LIMIT_S, self._kill)
        self._limit.start()

    def line(self) -> str:
        """Wait for the next line that it prints."""
        return self._out.readline().rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def interrupt(self) -> None:
        """Send it a Ctrl-C, and another as a person would if nothing comes of the first.

        A signal that falls between CPython's last look for signals and the main thread's sleep
        is noticed only when that sleep ends, in any program that waits for a lock.
        """
        self.signal(signal.SIGINT)
        self._again = threading.Timer(AGAIN_S, self.signal, [signal.SIGINT])
        self._again.start()

    def end(self) -> Ended:
        """Wait for its end; one that is killed at its limit says where it was."""
        if self._ended is None:
            code = self._zygote.exit_code()
            for timer in (self._limit, self._again):
                if timer is not None:
                    timer.cancel()
                    timer.join()
            with self._out, self._err:
                self._ended = Ended(code, self._out.read(), self._err.read())
        return self._ended

    def _kill(self) -> None:
        # faulthandler writes down where each thread is, then the processes die of it.
        self._signal_all(signal.SIGABRT)

    def _signal_all(self, number: signal.Signals) -> None:
        # A child that was killed before may be gone by now, its end not yet heard of here.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended is None:
            self._signal_all(signal.SIGKILL)
            self.end()
