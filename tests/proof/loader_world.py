"""A whole loader under an interleaving: late writers, kept batches, and everybody who interferes.

The dataset writes rows in pieces, on threads that cannot be stopped, and says which memory it is
writing to. No block may be lent while somebody writes to it or a view of it is alive, and every
batch must hold what its step says for as long as it is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import headrace as hr
from headrace.batch import Batch
from headrace.errors import ClosedError, SecondConsumerError
from headrace.ring.blocks import Block
from headrace.stream import BatchStream
from tests.proof.interleave import SHORT_S, Interleaving
from tests.proof.late_rows import (
    ROWS,
    STEPS_IN_EPOCH,
    AwaitedLateRows,
    BlockingLateRows,
    values_at,
)
from tests.proof.stepped import Loop, stepped

LOADER_FILES = (
    "headrace/loader.py",
    "headrace/stream.py",
    "engine.py",
    "reader.py",
    "inline.py",
    "loop_thread.py",
)


class LoaderWorld:
    """One loader, its consumer, and those who interfere."""

    def __init__(self, play: Interleaving) -> None:
        self._play = play
        self._rng = rng = play.rng
        self._kept: list[tuple[int, Any]] = []
        self._alive: list[tuple[int, int]] = []
        # Two who do nothing but take the cursor from each other.
        self._is_duel = rng.random() < 0.15
        self._broken: list[str] = []
        self._skips: set[int] = set()
        self._interferes = {
            name
            for name in ("close", "steal", "look", "prefetch", "at", "skip")
            if rng.random() < 0.2
        }
        self.dataset = (BlockingLateRows if rng.random() < 0.5 else AwaitedLateRows)(play)
        self.loader = hr.Loader(
            self.dataset,
            ROWS,
            shuffle=False,
            workers=rng.choice((0, 1, 1, 2, 2)),
            prefetch=rng.randrange(1, 6),
            epochs=rng.choice((None, 3)),
            stall_warning_s=rng.choice((0.5, 30.0)),
        )
        pool = self.loader._engine.pool
        self._lend, pool.lend = pool.lend, self._watched_lend  # type: ignore[method-assign]

    def begin(self) -> None:
        self._play.spawn(self._consume, "consumer")
        if self._is_duel:
            self._play.spawn(self._steal, "rival")
        for name in sorted(self._interferes):
            self._play.spawn(getattr(self, f"_{name}"), name)

    # -- the consumer --------------------------------------------------------------------

    def _consume(self) -> None:
        awaits = self._rng.random() < 0.5
        try:
            if self._is_duel:
                self._steal()
            elif awaits:
                with asyncio.Runner(loop_factory=lambda: Loop(self._play)) as runner:
                    runner.run(self._consume_and_close())
            else:
                self._consume_blocking()
        except ClosedError:
            assert self._is_duel or "close" in self._interferes, "nobody closed the loader"
        self.loader.close()
        # What a thread of the program's own builds is not ours to end.
        is_alone = not self._is_duel and not self._interferes & {"at", "steal"}
        if self.dataset.writing and is_alone:
            self._broken.append("somebody writes though the loader is closed")
        while self._kept:
            self._drop(*self._kept.pop())
        self._play.sweep()

    def _consume_blocking(self) -> None:
        for stream in self._streams():
            takes, step = self._rng.randrange(2 * STEPS_IN_EPOCH), stream.start
            with self._may_be_ended():
                for batch in stream:
                    step = self._look_at(batch, step) + 1
                    takes -= 1
                    if takes < 0:
                        break
                    del batch
            left = [stream]
            batch = stream = None  # noqa: F841
            self._leave(left, step)

    async def _consume_and_close(self) -> None:
        try:
            await self._consume_awaiting()
        finally:
            await self.loader.aclose()

    async def _consume_awaiting(self) -> None:
        for stream in self._streams():
            takes, step = self._rng.randrange(2 * STEPS_IN_EPOCH), stream.start
            with self._may_be_ended():
                while takes >= 0 and (batch := await self._take(stream)) is not None:
                    step = self._look_at(batch, step) + 1
                    takes -= 1
            left = [stream]
            batch = stream = None
            self._leave(left, step)

    @contextmanager
    def _may_be_ended(self) -> Iterator[None]:
        try:
            yield
        except ClosedError:
            assert self._interferes & {"close", "steal"}, "nobody closed the stream"

    async def _take(self, stream: BatchStream) -> Batch | None:
        """Take a batch, and now and then give up waiting for it first."""
        while True:
            taking = asyncio.ensure_future(anext(stream, None))
            cancels = self._rng.random() < 0.3
            for _ in range(self._rng.randrange(4) if cancels else 0):
                await asyncio.sleep(0)
            if cancels:
                taking.cancel()
            try:
                return await taking
            except asyncio.CancelledError:
                continue

    def _streams(self) -> list[BatchStream] | Any:
        for _ in range(self._rng.randrange(1, 4)):
            self._play.pause(5)
            kind = self._rng.randrange(4)
            if kind == 0:
                yield self.loader.epoch(self._rng.randrange(3))
            elif kind == 1:
                yield self.loader.stream(start=self._rng.randrange(20))
            elif kind == 2:
                yield iter(self.loader)
            else:
                yield from self.loader.epochs(2)

    def _look_at(self, batch: Batch, step: int) -> int:
        """Hold a batch to what comes at a step, or after it where steps are skipped."""
        self._must_be_skipped(range(step, batch.step))
        step = batch.step
        column = batch["values"]
        place = (column.data_ptr(), column.data_ptr() + column.nbytes)
        self._alive.append(place)
        self._check(step, column)
        self._play.pause(3)
        if self._rng.random() < 0.5:
            self._kept.append((step, column))
        else:
            self._drop(step, column)
        while len(self._kept) > 3:
            kept = self._kept.pop(0)
            self._play.garbage.append(lambda kept=kept: self._drop(*kept))  # type: ignore[misc]
        return step

    def _must_be_skipped(self, steps: range) -> None:
        assert self._skips.issuperset(steps), f"{list(steps)} left out, {self._skips} skipped"

    def _check(self, step: int, column: Any) -> None:
        assert column.tolist() == values_at(step), f"step {step} holds {column.tolist()}"

    def _drop(self, step: int, column: Any) -> None:
        self._check(step, column)
        self._alive.remove((column.data_ptr(), column.data_ptr() + column.nbytes))

    def _leave(self, left: list[BatchStream], step: int) -> None:
        """End with a stream: close it, or forget it and let the collector find it."""
        if not self._interferes & {"steal"}:
            next_step = self.loader.state_dict()["next_step"]
            assert next_step >= step, f"the state says {next_step}, not {step}"
            self._must_be_skipped(range(step, next_step))
        if self._rng.random() < 0.5:
            left.pop().close()
        else:
            self._play.garbage.append(left.clear)
            self._play.pause(80)

    # -- those who interfere -------------------------------------------------------------

    def _close(self) -> None:
        self._play.pause(150)
        self.loader.close()

    def _steal(self) -> None:
        """Move the cursor beside the consumer, whose stream that ends, and take from there."""
        for _ in range(8 if self._is_duel else 4):
            self._play.pause(0 if self._is_duel else 40)
            with contextlib.suppress(ClosedError, SecondConsumerError):
                if self._rng.random() < 0.3:
                    self._take_over(self._go_back())
                else:
                    start = self._rng.randrange(9)
                    self._take_over(self.loader.stream(start=start, steps=2))

    def _go_back(self) -> BatchStream:
        state = self.loader.state_dict()
        self._play.pause(20)
        self.loader.load_state_dict(state)
        return self.loader.stream(steps=2)

    def _take_over(self, stream: BatchStream) -> None:
        step = stream.start
        for batch in stream:
            self._must_be_skipped(range(step, batch.step))
            self._check(batch.step, batch["values"])
            step = batch.step + 1
            self._verify()

    def _look(self) -> None:
        for _ in range(8):
            self._play.pause(20)
            self._verify()
            self.loader.stats()

    def _verify(self) -> None:
        state = self.loader.state_dict()
        # A step may be skipped at the very moment at which it is taken; a state tells no
        # difference between the two.
        if "skip" not in self._interferes:
            self.loader.verify(state)

    def _skip(self) -> None:
        for _ in range(3):
            self._play.pause(40)
            step = self._rng.randrange(20)
            self._skips.add(step)
            with contextlib.suppress(hr.ConfigError):
                self.loader.skip_step(step)

    def _prefetch(self) -> None:
        for _ in range(4):
            self._play.pause(20)
            self.loader.set_prefetch_depth(self._rng.randrange(1, 9))

    def _at(self) -> None:
        try:
            for _ in range(3):
                self._play.pause(20)
                step = self._rng.randrange(20)
                batch = self.loader.batch_at(step)
                self._check(step, batch["values"])
        except ClosedError:
            pass

    # -- the rules -----------------------------------------------------------------------

    def _watched_lend(self, capacity_bytes: int) -> Block:
        block = self._lend(capacity_bytes)
        mine = (block.address, block.address + len(block.memory))
        if _overlaps(mine, self.dataset.writing):
            self._broken.append("a block was lent while somebody wrote to it")
        if _overlaps(mine, self._alive):
            self._broken.append("a block was lent while a view of it was alive")
        return block

    def check(self) -> None:
        """See that no rule was broken and nothing is left."""
        assert self._broken == [], self._broken
        # A long time-out ends only when nobody can go on: somebody was not told.
        assert self.loader.stall_s < SHORT_S or self.loader.stats()["stalls"] == 0
        gc.collect()
        engine = self.loader._engine
        assert engine.threads() == []
        assert engine._share.taken_bytes == 0
        assert engine.pool.leases_out == 0, f"{engine.pool.leases_out} leases are out"
        assert self.dataset.writing == []


def _overlaps(place: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    return any(place[0] < other[1] and other[0] < place[1] for other in others)


def play_loader(seed: int) -> Interleaving:
    """Play with a loader under a seed; raise what went wrong."""
    play = Interleaving(seed, LOADER_FILES if seed % 4 == 0 else ())
    with stepped(play), warnings.catch_warnings():
        # `epoch(e)` warns where a state was loaded meanwhile.
        warnings.simplefilter("ignore", UserWarning)
        world = LoaderWorld(play)
        world.begin()
        play.run()
    world.check()
    return play
