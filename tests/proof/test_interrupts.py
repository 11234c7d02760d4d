"""Ctrl-C at every call that a take makes: nothing is lost, doubled, or left waiting.

Python handles signals when a function begins, so the interrupt falls, one after the other, on
each function that the consumer enters while it takes a few batches.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

import headrace as hr
from headrace.errors import ClosedError
from tests.proof.interleave import Interleaving
from tests.proof.late_rows import AwaitedLateRows, BlockingLateRows, LateRows, values_at
from tests.proof.stepped import stepped
from tests.proof.worlds import quiet_collector

TAKES = 3


class Interrupted:
    """A consumer that is interrupted once, at the n-th function that it enters."""

    def __init__(self, play: Interleaving, kind: type[LateRows], workers: int, at_call: int):
        self.got: list[int] = []
        self.interrupts = 0
        self._left = at_call
        self.loader = hr.Loader(
            kind(play), 3, shuffle=False, workers=workers, prefetch=2, stall_warning_s=30.0
        )

    def consume(self) -> None:
        stream = self.loader.stream()
        while len(self.got) < TAKES:
            sys.settrace(self._enter)
            try:
                batch = next(stream)
            except KeyboardInterrupt:
                continue
            except ClosedError:
                # The step was in the taking: the loader says so, and where to go on.
                assert self.loader.state_dict()["next_step"] == len(self.got)
                stream = self.loader.stream()
                continue
            finally:
                sys.settrace(None)
            self.got.append(batch.step)
            assert batch["values"].tolist() == values_at(batch.step)
        state = self.loader.state_dict()
        self.loader.close()
        assert state["next_step"] == TAKES

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if "/src/headrace/" not in frame.f_code.co_filename:
            return
        if self._left == 0 and self.interrupts == 0:
            self.interrupts = 1
            raise KeyboardInterrupt
        self._left -= 1


@pytest.mark.parametrize(
    ("kind", "workers"),
    # Not where a loop runs on the main thread: asyncio turns the signal into a cancellation.
    [(BlockingLateRows, 0), (BlockingLateRows, 2), (AwaitedLateRows, 1)],
)
def test_an_interrupt_anywhere_in_a_take(kind: type[LateRows], workers: int, full: bool) -> None:
    """All batches come, each once and in order, wherever Ctrl-C falls (B28)."""
    at_call = 0
    with quiet_collector():
        while _is_interrupted_and_right(kind, workers, at_call):
            at_call += 1 if full else 3

    assert at_call > 20


def _is_interrupted_and_right(kind: type[LateRows], workers: int, at_call: int) -> bool:
    play = Interleaving(at_call)
    with stepped(play):
        consumer = Interrupted(play, kind, workers, at_call)
        play.main = play.spawn(consumer.consume, "consumer")
        try:
            play.run()
        except BaseException as error:
            error.add_note(f"interrupted at call {at_call}")
            raise
    assert consumer.got == list(range(TAKES))
    return consumer.interrupts == 1
