"""Late writers, cancellation and the end, broken."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from headrace import loader, stream, threads
from headrace.build import bulk
from headrace.reader import ReaderThreads, Run
from tests.proof.mutant import becomes, does_nothing, mutant, unguarded


async def _end_at_cancel(self: Any, on_cancel: Any) -> None:
    self._wake = self._loop.create_future()
    if not self._is_ended:
        await self._wake


async def _withdraw_in_name(self: Any, on_cancel: Any) -> None:
    cancelled: BaseException | None = None
    while not self._is_ended:
        self._wake = self._loop.create_future()
        try:
            await self._wake
        except asyncio.CancelledError as error:
            if self._call is not None:
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _run_anyway(self: Any) -> None:
    if self._call is not None:
        self.run_here()


def _shielded(original: Any) -> Any:
    async def attempt_awaited(call: Any, *args: Any) -> Any:
        return await asyncio.shield(asyncio.ensure_future(original(call, *args)))

    return attempt_awaited


async def _read_unheld(self: Any, samples: Any) -> Any:
    shelf = self._shelf(samples)
    shelf.let_go()
    numbers = self._row_numbers(len(samples))
    read = await bulk.attempt_awaited(self._dataset.read_into, samples, shelf.out(), numbers)
    if isinstance(read, bulk.Raised):
        return read
    shelf.block._holds += 1
    return shelf


def _close_here(close: Any) -> None:
    close()


def _accept_any(original: Any) -> Any:
    def accept(self: Any, stream: Any, step: int, built: Any, asked: float) -> Any:
        self._stream = weakref.ref(stream)
        return original(self, stream, step, built, asked)

    return accept


def _serve_silently(original: Any) -> Any:
    def serve(self: ReaderThreads, run: Run) -> None:
        if self.threads:
            with self._lock:
                self._run = run
        else:
            original(self, run)

    return serve


MUTANTS = (
    mutant(
        "loader",
        "a cancelled call is not waited for",
        (threads._Call, "until_ended", becomes(_end_at_cancel)),
    ),
    mutant("loader", "a cancelled read is not waited for", (bulk, "attempt_awaited", _shielded)),
    mutant(
        "loader",
        "a withdrawn call runs",
        (threads._Call, "run_if_wanted", becomes(_run_anyway)),
        (threads._Call, "until_ended", becomes(_withdraw_in_name)),
    ),
    mutant(
        "loader",
        "memory is given away while a read runs",
        (bulk.BulkBuilder, "_read", becomes(_read_unheld)),
    ),
    mutant(
        "loader",
        "what is dropped is closed by the collector",
        (stream, "reap", becomes(_close_here)),
    ),
    mutant("loader", "reaping has no end", (threads.Reaping, "end", does_nothing)),
    mutant(
        "loader", "steps read ahead serve any stream", (loader, "_serves", becomes(lambda *_: True))
    ),
    mutant(
        "loader",
        "the cursor is moved by two at once",
        (loader.Loader, "__init__", unguarded("_moving")),
    ),
    mutant("loader", "a stolen stream moves the cursor", (loader.Loader, "accept", _accept_any)),
    mutant(
        "loader", "readers are not told of a new run", (ReaderThreads, "serve", _serve_silently)
    ),
)
