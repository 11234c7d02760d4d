"""Runs of steps under an interleaving: builders, one consumer, and those who disturb them.

Everything but the building of a step is the real thing: Slots, Grants, Ring, Plan, Order, Run,
ReaderThreads or a LoopThread, and a Budget where two runs share one. Every claim, grant, fill and
take is held to `NaiveRing`, and what the consumer got to `delivered`.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

from headrace.budget import Budget
from headrace.build.built import Built
from headrace.loop_thread import LoopThread
from headrace.plan import Order, Plan
from headrace.reader import ReaderThreads, Run
from headrace.ring.grants import Share
from headrace.ring.ring import EndOfRun, Ring
from headrace.samplers.sequential import Sequential
from headrace.threads import Reaping, reap
from tests.proof.interleave import SHORT_S, Interleaving
from tests.proof.naive_ring import NaiveRing, delivered
from tests.proof.piecemeal import PiecemealBuilder
from tests.proof.script import ROWS, STEPS_IN_EPOCH, Script
from tests.proof.stepped import Loop, stepped
from tests.proof.watched import WatchedGrants, WatchedSlots

BOUND_BYTES = 100
RING_FILES = ("ring/ring.py", "ring/slots.py", "ring/grants.py", "headrace/plan.py", "reader.py")


class RunUnderWatch:
    """One run with its readers, its consumer, and what disturbs them."""

    def __init__(self, play: Interleaving, script: Script, share: Share | None) -> None:
        self.script = script
        self.got: list[tuple[int, str]] = []
        self.error: BaseException | None = None
        self._play = play
        self._share = share
        end = script.steps.stop if script.has_end else None
        start = script.steps.start
        self.rules = NaiveRing(start, end, script.prefetch, script.slots, BOUND_BYTES)
        slots = WatchedSlots(self.rules, start, script.prefetch, script.slots, end)
        self.ring: Ring[Built] = Ring(slots, WatchedGrants(self.rules, script.size, share))
        order = Order(Sequential(STEPS_IN_EPOCH * ROWS, ROWS), slice(None), self._bytes_of)
        plan = Plan(self.ring, order, script.span_steps)
        self.run = Run(self.ring, plan, PiecemealBuilder(play, script))  # type: ignore[arg-type]

    def _bytes_of(self, picks: Any, marks: Any) -> list[int]:
        first = int(picks.step[0])
        return [self.script.size(first + at) for at in range(len(marks) - 1)]

    def begin(self) -> None:
        """Start everybody."""
        self._play.spawn(self._serve_and_consume, "consumer")
        for kind in self.script.disturbances:
            self._play.spawn(getattr(self, f"_{kind}"), kind)

    # -- the actors ----------------------------------------------------------------------

    def _serve_and_consume(self) -> None:
        reaping = Reaping()
        reaping.begin()
        end_readers = self._start_loop() if self.script.is_on_loop else self._start_threads()
        try:
            if self.script.forsakes_a_loop and self.script.takes:
                self._forsake_a_loop()
            self._consume()
        finally:
            self.run.close()
            end_readers()
        if self._share is not None:
            self._share.close()  # type: ignore[attr-defined]
        self._play.sweep()
        reaping.end()

    def _start_threads(self) -> Any:
        readers = ReaderThreads(self.script.builders, lambda: None, lambda: None)
        readers.serve(self.run)

        def end() -> None:
            readers.stop()
            for thread in readers.threads:
                thread.join()

        return end

    def _start_loop(self) -> Any:
        loop = LoopThread()
        loop.begin()
        most_spans = self.script.builders if self.script.builders < 3 else None

        async def serve() -> None:
            await self.run.build(most_spans)

        async def last() -> None:
            pass

        self.run.cancel = loop.start(serve, self.run.died)

        def end() -> None:
            loop.stop(last)
            for thread in loop.threads:
                thread.join()

        return end

    def _consume(self) -> None:
        if self.script.face == "blocking":
            self._take_some(self.script.takes)
            return
        if self.script.face == "both":
            self._take_some(self.script.takes // 2)
        with asyncio.Runner(loop_factory=lambda: Loop(self._play)) as runner:
            runner.run(self._take_awaiting(self.script.takes))

    def _forsake_a_loop(self) -> None:
        """Close an event loop under a task that waits for a step."""
        loop = Loop(self._play)
        task = loop.create_task(self.run.take(self._stalled, self.script.stall_s))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if task.done() and not task.exception():
            self._keep(task.result())
        forsaken = weakref.ref(task)
        self._play.garbage.append(lambda: self._collect(forsaken, 20))

    def _collect(self, forsaken: weakref.ref[object], tries: int) -> None:
        """Collect what waited on a dead loop, as soon as the ring holds it no longer: anywhere."""
        gc.collect()
        if forsaken() is not None and tries:
            self._play.garbage.append(lambda: self._collect(forsaken, tries - 1))

    def _take_some(self, takes: int) -> None:
        while not self._is_over(takes):
            self._play.pause(2)
            self._look_around()
            try:
                self._keep(self.run.take_blocking(self._stalled, self.script.stall_s))
            except BaseException as error:
                self._meet(error)

    async def _take_awaiting(self, takes: int) -> None:
        rng = self._play.rng
        while not self._is_over(takes):
            taking = asyncio.ensure_future(self.run.take(self._stalled, self.script.stall_s))
            cancels = rng.random() < 0.4
            for _ in range(rng.randrange(4) if cancels else 0):
                await asyncio.sleep(0)
                self._play.pause(1)
            if cancels:
                taking.cancel()
            try:
                self._keep(await taking)
            except asyncio.CancelledError:
                continue
            except BaseException as error:
                self._meet(error)

    def _is_over(self, takes: int) -> bool:
        return self.error is not None or len(self.got) >= takes

    def _keep(self, built: Built) -> None:
        step = self.run.next_step
        if built.failure is not None:
            self.got.append((step, str(built.failure)))
            self.error = built.failure
            return
        assert built.pick_digest == step, f"step {step} is that of {built.pick_digest}"
        assert built.nested is not None
        self.got.append((step, built.nested["value"]))
        self.run.next_step = step + 1

    def _meet(self, error: BaseException) -> None:
        if not isinstance(error, Exception) or isinstance(error, AssertionError):
            raise error
        self.error = error

    def _stalled(self, waited_s: float) -> None:
        # A long time-out ends only when nobody can go on: somebody was not told.
        self.rules.must(waited_s < SHORT_S, "the consumer slept until its time-out")

    def _look_around(self) -> None:
        """Now and then, wait until all readers sleep, and see that they have a reason to."""
        if self._play.rng.random() > 0.15 or "prefetch" in self.script.disturbances:
            return
        self._play.wait_quiet()
        slots = self.ring.slots
        at_park = self.ring._parked_at_steps
        if slots.is_closed or self.ring.failure is not None or slots.claimable_steps() == 0:
            return
        has_little_room = slots.claimed_steps * 2 > at_park
        assert has_little_room or self._is_refused(), "readers sleep, and there is room for steps"

    def _is_refused(self) -> bool:
        """Whether the next step does not fit, though it may once more has been taken."""
        step = self.ring.slots.next_to_claim
        return step != self.rules.next_to_take and (
            self._share is not None or not self.rules.may_grant(step, self.script.size(step))
        )

    # -- disturbances --------------------------------------------------------------------

    def _close(self) -> None:
        self._play.pause(60)
        self.run.close()

    def _drop(self) -> None:
        """Drop the run, as a program does that forgets its stream."""
        self._play.pause(60)
        self._play.garbage.append(lambda: reap(self.run.close))

    def _prefetch(self) -> None:
        for _ in range(4):
            self._play.pause(15)
            self.ring.set_prefetch(self._play.rng.randrange(1, 12))

    def _end(self) -> None:
        self._play.pause(40)
        self.ring.end_at(self._play.rng.choice(self.script.steps))

    # -- the verdict ---------------------------------------------------------------------

    def check(self) -> None:
        """Hold what was delivered to the oracle, and see that nothing is left."""
        assert self.rules.broken == [], self.rules.broken
        script = self.script
        oracle = delivered(script.steps, script.prefetch, BOUND_BYTES, script.sizes, script.value)
        assert self.got == oracle[: len(self.got)], f"got {self.got}, wanted {oracle}"
        was_cut = {"close", "drop", "end"} & set(script.disturbances) or script.dies_at is not None
        if not was_cut:
            wanted = min(script.takes, len(oracle))
            assert len(self.got) == wanted, f"got {self.got} and then {self.error!r}"
        elif self.error is not None and script.dies_at is None:
            is_expected = isinstance(self.error, EndOfRun) or str(self.error).startswith("!")
            assert is_expected, f"the consumer met {self.error!r}"
        self._check_nothing_left()

    def _check_nothing_left(self) -> None:
        ring = self.ring
        assert ring.grants.granted_bytes == 0, f"{ring.grants.granted_bytes} bytes still granted"
        assert ring.slots.close() == [], "values still in their slots"
        assert ring._gate is None, "a blocking wait left its gate"
        assert ring._waiter is None, "an awaited wait left its waiter"
        assert ring._parked == 0, f"{ring._parked} builders still parked"
        assert ring._wake_claimers == [], "builders still wait to be called"


def play_ring(seed: int) -> Interleaving:
    """Play one or two runs under a seed; raise what went wrong."""
    # Every fourth seed lets the turn go over at any line, which is slower.
    play = Interleaving(seed, RING_FILES if seed % 4 == 0 else ())
    with stepped(play):
        runs = _runs(play)
        for run in runs:
            run.begin()
        play.run()
    for run in runs:
        run.check()
    return play


def _runs(play: Interleaving) -> Sequence[RunUnderWatch]:
    if play.rng.random() < 0.75:
        return [RunUnderWatch(play, Script.draw(play.rng), None)]
    budget = Budget(lambda: 150)
    return [
        RunUnderWatch(play, Script.draw(play.rng), budget.open_share(name, 20, 0.9))
        for name in ("one", "other")
    ]
