"""Building from batches that a dataset makes whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.build.builder import Finish, Hop
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt, attempt_awaited
from headrace.build.estimated import EstimatedBuilder
from headrace.collate import as_columns
from headrace.plan import Span


class OpaqueBuilder(EstimatedBuilder):
    """Asks a dataset for the batch of each step.

    Args:
        get_batch: Gives `get_batch` on the calling thread, where it may be a copy's.
        waits: Whether it is a coroutine function.
    """

    def __init__(
        self,
        get_batch: Callable[[], Callable[[list[int]], Any]],
        finish: Finish,
        waits: bool,
        hop: Hop | None = None,
    ) -> None:
        super().__init__(finish, hop)
        self._get_batch = get_batch
        self._waits = waits

    @property
    def waits(self) -> bool:
        return self._waits

    def build_blocking(self, span: Span) -> list[Built]:
        get_batch = self._get_batch()
        built: list[Built] = []
        for at in range(len(span.steps)):
            began = self.times.clock()
            value = attempt(get_batch, _indices(span, at))
            self.times.add_read(began)
            built.append(self.assemble(self._settle, span, at, value))
        return built

    async def build(self, span: Span) -> list[Built]:
        get_batch: Callable[[list[int]], Awaitable[Any]] = self._get_batch()
        built: list[Built] = []
        for at in range(len(span.steps)):
            began = self.times.clock()
            value = await attempt_awaited(get_batch, _indices(span, at))
            self.times.add_read(began)
            built.append(await self.assemble_off_loop(self._settle, span, at, value))
        return built

    def _settle(self, span: Span, position: int, value: Any) -> Built:
        if isinstance(value, Raised):
            return self.finish.failed(span, position, value.error)
        rows = span.rows(position)
        columns = attempt(as_columns, value, rows.stop - rows.start, "get_batch", True)
        if isinstance(columns, Raised):
            return self.finish.failed(span, position, columns.error)
        self.count(columns)
        return self.finish.finish(span, position, columns)


def _indices(span: Span, position: int) -> list[int]:
    samples: list[int] = span.picks.sample[span.rows(position)].tolist()
    return samples
