"""Everything that reads for one loader: builders, threads, the loop, the blocks."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from headrace.budget import Budget
from headrace.build.bad_samples import BadSamplePolicy
from headrace.build.builder import Builder, Finish, Hop, Transform
from headrace.build.built import Built
from headrace.build.bulk import BulkBuilder
from headrace.build.calls import is_awaited
from headrace.build.leased import LeasedColumns
from headrace.build.nested import NestedStates
from headrace.build.opaque import OpaqueBuilder
from headrace.build.opened import OpenedDataset, use_one_torch_thread
from headrace.build.padded import padded_builder
from headrace.build.samples import Getter, SampleBuilder, SampleTransform
from headrace.build.stateful import (
    PlannedBuilder,
    SerialBuilder,
    SkippingBuilder,
    StatefulBuilder,
    TimedBuilder,
)
from headrace.build.transformed import TransformingBuilder
from headrace.collate import Collator
from headrace.collators.padded import PadCollator
from headrace.config import MAX_PREFETCH, auto_prefetch, poisons_blocks
from headrace.datasets.dataset import BatchDataset, BulkDataset
from headrace.datasets.foreign import ThreadCopies
from headrace.datasets.row_samples import BlockingRowSamples, WaitingRowSamples
from headrace.errors import CannotStartThreadError, ClosedError, LoopRunningError
from headrace.explain import Setup
from headrace.inline import InlineRun, is_loop_running
from headrace.loop_thread import Main
from headrace.loops import Loops
from headrace.memory_estimate import MemoryFacts
from headrace.plan import Order, Plan, span_steps_for
from headrace.reader import ReaderThreads, Run, top_frames
from headrace.ring.blocks import BlockPool
from headrace.ring.grants import Grants
from headrace.ring.ring import Ring
from headrace.ring.slots import Slots
from headrace.samplers.sampler import Sampler
from headrace.stats import BuildTimes
from headrace.threads import BlockingCalls, Reaping, at_exit, exit_left_s, join_all, wait_for_daemon

T = TypeVar("T")

logger = logging.getLogger("headrace")

# How long a closing loader waits for readers that are inside a read or user code, in all.
JOIN_S = 5.0
# How long a program's end may be held up by a daemon thread in a training step of its own.
TAKER_S = 0.5
# Spans of a waiting dataset that are in flight at once share the ring among this many.
WAITING_BUILDERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the engine needs to know of a loader's knobs, checked already.

    Attributes:
        workers: Reader threads; 0 builds on the consumer's thread.
        prefetch: Steps claimed and not yet taken; None for by size.
        ring_bytes: Bytes that those steps may hold.
        seed: Seed of the loader.
        batch_rows: Rows of a full batch of this rank.
        copies: Copies of the dataset for reader threads; None where they share it.
        is_serial: Whether one thread must build step by step.
        states: The stateful user objects that builders call.
    """

    workers: int
    prefetch: int | None
    ring_bytes: int
    seed: int
    batch_rows: int
    policy: BadSamplePolicy
    names: tuple[str, ...] | None = None
    transform: Transform | None = None
    sample_transform: SampleTransform | None = None
    collate: Collator | None = None
    with_content: bool = False
    copies: ThreadCopies | None = None
    is_serial: bool = False
    states: NestedStates = field(default_factory=NestedStates)


MakeBuilder = Callable[[Any, Finish, Hop | None], Builder]


