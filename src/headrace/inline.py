"""Steps built on the consumer's own thread, for `workers=0`: no thread of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.build.builder import Builder
from headrace.build.built import Built
from headrace.build.opened import OpenedDataset
from headrace.errors import LoopRunningError
from headrace.plan import Order
from headrace.ring.ring import EndOfRun

T = TypeVar("T")


class PrivateLoop:
    """An event loop that runs only while its owner blocks on a coroutine."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def call(self, coroutine: Coroutine[Any, Any, T], what: str) -> T:
        """Run a coroutine to its end on the calling thread.

        Raises:
            LoopRunningError: A loop runs in this thread already.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            coroutine.close()
            raise LoopRunningError(what)
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def close(self) -> None:
        """End the loop."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


class InlineRun:
    """Steps built when they are asked for, one at a time.

    Args:
        order: The picks.
        builder: Builds each step.
        opened: The dataset, to be opened on the consumer's thread or loop.
        private_loop: Where a waiting builder runs for a blocking consumer.
        start: First step.
        end: First step not to be built; None for an endless run.
    """

    def __init__(
        self,
        order: Order,
        builder: Builder,
        opened: OpenedDataset,
        private_loop: PrivateLoop,
        start: int,
        end: int | None,
    ) -> None:
        self.next_step = start
        self.end = end
        self._order = order
        self._builder = builder
        self._opened = opened
        self._private_loop = private_loop
        self._is_closed = False

    def take_blocking(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Build the next step on the calling thread."""
        if self._builder.waits:
            return self._private_loop.call(self.take(stalled, stall_s), "a blocking take")
        return self._take_here()

    async def take(self, stalled: Callable[[float], None], stall_s: float) -> Built:
        """Build the next step in the calling task."""
        if not self._builder.waits:
            return self._take_here()
        self._check_open()
        late = asyncio.get_running_loop().call_later(stall_s, stalled, stall_s)
        try:
            await self._opened.open_loop()
            span = self._order.window(self.next_step, self.end).span(self._steps())
            built = (await self._builder.build(span))[0]
        finally:
            late.cancel()
        self.next_step += 1
        return built

    def _take_here(self) -> Built:
        self._check_open()
        self._opened.open_here()
        span = self._order.window(self.next_step, self.end).span(self._steps())
        built = self._builder.build_blocking(span)[0]
        self.next_step += 1
        return built

    def _steps(self) -> range:
        return range(self.next_step, self.next_step + 1)

    def _check_open(self) -> None:
        if self._is_closed or (self.end is not None and self.next_step >= self.end):
            raise EndOfRun

    def close(self) -> None:
        """Build no more."""
        self._is_closed = True
