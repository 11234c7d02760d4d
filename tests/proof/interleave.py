"""Threads that take turns: a seed decides who goes on, so that every interleaving can be replayed.

Actors are real threads of which one runs at a time. Whoever runs may lose its turn wherever it
touches a lock, a condition, a SimpleQueue or an event loop of another thread, and at any line of
the files in `lines`. The code under test is as it is: `stepped` puts cooperative locks where its
modules look up `threading`, `SimpleQueue`, `start_thread` and `new_event_loop`.
"""

from __future__ import annotations

import _thread
import random
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

# A wait that may time out does so at any moment if it is short, and else only when nobody can
# go on: a stall warning is part of the game, a join of five seconds is not.
SHORT_S = 1.0
# Somebody who turns in circles is caught by this many turns; runs take some hundreds.
MOST_TURNS = 40_000
# Only a harness that is broken itself, or code that blocks behind its back, waits this long.
LIMIT_S = 30.0


class Ended(BaseException):
    """Unwinds what is left of an interleaving that has failed."""


class DeadlockError(AssertionError):
    """Nobody can go on, and not everybody has ended."""


class Actor:
    """One thread of an interleaving, also as the code under test sees threads."""

    def __init__(self, play: Interleaving, target: Callable[[], object], name: str) -> None:
        self.name = name
        self.weight = play.rng.choice((0.1, 1.0, 1.0, 4.0))
        self.turn = _thread.allocate_lock()
        self.turn.acquire()
        self.is_ready: Callable[[], bool] | None = None
        self.wait_s: float | None = None
        self.is_ended = False
        self.is_told = False
        self.is_listening = False
        self._play = play
        self._target = target
        self.thread = threading.Thread(target=self._run, name=f"actor-{name}", daemon=True)
        self.thread.start()

    daemon = True

    @property
    def ident(self) -> int | None:
        return self.thread.ident

    def is_alive(self) -> bool:
        return not self.is_ended

    def join(self, timeout: float | None = None) -> None:
        self._play.wait_until(lambda: self.is_ended, timeout)

    def _run(self) -> None:
        self.turn.acquire()
        try:
            if self._play.failure is None:
                self._play.trace_here()
                self._target()
        except Ended:
            pass
        except BaseException as error:
            self._play.failure = self._play.failure or error
        finally:
            sys.settrace(None)
            self.is_ended = True
            self._play.pass_on()

    def __repr__(self) -> str:
        frame = sys._current_frames().get(self.ident or 0)
        stack = traceback.extract_stack(frame)[:-2] if frame else []
        ours = [f"{at.filename.rsplit('/', 1)[-1]}:{at.lineno}" for at in stack[-6:]]
        return f"{self.name} at {' > '.join(ours)}"


