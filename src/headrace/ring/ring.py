"""The ring: one lock around slots and grants, with a blocking and an awaited end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from headrace.errors import SecondConsumerError, WouldWait
from headrace.ring.grants import Grants
from headrace.ring.slots import Slots

T = TypeVar("T")


class EndOfRun(Exception):  # noqa: N818 - a state of the ring, not a failure
    """Every step up to the end has been taken, or the ring is closed."""


class Ring(Generic[T]):
    """Steps between whoever builds them and the one consumer who takes them.

    Builders claim and fill from any thread. One consumer takes, blocking or awaiting, from any
    thread or loop. Waiting only ever means: look again when told. A value stays in its slot
    until `take` removes it on the consumer's own thread, so a wait that times out or is
    cancelled loses nothing.

    Args:
        slots: The slots; owned by the ring from here on.
        grants: The byte grants; owned by the ring from here on.
    """

    def __init__(self, slots: Slots[T], grants: Grants) -> None:
        self.slots = slots
        self.grants = grants
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self._space = threading.Condition(self.lock)
        self._parked = 0
        self._parked_at_steps = 0
        self._refused_at: int | None = None
        self._wake_claimers: list[Callable[[], None]] = []
        self._gate: threading.Lock | None = None
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    # -- builders ------------------------------------------------------------------------

    def claimable(self) -> tuple[int, int, int | None]:
        """Give the next step to claim, how many may be claimed, and the end of the run."""
        with self.lock:
            slots = self.slots
            return slots.next_to_claim, slots.claimable_steps(), slots.end

    def claim(self, bytes_of: Sequence[int]) -> range:
        """Claim as many of the next steps as slots and bytes allow.

        Args:
            bytes_of: What the next steps will hold, in step order, as many as are wanted.

        Returns:
            The claimed steps; empty when nothing can be claimed now.
        """
        with self.lock:
            slots = self.slots
            wanted = min(len(bytes_of), slots.claimable_steps())
            first = slots.next_to_claim
            granted = 0
            while granted < wanted and self.grants.grant(
                first + granted, bytes_of[granted], first + granted == slots.next_to_take
            ):
                granted += 1
            if granted < wanted:
                self._refused_at = slots.next_to_take
            return slots.claim(granted)

    def fill(self, first: int, values: Sequence[T]) -> bool:
        """Fill consecutive claimed steps; give False when the ring is closed.

        Never waits, since a claimed step has its slot. The ring owns the values afterwards.
        """
        with self.lock:
            if self.slots.is_closed:
                return False
            for step, value in enumerate(values, first):
                self.slots.fill(step, value)
            if self.slots.has_next():
                self._wake_consumer()
            return True

    def wait_claimable_blocking(self) -> bool:
        """Block until a step may be claimable; give False when none ever will be.

        The caller is woken when half of what was in flight has been taken, or the consumer has
        to wait: a thread woken for one step at a time costs a consumer that is busy 30-60 us of
        hand-over per step.
        """
        with self._space:
            while True:
                if self._has_no_more():
                    return False
                if self._is_claimable():
                    return True
                self._parked += 1
                self._parked_at_steps = self.slots.claimed_steps
                try:
                    self._space.wait()
                finally:
                    self._parked -= 1

    def when_claimable(self, wake: Callable[[], None]) -> bool | None:
        """Do as `wait_claimable_blocking` does, by a callback.

        Returns:
            True: look now. False: nothing will ever be claimable. None: `wake` will be called
            once, from any thread, when it is time to look again.
        """
        with self.lock:
            if self._has_no_more():
                return False
            if self._is_claimable():
                return True
            self._parked_at_steps = self.slots.claimed_steps
            self._wake_claimers.append(wake)
            return None

    def _has_no_more(self) -> bool:
        slots = self.slots
        return slots.is_closed or (slots.end is not None and slots.next_to_claim >= slots.end)

    def _is_claimable(self) -> bool:
        """Whether a claim may get a step: bytes refused once stay refused until a take."""
        slots = self.slots
        return slots.claimable_steps() > 0 and self._refused_at != slots.next_to_take

    def _wake_builders(self) -> None:
        if self._parked:
            self._space.notify_all()
        if self._wake_claimers:
            wakes, self._wake_claimers = self._wake_claimers, []
            for wake in wakes:
                wake()

    def _wake_idle_builders(self) -> None:
        """Let all that may be in flight be so, now that the consumer can do nothing but wait."""
        if (self._parked or self._wake_claimers) and self._is_claimable():
            self._wake_builders()

    # -- the consumer --------------------------------------------------------------------

    def take_nowait(self) -> tuple[int, T]:
        """Take the step wanted next.

        Raises:
            WouldWait: It is not filled yet.
            EndOfRun: There is none, or the ring is closed.
        """
        with self.lock:
            slots = self.slots
            if slots.has_next():
                taken = slots.take()
                self.grants.release(taken[0])
                if (
                    self._parked or self._wake_claimers
                ) and slots.claimed_steps * 2 <= self._parked_at_steps:
                    self._wake_builders()
                return taken
            if self.failure is not None:
                raise self.failure
            if slots.is_closed or slots.is_exhausted:
                raise EndOfRun
        raise WouldWait

    def wait_blocking(self, timeout_s: float | None = None) -> bool:
        """Block until `take_nowait` will not raise WouldWait; give False on time-out."""
        gate = threading.Lock()
        gate.acquire()
        try:
            with self.lock:
                if self._is_ready():
                    return True
                self._refuse_second_consumer()
                self._wake_idle_builders()
                self._gate = gate
            # Infinity is a time-out too, and more than a lock can wait for.
            return gate.acquire(
                timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)
            )
        finally:
            with self.lock:
                if self._gate is gate:
                    self._gate = None

    async def wait(self) -> None:
        """Await that `take_nowait` will not raise WouldWait, on any running loop."""
        loop = asyncio.get_running_loop()
        with self.lock:
            if self._is_ready():
                return
            self._refuse_second_consumer()
            self._wake_idle_builders()
            future: asyncio.Future[None] = loop.create_future()
            waiter = self._waiter = (loop, future)
        try:
            await future
        except GeneratorExit:
            # The collector ends what waited on a loop that has closed, in any thread and under
            # any lock, this one too. Whoever waits next drops the waiter.
            raise
        except BaseException:
            self._withdraw(waiter)
            raise
        self._withdraw(waiter)

    def _withdraw(self, waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]) -> None:
        with self.lock:
            if self._waiter is waiter:
                self._waiter = None

    def _refuse_second_consumer(self) -> None:
        waiter = self._waiter
        if waiter is not None and waiter[0].is_closed():
            # A loop that was closed under its waiting task will never wake it: drop it.
            waiter = self._waiter = None
        if waiter is not None or self._gate is not None:
            raise SecondConsumerError

    def _is_ready(self) -> bool:
        slots = self.slots
        return slots.has_next() or slots.is_closed or slots.is_exhausted or self.failure is not None

    def _wake_consumer(self) -> None:
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.release()
        if self._waiter is not None:
            loop, future = self._waiter
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:
                # The waiter's own loop has closed; nobody is there to be told.
                self._waiter = None

    # -- both ----------------------------------------------------------------------------

    def set_prefetch(self, steps: int) -> None:
        """Move the bound on steps in flight, at once."""
        with self.lock:
            self.slots.prefetch = max(1, min(steps, self.slots.max_slots))
            self._refused_at = None
            self._wake_builders()

    def end_at(self, end: int) -> None:
        """Claim nothing from this step on."""
        with self.lock:
            self.slots.end_at(end)
            self._wake_builders()
            self._wake_consumer()

    def fail(self, failure: BaseException) -> None:
        """Let the consumer meet this error after the steps filled so far; claim no more."""
        with self.lock:
            if self.failure is None:
                self.failure = failure
            self.slots.end_at(self.slots.next_to_claim)
            self._wake_builders()
            self._wake_consumer()

    def close(self) -> None:
        """Drop what was not taken, refuse everything later, wake everyone. Idempotent."""
        with self.lock:
            left = self.slots.close()
            self.grants.release_all()
            self._wake_builders()
            self._wake_consumer()
        left.clear()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
