"""Runs of steps under an interleaving: builders, one consumer, and those who disturb them.

Everything but the building of a step is the real thing: Slots, Grants, Ring, Plan, Order, Run,
ReaderThreads or a LoopThread, and a Budget where two runs share one. Every claim, grant, fill and
take is held to `NaiveRing`, and what the consumer got to `delivered`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from headrace.budget import Budget
from headrace.build.built import Built
from headrace.loop_thread import LoopThread
from headrace.plan import Order, Plan, Span
from headrace.reader import ReaderThreads, Run
from headrace.ring.grants import Grants, Share
from headrace.ring.ring import EndOfRun, Ring
from headrace.ring.slots import Slots
from headrace.samplers.sequential import Sequential
from headrace.threads import Reaping, reap
from tests.proof.interleave import Interleaving
from tests.proof.naive_ring import NaiveRing, delivered
from tests.proof.stepped import Loop, stepped

STEPS_IN_EPOCH = 7
ROWS = 2
BOUND_BYTES = 100
RING_FILES = ("ring/ring.py", "ring/slots.py", "ring/grants.py", "headrace/plan.py", "reader.py")


@dataclass(frozen=True)
class Script:
    """What a seed decides of one run."""

    steps: range
    has_end: bool
    prefetch: int
    slots: int
    span_steps: int
    sizes: tuple[int, ...]
    builders: int
    is_on_loop: bool
    face: str
    bad_step: int | None
    dies_at: int | None
    takes: int
    forsakes_a_loop: bool
    disturbances: tuple[str, ...]

    @classmethod
    def draw(cls, rng: random.Random) -> Script:
        start, count, slots = rng.randrange(5), rng.randrange(1, 17), rng.randrange(1, 9)
        # Sizes from nothing to three times the bound, so that single steps must be forced.
        largest = rng.choice((5, 5, 30, 100, 300))
        steps = range(start, start + count)
        kinds = ("close", "prefetch", "drop", "end")
        return cls(
            steps=steps,
            has_end=rng.random() < 0.7,
            prefetch=rng.randrange(1, slots + 1),
            slots=slots,
            span_steps=rng.choice((1, 2, 4)),
            sizes=tuple(rng.randrange(largest + 1) for _ in steps),
            builders=rng.randrange(1, 4),
            is_on_loop=rng.random() < 0.35,
            face=rng.choice(("blocking", "blocking", "awaited", "both")),
            bad_step=rng.choice(steps) if rng.random() < 0.15 else None,
            dies_at=rng.choice(steps) if rng.random() < 0.2 else None,
            takes=count if rng.random() < 0.7 else rng.randrange(count + 1),
            forsakes_a_loop=rng.random() < 0.1,
            disturbances=tuple(kind for kind in kinds if rng.random() < 0.2),
        )

    def size(self, step: int) -> int:
        return self.sizes[(step - self.steps.start) % len(self.sizes)]

    def value(self, step: int) -> str:
        """Say what a step holds: its epoch and samples, worked out as one would by hand."""
        if step == self.bad_step:
            return f"!{step}"
        first = step % STEPS_IN_EPOCH * ROWS
        return f"epoch {step // STEPS_IN_EPOCH}: {list(range(first, first + ROWS))}"


class WatchedSlots(Slots[Built]):
    """Slots of which every move is held to the rules, under the lock of the ring."""

    def __init__(self, rules: NaiveRing, start: int, prefetch: int, slots: int, end: int | None):
        self.rules = rules
        super().__init__(start, prefetch, slots, end)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "prefetch":
            self.rules.prefetch = value
        super().__setattr__(name, value)

    def claim(self, steps: int) -> range:
        claimed = super().claim(steps)
        for step in claimed:
            self.rules.claim(step)
        return claimed

    def fill(self, step: int, value: Built) -> None:
        super().fill(step, value)
        self.rules.fill(step)

    def take(self) -> tuple[int, Built]:
        step, value = super().take()
        self.rules.take(step)
        return step, value

    def end_at(self, end: int) -> None:
        super().end_at(end)
        end = max([end, self.rules.next_to_take, *(step + 1 for step in self.rules.claimed)])
        self.rules.end = end if self.rules.end is None else min(end, self.rules.end)

    def close(self) -> list[Built]:
        self.rules.close()
        return super().close()


class WatchedGrants(Grants):
    """Grants of which every one is held to the rules."""

    def __init__(
        self, rules: NaiveRing, size_of: Callable[[int], int], share: Share | None
    ) -> None:
        super().__init__(BOUND_BYTES, share)
        self.rules = rules
        self._size_of = size_of

    def grant(self, step: int, nbytes: int, is_next: bool) -> bool:
        is_granted = super().grant(step, nbytes, is_next)
        rules, may_be = self.rules, self.rules.may_grant(step, nbytes)
        rules.must(nbytes == self._size_of(step), f"step {step} claimed for {nbytes} bytes")
        rules.must(may_be or not is_granted, f"step {step} was granted bytes over the bound")
        # A budget that others drew from may refuse, but never the step wanted next.
        must_be = may_be and (self._share is None or step == rules.next_to_take)
        rules.must(is_granted or not must_be, f"step {step} was refused bytes that it may have")
        if is_granted:
            rules.grant(step, nbytes)
        return is_granted

    def release(self, step: int) -> int:
        nbytes = super().release(step)
        for older in [other for other in self.rules.granted if other <= step]:
            self.rules.release(older)
        held = sum(self.rules.granted.values())
        self.rules.must(self.granted_bytes == held, f"{self.granted_bytes} of {held} bytes counted")
        return nbytes


class Died(Exception):
    """A reader ended by a fault of its own."""


class Builder:
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
            raise Died(f"while it built step {step}")
        if step == self._script.bad_step:
            return Built(failure=ValueError(f"!{step}"))
        samples = span.picks.sample[span.rows(at)].tolist()
        return Built(pick_digest=step, nested={"value": f"epoch {span.epochs[at]}: {samples}"})


class RunUnderWatch:
    """One run with its readers, its consumer, and what disturbs them."""

    def __init__(self, play: Interleaving, script: Script, share: Share | None) -> None:
        self.script = script
        self.got: list[tuple[int, str]] = []
        self.error: BaseException | None = None
        self.stalls = 0
        self._play = play
        self._share = share
        end = script.steps.stop if script.has_end else None
        start = script.steps.start
        self.rules = NaiveRing(start, end, script.prefetch, script.slots, BOUND_BYTES)
        slots = WatchedSlots(self.rules, start, script.prefetch, script.slots, end)
        self.ring: Ring[Built] = Ring(slots, WatchedGrants(self.rules, script.size, share))
        order = Order(Sequential(STEPS_IN_EPOCH * ROWS, ROWS), slice(None), self._bytes_of)
        plan = Plan(self.ring, order, script.span_steps)  # type: ignore[arg-type]
        self.run = Run(self.ring, plan, Builder(play, script))  # type: ignore[arg-type]

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
        task = loop.create_task(self.run.take(self._stalled, 0.5))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        # Kept, since a task that is collected withdraws its waiter; asyncio would report it.
        self._forsaken = task
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if task.done() and not task.exception():
            self._keep(task.result())

    def _take_some(self, takes: int) -> None:
        while not self._is_over(takes):
            self._play.pause(2)
            self._look_around()
            try:
                self._keep(self.run.take_blocking(self._stalled, 0.5))
            except BaseException as error:
                self._meet(error)

    async def _take_awaiting(self, takes: int) -> None:
        rng = self._play.rng
        while not self._is_over(takes):
            taking = asyncio.ensure_future(self.run.take(self._stalled, 0.5))
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
        self.stalls += 1

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