class Interleaving:
    """One run of some actors under one seed.

    Attributes:
        rng: Decides everything; actors draw from it too.
        garbage: What a collector would finalise: called in any actor at any of its steps, also
            while that actor holds locks.
        main: The actor that stands for the main thread, which signals interrupt; if any.
        turns: How often somebody could have lost its turn so far.
    """

    def __init__(self, seed: int, lines: tuple[str, ...] = ()) -> None:
        self.rng = random.Random(seed)
        self.garbage: list[Callable[[], object]] = []
        self.failure: BaseException | None = None
        self.main: Actor | None = None
        self.turns = 0
        self.now_s = 0.0
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._lines = lines
        self._line_share = self.rng.choice((0.02, 0.2))
        self._is_sweeping = False
        self._all_ended = _thread.allocate_lock()
        # How likely the one who runs keeps its turn: short and long stretches find other faults.
        self._keep_share = self.rng.choice((0.0, 0.5, 0.9))

    # -- for tests -----------------------------------------------------------------------

    def spawn(self, target: Callable[[], object], name: str = "actor") -> Actor:
        """Add an actor, before or while the others run."""
        actor = Actor(self, target, name)
        self._actors.append(actor)
        return actor

    def run(self) -> None:
        """Let the actors run until all have ended; raise the first error of any of them."""
        self._all_ended.acquire()
        self.pass_on()
        if not self._all_ended.acquire(timeout=LIMIT_S):
            raise AssertionError(f"code blocked behind the harness: {self._actors}")
        for actor in self._actors:
            actor.thread.join(LIMIT_S)
        if self.failure is not None:
            raise self.failure

    def pause(self, most: int = 4) -> None:
        """Let others go on for some random number of turns."""
        for _ in range(self.rng.randrange(most + 1)):
            self.switch()

    def sweep(self) -> None:
        """Finalise all garbage here, where no lock is held."""
        while self.garbage:
            self.garbage.pop()()

    def wait_quiet(self) -> None:
        """Wait until no other actor can go on, but for those who wait for the same."""
        me = self._current
        if me is not None:
            me.is_listening = True
            self.wait_until(lambda: not any(map(self._can_go, self._heard())))
            me.is_listening = False

    def _heard(self) -> list[Actor]:
        return [actor for actor in self._actors if not actor.is_listening]

    # -- for what the code under test is given ---------------------------------------------

    def switch(self) -> None:
        """Go on here, or let somebody else go on first."""
        if self._current is not None:
            self._collect_some()
            self._give_turn(self._current)

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let others go on until something holds; False when the time-out came first."""
        me = self._current
        if me is None:
            if not is_ready():
                raise AssertionError("a thread outside the interleaving would block")
            return True
        me.is_ready, me.wait_s = is_ready, timeout_s
        self._give_turn(me)
        return not me.is_told

    def trace_here(self) -> None:
        """Let the calling thread lose its turn at lines too."""
        if self._lines:
            sys.settrace(self._trace)

    def me(self) -> Any:
        """Give the actor that runs."""
        return self._current or threading.current_thread()

    def pass_on(self) -> None:
        """Give the turn away for good."""
        following = self._choose(None)
        self._current = following
        if following is None:
            self._all_ended.release()
        else:
            following.turn.release()

    # -- inside --------------------------------------------------------------------------

    def _give_turn(self, me: Actor) -> None:
        self._check(me)
        self.turns += 1
        if self.turns > MOST_TURNS and self.failure is None:
            self.failure = DeadlockError(f"still going after {self.turns} turns: {self._actors}")
        following = self._choose(me)
        if following is not me:
            assert following is not None
            self._current = following
            following.turn.release()
            me.turn.acquire()
        self._check(me)

    def _check(self, me: Actor) -> None:
        if self.failure is not None:
            me.is_ready = None
            raise Ended

    def _choose(self, me: Actor | None) -> Actor | None:
        """Choose who goes on, and end its wait."""
        left = [actor for actor in self._actors if not actor.is_ended]
        if self.failure is not None:
            return me if me in left else left[0] if left else None
        able = [actor for actor in left if self._can_go(actor)]
        if me in able and self.rng.random() < self._keep_share:
            able = [me]
        short = [actor for actor in left if actor.wait_s is not None and actor.wait_s < SHORT_S]
        if short and (not able or self.rng.random() < 0.02):
            return self._time_out(self.rng.choice(short))
        if able:
            return self._resume(self.rng.choices(able, [actor.weight for actor in able])[0], False)
        timed = [actor for actor in left if actor.wait_s is not None]
        if timed:
            return self._time_out(min(timed, key=lambda actor: actor.wait_s or 0.0))
        if not left:
            return None
        self.failure = DeadlockError(f"nobody can go on: {left}")
        return me if me in left else left[0]

    def _time_out(self, actor: Actor) -> Actor:
        if self._can_go(actor):
            return self._resume(actor, False)
        self.now_s += actor.wait_s or 0.0
        return self._resume(actor, True)

    def _resume(self, actor: Actor, is_told: bool) -> Actor:
        actor.is_ready, actor.wait_s, actor.is_told = None, None, is_told
        return actor

    def _can_go(self, actor: Actor) -> bool:
        return not actor.is_ended and (actor.is_ready is None or actor.is_ready())

    def _collect_some(self) -> None:
        if self.garbage and not self._is_sweeping and self.rng.random() < 0.2:
            self._is_sweeping = True
            try:
                self.garbage.pop(self.rng.randrange(len(self.garbage)))()
            finally:
                self._is_sweeping = False

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._trace_line if frame.f_code.co_filename.endswith(self._lines) else None

    def _trace_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and self.rng.random() < self._line_share:
            self.switch()
        return self._trace_line
