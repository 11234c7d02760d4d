"""Faults that interleavings found, each as the shortest story that shows it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.build.built import Built
from headrace.errors import ClosedError, ReaderDiedError
from headrace.plan import Order, Plan, Span
from headrace.reader import Run
from headrace.ring.grants import Grants
from headrace.ring.ring import Ring
from headrace.ring.slots import Slots
from headrace.samplers.sequential import Sequential
from headrace.testing.gates import Gate


class GatedBatches(hr.BatchDataset):
    """Batches that wait at a gate."""

    def __init__(self) -> None:
        self.gate = Gate()

    def __len__(self) -> int:
        return 8

    async def get_batch(self, indices: Sequence[int]) -> dict[str, Any]:
        await self.gate.wait()
        return {"x": np.array(indices)}


async def test_a_batch_on_its_way_to_a_stolen_stream_moves_no_cursor() -> None:
    """The cursor stays where the stream that was opened meanwhile begins."""
    data = GatedBatches()
    async with hr.Loader(data, 2, shuffle=False, workers=0) as loader:
        first = loader.stream()
        taking = asyncio.ensure_future(anext(first))
        await data.gate.arrived(1)

        second = loader.stream(start=3)
        data.gate.open()

        with pytest.raises(ClosedError):
            await taking
        assert loader.state_dict()["next_step"] == 3
        assert (await anext(second)).step == 3
        assert loader.verify(loader.state_dict()) == 1


def test_a_stall_that_is_never_warned_of_is_waited_for() -> None:
    """Infinity is a time-out too."""
    data = GatedBatches()
    with hr.Loader(data, 2, shuffle=False, workers=1, stall_warning_s=math.inf) as loader:
        opener = threading.Thread(target=lambda: (data.gate.arrived_blocking(1), data.gate.open()))
        opener.start()

        assert [batch.step for batch in loader] == [0, 1, 2, 3]
        opener.join()


class DyingBuilder:
    """Waits with the first span and dies with the second."""

    waits = True

    async def build(self, span: Span) -> list[Built]:
        if span.steps.start == 1:
            raise RuntimeError("the second span")
        await asyncio.Event().wait()
        return []


async def test_steps_beside_a_dying_span_fail_by_its_cause() -> None:
    """What dies is told before the spans beside it are cancelled."""
    slots: Slots[Built] = Slots(0, 2, 2)
    ring = Ring(slots, Grants(100))
    order = Order(Sequential(8, 1), slice(None), lambda picks, marks: [1] * (len(marks) - 1))
    run = Run(ring, Plan(ring, order, 1), DyingBuilder())  # type: ignore[arg-type]

    with pytest.raises(BaseExceptionGroup):
        await run.build(None)

    with pytest.raises(ReaderDiedError, match="the second span"):
        ring.take_nowait()
