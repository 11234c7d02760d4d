"""One pass over a DataLoader: an iterator that is independent of all others."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Self

import torch

from headrace.batch import Batch
from headrace.build.calls import Raised
from headrace.engine import Engine
from headrace.errors import StateError, TimeoutWithoutThreadsError
from headrace.stream import BatchStream
from headrace.threads import reap
from headrace.torch.course import Course
from headrace.torch.draws import Draws, Keys
from headrace.torch.place import Place
from headrace.torch.reading import Reading
from headrace.torch.starts import Starts

if TYPE_CHECKING:
    from headrace.torch.loader import DataLoader


class Pass:
    """The batches of one pass, in `for` or in `async for`.

    It has threads of its own, which end with the pass, when it is dropped, or at exit. An error
    of a batch is raised when its turn comes, and the next take goes on behind it. One consumer
    at a time.

    Args:
        loader: Whose pass it is.
        place: What the pass takes over from those before it.
        saved: Where to go on, from a state; None to begin anew.
    """

    def __init__(self, loader: DataLoader[Any], place: Place, saved: Place | None) -> None:
        if loader.timeout and not loader.num_workers:
            raise TimeoutWithoutThreadsError(loader.timeout)
        self._pid = os.getpid()
        self._keeps_threads = loader.persistent_workers
        self._sampler: Any = loader._index_sampler
        self._keys = Keys()
        self._reading: Reading | None = None
        self._waiting: tuple[DataLoader[Any], Place, Place] | None = None
        self._begin_or_wait(loader, place, saved)

    # -- beginning -----------------------------------------------------------------------

    def begin_again(self, loader: DataLoader[Any], place: Place, saved: Place | None) -> None:
        """Begin another pass with the threads of the last one, which is broken off."""
        self._stream.close()
        self._keys.clear()
        self._begin_or_wait(loader, place, saved)

    @property
    def can_begin_again(self) -> bool:
        """Whether its threads are there: nobody closed them, nor forked this process."""
        return (
            self._pid == os.getpid()
            and self._reading is not None
            and not self._reading.engine.is_closed
        )

    def _begin_or_wait(self, loader: DataLoader[Any], place: Place, saved: Place | None) -> None:
        """Begin, but at the first take after the state of a pass that was complete.

        Such a state cannot know what samplers will be told next, and Lightning tells them the
        epoch only once it has the iterator. Torch's threads have drawn from the sampler by then.
        """
        if saved is None or saved.process:
            self._waiting = None
            self._begin(loader, place, saved)
        else:
            place.own = saved.own
            self._waiting = loader, place, saved

    def _begun(self) -> BatchStream:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._begin(*waiting)
        return self._stream

    def _begin(self, loader: DataLoader[Any], place: Place, saved: Place | None) -> None:
        held = Starts(loader.generator, self._sampler)
        with held.gone_back_to(saved):
            held.note(place)
            first = self._keys.next_step
            # Torch makes the sampler's iterator, then draws the seed, then the first keys.
            draws = Draws(self._sampler, self._keys)
            if not (place.seeds_once and place.passes):
                place.base_seed = _drawn_seed(loader.generator)
            reading = self._reading or self._begin_reading(loader, place)
            reading.threads.begin_pass(place.base_seed, place.passes, first)
            start = first if saved is None else self._draw_taken(draws, place, saved)
            draws.draw_to(start + reading.ahead_steps)
        steps = reading.start(start, draws.end)
        expected_end = _expected_end(self._sampler, first)
        self._course = Course(steps, draws, place, reading, loader.timeout, expected_end)
        self._stream = BatchStream(self._course, start, draws.end, None)

    def _begin_reading(self, loader: DataLoader[Any], place: Place) -> Reading:
        reading = self._reading = Reading(loader, self._keys, place.base_seed)
        self._finalizer = weakref.finalize(self, _drop, reading.engine, self._pid)
        self._finalizer.atexit = False
        return reading

    def _draw_taken(self, draws: Draws, place: Place, saved: Place) -> int:
        """Draw the keys of batches that were taken, and give the step behind them."""
        if not saved.process:
            return self._keys.next_step
        first, taken = self._keys.next_step, saved.progress[0]
        # One more, so that a sampler which draws at its first key does so from here.
        draws.draw_to(first + taken + 1)
        had = min(self._keys.next_step - first, taken)
        for step in range(first, first + had):
            place.take(self._keys.pop(step))
        if not place.has_taken(saved):
            found = {"taken and check of their keys": (saved.progress, place.progress)}
            raise StateError(found, _OTHER_KEYS)
        return first + taken

    # -- taking --------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __len__(self) -> int:
        """Count the batches of a whole pass."""
        return len(self._sampler)

    def __next__(self) -> Any:
        stream = self._begun()
        self._course.draw_ahead(stream)
        try:
            batch = next(stream)
        except StopIteration:
            self._end()
            raise
        return _data_of(batch)

    async def __anext__(self) -> Any:
        stream = self._begun()
        self._course.draw_ahead(stream)
        try:
            batch = await self._course.in_time(stream)
        except StopAsyncIteration:
            self._end()
            raise
        return _data_of(batch)

    def _end(self) -> None:
        if not self._keeps_threads:
            self.close()

    def close(self) -> None:
        """Stop reading and join the threads. Idempotent; further takes give nothing."""
        self._begun().close()
        if self._reading is not None:
            self._reading.engine.close()

    def __repr__(self) -> str:
        return f"Pass({'not begun' if self._waiting else repr(self._stream)})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an iterator over a DataLoader cannot be pickled; save state_dict()")


_OTHER_KEYS = (
    "The sampler does not yield what it yielded before the state was saved. Call its set_epoch "
    "as before, and give samplers that draw at random a generator of their own."
)


def _expected_end(sampler: Any, first: int) -> int | None:
    try:
        return first + len(sampler)
    except Exception:  # noqa: BLE001 - torch asks no sampler for its length before a pass
        return None


def _drawn_seed(generator: torch.Generator | None) -> int:
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _data_of(batch: Batch) -> Any:
    """Give the plain batch, or raise what there is in its place."""
    data = batch[0]
    if not isinstance(data, Raised):
        return data
    error = data.error
    # The traceback holds this frame and the caller's: who held the error too would be a cycle,
    # and keep the pass and its threads until the collector happens to run.
    del data.error
    try:
        if isinstance(error, StopIteration | StopAsyncIteration):
            raise RuntimeError(f"{type(error).__name__} was raised for a batch") from error
        raise error
    finally:
        del error


def _drop(engine: Engine, pid: int) -> None:
    """Have the engine of a dropped pass stopped, unless it belongs to a parent process."""
    if os.getpid() == pid:
        reap(engine.stop)
