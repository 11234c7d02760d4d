"""Reader threads in the role of torch's workers: numbered, told so, with copies of their own."""

from __future__ import annotations

import itertools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from headrace.build.calls import Raised, attempt
from headrace.build.opened import OpenedDataset, use_one_torch_thread
from headrace.datasets.adapt import is_safe
from headrace.datasets.dataset import BatchDataset, BulkDataset, Dataset
from headrace.datasets.foreign import Shared, ThreadCopies, can_share
from headrace.datasets.row_samples import BlockingRowSamples
from headrace.errors import WorkerFailedError
from headrace.rng import Stream, derive
from headrace.torch.worker_info import WorkerInfo, put_info

_OURS = (BulkDataset, BatchDataset, Dataset)
# Indexing them changes nothing.
_ARRAYS = (np.ndarray, np.memmap, torch.Tensor)


class Subject:
    """A user's dataset and collate function, which one thread uses at a time.

    They are copied together, so that a collate function that is bound to the dataset, or shares
    a tokenizer with it, meets the copy of the same thread.

    Attributes:
        collate: The collate function.
        thread_safe: Whether all threads may use this one object.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any]) -> None:
        is_code = isinstance(collate, types.FunctionType) and not collate.__closure__
        is_ours = isinstance(dataset, _OURS) and can_share(dataset)
        is_shared = is_ours or is_safe(dataset) or type(dataset) in _ARRAYS
        self._held = Shared(dataset) if is_shared else dataset
        self.collate = collate
        self.thread_safe = is_shared and is_code

    @property
    def dataset(self) -> Any:
        """The dataset."""
        return self._held.value if isinstance(self._held, Shared) else self._held

    def samples(self) -> Any:
        """Give what has the samples by key: the dataset, or the rows of a bulk one."""
        dataset = self.dataset
        return BlockingRowSamples(dataset) if isinstance(dataset, BulkDataset) else dataset

    def thread_open(self) -> None:
        """Open the dataset for the calling thread, where it wants to know."""
        _call(self.dataset, "thread_open")

    def thread_close(self) -> None:
        """Close it for the calling thread."""
        _call(self.dataset, "thread_close")

    def __repr__(self) -> str:
        return type(self.dataset).__name__


def _call(dataset: Any, name: str) -> None:
    method = getattr(dataset, name, None)
    if callable(method):
        method()


class NumberedThreads(OpenedDataset):
    """Opens a subject for each reader thread as torch starts a worker.

    Args:
        subject: Dataset and collate function.
        copies: Gives each thread its own; None where they share.
        num_workers: How many threads there are.
        init: The user's `worker_init_fn`.
        base_seed: Drawn at the start of the first pass.
    """

    def __init__(
        self,
        subject: Subject,
        copies: ThreadCopies | None,
        num_workers: int,
        init: Callable[[int], Any] | None,
        base_seed: int,
    ) -> None:
        super().__init__(subject, copies)
        self._num_workers = num_workers
        self._init = init
        self._base_seed = base_seed
        self._numbers = itertools.count()
        self._mine = threading.local()
        self._changed = threading.Condition()
        self._begun = 0
        self._place_of_pass = (base_seed, 0, 0)

    def begin_pass(self, base_seed: int, number: int, first_step: int) -> None:
        """Say which pass is read from here on, for the seeds of its batches."""
        self._place_of_pass = (base_seed, number, first_step)

    def for_step(self, step: int) -> Subject:
        """Give the subject of the calling thread, whose generators are seeded for a step.

        Raises:
            Exception: What `worker_init_fn`, or the copy, raised on this thread.
        """
        failure = getattr(self._mine, "failure", None)
        if failure is not None:
            # Once: its traceback will hold the pass, which this object must not keep alive.
            self._mine.failure = WorkerFailedError(f"{type(failure).__name__}: {failure}")
            raise failure
        subject: Subject = self.here()
        info = getattr(self._mine, "info", None)
        if info is not None:
            seed, number, first_step = self._place_of_pass
            info.rng.begin(derive(seed, number, step - first_step, 0, Stream.AUGMENTATION))
        return subject

    def open_on_reader(self) -> None:
        """Make the calling thread a worker; an error of user code is met by its steps."""
        use_one_torch_thread()
        begun = attempt(self._begin_worker)
        if isinstance(begun, Raised):
            self._mine.failure = begun.error
        with self._changed:
            self._begun += 1
            self._changed.notify_all()

    def close_here(self) -> None:
        """Forget the calling thread's copy, so that it goes where it was made."""
        put_info(None)
        self._mine.info = None
        super().close_here()

    def wait_begun(self, threads: int) -> None:
        """Block until so many threads have become workers."""
        with self._changed:
            while self._begun < threads:
                self._changed.wait()

    def _begin_worker(self) -> None:
        id = next(self._numbers)
        subject: Subject = self.here()
        info = WorkerInfo(id, self._num_workers, self._base_seed + id, subject.dataset)
        put_info(info)
        self._mine.info = info
        if self._init is not None:
            self._init(id)
