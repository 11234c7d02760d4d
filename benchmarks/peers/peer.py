"""The contract of a peer: one loader, one configuration, fed with one workload."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
from workload import Columns, Rows, Workload

Take = Callable[[Columns], bool]
"""What is done with each batch; True ends the run."""


class Peer(ABC):
    """One loader over one workload.

    Duties of an implementation:
        - The constructor does all that a user's program would do before its loop, including
          opening the data. The library is imported by the module, before.
        - Every epoch delivers every row once, shuffled (over all rows where `is_global`), in
          another order than the epoch before.
        - Columns are as `Workload.expected` gives them. Unless `recycles`, they may be kept.
        - The loader is set up as well as its documentation allows: the gather of a whole batch
          is the same function for all.

    Attributes:
        recycles: Whether a batch is overwritten once the next ones are taken.
        can_resume: Whether `state` and `restore` are there.
        is_global: Whether a batch may hold any rows of the data; else it is shuffled in parts.
    """

    recycles: ClassVar[bool] = False
    can_resume: ClassVar[bool] = False
    is_global: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, workload: Workload, seed: int) -> None: ...

    @classmethod
    def prepare(cls, workload: Workload) -> None:
        """Bring the data into the form that the library wants, once. Not measured."""

    @abstractmethod
    def batches(self, epochs: int) -> Iterator[Columns]:
        """Give the batches of some epochs, from the first or from the restored place on."""

    def feed(self, epochs: int, take: Take) -> None:
        """Hand the batches of some epochs to `take`, until it has had enough.

        Nothing of the run goes on after this returns.
        """
        for columns in self.batches(epochs):
            if take(columns):
                break

    def state(self) -> bytes:
        """Give the place after the batch just taken. Called from within `take`."""
        raise NotImplementedError(type(self).__name__)

    def restore(self, state: bytes) -> None:
        """Make the next `feed` begin at the place of a state."""
        raise NotImplementedError(type(self).__name__)

    def declared_bytes(self) -> int | None:
        """Give the most memory that the loader says it takes; None when it says nothing."""
        return None

    def blocks_made(self) -> int | None:
        """Count the pieces of host memory made so far that are used again; None if it does not."""
        return None

    def close(self) -> None:
        """End all that the loader started."""


class EpochOrder:
    """The order that peers without a fast one of their own are given: a numpy permutation.

    Safe from several threads: an epoch's order is made by whoever needs it first, and the last
    two are kept, since threads ahead of the loop cross the end of an epoch before it does.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.seed = seed
        self._lock = threading.Lock()
        self._orders: dict[int, Rows] = {}

    def rows(self, step: int) -> Rows:
        """Give the row numbers of a step, counted over all epochs."""
        epoch, inner = divmod(step, self.workload.steps)
        size = self.workload.batch_rows
        return self.epoch(epoch)[inner * size : (inner + 1) * size]

    def epoch(self, epoch: int) -> Rows:
        """Give the row numbers of a whole epoch."""
        order = self._orders.get(epoch)
        return self._make(epoch) if order is None else order

    def _make(self, epoch: int) -> Rows:
        with self._lock:
            if epoch not in self._orders:
                rng = np.random.default_rng([self.seed, epoch])
                self._orders.pop(epoch - 2, None)
                self._orders[epoch] = rng.permutation(self.workload.rows)
            return self._orders[epoch]
