"""A dataset as each thread and each loop has it open."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import torch

from headrace.datasets.foreign import ThreadCopies


class OpenedDataset:
    """Opens a dataset once per thread and once per loop, and closes what it opened.

    Args:
        dataset: The dataset.
        copies: Gives each thread its own copy of a foreign dataset that is not safe to share;
            None where all threads use the one object.
    """

    def __init__(self, dataset: Any, copies: ThreadCopies | None) -> None:
        self.dataset = dataset
        self._copies = copies
        self._here = threading.local()
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._opening: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._opening = weakref.WeakKeyDictionary()

    def here(self) -> Any:
        """Give the dataset for the calling thread, opened."""
        mine = getattr(self._here, "dataset", None)
        if mine is None:
            mine = self.dataset if self._copies is None else self._copies.for_thread()
            opener = getattr(mine, "thread_open", None)
            if opener is not None:
                opener()
            self._here.dataset = mine
        return mine

    def open_here(self) -> None:
        """Open the dataset for the calling thread."""
        self.here()

    def open_on_reader(self) -> None:
        """Do as `open_here`, on a thread of ours."""
        use_one_torch_thread()
        self.here()

    def close_here(self) -> None:
        """Close what the calling thread opened."""
        mine = getattr(self._here, "dataset", None)
        if mine is not None:
            self._here.dataset = None
            closer = getattr(mine, "thread_close", None)
            if closer is not None:
                closer()

    async def open_loop(self) -> None:
        """Open the dataset for the running loop, once."""
        loop = asyncio.get_running_loop()
        if loop in self._loops:
            return
        async with self._opening.setdefault(loop, asyncio.Lock()):
            if loop not in self._loops:
                opener = getattr(self.dataset, "open", None)
                if asyncio.iscoroutinefunction(opener):
                    await opener()
                self._loops.add(loop)
                # A lock that was waited for holds its loop, and would keep it alive here.
                self._opening.pop(loop, None)

    async def close_loop(self) -> None:
        """Close what was opened for the running loop."""
        loop = asyncio.get_running_loop()
        if loop in self._loops:
            self._loops.discard(loop)
            closer = getattr(self.dataset, "aclose", None)
            if asyncio.iscoroutinefunction(closer):
                await closer()


def use_one_torch_thread() -> None:
    """Have torch use the calling thread alone (a setting of the thread), as readers must.

    On few cores torch's threads would fight with the training step's for every small copy.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
