"""What user code can ask about the reader thread that it runs on."""

from __future__ import annotations

import random
import sys
import threading
import warnings
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info as get_worker_info  # the one function, see `install`
from torch.utils.data._utils.collate import collate_tensor_fn

_here = threading.local()
_installing = threading.Lock()


class StepRng:
    """Generators of one reader thread, made when first asked for and seeded for each batch.

    What they draw depends on the batch alone: not on the thread that builds it, nor on their
    number. A generator may be kept; it is seeded where it is.

    Attributes:
        seed: Seed of the batch being built.
    """

    def __init__(self) -> None:
        self.seed = 0

    def begin(self, seed: int) -> None:
        """Seed those that were made for a batch."""
        self.seed = seed
        made = self.__dict__
        if "random_generator" in made:
            self.random_generator.seed(seed)
        if "torch_generator" in made:
            self.torch_generator.manual_seed(seed)
        if "numpy_generator" in made:
            self.numpy_generator.bit_generator.state = np.random.PCG64(seed).state

    @cached_property
    def random_generator(self) -> random.Random:
        """Python's."""
        return random.Random(self.seed)

    @cached_property
    def torch_generator(self) -> torch.Generator:
        """Torch's; `torch.thread_safe_generator()` gives this one."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def numpy_generator(self) -> np.random.Generator:
        """Numpy's."""
        return np.random.Generator(np.random.PCG64(self.seed))


class WorkerInfo:
    """A reader thread as torch tells of its workers.

    Attributes:
        id: Number of the thread, from 0.
        num_workers: How many there are.
        seed: Base seed of the pass, plus `id`.
        dataset: The dataset as this thread has it, a copy unless it is safe to share.
        rng: Generators of this thread.
        worker_method: "thread".
    """

    worker_method = "thread"

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id = id
        self.num_workers = num_workers
        self.seed = seed
        self.dataset = dataset
        self.rng = StepRng()

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed})"


def put_info(info: WorkerInfo | None) -> None:
    """Say what the calling thread is."""
    _here.info = info


def install() -> None:
    """Teach torch's `get_worker_info` to look at the calling thread first. Idempotent.

    Scripts have imported the function by name before, so its code is replaced and not the name.
    In all other threads and processes it gives what torch puts there.
    """
    with _installing:
        told: Any = get_worker_info
        if told.__code__ is not _of_this_thread.__code__:
            told.__defaults__ = _of_this_thread.__defaults__
            told.__code__ = _of_this_thread.__code__
            _hear_of_read_only_arrays()


def _hear_of_read_only_arrays() -> None:
    """Have torch say, unheard, what it says once in a process of tensors over such arrays.

    Large arrays of a dataset are read-only in its copies, and samples are views of them. Torch's
    collation copies these, so what it warns of does not come about.
    """
    array = np.empty(1)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(array)


# Torch's own module global, where the code below runs.
_worker_info: Any = None


def _of_this_thread(
    _here: Any = _here, _stacking: Any = collate_tensor_fn.__code__, _frame: Any = sys._getframe
) -> Any:
    info = getattr(_here, "info", None)
    if info is None:
        return _worker_info
    # Torch's collation stacks into shared memory where it runs in a worker process. A thread
    # has no use for that: it costs a file and several system calls for each tensor.
    return None if _frame(1).f_code is _stacking else info
