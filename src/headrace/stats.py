"""Counters of a loader: plain numbers that any thread may read."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable

import numpy as np

# A 99th percentile with 20 waits above it; both percentiles of as many cost 8 us to read.
KEPT_WAITS = 2048


class LoaderStats:
    """What the consumer of a loader did so far. Written by its thread, read by any.

    The first batch of each stream is kept apart from the rest: its wait holds the start of
    reading, and the consumer's step with it holds its own warm-up.

    Args:
        clock: Gives seconds.

    Attributes:
        batches: Batches delivered.
        rows: Rows delivered.
        first_batches: Those that were the first of their stream.
        first_wait_s: From asking the newest stream for the first time to its first batch.
        wait_s: Waits for all other batches, summed.
        first_consumer_s: From getting the first batch of the newest stream to asking again.
        consumer_s: The same of all other batches but the last of a stream, summed.
        consumer_steps: How many times went into `consumer_s`.
        bad_samples: Samples survived.
        skipped_steps: Steps passed over by `skip_step`.
        stalls: Takes that waited longer than `stall_warning_s`.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.batches = 0
        self.rows = 0
        self.first_batches = 0
        self.first_wait_s = 0.0
        self.wait_s = 0.0
        self.first_consumer_s = 0.0
        self.consumer_s = 0.0
        self.consumer_steps = 0
        self.bad_samples = 0
        self.skipped_steps = 0
        self.stalls = 0
        self._begun_at: float | None = None
        self._given_at = 0.0
        self._in_vain_s = 0.0
        self._is_first_step = False
        self._waits = array("d", bytes(8 * KEPT_WAITS))
        self._num_waits = 0

    def begin(self) -> None:
        """Hear that a new stream is asked for its first batch."""
        self._begun_at = self.clock()
        self._in_vain_s = 0.0

    def took(self, rows: int, asked: float, taken: float) -> None:
        """Count a batch that is given to the consumer now.

        Args:
            rows: Its rows.
            asked: When the consumer asked, the last time if it had to ask again.
            taken: When the batch was there.
        """
        self.batches += 1
        self.rows += rows
        if self._begun_at is not None:
            self.first_batches += 1
            self.first_wait_s = taken - self._begun_at
            self._begun_at = None
            self._is_first_step = True
        else:
            consumer_s = asked - self._given_at - self._in_vain_s
            if self._is_first_step:
                self._is_first_step = False
                self.first_consumer_s = consumer_s
            else:
                self.consumer_s += consumer_s
                self.consumer_steps += 1
            wait_s = taken - asked + self._in_vain_s
            self.wait_s += wait_s
            self._waits[self._num_waits % KEPT_WAITS] = wait_s
            self._num_waits += 1
        self._in_vain_s = 0.0
        self._given_at = self.clock()

    def waited_in_vain(self, asked: float) -> None:
        """Count a wait that ends now without a batch towards that of the next batch."""
        self._in_vain_s += self.clock() - asked

    def wait_percentiles_s(self, *shares: float) -> list[float]:
        """Give percentiles of the last 2,048 waits, first batches apart; 0.0 without any.

        Each is one of those waits, with no error: number floor(share * count) by size, from 0.
        """
        count = min(self._num_waits, KEPT_WAITS)
        if not count:
            return [0.0] * len(shares)
        ranks = [min(count - 1, int(count * share)) for share in shares]
        ranked = np.partition(np.frombuffer(self._waits)[:count], ranks)
        return [float(ranked[rank]) for rank in ranks]

    def numbers(self) -> dict[str, float]:
        """Give everything as flat numbers, with the mean of `consumer_s`."""
        p50_s, p99_s = self.wait_percentiles_s(0.50, 0.99)
        return {
            "batches": self.batches,
            "rows": self.rows,
            "first_batches": self.first_batches,
            "first_wait_s": self.first_wait_s,
            "wait_s": self.wait_s,
            "wait_p50_s": p50_s,
            "wait_p99_s": p99_s,
            "first_consumer_s": self.first_consumer_s,
            "consumer_s": self.consumer_s,
            "consumer_steps": self.consumer_steps,
            "consumer_mean_s": self.consumer_s / max(1, self.consumer_steps),
            "bad_samples": self.bad_samples,
            "skipped_steps": self.skipped_steps,
            "stalls": self.stalls,
        }


