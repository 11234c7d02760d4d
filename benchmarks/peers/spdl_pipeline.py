"""SPDL: a pipeline of index batches and a gather on its threads."""

from __future__ import annotations

from collections.abc import Iterator

from spdl.pipeline import PipelineBuilder
from workload import Columns, Rows, Workload

from peers.peer import EpochOrder, Peer


class OneThread(Peer):
    """One thread gathers; eight batches wait in the sink."""

    threads = 1

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.order = EpochOrder(workload, seed)

    def batches(self, epochs: int) -> Iterator[Columns]:
        steps = range(epochs * self.workload.steps)
        builder: PipelineBuilder[Rows, Columns] = PipelineBuilder()
        pipeline = (
            builder.add_source(map(self.order.rows, steps))
            # Its types take a tuple of columns for a sequence to index.
            .pipe(self.workload.gather, concurrency=self.threads, output_order="input")  # type: ignore[arg-type]
            .add_sink(8)
            .build(num_threads=self.threads)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)


class TwoThreads(OneThread):
    """Two threads gather."""

    threads = 2
