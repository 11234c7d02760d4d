"""Who builds what, broken."""

from __future__ import annotations

from typing import Any

from headrace.plan import Plan
from headrace.reader import ReaderThreads, Run
from tests.proof.mutant import becomes, mutant, unguarded


async def _keep_the_turn(self: Run, span: Any, gate: Any) -> None:
    self._fill(span, await self._built(span))


def _stop_silently(self: ReaderThreads) -> None:
    with self._lock:
        self._is_stopped = True
        self._run = None


def _serve_again(self: ReaderThreads, last: Run | None) -> Run | None:
    with self._lock:
        while not self._is_stopped:
            if self._run is not None:
                self._busy += 1
                return self._run
            self._changed.wait()
        return None


MUTANTS = (
    mutant("ring", "spans are claimed by two at once", (Plan, "__init__", unguarded("_lock"))),
    mutant("ring", "a built span keeps its turn", (Run, "_build_span", becomes(_keep_the_turn))),
    mutant("ring", "stopping tells no reader", (ReaderThreads, "stop", becomes(_stop_silently))),
    mutant(
        "ring",
        "readers serve a run that is over",
        (ReaderThreads, "_next_run", becomes(_serve_again)),
    ),
)
