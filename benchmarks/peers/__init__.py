"""The loaders that are measured, by the names of the tables."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peers.peer import Peer

# Libraries that would change what the others are measured with lie apart; `make bench-peers`.
ENVIRONMENTS = Path(__file__).resolve().parents[2] / ".venv-peers"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a peer is found, without importing its library.

    Attributes:
        module: Module of this package.
        adapter: Class in it.
        library: What must be installed; what "import time" imports.
        kind: Whether batches are made while the caller does something else.
        environment: Name of the virtual environment of its own; "" for none.
        workloads: The letters of those that it is set up for.
    """

    module: str
    adapter: str
    library: str
    kind: Literal["in process", "overlapped", "limit"]
    environment: str = ""
    workloads: str = "TRJSV"

    def load(self) -> type[Peer]:
        """Import the adapter and its library; the class is called with (workload, seed)."""
        adapter: type[Peer]
        adapter = getattr(importlib.import_module(f"peers.{self.module}"), self.adapter)
        return adapter

    @property
    def python(self) -> Path:
        """The interpreter that has the library."""
        if self.environment:
            return ENVIRONMENTS / self.environment / "bin" / "python"
        return Path(sys.executable)

    @property
    def is_rival(self) -> bool:
        """Whether this is a library of others, as against ours and what is written by hand."""
        return self.library not in ("headrace", "numpy")

    @property
    def is_installed(self) -> bool:
        """Whether the library is there."""
        if self.environment:
            return self.python.exists()
        return importlib.util.find_spec(self.library.partition(".")[0]) is not None


# What each set-up is, in words: docs/performance.md and the docstring of the class.
PEERS: dict[str, Entry] = {
    "headrace": Entry("headrace_loader", "Threaded", "headrace", "overlapped"),
    "headrace-async": Entry("headrace_loader", "Awaited", "headrace", "overlapped"),
    "headrace-0": Entry("headrace_loader", "InProcess", "headrace", "in process"),
    "torch-0": Entry("torch_dataloader", "InProcess", "torch", "in process"),
    "torch-index": Entry("torch_dataloader", "IndexBatches", "torch", "in process"),
    "torch-2": Entry("torch_dataloader", "TwoProcesses", "torch", "overlapped"),
    "stateful": Entry(
        "torchdata_stateful", "Stateful", "torchdata.stateful_dataloader", "in process"
    ),
    "nodes-0": Entry("torchdata_nodes", "InProcess", "torchdata.nodes", "in process"),
    "nodes": Entry("torchdata_nodes", "Prefetching", "torchdata.nodes", "overlapped"),
    "nodes-tuned": Entry("torchdata_nodes", "Tuned", "torchdata.nodes", "overlapped"),
    "nodes-2": Entry("torchdata_nodes", "TwoThreads", "torchdata.nodes", "overlapped"),
    "spdl": Entry("spdl_pipeline", "OneThread", "spdl.pipeline", "overlapped"),
    "spdl-2": Entry("spdl_pipeline", "TwoThreads", "spdl.pipeline", "overlapped"),
    "grain-0": Entry("grain_dataset", "InProcess", "grain", "in process"),
    "grain": Entry("grain_dataset", "Prefetching", "grain", "overlapped"),
    "grain-2": Entry("grain_dataset", "TwoThreads", "grain", "overlapped"),
    "litdata": Entry("litdata_chunks", "Chunks", "litdata", "overlapped", "litdata", "RJ"),
    "streaming": Entry("streaming_shards", "Shards", "streaming", "overlapped", "streaming", "RJ"),
    "webdataset": Entry("webdataset_tars", "Tars", "webdataset", "overlapped", "webdataset", "RJ"),
    "datasets": Entry("datasets_arrow", "Arrow", "datasets", "overlapped", "datasets", "JS"),
    "strong": Entry("strong", "Plain", "numpy", "in process"),
    "strong-recycled": Entry("strong", "Recycled", "numpy", "in process"),
    "strong-ahead": Entry("strong", "Ahead", "numpy", "overlapped"),
    "strong-ahead-2": Entry("strong", "AheadByTwo", "numpy", "overlapped"),
    "limit-1": Entry("limit", "OneCore", "numpy", "limit"),
    "limit-2": Entry("limit", "TwoCores", "numpy", "limit"),
}
