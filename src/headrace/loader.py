"""The front door: one loader, one cursor, batches in a `for` or `async for` loop."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn

import torch

from headrace import config, empty_pass, functions
from headrace.assemble import settings_of, stateful_of
from headrace.batch import Batch
from headrace.budget import process_budget
from headrace.build.bad_samples import OnBadSample
from headrace.build.builder import Transform
from headrace.build.built import Built
from headrace.build.nested import NestedStates
from headrace.build.samples import SampleTransform
from headrace.datasets.adapt import as_dataset
from headrace.engine import Engine
from headrace.errors import (
    ClosedError,
    ConfigError,
    ForkedError,
    TooManyBadSamplesError,
)
from headrace.explain import Explanation, explain
from headrace.landing import Landing, as_device
from headrace.memory_estimate import MemoryEstimate, estimated
from headrace.origin import PickOrigin, origins_of
from headrace.passes import end_of, next_pass, place_of
from headrace.purity import probe_run
from headrace.resume import (
    LISTED_BAD_SAMPLES,
    Position,
    compose,
    identity_of,
    restore,
    verify,
)
from headrace.samplers.choose import choose_sampler
from headrace.samplers.sampler import Sampler
from headrace.state import Cursor, History
from headrace.stats import LoaderStats
from headrace.stream import BatchStream, Steps
from headrace.threads import reap

logger = logging.getLogger("headrace")

KEPT_CURSORS = 256
DEFAULT_SEED = 42


class Loader:
    """Streams batches of a dataset in an order that seed and step alone decide.

    Iterate it as torch's DataLoader (`for batch in loader`: each pass is the next epoch), by
    epoch (`loader.epoch(e)`, `loader.epochs(n)`) or without end (`loader.stream()`); each of
    these works in `for` and in `async for`. The stream does not depend on workers, prefetch,
    timing or the face used, and goes on exactly from `state_dict()` in another process.

    One cursor, moved by the one open stream; opening another closes the first. Threads start
    with the first take and end with `close()`, when the loader is dropped, or at exit. Methods
    may be called from any thread; one thread at a time takes batches.

    Args:
        data: A headrace dataset, arrays, or anything with indices (see `as_dataset`).
        batch_size: Rows per batch; may be left out where `sampler` brings its own.
        device: Where batches land; columns are copied there at delivery.
        seed: Any integer; decides the order and all keys. None for the sampler's own, else 42.
        shuffle: Keyed order of each epoch. A `sampler` takes its place.
        drop_last: Leave out a short last batch; None means as `shuffle` says.
        sampler: A headrace sampler, or a torch Sampler or BatchSampler.
        augment: Views of each sample per epoch.
        sample_transform: `f(sample, key)` before collation, on reader threads.
        collate: `f(samples, keys)` or `f(samples)` in place of the default; keys are given to a
            second positional parameter without a default.
        transform: `f(batch, pick_keys)` at delivery, on the device; may be a coroutine function
            for CPU batches.
        names: Names of the columns in place of the dataset's.
        workers: Reader threads; at most 64; 0 builds on the caller's thread; None for the cores,
            at most 4.
        prefetch: Steps read ahead over all stages; None by size; 0 counts as 1.
        ring_bytes: Bound on the bytes read ahead, two steps at least.
        on_bad_sample: "raise"; "replace" by a pure draw; "mask" to also give the row weight 0.
        max_bad_samples: More bad samples than this end the stream.
        content_digest: Hash every delivered row into the state.
        pure: Whether a foreign dataset gives the same bytes for the same index. False runs it
            on one thread, without the probe.
        probe: Make a few samples twice at the first take, where the dataset is foreign or there
            is a sample_transform, and compare; None for unless `python -O` or `HEADRACE_PROBE=off`.
        epochs: How many epochs will come, so that plain loops read across their ends.
        stall_warning_s: A take that waits longer is reported once in the log.

    Raises:
        ConfigError: A knob is out of its range, or the dataset is empty.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        device: torch.device | str | int = "cpu",
        seed: int | None = None,
        shuffle: bool = True,
        drop_last: bool | None = None,
        sampler: Any = None,
        augment: int = 1,
        sample_transform: SampleTransform | None = None,
        collate: Callable[..., Any] | None = None,
        transform: Transform | None = None,
        names: Sequence[str] | None = None,
        workers: int | None = None,
        prefetch: int | None = None,
        ring_bytes: int | None = None,
        on_bad_sample: OnBadSample = "raise",
        max_bad_samples: int = 100,
        content_digest: bool = False,
        pure: bool | None = None,
        probe: bool | None = None,
        epochs: int | None = None,
        stall_warning_s: float = 30.0,
    ) -> None:
        self._arguments = (data, batch_size, {k: v for k, v in locals().items() if k in _KNOBS})
        self._pid = os.getpid()
        config.flag("shuffle", shuffle)
        config.flag("content_digest", content_digest)
        for knob, value in {"drop_last": drop_last, "pure": pure, "probe": probe}.items():
            config.flag(knob, value, may_be_none=True)
        functions.check("sample_transform", sample_transform, functions.SAMPLE_TRANSFORM)
        functions.check("collate", collate, functions.COLLATE, least=1)
        functions.check("transform", transform, functions.TRANSFORM, may_wait=True)
        self.dataset = as_dataset(data, pure)
        functions.check_seen(self.dataset, sample_transform=sample_transform, collate=collate)
        if not len(self.dataset):
            raise ConfigError("data", "at least one sample", f"an empty {self.dataset!r}")
        if seed is None:
            seed = getattr(sampler, "seed", DEFAULT_SEED)
        self.seed = config.integer("seed", seed, -(2**63), 2**64 - 1)
        self.stall_s = config.positive("stall_warning_s", stall_warning_s)
        self._epochs = None if epochs is None else config.epoch("epochs", epochs, 1)
        self._max_bad_samples = config.integer("max_bad_samples", max_bad_samples, 0)
        self._pure = pure
        self._probes = config.is_probe_on(probe)
        self._landing = Landing(as_device(device), transform, content_digest)

        base = choose_sampler(
            len(self.dataset), batch_size, self.seed, shuffle, drop_last, sampler, augment
        )
        self._base = base
        self.fingerprint = self.dataset.fingerprint()
        stateful = stateful_of(
            self.dataset, collate=collate, sample_transform=sample_transform, transform=transform
        )
        self._identity = identity_of(self.seed, base, self.fingerprint, stateful)
        # A transform that runs on another device runs at delivery, not where batches are built.
        is_later = "transform" in stateful and not self._landing.is_host
        landed = {"transform": stateful.pop("transform")} if is_later else {}
        self._landed_states, self._built_states = NestedStates(landed), NestedStates(stateful)
        content = History(0) if content_digest else None
        self._position = Position(
            base,
            ((0, base.global_batch_size, 0),),
            (base.num_samples,),
            Cursor(0, History(0), content),
        )
        self._engine = Engine(
            self.dataset,
            settings_of(
                self.dataset,
                self._landing,
                self._built_states,
                seed=self.seed,
                batch_rows=base.global_batch_size,
                workers=workers,
                prefetch=prefetch,
                ring_bytes=ring_bytes,
                on_bad_sample=on_bad_sample,
                names=names,
                collate=collate,
                sample_transform=sample_transform,
                pure=pure,
            ),
            process_budget(),
        )
        nested = {**self._built_states.snapshot(), **self._landed_states.snapshot()}
        self._cursor: Cursor = self._position.cursor._replace(nested=nested)
        # The cursor after step g is at g mod KEPT_CURSORS, where any thread may look.
        self._cursors: list[Cursor | None] = [None] * KEPT_CURSORS
        self._is_resumed = False
        self._knows_of_empty = False
        self._epoch_set: int | None = None
        self._kept: Steps | None = None
        self._stream: weakref.ref[BatchStream] | None = None
        # Held while the cursor goes elsewhere, so that the open stream begins where it is.
        self._moving = threading.Lock()
        self._counts = LoaderStats()
        self._after_first: dict[str, float] | None = None
        self._finalizer = weakref.finalize(self, _drop, self._engine, self._pid)
        self._finalizer.atexit = False
        self._note_dropped()

    # -- iterating -----------------------------------------------------------------------

    def __iter__(self) -> BatchStream:
        """Begin the next epoch; after `load_state_dict`, what is left of its epoch.

        After a `break` the next pass is the next whole epoch; `set_epoch` names another.
        """
        start, epoch = self._next_pass()
        return self._open(start, self._end_of(epoch), self._planned_end(epoch))

    def __aiter__(self) -> BatchStream:
        """Do as `__iter__`, for `async for`."""
        return self.__iter__()

    def epoch(self, epoch: int) -> BatchStream:
        """Give the batches of one epoch.

        After `load_state_dict`, the epoch of the state starts where the state says, once; any
        other epoch, and any epoch otherwise, is whole.
        """
        epoch = config.epoch("epoch", epoch)
        start = self._position.sampler.first_step(epoch)
        if self._is_resumed and epoch == self._epoch_at():
            start = self._cursor.next_step
        self._warn_if_earlier(epoch)
        return self._open(start, self._end_of(epoch), self._planned_end(epoch))

    def epochs(self, count: int) -> Iterator[BatchStream]:
        """Give what is left of the first `count` epochs, one stream each.

        After `load_state_dict` the first stream is the rest of the state's epoch. Reading goes
        on across the ends of epochs. Leaving an inner loop early goes to the next epoch. An
        epoch that was begun before, if only by a look at one batch, counts as had; with none
        left nothing is given, with a warning in the log.
        """
        return self._each_epoch(config.epoch("epochs", count))

    def _each_epoch(self, count: int) -> Iterator[BatchStream]:
        start, first = self._next_pass()
        if 0 < count <= first:
            logger.warning(
                "epochs(%d) gives nothing: the loader stands at epoch %d already. It counts the "
                "epochs of the whole run; set_epoch(0) begins again.",
                count,
                first,
            )
        try:
            for epoch in range(first, count):
                begin = start if epoch == first else self._position.sampler.first_step(epoch)
                yield self._open(begin, self._end_of(epoch), self._end_of(count - 1))
        finally:
            self._drop_kept()

    def stream(self, start: int | None = None, steps: int | None = None) -> BatchStream:
        """Give batches from a global step on, across the ends of epochs.

        Args:
            start: First global step; None for where the cursor is.
            steps: How many steps; None for no end.

        Raises:
            ValueError: Epochs have no steps.
        """
        at = self._cursor.next_step if start is None else config.step("start", start)
        self._position.sampler.locate(at)
        until = None if steps is None else at + config.step("steps", steps)
        return self._open(at, until, until)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next plain pass is, as torch's DistributedSampler does.

        On the epoch of a state just loaded, the pass still starts where the state says.
        """
        epoch = config.epoch("epoch", epoch)
        if not self._is_resumed or self._epoch_at() != epoch:
            self._warn_if_earlier(epoch)
            self._is_resumed = False
            self._epoch_set = epoch

    def __len__(self) -> int:
        """Count the batches of an epoch (the current one).

        Raises:
            TypeError: The sampler does not know.
        """
        steps = self._position.sampler.steps_in(self._epoch_at())
        if steps is None:
            raise TypeError("the sampler does not know how many batches an epoch has")
        return steps

    # -- any batch of the run ------------------------------------------------------------

    def batch_at(self, step: int) -> Batch:
        """Build the batch of any global step; the cursor and open streams do not move.

        Raises:
            SampleError: A sample of it is bad.
            ConfigError: Dataset, collate or transforms have a state of their own, so a batch
                hangs on all those before it.
        """
        self._check_usable()
        if self._identity.roles:
            cure = "Load the state of before the step, and take it."
            raise ConfigError(
                "batch_at", "objects without a state of their own", self._identity.roles, cure
            )
        built = self._engine.build_one(
            self._position.sampler, slice(None), config.step("step", step)
        )
        if built.failure is not None:
            raise built.failure
        assert built.batch is not None
        return self._landing.land(built.batch)

    def why(self, step: int) -> list[PickOrigin]:
        """Say where each row of the batch of a global step comes from, without reading it."""
        step = config.step("step", step)
        return origins_of(step, self._position.sampler, self.dataset.locate)

    def skip_step(self, step: int) -> None:
        """Leave out the batch of a global step that is still to come; the state remembers.

        Meant for a step that fails: load the state of before, skip, go on. A batch that was
        read ahead already is left out all the same.

        Raises:
            ConfigError: The step has been taken, which the history of the state tells.
        """
        self._check_process()
        step = config.step("step", step)
        cursor = self._cursor
        if cursor.history.from_step <= step < cursor.next_step:
            cure = "Load the state of before it first, or begin a stream there."
            raise ConfigError("step", f"a step to come, from {cursor.next_step} on", step, cure)
        self._position = replace(self._position, skips=self._position.skips | {step})
        self._engine.set_skips(self._position.skips)
        if self._built_states:
            self._read_again()

    # -- state ---------------------------------------------------------------------------

    def state_dict(self, after: Batch | None = None) -> dict[str, Any]:
        """Say what has been taken, as plain JSON; call it from any thread.

        Batches read ahead do not count; the batch in the consumer's hand does.

        Args:
            after: A batch still held: the state as of having taken it, for frameworks that take
                one batch ahead.

        Raises:
            ConfigError: `after` is not among the last 256 batches taken.
        """
        cursor = self._cursor if after is None else self._cursor_after(after)
        return compose(self._position, cursor, self._identity)

    def load_state_dict(self, state: Mapping[str, Any], allow: Collection[str] = ()) -> None:
        """Go on where a state was saved, also in another process.

        Args:
            state: What `state_dict` gave, straight or through JSON.
            allow: "global_batch" to go on with this loader's batch size, at once, without
                repeating or skipping picks; "dataset" if data was appended, which comes in with
                the next epoch; other differences of the data are still refused.

        Raises:
            StateError: The state is of another run; every field that differs is named.
        """
        self._check_usable()
        position = restore(state, self._identity, self._base, allow, self._landing.with_content)
        with self._moving:
            self._close_stream("a state was loaded")
            self._drop_kept()
            self._engine.set_skips(position.skips)
            self._position = position
            self._cursor = position.cursor
            self._cursors = [None] * KEPT_CURSORS
            self._is_resumed = True
            self._epoch_set = None
            self._put_states_back()

    def verify(self, state: Mapping[str, Any]) -> int:
        """Replay the history of a state by arithmetic; no data is read.

        Returns:
            Steps replayed, all as the state says.

        Raises:
            StateError: What was delivered is not what this loader delivers.
        """
        return verify(state, self._identity, self._base)

    def _cursor_after(self, batch: Batch) -> Cursor:
        if not isinstance(batch, Batch):
            raise ConfigError("after", "a Batch of this loader", batch)
        for cursor in (self._cursor, self._cursors[batch.step % KEPT_CURSORS]):
            if cursor is not None and cursor.next_step == batch.step + 1:
                return cursor
        wanted = f"one of the last {KEPT_CURSORS} batches taken"
        raise ConfigError("after", wanted, f"step {batch.step}")

    # -- what a stream asks of its owner -------------------------------------------------

    def begin(self, stream: BatchStream) -> Steps:
        """Start the reading of a stream at its first take. For `BatchStream`."""
        self._check_usable()
        with self._moving:
            return self._begin(stream)

    def _begin(self, stream: BatchStream) -> Steps:
        if self._stream is None or self._stream() is not stream:
            raise ClosedError("this stream was closed when another one was opened")
        self._counts.begin()
        self.dataset.check()
        kept, self._kept = self._kept, None
        if kept is not None and _serves(kept, stream):
            return kept
        if kept is not None:
            kept.close()
        self._probe_once()
        self._put_states_back()
        return self._engine.start(
            self._position.sampler, slice(None), self._cursor.next_step, stream.read_until
        )

    def accept(self, stream: BatchStream, step: int, built: Built, asked: float) -> Batch | None:
        """Move the cursor past a taken step. For `BatchStream`."""
        taken = time.perf_counter()
        # Read before the stream is looked at: whoever moves the cursor closes the stream first.
        cursor = before = self._cursor
        if self._stream is None or self._stream() is not stream:
            _too_late()
        is_skipped = step in self._position.skips
        if built.failure is not None and not is_skipped:
            _raise_out_of(built)
        batch = built.batch
        counts = self._counts
        if batch is None or is_skipped:
            cursor = cursor._replace(next_step=step + 1)
            self._cursor = cursor if self._cursor is before else _too_late()
            counts.skipped_steps += 1
            counts.waited_in_vain(asked)
            return None
        content_digest = built.content_digest
        if not self._landing.is_host:
            batch = self._landing.land(batch)
            content_digest = self._landing.digest(batch)
        if built.bad:
            cursor = self._with_bad(cursor, built)
        content = cursor.content
        nested = cursor.nested if built.nested is None else built.nested
        if self._landed_states:
            nested = {**cursor.nested, **nested, **self._landed_states.snapshot()}
        cursor = Cursor(
            step + 1,
            cursor.history.plus(built.pick_digest),
            None if content is None else content.plus(content_digest),
            cursor.bad,
            cursor.bad_samples,
            nested,
        )
        self._cursors[step % KEPT_CURSORS] = cursor
        counts.took(batch.num_rows, asked, taken)
        if counts.batches == 1:
            self._after_first = self.stats()
        # Last, with no call until the caller has the batch: Python handles signals and changes
        # threads at calls, so an interrupt finds the step either not taken or delivered, and
        # nobody comes between the look and the move.
        self._cursor = cursor if self._cursor is before else _too_late()
        return batch

    def _with_bad(self, cursor: Cursor, built: Built) -> Cursor:
        count = cursor.bad_samples + len(built.bad)
        last = built.bad[-1]
        if count > self._max_bad_samples:
            text = f"sample {last.index}{f' ({last.where})' if last.where else ''}: {last.reason}"
            raise TooManyBadSamplesError(self._max_bad_samples, text, last.step)
        self._counts.bad_samples += len(built.bad)
        for bad in built.bad:
            logger.warning(
                "step %d: sample %d%s is bad and was replaced: %s",
                bad.step,
                bad.index,
                f" ({bad.where})" if bad.where else "",
                bad.reason,
            )
        return cursor._replace(
            bad=(*cursor.bad, *built.bad)[-LISTED_BAD_SAMPLES:], bad_samples=count
        )

    def waited_in_vain(self, asked: float) -> None:
        """Count a take that gave nothing. For `BatchStream`."""
        self._counts.waited_in_vain(asked)

    def stalled(self, step: int, waited_s: float) -> None:
        """Report a take that has waited long, in one line. For `BatchStream`."""
        self._counts.stalls += 1
        logger.warning("%s", self._stall_report(step, waited_s))

    def complete(self, stream: BatchStream, steps: Steps) -> None:
        """Hear that a stream delivered its last batch. For `BatchStream`."""
        if steps.end is None or steps.next_step < steps.end:
            self._kept = steps
        else:
            steps.close()

    # -- the cursor ----------------------------------------------------------------------

    def _next_pass(self) -> tuple[int, int]:
        """Give where the next plain pass starts, and its epoch."""
        return next_pass(
            self._position.sampler, self._cursor.next_step, self._is_resumed, self._epoch_set
        )

    def _epoch_at(self) -> int:
        """Give the epoch that the cursor is in."""
        return place_of(self._position.sampler, self._cursor.next_step)[0]

    def _warn_if_earlier(self, epoch: int) -> None:
        if self._is_resumed and epoch < self._epoch_at():
            warnings.warn(
                f"epoch {epoch} starts again from its beginning, but the loaded state is in "
                f"epoch {self._epoch_at()}; epochs(n) and a plain loop go on from there",
                stacklevel=3,
            )

    def _open(self, start: int, until: int | None, read_until: int | None) -> BatchStream:
        """Make a stream the open one and put the cursor at its start."""
        self._check_usable()
        self._note_empty()
        stream = BatchStream(self, start, until, read_until)
        with self._moving:
            self._close_stream("another stream of this loader was opened")
            self._is_resumed = False
            self._epoch_set = None
            # Another object also where it stays, by which a step on its way to the stream before
            # finds that it comes too late.
            self._cursor = self._cursor.jumped(start)._replace()
            self._stream = weakref.ref(stream)
        return stream

    def _read_again(self) -> None:
        """Have batches built anew from the cursor on, since those read ahead hang on others."""
        self._drop_kept()
        stream = None if self._stream is None else self._stream()
        if stream is not None:
            stream.read_again()

    def _close_stream(self, why: str) -> None:
        stream = None if self._stream is None else self._stream()
        if stream is not None:
            stream.steal(why)
        self._stream = None

    def _drop_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _end_of(self, epoch: int) -> int | None:
        return end_of(self._position.sampler, epoch)

    def _planned_end(self, epoch: int) -> int | None:
        """Give how far to read when an epoch is opened: past its end only if more will come."""
        return self._end_of(max(epoch, (self._epochs or 0) - 1))

    # -- stateful user objects -----------------------------------------------------------

    def _put_states_back(self) -> None:
        """Give stateful objects the states of the cursor, once nobody builds with them."""
        if self._built_states or self._landed_states:
            self._engine.close_run()
            self._engine.wait_idle()
            self._built_states.restore(self._cursor.nested)
            self._landed_states.restore(self._cursor.nested)

    # -- checks --------------------------------------------------------------------------

    def _check_process(self) -> None:
        """Refuse a forked child, before any lock that a thread of the parent may hold there."""
        if os.getpid() != self._pid:
            raise ForkedError("a Loader", self._pid)

    def _check_usable(self) -> None:
        self._check_process()
        if self._engine.is_closed:
            raise ClosedError("the loader is closed; make a new one")

    def _probe_once(self) -> None:
        """Probe what the user brought for impurity before the first read of the run."""
        probes, self._probes = self._probes, False
        if probes and self._pure is not False and not self._built_states:
            transform = self._engine.settings.sample_transform
            probe_run(self.dataset, transform, self.seed, self._engine.call_for_probe)

    def _note_dropped(self) -> None:
        dropped = self.samples_dropped
        if dropped:
            logger.info(
                "drop_last leaves %d of %d rows out of each epoch",
                dropped,
                self.num_picks + dropped,
            )

    def _note_empty(self) -> None:
        """Say once that passes give nothing, since a loop over nothing looks like a fast one."""
        if self.is_empty and not self._knows_of_empty:
            self._knows_of_empty = True
            logger.warning("%s", empty_pass.sentence(self._position.sampler, self._arguments[0]))

    def _stall_report(self, step: int, waited_s: float) -> str:
        counters = self._engine.counters()
        try:
            first = self.why(step)[0]
            at = f"sample {first.sample} ({first.location or 'no location'})"
        except Exception as error:  # noqa: BLE001 - a report must not end the run
            at = f"sample unknown ({error})"
        frames = "; ".join(f"{name} at {line}" for name, line in self._engine.top_frames().items())
        return (
            f"waited {waited_s:.1f} s for step {step}, which begins with {at}; "
            f"{counters.get('ring_steps', 0)} steps and {counters.get('ring_bytes', 0)} bytes in "
            f"flight; readers: {frames or 'none'}"
        )

    # -- facts ---------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Rows of a full batch."""
        return self._position.sampler.global_batch_size

    @property
    def device(self) -> torch.device:
        """Where batches land."""
        return self._landing.device

    @property
    def sampler(self) -> Sampler:
        """What every step contains."""
        return self._position.sampler

    @property
    def num_samples(self) -> int:
        """Samples of the dataset."""
        return len(self.dataset)

    @property
    def num_picks(self) -> int:
        """Rows that an epoch delivers."""
        return self._position.sampler.num_picks

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, as `len(loader)`."""
        return len(self)

    @property
    def is_empty(self) -> bool:
        """Whether an epoch has no batch."""
        return self.num_picks == 0

    @property
    def samples_dropped(self) -> int:
        """Rows that `drop_last` leaves out of each epoch."""
        augment = getattr(self._base, "augment", None)
        return 0 if augment is None else self._base.num_samples * augment - self._base.num_picks

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, where they are known before the first batch."""
        return self._engine.names

    @property
    def prefetch_depth(self) -> int:
        """Steps read ahead at most."""
        return self._engine.prefetch

    def set_prefetch_depth(self, steps: int) -> None:
        """Move the bound on steps read ahead, at once; at least 1."""
        self._check_process()
        self._engine.set_prefetch(config.prefetch(steps))

    @property
    def resume(self) -> str:
        """How a state is restored: "seek" at once, "replay" an epoch's order, "none"."""
        return self._position.sampler.resume

    def stats(self) -> dict[str, float]:
        """Give flat counters; from any thread, in under 50 us."""
        self._check_process()
        return {
            **self._counts.numbers(),
            **self._engine.times.numbers(),
            **self._landing.times.numbers(),
            "bad_samples": self._cursor.bad_samples,
            "samples_dropped": self.samples_dropped,
            **self._engine.counters(),
        }

    def memory_estimate(self) -> MemoryEstimate:
        """Work out the host memory that this loader takes, from its settings; reads nothing.

        As things are: after `set_prefetch_depth`, or once batches have shown their size, it is
        another. From any thread.
        """
        self._check_process()
        return estimated(self._engine.memory)

    def explain(self, since: Mapping[str, float] | None = None) -> Explanation:
        """Tell what holds the run up, from measured times; from any thread.

        Args:
            since: What `stats()` gave earlier: tell about the time from then on. None for all
                but the first batch.

        Raises:
            ConfigError: `since` is not an earlier reading of this loader.
        """
        since = self._after_first if since is None else since
        return explain(self.stats(), since, self._engine.setup)

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all work and join every thread. Idempotent; the loader cannot be used after."""
        if os.getpid() != self._pid:
            return
        self._close_stream("the loader was closed")
        self._drop_kept()
        self._engine.close()

    async def aclose(self) -> None:
        """Do as `close`, and close what `workers=0` opened on the running loop."""
        if os.getpid() != self._pid:
            return
        self._close_stream("the loader was closed")
        self._drop_kept()
        await self._engine.aclose()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Loader:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle carries the configuration: a fresh loader at step 0."""
        return _remade, self._arguments

    def __repr__(self) -> str:
        return (
            f"Loader({self.dataset!r}, batch_size={self.batch_size}, "
            f"{type(self._base).__name__}, seed={self.seed}, device={str(self.device)!r}, "
            f"workers={self._engine.settings.workers}, at step {self._cursor.next_step})"
        )


_KNOBS = frozenset(inspect.signature(Loader.__init__).parameters) - {"self", "data", "batch_size"}


def _drop(engine: Engine, pid: int) -> None:
    """Have the engine of a dropped loader stopped, unless it belongs to a parent process."""
    if os.getpid() == pid:
        reap(engine.stop)


def _raise_out_of(built: Built) -> None:
    """Raise a failure that nothing else holds.

    Its traceback holds every frame up to the consumer's: one of them that held it too would
    make a cycle, and keep loader and threads until the collector happens to run.
    """
    failure, built.failure = built.failure, None
    assert failure is not None
    try:
        raise failure
    finally:
        del failure


def _too_late() -> NoReturn:
    raise ClosedError("this stream was closed while a batch of it was on its way")


def _remade(data: Any, batch_size: int | None, knobs: dict[str, Any]) -> Loader:
    return Loader(data, batch_size, **knobs)


def _serves(steps: Steps, stream: BatchStream) -> bool:
    """Whether steps being read for an earlier stream are those that a new one begins with."""
    if steps.next_step != stream.start:
        return False
    if steps.end is None:
        return True
    return stream.read_until is not None and stream.read_until <= steps.end
