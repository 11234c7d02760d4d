"""Reading ahead: how far, how much at once, and never past its bounds.

Nothing here measures time: gates hold reads back until a test lets them go.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

import headrace as hr
from headrace.testing.gates import Gate
from tests.loader.kinds import ByItem, Samples, sample_of

WAIT_S = 20.0


class GatedGet(Samples):
    """Every read waits at one gate."""

    def __init__(self, num_samples: int, gate: Gate) -> None:
        super().__init__(num_samples)
        self.gate = gate

    async def get(self, index: int) -> dict[str, Any]:
        await self.gate.wait()
        return sample_of(index)


class GatedItems(ByItem):
    """The read of each sample waits at a gate of its own; those without one pass."""

    def __init__(self, num_samples: int, *gated: int) -> None:
        super().__init__(num_samples)
        self.gates = {index: Gate() for index in gated}
        self.read = Counter()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.gates:
            self.gates[index].wait_blocking()
        self.read.add(index)
        return super().__getitem__(index)


class Counter:
    """What was counted, and a wait until there is enough of it."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._changed = threading.Condition()

    def add(self, value: int) -> None:
        with self._changed:
            self.seen.append(value)
            self._changed.notify_all()

    def reached(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= count, WAIT_S)


def ordered(data: Any, **knobs: Any) -> hr.Loader:
    return hr.Loader(data, batch_size=2, shuffle=False, probe=False, **knobs)


@pytest.mark.parametrize("prefetch", [1, 4, 32])
def test_as_many_steps_are_asked_for_at_once_as_prefetch_says(prefetch: int) -> None:
    """With K steps ahead all of their reads are in flight before the first answers (S0-84)."""
    gate = Gate()
    with ordered(GatedGet(200, gate), workers=1, prefetch=prefetch) as loader:
        stream = loader.epoch(0)
        taken = threading.Thread(target=next, args=(stream,))
        taken.start()

        gate.arrived_blocking(2 * prefetch)

        assert loader.stats()["ring_steps"] == prefetch
        gate.open()
        taken.join(WAIT_S)
        assert next(stream).step == 1


def test_an_early_step_that_is_late_changes_nothing() -> None:
    """Steps are built in any order and delivered in theirs (S1-08)."""
    data = GatedItems(16, 0, 5)
    with ordered(data, workers=4, prefetch=8) as loader:
        stream = loader.epoch(0)
        found: list[list[int]] = []
        consumer = threading.Thread(
            target=lambda: found.extend(batch["id"].tolist() for batch in stream)
        )
        consumer.start()

        # All of the window but the two steps that are held back.
        assert data.read.reached(13)
        assert found == []
        data.gates[5].open()
        data.gates[0].open()
        consumer.join(WAIT_S)

    assert found == [[i, i + 1] for i in range(0, 16, 2)]
    assert set(data.read.seen[:13]).isdisjoint({0, 1, 5})
