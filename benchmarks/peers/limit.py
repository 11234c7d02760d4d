"""The machine's limit: a C loop into memory that is used again, with nothing around it.

Where there is no C compiler the strong numpy gather stands in. It does so for J too: decoding is
the work of a C library, and what Python adds to a picture is a few microseconds of 1.5 ms.
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
from typing import Any

from numpy.typing import NDArray
from workload import Blocks, Columns, Rows, Workload, as_columns
from workloads.images import Images
from workloads.sequences import Sequences
from workloads.tokens import Tokens
from workloads.vectors import Vectors

from peers.peer import EpochOrder, Peer

Gather = Callable[[Rows, Blocks], Columns]
"""As `Workload.gather_into`, but of any number of batches: each overwrites the one before."""

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


def compiled_gather(workload: Workload) -> Gather | None:
    """Give the C loop of a workload, or None where there is none. Calls release the GIL."""
    native = library()
    maker = MAKERS.get(workload.name)
    return None if native is None or maker is None else maker(native, workload)


def _tokens_gather(native: ctypes.CDLL, workload: Tokens) -> Gather:
    pointers = [shard.ctypes.data for shard in workload.tokens]
    shards = (ctypes.c_void_p * len(pointers))(*pointers)
    sizes = (workload.batch_rows, workload.windows, workload.seq_len)
    call = _typed(native.gather_tokens, 2, 4, 2)

    def gather(rows: Rows, out: Blocks) -> Columns:
        call(shards, _at(rows), len(rows), *sizes, *map(_at, out))
        return as_columns(out)

    return gather


def _vectors_gather(native: ctypes.CDLL, workload: Vectors) -> Gather:
    values = _at(workload.values)
    sizes = (workload.batch_rows, workload.width * workload.values.itemsize)
    call = _typed(native.gather_vectors, 2, 3, 1)

    def gather(rows: Rows, out: Blocks) -> Columns:
        call(values, _at(rows), len(rows), *sizes, _at(out[0]))
        return as_columns(out)

    return gather


def _images_gather(native: ctypes.CDLL, workload: Images) -> Gather:
    data = (_at(workload.images), _at(workload.labels))
    sizes = (workload.batch_rows, workload.images[0].nbytes)
    call = _typed(native.gather_images, 3, 3, 2)

    def gather(rows: Rows, out: Blocks) -> Columns:
        call(*data, _at(rows), len(rows), *sizes, *map(_at, out))
        return as_columns(out)

    return gather


def _sequences_gather(native: ctypes.CDLL, workload: Sequences) -> Gather:
    data = (_at(workload.flat), _at(workload.offsets))
    call = _typed(native.gather_sequences, 3, 2, 3)
    call.restype = ctypes.c_int64

    def gather(rows: Rows, out: Blocks) -> Columns:
        width = call(*data, _at(rows), len(rows), workload.batch_rows, *map(_at, out))
        shape = (workload.batch_rows, width)
        values, mask = (out[at][: workload.batch_rows * width].reshape(shape) for at in (0, 2))
        return as_columns((values, out[1], mask))

    return gather


MAKERS: dict[str, Callable[[ctypes.CDLL, Any], Gather]] = {
    "T": _tokens_gather,
    "S": _vectors_gather,
    "R": _images_gather,
    "V": _sequences_gather,
}


def _at(array: NDArray[Any]) -> int:
    return array.ctypes.data


def _typed(call: Any, *runs: int) -> Any:
    """Say what a C function takes: runs of pointers, of numbers, and of pointers again."""
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    call.argtypes = [kind for kind, count in zip(kinds, runs, strict=True) for _ in range(count)]
    call.restype = None
    return call


class OneCore(Peer):
    """The C loop, on the calling thread."""

    recycles = True
    threads = 1

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        self.order = EpochOrder(workload, seed)
        compiled = compiled_gather(workload)
        self._gather = compiled or workload.gather_into
        self._batches_per_call = BATCHES_PER_CALL if compiled else 1

    def batches(self, epochs: int) -> Iterator[Columns]:
        block = self.workload.new_blocks()
        for step in range(epochs * self.workload.steps):
            yield self._gather(self.order.rows(step), block)

    def free_run(self, seconds: float) -> tuple[int, float]:
        """Gather on all threads at once, without handing anything over.

        Returns:
            Samples gathered, and seconds that passed.
        """
        done = [0] * self.threads
        start = perf_counter()

        def spin(number: int) -> None:
            block, call = self.workload.new_blocks(), number
            while perf_counter() - start < seconds:
                rows = self._rows_of_call(call)
                self._gather(rows, block)
                done[number] += len(rows)
                call += self.threads

        threads = [threading.Thread(target=spin, args=(n,)) for n in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done), perf_counter() - start

    def _rows_of_call(self, call: int) -> Rows:
        size, steps, batches = self.workload.batch_rows, self.workload.steps, self._batches_per_call
        inner = call * batches % max(1, steps - batches + 1)
        return self.order.epoch(0)[inner * size : (inner + batches) * size]


class TwoCores(OneCore):
    """The C loop on two threads, each with memory of its own and no order between them."""

    threads = 2
