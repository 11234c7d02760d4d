"""A consumer that does everything a program may do with a loader, at random, and checks it all.

Every batch is held to the order of its sampler and to its rows; some are kept, and looked at
again long after. A seed decides what is done; threads decide when.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable
from typing import Any

import torch

import headrace as hr
from tests.lifecycle.data import KINDS, ids_of, rows_of, steps_of

SAMPLES, BATCH, STEPS = 60, 4, 15


class Soak:
    """One loader after the other, used and misused by one consumer.

    Args:
        seed: Decides everything that is done.
        workers: How many workers loaders may have.

    Attributes:
        checked: Batches that were right.
    """

    def __init__(self, seed: int, workers: tuple[int, ...] = (0, 1, 2, 4)) -> None:
        self.checked = 0
        self._random = random.Random(seed)
        self._workers = workers
        self._kept: list[tuple[torch.Tensor, list[int]]] = []
        self._states: list[dict[str, Any]] = []
        self._loader = self._made()
        self._actions: list[Callable[[], None]] = [
            self._take_some,
            self._take_some,
            self._break_a_pass,
            self._await_some,
            self._await_and_cancel,
            self._finish_an_epoch,
            self._run_epochs,
            self._close_a_stream,
            self._steal_a_stream,
            self._take_any,
            self._save,
            self._go_back,
            self._change_prefetch,
            self._remake,
            self._drop_in_a_cycle,
            self._look_at_what_is_kept,
        ]

    def run(self, rounds: int) -> None:
        """Do so many things, then close and look at all that was kept."""
        for _ in range(rounds):
            self._random.choice(self._actions)()
        self._loader.close()
        self._look_at_what_is_kept()
        self._kept.clear()

    # -- what is done --------------------------------------------------------------------

    def _made(self) -> hr.Loader:
        random_ = self._random
        return hr.Loader(
            KINDS[random_.choice([*KINDS])](SAMPLES),
            BATCH,
            seed=random_.randrange(1000),
            workers=random_.choice(self._workers),
            prefetch=random_.choice([1, 2, 5, 16]),
            epochs=random_.choice([None, 2, 50]),
            ring_bytes=random_.choice([None, 1, 5000]),
            probe=False,
        )

    def _some(self, most: int = 12) -> int:
        return self._random.randrange(1, most)

    def _take_some(self) -> None:
        start = self._random.randrange(4 * STEPS)
        steps = self._some(30)
        seen = [self._check(batch) for batch in self._loader.stream(start, steps)]
        assert seen == [*range(start, start + steps)]

    def _break_a_pass(self) -> None:
        last = self._some()
        seen = []
        for batch in self._loader:
            seen.append(self._check(batch))
            if len(seen) == last:
                break
        self._check_run(seen)

    def _await_some(self) -> None:
        async def consume() -> None:
            last = self._some()
            seen = []
            async for batch in self._loader:
                seen.append(self._check(batch))
                if len(seen) == last:
                    break
            self._check_run(seen)

        asyncio.run(consume())

    def _await_and_cancel(self) -> None:
        seen: list[int] = []

        async def consume(stream: hr.BatchStream) -> None:
            async for batch in stream:
                seen.append(self._check(batch))  # noqa: PERF401 - each counts

        async def main() -> None:
            stream = self._loader.epoch(self._random.randrange(3))
            for _ in range(self._some(8)):
                consumer = asyncio.create_task(consume(stream))
                for _ in range(self._some()):
                    await asyncio.sleep(0)
                consumer.cancel()
                await asyncio.wait([consumer])
                if not consumer.cancelled():
                    # It had come to its end, or met an error that is to be seen.
                    consumer.result()
            with stream:
                seen.extend(self._check(batch) for batch in stream)

        asyncio.run(main()) if self._can_block_a_loop() else asyncio.run(self._drained())
        self._check_run(seen)

    async def _drained(self) -> None:
        async for batch in self._loader.epoch(1):
            self._check(batch)

    def _can_block_a_loop(self) -> bool:
        """Whether a plain loop works in a coroutine; awaited data at workers=0 says it does not."""
        return "workers=0" not in repr(self._loader) or "Awaited" not in repr(self._loader)

    def _finish_an_epoch(self) -> None:
        epoch = self._random.randrange(5)
        seen = [self._check(batch) for batch in self._loader.epoch(epoch)]
        assert seen == [*range(epoch * STEPS, (epoch + 1) * STEPS)]

    def _run_epochs(self) -> None:
        first = self._loader.state_dict()["epoch"]
        for epoch in self._loader.epochs(first + 3):
            last = self._some(2 * STEPS)
            for taken, batch in enumerate(epoch, 1):
                self._check(batch)
                if taken == last:
                    break
            if self._random.random() < 0.3:
                return

    def _close_a_stream(self) -> None:
        stream = self._loader.epoch(0)
        for _ in range(self._random.randrange(3)):
            self._check(next(stream))
        stream.close()
        assert next(stream, None) is None

    def _steal_a_stream(self) -> None:
        first = self._loader.epoch(0)
        self._check(next(first))
        second = self._loader.epoch(1)
        assert self._check(next(second)) == STEPS
        try:
            next(first)
        except hr.ClosedError:
            return
        raise AssertionError("a stolen stream goes on")

    def _take_any(self) -> None:
        step = self._random.randrange(10 * STEPS)
        assert self._check(self._loader.batch_at(step)) == step

    def _save(self) -> None:
        self._states.append(self._loader.state_dict())

    def _go_back(self) -> None:
        for state in self._random.sample(self._states, min(2, len(self._states))):
            try:
                self._loader.load_state_dict(state)
            except hr.StateError:
                continue  # of another loader
            step = state["next_step"]
            assert self._check(next(self._loader.stream())) == step

    def _change_prefetch(self) -> None:
        self._loader.set_prefetch_depth(self._some(20))

    def _remake(self) -> None:
        if self._random.random() < 0.5:
            self._loader.close()
        self._loader = self._made()
        self._states = []

    def _drop_in_a_cycle(self) -> None:
        stream: Any = iter(self._loader)
        next(stream, None)
        cycle: list[Any] = [stream]
        cycle.append(cycle)
        del stream, cycle
        if self._random.random() < 0.2:
            gc.collect()

    # -- what must hold ------------------------------------------------------------------

    def _check(self, batch: hr.Batch) -> int:
        """Hold a batch to its step and rows; keep a part of some. Gives its step."""
        ids = ids_of(batch)
        assert ids == steps_of(self._loader, [batch.step])[0]
        self.checked += 1
        if self._random.random() < 0.05:
            self._kept.append((batch["x"][1:], ids[1:]))
        return batch.step

    def _check_run(self, seen: list[int]) -> None:
        assert seen == [*range(seen[0], seen[0] + len(seen))] if seen else True

    def _look_at_what_is_kept(self) -> None:
        for part, ids in self._kept:
            assert torch.equal(part, torch.from_numpy(rows_of(ids))), f"{ids} changed"
        while len(self._kept) > 20:
            self._kept.pop(self._random.randrange(len(self._kept)))
