"""The engine of one iterator of the second door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.assemble import RING_BYTES
from headrace.budget import process_budget
from headrace.build.bad_samples import BadSamplePolicy
from headrace.build.builder import Builder, Finish, Hop
from headrace.config import MAX_PREFETCH, MAX_WORKERS
from headrace.datasets.foreign import ThreadCopies
from headrace.engine import Engine, Settings
from headrace.inline import InlineRun
from headrace.reader import Run
from headrace.torch.draws import DrawnSteps, Keys
from headrace.torch.fetch import FetchBuilder
from headrace.torch.pinning import pinning
from headrace.torch.process_generators import kept_from_init
from headrace.torch.reader_threads import NumberedThreads, Subject
from headrace.torch.tensor_rows import TensorRows
from headrace.torch.worker_info import install

if TYPE_CHECKING:
    from headrace.torch.loader import DataLoader


class Reading:
    """What reads for one iterator: engine, threads, and the keys to be fetched.

    The copies for reader threads are taken here, of the dataset as it is now.

    Args:
        loader: Whose arguments count, as they are now.
        keys: What each step fetches.
        base_seed: Seed that the first pass drew.

    Attributes:
        engine: Reads steps.
        threads: How reader threads open the dataset.
        ahead_steps: Steps whose keys are drawn before the next one is taken; 0 without threads.
    """

    def __init__(self, loader: DataLoader[Any], keys: Keys, base_seed: int) -> None:
        workers = min(loader.num_workers, MAX_WORKERS)
        subject = Subject(loader.dataset, loader.collate_fn)
        copies = ThreadCopies(subject) if workers else None
        sharing = "shared" if copies is None else copies.sharing
        workers = min(workers, 1) if sharing == "serial" else workers
        if workers:
            install()
        self._has_init = loader.worker_init_fn is not None
        self._is_begun = False
        self.ahead_steps = _ahead_steps(workers, loader.prefetch_factor)
        self.threads = NumberedThreads(
            subject,
            copies if sharing == "copies" else None,
            workers,
            loader.worker_init_fn,
            base_seed,
        )
        settings = Settings(
            workers=workers,
            prefetch=max(1, self.ahead_steps),
            ring_bytes=RING_BYTES,
            seed=base_seed,
            batch_rows=1,
            policy=BadSamplePolicy("raise", base_seed, 1),
            is_serial=sharing == "serial",
        )
        self.engine = Engine(
            subject,
            settings,
            process_budget(),
            self.threads,
            _BuilderMaker(loader, self.threads, keys),
        )

    def start(self, start: int, end: int | None) -> Run | InlineRun:
        """Read steps from `start` on; keys must be there for those that are read ahead."""
        if self._is_begun or not self._has_init:
            return self.engine.start(DrawnSteps(), slice(None), start, end)
        self._is_begun = True
        with kept_from_init():
            run = self.engine.start(DrawnSteps(), slice(None), start, end)
            self.threads.wait_begun(len(self.engine.threads()))
        return run


class _BuilderMaker:
    """Makes the builder; holds no loader, whose threads would then keep it alive."""

    def __init__(self, loader: DataLoader[Any], threads: NumberedThreads, keys: Keys) -> None:
        self._threads = threads
        self._keys = keys
        self._is_batched = loader.batch_sampler is not None
        self._rows = TensorRows(loader.dataset, loader.collate_fn) if self._is_batched else None
        self._pin = pinning(loader.pin_memory, loader.pin_memory_device)

    def __call__(self, subject: Any, finish: Finish, hop: Hop | None) -> Builder:
        return FetchBuilder(
            finish, self._threads.for_step, self._keys, self._is_batched, self._pin, self._rows
        )


def _ahead_steps(workers: int, prefetch_factor: int | None) -> int:
    return min(workers * (prefetch_factor or 1), MAX_PREFETCH)
