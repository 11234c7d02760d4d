"""Awaiting the user's transform of each batch, where it is a coroutine function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from headrace.build.builder import Builder, Transform, with_result
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt, attempt_awaited
from headrace.build.content import content_digest
from headrace.build.stateful import Around
from headrace.plan import Span

Main = Callable[[], Coroutine[Any, Any, list[Built]]]


class TransformingBuilder(Around):
    """Awaits a transform on the loop that builds, else on the engine's or the private loop.

    Args:
        inner: Builds batches without transform and without content digest.
        transform: The user's coroutine function.
        with_content: Whether to hash what the transform gives.
        call: Runs a coroutine function to its end from a builder's thread.
        is_inline: Whether the consumer builds by itself; its own loop then awaits.
    """

    def __init__(
        self,
        inner: Builder,
        transform: Transform,
        with_content: bool,
        call: Callable[[Main], list[Built]],
        is_inline: Callable[[], bool],
    ) -> None:
        super().__init__(inner)
        self._transform = transform
        self._with_content = with_content
        self._call = call
        self._is_inline = is_inline

    @property
    def waits(self) -> bool:
        return self.inner.waits or self._is_inline()

    def build_blocking(self, span: Span) -> list[Built]:
        built = self.inner.build_blocking(span)
        return self._call(lambda: self._transformed(span, built))

    async def build(self, span: Span) -> list[Built]:
        if self.inner.waits:
            return await self._transformed(span, await self.inner.build(span))
        return await self._transformed(span, self.inner.build_blocking(span))

    async def _transformed(self, span: Span, built: list[Built]) -> list[Built]:
        began = self.times.clock()
        async with asyncio.TaskGroup() as tasks:
            made = [
                tasks.create_task(self._transformed_one(span, position, one))
                for position, one in enumerate(built)
            ]
        self.times.add_transform(began, is_assembling=False)
        return [task.result() for task in made]

    async def _transformed_one(self, span: Span, position: int, built: Built) -> Built:
        batch = built.batch
        if batch is None:
            return built
        keys = batch.pick_keys
        assert keys is not None
        value = await attempt_awaited(self._transform, batch, keys)
        after = value if isinstance(value, Raised) else attempt(with_result, batch, value)
        if isinstance(after, Raised):
            return self.finish.failed(span, position, after.error)
        digest = content_digest(after, keys.slot) if self._with_content else 0
        return replace(built, batch=after, content_digest=digest)
