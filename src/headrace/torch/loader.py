"""torch's DataLoader over the engine of headrace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.utils.data

from headrace.torch.arguments import check_dataset, check_order, check_reading
from headrace.torch.one_pass import Pass
from headrace.torch.place import Place, read_place
from headrace.torch.starts import Starts

logger = logging.getLogger("headrace")

T_co = TypeVar("T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """torch's DataLoader with threads in place of worker processes, and a state.

    Arguments, defaults, order, and types of batches and errors are torch's, and it is an instance
    of torch's class, so frameworks take it for one. What differs is listed in the guide for those
    who come from torch's DataLoader.

    Each `iter(loader)` is a pass of its own, and several may be open at once. Seeds and order
    come from the same generators in the same sequence, so the batches are those of torch.

    Args:
        dataset: Map-style. Unless it is one of torch's own or says `thread_safe = True`, each
            thread gets a copy of its own when a pass begins.
        batch_size: Samples per batch; None to give them one by one, as the dataset gives them.
        shuffle: Draw a new order for each pass.
        sampler: Gives the keys of samples.
        batch_sampler: Gives the lists of keys of batches.
        num_workers: Reader threads; 0 builds batches on the calling thread.
        collate_fn: Makes a batch of a list of samples, on reader threads.
        pin_memory: Copy batches into pinned memory, on reader threads.
        drop_last: Leave out a short last batch.
        timeout: Seconds that a take waits for a batch; 0 for ever.
        worker_init_fn: Called on each reader thread with its number.
        multiprocessing_context: Checked as torch does; there are no processes, so nothing
            follows from it.
        generator: Where the order, and the seeds of threads, are drawn.
        prefetch_factor: Batches read ahead, for each thread.
        persistent_workers: Keep threads, and their copies of the dataset, between passes.
        pin_memory_device: Ignored, as by torch.
        in_order: Accepted. Batches always come in order.

    Raises:
        ConfigError: An argument is out of its range, or contradicts another.
    """

    def __init__(
        self,
        dataset: torch.utils.data.Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        check_reading(num_workers, timeout, prefetch_factor, persistent_workers)
        check_dataset(dataset)
        check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self._iterator: Pass | None  # type: ignore[assignment]
        self._place: Place | None = None
        self._saved: Place | None = None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if multiprocessing_context is not None:
            logger.info("multiprocessing_context has no effect: batches are read by threads")

    def __iter__(self) -> Pass:  # type: ignore[override]
        """Begin a pass; after `load_state_dict`, what is left of its pass, once."""
        saved = self._saved
        place = self._next_place() if saved is None else saved.another(saved.passes)
        kept = self._iterator if self.persistent_workers else None
        if kept is None or not kept.can_begin_again:
            kept = Pass(self, place, saved)
        else:
            kept.begin_again(self, place, saved)
        # Kept until here: a pass that could not begin may be tried again.
        self._saved, self._place = None, place
        self._iterator = kept if self.persistent_workers else None
        return kept

    def _get_iterator(self) -> Pass:  # type: ignore[override]
        # Torch's method of this name starts processes.
        return self.__iter__()

    def __aiter__(self) -> Pass:
        """Do as `__iter__`, for `async for`."""
        return self.__iter__()

    @property
    def passes(self) -> int:
        """How many passes come before the one that `iter` begins, or goes on with after a load.

        A loop over epochs that may be resumed runs over `range(loader.passes, epochs)`.
        """
        return (self._saved or self._next_place()).passes

    def state_dict(self) -> dict[str, Any]:
        """Give where the pass begun last stands, as plain JSON; from any thread.

        It tells what was taken, not what was read ahead. Once the last batch of a pass has been
        taken, it tells of the next pass; `passes` is then one more.
        """
        place = self._saved or self._place
        if place is None or place.is_complete:
            place = self._next_place()
            place.own = Starts(self.generator, self._index_sampler).read_own()
        return place.to_json(self._facts())

    def _next_place(self) -> Place:
        if self._place is None:
            return Place(seeds_once=self.persistent_workers)
        return self._place.another(self._place.passes + 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says, with the next pass that begins.

        That pass draws its keys anew from the generators as they were, and skips those taken
        without fetching their samples. The generators of the process are left as they are:
        restore them as well, if later passes are to draw what they would have drawn.

        Raises:
            StateError: The state is of another loader. What the sampler yields shows only when
                the pass begins.
        """
        self._saved = read_place(state, self._facts())

    def _facts(self) -> dict[str, Any]:
        batch_size = getattr(self.batch_sampler, "batch_size", self.batch_size)
        return {
            "samples": _length_of(self.dataset),
            "batch_size": batch_size if isinstance(batch_size, int) else None,
            "drop_last": bool(self.drop_last),
            "sampler": type(self.sampler).__name__,
            "batch_sampler": type(self.batch_sampler).__name__,
        }

    def check_worker_number_rationality(self) -> None:
        """Warn of nothing: threads cost little, and more than cores hide waiting."""

    def __getstate__(self) -> dict[str, Any]:
        """A pickle carries the configuration: no pass is under way."""
        return {**self.__dict__, "_iterator": None, "_place": None, "_saved": None}


def _length_of(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
