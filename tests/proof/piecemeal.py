"""A builder that builds in pieces, between which others go on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from headrace.build.built import Built
from headrace.plan import Span
from tests.proof.interleave import Interleaving
from tests.proof.script import Script


class DiedError(Exception):
    """A reader ended by a fault of its own."""


class PiecemealBuilder:
    """Builds steps in pieces, between which others go on."""

    waits = False

    def __init__(self, play: Interleaving, script: Script) -> None:
        self._play = play
        self._script = script
        self.finish = SimpleNamespace(failed=lambda span, at, error: Built(failure=error))

    def build_blocking(self, span: Span) -> list[Built]:
        built = []
        for at in range(len(span.steps)):
            self._play.pause(3)
            built.append(self._build(span, at))
        return built

    async def build(self, span: Span) -> list[Built]:
        built = []
        for at in range(len(span.steps)):
            for _ in range(self._play.rng.randrange(3)):
                await asyncio.sleep(0)
            built.append(self._build(span, at))
        return built

    def _build(self, span: Span, at: int) -> Built:
        step = span.steps[at]
        if step == self._script.dies_at:
            raise DiedError(f"while it built step {step}")
        if step == self._script.bad_step:
            return Built(failure=ValueError(f"!{step}"))
        samples = span.picks.sample[span.rows(at)].tolist()
        return Built(pick_digest=step, nested={"value": f"epoch {span.epochs[at]}: {samples}"})