class _Parts:
    """What one thread spent, in seconds; only that thread writes it."""

    __slots__ = ("assembly_s", "read_s", "transform_s")

    def __init__(self) -> None:
        self.read_s = 0.0
        self.assembly_s = 0.0
        self.transform_s = 0.0


class _Here(threading.local):
    """The parts of the calling thread, put on a list with all others."""

    def __init__(self, everyone: list[_Parts]) -> None:
        self.parts = _Parts()
        everyone.append(self.parts)


class BuildTimes:
    """Where builders spend their time, summed over all of them; safe from any thread.

    Parts are counted when they end and steps when their span ends, so a reading may be ahead by
    what the spans in flight have behind them. A span costs two locks and no more: each thread
    has sums of its own for the parts.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._everyone: list[_Parts] = []
        self._here = _Here(self._everyone)
        self._lock = threading.Lock()
        self._ended_s = 0.0
        self._built_steps = 0
        # Spans in flight, and the integrals over time of (any in flight) and of their number.
        self._spans = 0
        self._building_s = 0.0
        self._span_s = 0.0
        self._seen_at = 0.0

    def begin(self) -> float:
        """Count a span in; give when that was."""
        with self._lock:
            return self._change(1)

    def end(self, began: float, steps: int) -> None:
        """Count a span out, and its steps as built."""
        with self._lock:
            self._ended_s += self._change(-1) - began
            self._built_steps += steps

    def _change(self, by: int) -> float:
        now = self.clock()
        if self._spans:
            since_s = now - self._seen_at
            self._building_s += since_s
            self._span_s += since_s * self._spans
        self._seen_at = now
        self._spans += by
        return now

    def add_read(self, began: float) -> None:
        """Count a read of the dataset that ends now, or the awaiting of one."""
        self._here.parts.read_s += self.clock() - began

    def add_assembly(self, began: float) -> None:
        """Count work that ends now and made batches of what was read."""
        self._here.parts.assembly_s += self.clock() - began

    def add_transform(self, began: float, is_assembling: bool) -> None:
        """Count a batch transform that ends now.

        Args:
            began: When it began.
            is_assembling: Whether an assembly lies around it on this thread, which will be
                counted with it.
        """
        took_s = self.clock() - began
        parts = self._here.parts
        parts.transform_s += took_s
        if is_assembling:
            parts.assembly_s -= took_s

    def numbers(self) -> dict[str, float]:
        """Give the sums up to now as flat numbers.

        Returns:
            `read_s`, `assemble_s` and `transform_s`: the parts, summed over builders.
            `handover_s`: what ended spans spent in no part, such as waiting for a thread that
            assembles them. `built_steps`: steps of ended spans, failed ones too. `building_s`:
            the time with any span in flight. `span_s`: the same, times their number.
        """
        with self._lock:
            self._change(0)
            everyone = tuple(self._everyone)
            read_s = sum(parts.read_s for parts in everyone)
            assembly_s = sum(parts.assembly_s for parts in everyone)
            transform_s = sum(parts.transform_s for parts in everyone)
            return {
                "read_s": read_s,
                "assemble_s": max(0.0, assembly_s),
                "transform_s": transform_s,
                "handover_s": max(0.0, self._ended_s - read_s - assembly_s - transform_s),
                "built_steps": self._built_steps,
                "building_s": self._building_s,
                "span_s": self._span_s,
            }


class LandingTimes:
    """What copying batches to their device costs the consumer; safe from any thread.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._copies = 0
        self._copy_s = 0.0
        self._transform_s = 0.0

    def add(self, began: float, copied: float) -> None:
        """Count a landing that ends now.

        Args:
            began: When its copy began.
            copied: When the copy had ended and the transform began.
        """
        now = self.clock()
        with self._lock:
            self._copies += 1
            self._copy_s += copied - began
            self._transform_s += now - copied

    def numbers(self) -> dict[str, float]:
        """Give the sums as flat numbers: `copies`, `copy_s`, `device_transform_s`."""
        with self._lock:
            return {
                "copies": self._copies,
                "copy_s": self._copy_s,
                "device_transform_s": self._transform_s,
            }
