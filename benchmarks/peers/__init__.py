"""The loaders that are measured, by the names of the tables."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from workload import Workload

from peers.peer import Peer


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a peer is found, without importing its library.

    Attributes:
        module: Module of this package.
        adapter: Class in it.
        library: What must be installed; what "import time" imports.
        kind: Whether batches are made while the caller does something else.
        what: A few words for the table.
    """

    module: str
    adapter: str
    library: str
    kind: Literal["in process", "overlapped", "limit"]
    what: str

    def load(self) -> Callable[[Workload, int], Peer]:
        """Import the adapter and its library; the class is called with (workload, seed)."""
        adapter: Callable[[Workload, int], Peer]
        adapter = getattr(importlib.import_module(f"peers.{self.module}"), self.adapter)
        return adapter

    @property
    def is_rival(self) -> bool:
        """Whether this is a library of others, as against ours and what is written by hand."""
        return self.library not in ("headrace", "numpy")

    @property
    def is_installed(self) -> bool:
        """Whether the library is there."""
        return importlib.util.find_spec(self.library.partition(".")[0]) is not None


PEERS: dict[str, Entry] = {
    "headrace": Entry("headrace_loader", "Threaded", "headrace", "overlapped", "for, defaults"),
    "headrace-async": Entry("headrace_loader", "Awaited", "headrace", "overlapped", "async for"),
    "headrace-0": Entry("headrace_loader", "InProcess", "headrace", "in process", "workers=0"),
    "torch-0": Entry(
        "torch_dataloader", "InProcess", "torch", "in process", "DataLoader, __getitems__"
    ),
    "torch-index": Entry(
        "torch_dataloader", "IndexBatches", "torch", "in process", "DataLoader, index batches"
    ),
    "torch-2": Entry(
        "torch_dataloader", "TwoProcesses", "torch", "overlapped", "DataLoader, 2 processes"
    ),
    "stateful": Entry(
        "torchdata_stateful", "Stateful", "torchdata.stateful_dataloader", "in process", "stateful"
    ),
    "nodes-0": Entry(
        "torchdata_nodes", "InProcess", "torchdata.nodes", "in process", "nodes, Mapper"
    ),
    "nodes": Entry(
        "torchdata_nodes", "Prefetching", "torchdata.nodes", "overlapped", "nodes, defaults"
    ),
    "nodes-tuned": Entry(
        "torchdata_nodes", "Tuned", "torchdata.nodes", "overlapped", "nodes, rare snapshots"
    ),
    "spdl": Entry(
        "spdl_pipeline", "OneThread", "spdl.pipeline", "overlapped", "pipeline, 1 thread"
    ),
    "spdl-2": Entry(
        "spdl_pipeline", "TwoThreads", "spdl.pipeline", "overlapped", "pipeline, 2 threads"
    ),
    "grain-0": Entry("grain_dataset", "InProcess", "grain", "in process", "no read threads"),
    "grain": Entry("grain_dataset", "Prefetching", "grain", "overlapped", "1 prefetch thread"),
    "strong": Entry("strong", "Plain", "numpy", "in process", "by hand, batches may be kept"),
    "strong-recycled": Entry(
        "strong", "Recycled", "numpy", "in process", "by hand, batch overwritten by the next"
    ),
    "strong-ahead": Entry(
        "strong", "Ahead", "numpy", "overlapped", "by hand, one thread ahead, recycled"
    ),
    "limit-1": Entry("limit", "OneCore", "numpy", "limit", "C loop, one core, recycled"),
    "limit-2": Entry("limit", "TwoCores", "numpy", "limit", "C loop, two cores, recycled"),
}
