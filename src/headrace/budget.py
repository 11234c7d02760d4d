"""The budget: how many bytes of host memory all loaders of this process hold together."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.errors import ClosedError, ConfigError
from headrace.host_memory import available_bytes
from headrace.threads import at_fork

MAX_USAGE = 0.90
DEFAULT_USAGE = 0.50
# While samples are kept in RAM too, a deeper ring would only take memory from them.
CACHED_RING_SLOTS = 8
# For a machine whose memory cannot be measured.
UNMEASURED_RING_SLOTS = 4


def clamp_usage(usage: float, knob: str = "ram_max_usage") -> float:
    """Give a share of memory, moved into `[0.0, 0.90]`.

    Raises:
        ConfigError: It is not a number.
    """
    if isinstance(usage, bool) or not isinstance(usage, (int, float)) or math.isnan(usage):
        raise ConfigError(knob, f"a share from 0.0 to {MAX_USAGE}", usage)
    return min(max(float(usage), 0.0), MAX_USAGE)


def room_bytes(available: int, held: int, local_ranks: int = 1) -> int:
    """Give the bytes that one rank could hold in all, of which its budget is a share.

    What is held is added back, so a budget taken again while it is in use comes out the same.
    Ranks on one machine are alike: each has its part of what is available, and holds its own.
    """
    return available // local_ranks + held


def host_budget_bytes(usage: float, available: int, held: int, local_ranks: int = 1) -> int:
    """Give the bytes that ring and sample cache of one rank may hold together.

    Args:
        usage: The knob ram_max_usage, clamped here.
        available: Bytes that the machine or its control group can still give.
        held: Bytes that this process holds of its budget.
        local_ranks: Ranks that share the machine.
    """
    return int(clamp_usage(usage) * room_bytes(available, held, local_ranks))


def ring_slots(
    budget_bytes: int | None,
    batch_bytes: int,
    epoch_batches: int | None = None,
    is_caching: bool = False,
) -> int:
    """Give the number of batches in a ring; 0 means none, reading and moving in one stage.

    Args:
        budget_bytes: What the ring may hold; None where memory cannot be measured.
        batch_bytes: Bytes of one batch.
        epoch_batches: Batches of an epoch, which is all that a ring can use; None if unknown.
        is_caching: Whether samples are kept in RAM between epochs.
    """
    if budget_bytes is None:
        slots = UNMEASURED_RING_SLOTS
    else:
        slots = budget_bytes // max(1, batch_bytes)
    if epoch_batches is not None:
        slots = min(slots, epoch_batches)
    return min(slots, CACHED_RING_SLOTS) if is_caching else slots


def local_ranks(environ: Mapping[str, str] = os.environ) -> int:
    """Give the ranks on this machine, from LOCAL_WORLD_SIZE; 1 without it.

    Raises:
        ConfigError: The variable is not a positive number.
    """
    text = environ.get("LOCAL_WORLD_SIZE", "1")
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError("LOCAL_WORLD_SIZE", "the number of ranks on this machine", text)
    return int(text)


@dataclass(slots=True, eq=False)
class _Account:
    """What one share holds. Changed only under the lock of its budget."""

    name: str
    floor_bytes: int
    usage: float
    taken_bytes: int = 0
    is_open: bool = True


class Share:
    """What one ring or tier draws from the budget. Safe from any thread.

    A share that is dropped without `close` gives everything back.
    """

    def __init__(self, budget: Budget, account: _Account) -> None:
        self._budget = budget
        self._account = account

    @property
    def taken_bytes(self) -> int:
        """Bytes that this share holds."""
        return self._account.taken_bytes

    def try_take(self, nbytes: int) -> bool:
        """Take bytes if they fit, or say that they do not.

        They fit if the share stays within its floor, or all shares together stay within this
        one's part of memory. So what others leave unused may be taken, in whatever order
        shares were opened.

        Raises:
            ClosedError: The share is closed.
        """
        return self._budget._try_take(self._account, nbytes)

    def take_forced(self, nbytes: int) -> None:
        """Take bytes that are needed for progress, whether they fit or not.

        Raises:
            ClosedError: The share is closed.
        """
        self._budget._take_forced(self._account, nbytes)

    def give_back(self, nbytes: int) -> None:
        """Return bytes; after `close`, which returned all, this does nothing.

        Raises:
            ValueError: More than is held.
        """
        self._budget._give_back(self._account, nbytes)

    def set_floor(self, floor_bytes: int) -> None:
        """Change what this share may always hold, once the size of a step is known better."""
        self._budget._set_floor(self._account, floor_bytes)

    def close(self) -> None:
        """Return all bytes and take no more. May be called again."""
        self._budget._close(self._account)

    def __repr__(self) -> str:
        account = self._account
        return f"Share({account.name!r}, {account.taken_bytes} bytes)"

    def __del__(self) -> None:
        # In any thread, under any lock: only noted here, and settled by the next call. An
        # interrupted constructor leaves no attribute.
        if hasattr(self, "_account"):
            self._budget._dropped.append(self._account)


class Budget:
    """Bytes that all rings and tiers of a process hold together. Safe from any thread.

    Memory is measured at the first share and whenever `refresh` is called, never per take.
    """

    def __init__(
        self, measure: Callable[[], int | None] = available_bytes, local_ranks: int = 1
    ) -> None:
        """Prepare; nothing is measured.

        Args:
            measure: Gives the bytes that the machine can still give, None if it cannot tell.
            local_ranks: Ranks that share the machine.
        """
        self._measure = measure
        self._local_ranks = local_ranks
        self._lock = threading.Lock()
        self._dropped: deque[_Account] = deque()
        self._is_measured = False
        self._room: int | None = None
        self._shares = 0
        self._taken = 0
        self._peak = 0
        self._forced = 0
        self._forced_bytes = 0

    @property
    def room_bytes(self) -> int | None:
        """Bytes that this process could hold in all, as last measured; None if unknown."""
        return self._room

    @property
    def taken_bytes(self) -> int:
        """Bytes that all shares hold."""
        with self._lock:
            self._settle()
            return self._taken

    def total_bytes(self, usage: float = DEFAULT_USAGE) -> int | None:
        """Give the bytes that all shares may hold together as far as one of this usage goes."""
        return None if self._room is None else int(clamp_usage(usage) * self._room)

    def refresh(self) -> None:
        """Measure memory again; what is held is added back."""
        available = self._measure()
        with self._lock:
            self._settle()
            self._is_measured = True
            self._room = (
                None if available is None else room_bytes(available, self._taken, self._local_ranks)
            )

    def open_share(
        self, name: str, floor_bytes: int, ram_max_usage: float = DEFAULT_USAGE
    ) -> Share:
        """Open a share to draw from.

        Args:
            name: For messages.
            floor_bytes: What it may always hold, two steps of a ring, whatever others hold.
            ram_max_usage: Up to which part of memory, counted over all shares, it may take.

        Raises:
            ConfigError: A value that cannot work.
        """
        if floor_bytes < 0:
            raise ConfigError("floor_bytes", "0 or more", floor_bytes)
        account = _Account(name, floor_bytes, clamp_usage(ram_max_usage))
        if not self._is_measured:
            self.refresh()
        with self._lock:
            self._settle()
            self._shares += 1
        return Share(self, account)

    def stats(self) -> dict[str, int]:
        """Give counters: bytes measured, held and held at most; takes forced over the bound."""
        with self._lock:
            self._settle()
            return {
                "budget_room_bytes": -1 if self._room is None else self._room,
                "budget_shares": self._shares,
                "budget_taken_bytes": self._taken,
                "budget_peak_bytes": self._peak,
                "budget_forced": self._forced,
                "budget_forced_bytes": self._forced_bytes,
            }

    def _try_take(self, account: _Account, nbytes: int) -> bool:
        with self._lock:
            self._settle()
            if not self._fits(account, nbytes):
                return False
            self._add(account, nbytes)
            return True

    def _take_forced(self, account: _Account, nbytes: int) -> None:
        with self._lock:
            self._settle()
            if not self._fits(account, nbytes):
                self._forced += 1
                self._forced_bytes += nbytes
            self._add(account, nbytes)

    def _fits(self, account: _Account, nbytes: int) -> bool:
        if not account.is_open:
            raise ClosedError(f"the share {account.name!r} of the budget is closed")
        if nbytes < 0:
            raise ValueError(f"the share {account.name!r} cannot take {nbytes} bytes")
        if self._room is None or account.taken_bytes + nbytes <= account.floor_bytes:
            return True
        return self._taken + nbytes <= int(account.usage * self._room)

    def _add(self, account: _Account, nbytes: int) -> None:
        account.taken_bytes += nbytes
        self._taken += nbytes
        self._peak = max(self._peak, self._taken)

    def _give_back(self, account: _Account, nbytes: int) -> None:
        with self._lock:
            if not account.is_open:
                return
            if not 0 <= nbytes <= account.taken_bytes:
                raise ValueError(
                    f"the share {account.name!r} holds {account.taken_bytes} bytes "
                    f"and cannot give back {nbytes}"
                )
            account.taken_bytes -= nbytes
            self._taken -= nbytes

    def _set_floor(self, account: _Account, floor_bytes: int) -> None:
        if floor_bytes < 0:
            raise ConfigError("floor_bytes", "0 or more", floor_bytes)
        with self._lock:
            account.floor_bytes = floor_bytes

    def _close(self, account: _Account) -> None:
        with self._lock:
            self._return_all(account)

    def _settle(self) -> None:
        """Take back what shares held that were dropped unclosed."""
        while self._dropped:
            self._return_all(self._dropped.popleft())

    def _return_all(self, account: _Account) -> None:
        if account.is_open:
            account.is_open = False
            self._shares -= 1
            self._taken -= account.taken_bytes
            account.taken_bytes = 0


_process_lock = threading.Lock()
_process: Budget | None = None


def process_budget() -> Budget:
    """Give the one budget of this process; a forked child has its own, in which nothing is held.

    Raises:
        ConfigError: LOCAL_WORLD_SIZE is not a positive number.
    """
    global _process
    with _process_lock:
        if _process is None:
            _process = Budget(available_bytes, local_ranks())
        return _process


def _reset_child() -> None:
    global _process_lock, _process
    _process_lock = threading.Lock()
    _process = None


at_fork(_reset_child)