class Engine:
    """Reads steps for one loader. Threads and loop start with the first run.

    Args:
        dataset: One of the three contracts, or what `make_builder` knows to build from.
        settings: The knobs.
        budget: Where the bytes in flight come from.
        opened: How threads and loops open the dataset; None for as the settings say.
        make_builder: Makes what builds the steps; None for as the dataset's contract says.
    """

    def __init__(
        self,
        dataset: Any,
        settings: Settings,
        budget: Budget,
        opened: OpenedDataset | None = None,
        make_builder: MakeBuilder | None = None,
    ) -> None:
        self.settings = settings
        self.opened = opened or OpenedDataset(dataset, settings.copies)
        self._inner_maker = make_builder
        self.pool = BlockPool(settings.ring_bytes, poisons_blocks())
        self.times = BuildTimes()
        self.is_closed = False
        self._dataset = dataset
        self._skips: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._threads: ReaderThreads | None = None
        self._reaping = Reaping()
        threads = 1 if settings.is_serial and settings.workers else settings.workers
        self._loops = Loops(threads, self._reaping)
        self._calls = BlockingCalls(self._loops.workers, "decode", self.opened.close_here)
        self._builder = self._make_builder()
        self._share = budget.open_share("ring", 2 * self._builder.step_bytes)
        self._run: Run | InlineRun | None = None
        self.prefetch = settings.prefetch or auto_prefetch(self._builder.step_bytes)
        at_exit(self._close_at_exit)

    # -- runs ----------------------------------------------------------------------------

    def start(self, sampler: Sampler, slots: slice, start: int, end: int | None) -> Run | InlineRun:
        """Start to read steps `[start, end)`; the run before is closed."""
        self.close_run()
        builder = self._builder
        self._share.set_floor(2 * builder.step_bytes)
        if self._skips:
            builder = SkippingBuilder(builder, self._skips)
        order = Order(sampler, slots, builder.bytes_of)
        if self._loops.workers:
            try:
                return self._start_readers(self._make_run(order, builder, start, end))
            except CannotStartThreadError as error:
                self.close_run()
                self._loops.do_without_threads(error)
        steps = self._span_steps(builder)
        inline = InlineRun(order, builder, self.opened, self._loops.private, start, end, steps)
        self._become(inline)
        return inline

    def _become(self, run: Run | InlineRun) -> None:
        """Make a run the one that `stop` closes, before anything serves it."""
        with self._lock:
            if self.is_closed:
                raise ClosedError("the loader is closed")
            self._run = run

    def _start_readers(self, run: Run) -> Run:
        """Have threads or the loop serve a run."""
        self._become(run)
        self._reaping.begin()
        if self._builder.waits:
            self._serve_on_loop(run)
        else:
            self._reader_threads().serve(run)
        return run

    def _make_run(self, order: Order, builder: Builder, start: int, end: int | None) -> Run:
        slots: Slots[Built] = Slots(start, self.prefetch, MAX_PREFETCH, end)
        ring = Ring(slots, Grants(self._ring_bytes, self._share))
        return Run(ring, Plan(ring, order, self._span_steps(builder)), builder)

    def _span_steps(self, builder: Builder) -> int:
        """Give the longest span, so that every builder has its part of the read-ahead."""
        if self.settings.is_serial or not builder.joins_steps:
            return 1
        builders = WAITING_BUILDERS if builder.waits else self._loops.workers
        return span_steps_for(builder.step_bytes, self.prefetch, builders or 1)

    def _serve_on_loop(self, run: Run) -> None:
        opened, most_spans = self.opened, 1 if self.settings.is_serial else None

        async def serve() -> None:
            await opened.open_loop()
            await run.build(most_spans)

        run.cancel = self._loops.begun().start(serve, run.died)

    def close_run(self) -> None:
        """Stop the current run, if any. Does not wait."""
        run = self._run
        if run is not None:
            run.close()
            # Forgotten only once it is closed: an interrupt must not leave its readers parked.
            with self._lock:
                if self._run is run:
                    self._run = None

    def wait_idle(self) -> None:
        """Block until nothing is being built; the current run must be closed."""
        if self._threads is not None:
            self._threads.wait_idle()
        self._loops.wait_idle()

    def set_skips(self, steps: Collection[int]) -> None:
        """Do not build these steps in runs that start from here on."""
        self._skips = frozenset(steps)

    def set_prefetch(self, steps: int) -> None:
        """Move the bound on steps in flight, at once and for later runs."""
        self.prefetch = steps
        run = self._run
        if isinstance(run, Run):
            run.ring.set_prefetch(steps)

    def build_one(self, sampler: Sampler, slots: slice, step: int) -> Built:
        """Build any step, beside whatever run there is, and block for it."""
        span = Order(sampler, slots, self._builder.bytes_of).span(step)
        if not self._builder.waits:
            self.opened.open_here()
            return self._builder.build_blocking(span)[0]

        return self.call_opened(lambda: self._builder.build(span), "batch_at")[0]

    def call_for_probe(self, main: Main[T]) -> T:
        """Run a coroutine function to its end, unless a loop runs in the calling thread.

        Raises:
            LoopRunningError: One does, and would stand still meanwhile.
        """
        if is_loop_running():
            raise LoopRunningError("the purity probe")
        return self.call_opened(main, "the purity probe")

    def call_opened(self, main: Main[T], what: str) -> T:
        """Do as `call`, on a loop that has the dataset open."""

        async def opened() -> T:
            await self.opened.open_loop()
            return await main()

        return self._loops.call(opened, what)

    # -- parts ---------------------------------------------------------------------------

    def _make_builder(self) -> Builder:
        # No part holds the engine: a dropped loader is then freed at once, its blocks with it,
        # and not when the collector happens to run.
        settings, transform, loops = self.settings, self.settings.transform, self._loops
        is_later = transform is not None and is_awaited(transform)
        finish = Finish(
            seed=settings.seed,
            policy=settings.policy,
            where=partial(_where, self._dataset),
            names=settings.names,
            transform=None if is_later else transform,
            with_content=settings.with_content and not is_later,
            times=self.times,
        )
        hop: Hop | None = partial(_hop, self._calls) if settings.workers else None
        builder = (self._inner_maker or self._builder_for)(self._dataset, finish, hop)
        if transform is not None and is_later:
            builder = TransformingBuilder(
                builder,
                transform,
                settings.with_content,
                lambda main: loops.call(main, "an async transform"),
                lambda: not loops.workers,
            )
        if settings.states:
            builder = StatefulBuilder(builder, settings.states)
        if settings.is_serial:
            builder = SerialBuilder(builder)
        return TimedBuilder(PlannedBuilder(builder))

    def _builder_for(self, dataset: Any, finish: Finish, hop: Hop | None) -> Builder:
        settings = self.settings
        if isinstance(dataset, BulkDataset):
            collate, memory = settings.collate, (self.pool, settings.batch_rows)
            if settings.sample_transform is None:
                if collate is None:
                    return BulkBuilder(dataset, finish, *memory, hop)
                # Not a subclass, whose own call would be passed over.
                if type(collate) is PadCollator:
                    return padded_builder(dataset, collate, finish, *memory, hop)
            rows = (WaitingRowSamples if dataset.waits else BlockingRowSamples)(dataset)
            return self._sample_builder(rows, lambda: rows, finish, hop)
        if isinstance(dataset, BatchDataset):
            waits = asyncio.iscoroutinefunction(dataset.get_batch)
            # The loop has opened the dataset itself, and is the only one that calls it.
            here = (lambda: dataset) if waits else self.opened.here
            return OpaqueBuilder(lambda: here().get_batch, finish, waits, hop)
        return self._sample_builder(dataset, self.opened.here, finish, hop)

    def _sample_builder(
        self, dataset: Any, here: Callable[[], Any], finish: Finish, hop: Hop | None
    ) -> SampleBuilder:
        settings = self.settings
        waits = Getter(dataset).waits
        return SampleBuilder(
            lambda: Getter(dataset if waits else here()),
            here,
            finish,
            waits,
            settings.collate,
            settings.sample_transform,
            hop,
            settings.is_serial,
            LeasedColumns(self.pool),
        )

    def _reader_threads(self) -> ReaderThreads:
        with self._lock:
            if self.is_closed:
                raise ClosedError("the loader is closed")
            if self._threads is None:
                self._threads = ReaderThreads(
                    self._loops.workers, self.opened.open_on_reader, self.opened.close_here
                )
            return self._threads

    # -- the end -------------------------------------------------------------------------

    def stop(self) -> None:
        """Tell everything to end, without waiting. Idempotent, from any thread."""
        with self._lock:
            self.is_closed = True
        self.close_run()
        if self._threads is not None:
            self._threads.stop()
        self._loops.stop(self._end_loop)
        self._share.close()
        self._reaping.end()

    async def _end_loop(self) -> None:
        """Close what was opened on the running loop, and the threads that it used."""
        try:
            await self.opened.close_loop()
        except Exception:
            logger.exception("closing the dataset failed")
        await self._calls.aclose()

    def close(self, timeout_s: float = JOIN_S) -> None:
        """End everything and join it; readers stuck in a read are named and left behind.

        Args:
            timeout_s: How long they may take to end, all together.
        """
        deadline = time.monotonic() + timeout_s
        self.stop()
        left = join_all(self.threads(), timeout_s)
        self._calls.close(max(0.0, deadline - time.monotonic()))
        self._loops.private.close(self._end_loop)
        self.opened.close_here()
        self.pool.clear()
        if left:
            logger.warning(
                "closed, but these threads are still inside a read or user code: %s",
                "; ".join(f"{name} at {line}" for name, line in self.top_frames().items()),
            )

    def _close_at_exit(self) -> None:
        run = self._run
        self.close(exit_left_s())
        if run is not None:
            wait_for_daemon(run.taker, min(TAKER_S, exit_left_s()))

    async def aclose(self) -> None:
        """Do as `close` without blocking the running loop, and close what was opened on it."""
        await self._end_loop()
        self.opened.close_here()
        if not self.threads():
            self.close()
            return
        closer = BlockingCalls(1, "close")
        try:
            await closer.run(self.close)
        finally:
            await closer.aclose()

    def threads(self) -> list[threading.Thread]:
        """Give the threads that are alive."""
        readers = [] if self._threads is None else self._threads.threads
        return [thread for thread in (*readers, *self._loops.threads) if thread.is_alive()]

    def top_frames(self) -> dict[str, str]:
        """Give the line that each reader is at."""
        return top_frames(self.threads())

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, where they are known before the first batch."""
        return self.settings.names or self._builder.names

    @property
    def setup(self) -> Setup:
        """How steps are built, for an explanation."""
        return Setup(
            workers=self._loops.workers,
            prefetch_steps=self.prefetch,
            is_bulk=self._builder.joins_steps,
            is_serial=self.settings.is_serial,
            waits=self._builder.waits,
        )

    @property
    def memory(self) -> MemoryFacts:
        """What an estimate of memory follows from, as settings and sizes of steps are now."""
        builder, copies, workers = self._builder, self.settings.copies, self._loops.workers
        span_steps = self._span_steps(builder)
        # A loop begins all spans that it can claim; a thread builds one at a time.
        waiting = self.prefetch // span_steps if builder.waits and workers else 1
        return MemoryFacts(
            step_bytes=builder.typical_bytes,
            beside_bytes=builder.beside_bytes,
            prefetch_steps=self.prefetch if workers else 0,
            ring_bytes=self._ring_bytes,
            builders=waiting if builder.waits else max(1, workers),
            span_steps=span_steps,
            copies=0 if copies is None else workers,
            copy_bytes=0 if copies is None else copies.copy_bytes,
        )

    @property
    def _ring_bytes(self) -> int:
        # Two steps at least: one in the consumer's reach while the next is built.
        return max(self.settings.ring_bytes, 2 * self._builder.step_bytes)

    def counters(self) -> dict[str, float]:
        """Give the numbers of the ring and the blocks."""
        run = self._run
        numbers: dict[str, float] = {
            "blocks_made": self.pool.made_blocks,
            "blocks_lent": self.pool.lent_blocks,
            "leases_out": self.pool.leases_out,
            "prefetch_steps": self.prefetch,
            "workers": self._loops.workers,
        }
        if isinstance(run, Run):
            grants, slots = run.ring.grants, run.ring.slots
            numbers |= {
                "ring_bytes": grants.granted_bytes,
                "ring_peak_bytes": grants.peak_bytes,
                "ring_forced_steps": grants.forced_steps,
                "ring_steps": slots.claimed_steps,
            }
        return numbers


def _where(dataset: Any, index: int) -> str:
    """Say where a sample lives, for messages; "" when there is nothing to say."""
    locate = getattr(dataset, "locate", None)
    if locate is None:
        return ""
    try:
        return str(locate(index) or "")
    except Exception:  # noqa: BLE001 - an error message must not fail for its detail
        return ""


async def _hop(calls: BlockingCalls, call: Callable[..., Any], *args: Any) -> Any:
    """Run processor work of a waiting build on a reader thread."""
    return await calls.run(_on_reader, call, args)


def _on_reader(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    use_one_torch_thread()
    return call(*args)
