"""The machine's limit: a C loop into memory that is used again, with nothing around it.

Where there is no C compiler the strong numpy gather stands in, and `is_compiled` says so.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from workload import Blocks, Columns, Rows, Tokens, Vectors, Workload, as_columns

from peers.peer import EpochOrder, Peer

Gather = Callable[[Rows, Blocks], None]

# Batches per call of the free run: the call from Python then costs under 1 %.
BATCHES_PER_CALL = 32


@functools.cache
def library() -> ctypes.CDLL | None:
    """Compile and load `limit.c`; None where there is no compiler."""
    named = (sysconfig.get_config_var("CC") or "cc").split()[0]
    compiler = shutil.which(named) or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source = Path(__file__).with_name("limit.c")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "limit.so"
        flags = ["-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", target, source], check=True)
        return ctypes.CDLL(str(target))


def compiled_gather(workload: Workload) -> Gather:
    """Give the C loop of a workload. Calls release the GIL."""
    native = library()
    if native is None:
        return workload.gather_into
    if isinstance(workload, Tokens):
        return _tokens_gather(native, workload)
    assert isinstance(workload, Vectors)
    return _vectors_gather(native, workload)


def _tokens_gather(native: ctypes.CDLL, workload: Tokens) -> Gather:
    pointers = [shard.ctypes.data for shard in workload.tokens]
    shards = (ctypes.c_void_p * len(pointers))(*pointers)
    call = native.gather_tokens
    call.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4 + [ctypes.c_void_p] * 2
    call.restype = None
    sizes = (workload.batch_rows, workload.windows, workload.seq_len)

    def gather(rows: Rows, out: Blocks) -> None:
        call(shards, rows.ctypes.data, len(rows), *sizes, *(b.ctypes.data for b in out))

    return gather


def _vectors_gather(native: ctypes.CDLL, workload: Vectors) -> Gather:
    values = workload.values.ctypes.data
    call = native.gather_vectors
    call.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    call.restype = None
    sizes = (workload.batch_rows, workload.width * workload.values.itemsize)

    def gather(rows: Rows, out: Blocks) -> None:
        call(values, rows.ctypes.data, len(rows), *sizes, out[0].ctypes.data)

    return gather


class OneCore(Peer):
    """The C loop, on the calling thread."""

    recycles = True
    threads = 1

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.order = EpochOrder(workload, seed)
        self.is_compiled = library() is not None
        self._gather = compiled_gather(workload)

    def batches(self, epochs: int) -> Iterator[Columns]:
        block = self.workload.new_blocks()
        for step in range(epochs * self.workload.steps):
            self._gather(self.order.rows(step), block)
            yield as_columns(block)

    def free_run(self, seconds: float) -> tuple[int, float]:
        """Gather on all threads at once, without handing anything over.

        Returns:
            Samples gathered, and seconds that passed.
        """
        done = [0] * self.threads
        start = perf_counter()

        def spin(number: int) -> None:
            block, step = self.workload.new_blocks(), number * BATCHES_PER_CALL
            while perf_counter() - start < seconds:
                rows = self._rows_of_call(step)
                self._gather(rows, block) if self.is_compiled else self._slowly(rows, block)
                done[number] += len(rows)
                step += self.threads * BATCHES_PER_CALL

        threads = [threading.Thread(target=spin, args=(n,)) for n in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done), perf_counter() - start

    def _rows_of_call(self, step: int) -> Rows:
        size, steps = self.workload.batch_rows, self.workload.steps
        inner = step % max(1, steps - BATCHES_PER_CALL + 1)
        order = self.order.epoch(0)
        return order[inner * size : (inner + BATCHES_PER_CALL) * size]

    def _slowly(self, rows: Rows, block: Blocks) -> None:
        size = self.workload.batch_rows
        for start in range(0, len(rows), size):
            self._gather(rows[start : start + size], block)


class TwoCores(OneCore):
    """The C loop on two threads, each with memory of its own and no order between them."""

    threads = 2
