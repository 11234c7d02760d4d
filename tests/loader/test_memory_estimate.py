"""What a loader says that it takes of memory, and what it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import headrace as hr
from tests.loader.kinds import Samples
from tests.loader.local_data import LOCAL

KIB, MIB = 1 << 10, 1 << 20
# What the interpreter, torch and malloc may take beside: the allowance of the benchmarks.
ALLOWANCE_BYTES = 64 * MIB

# Batches of eight rows are 128 KiB.
WIDE = {"x": np.ones((64, 4096), np.float32)}


def parts(loader: hr.Loader) -> tuple[int, ...]:
    """Give the parts of an estimate in KiB: ahead, in hand, building, spare, copies."""
    found = loader.memory_estimate()
    listed = (
        found.ahead_bytes,
        found.hand_bytes,
        found.building_bytes,
        found.spare_bytes,
        found.copies_bytes,
    )
    assert found.total_bytes == sum(listed)
    return tuple(nbytes // KIB for nbytes in listed)


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        # Spans of one step: four ahead, the one taken, the one before it.
        ({"workers": 2, "prefetch": 4}, (512, 256, 0, 0, 0)),
        # Spans of two: the one before keeps its whole block, and blocks come in two sizes.
        ({"workers": 1, "prefetch": 4}, (512, 384, 0, 896, 0)),
        # Nothing is read ahead but the rest of a span.
        ({"workers": 0, "prefetch": 4}, (128, 384, 0, 512, 0)),
        # Bytes bound it before steps do, and two steps there are always.
        ({"workers": 2, "prefetch": 4, "ring_bytes": 300 * KIB}, (300, 256, 0, 0, 0)),
        ({"workers": 2, "prefetch": 4, "ring_bytes": 1}, (256, 256, 0, 0, 0)),
    ],
)
def test_the_estimate_follows_from_the_knobs(
    knobs: dict[str, Any], wanted: tuple[int, ...]
) -> None:
    """Steps in flight times their bytes, shared by all workers and not multiplied (S4-30)."""
    with hr.Loader(WIDE, 8, **knobs) as loader:
        assert parts(loader) == wanted


def test_rows_in_stored_form_are_counted_for_each_builder(tmp_path: Path) -> None:
    """Tokens are read narrow by each thread and handed out wide (S4-30)."""
    with hr.Loader(**LOCAL["tokens"](tmp_path), workers=2, prefetch=4) as loader:
        building_bytes = loader.memory_estimate().building_bytes

    assert building_bytes == 2 * 64 * 1025 * 2


class Scratch(Samples):
    """A foreign dataset with a scratch array, which every thread must have for itself."""

    def __init__(self) -> None:
        super().__init__(8)
        self.scratch = np.zeros(MIB, np.uint8)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(4096, index, np.float32)}


class CopiedScratch(Scratch):
    thread_safe = False


@pytest.mark.parametrize(("kind", "copies"), [(Scratch, 0), (CopiedScratch, 3)])
def test_copies_for_threads_are_counted(kind: type[Scratch], copies: int) -> None:
    """A dataset that threads share costs nothing; one that is copied, once per thread (S4-30)."""
    with hr.Loader(kind(), 2, workers=3) as loader:
        found = loader.memory_estimate().copies_bytes

    assert copies * MIB <= found <= copies * (MIB + KIB)


def test_an_estimate_learns_the_size_of_samples() -> None:
    """Before the first batch it is a guess, after it what batches held; depth counts too."""
    with hr.Loader(Scratch(), 2, workers=1, prefetch=4, probe=False) as loader:
        guessed = loader.memory_estimate()
        for _ in loader.stream(steps=8):
            pass
        learnt = loader.memory_estimate()
        loader.set_prefetch_depth(1)
        shallow = loader.memory_estimate()

    assert (guessed.step_bytes, learnt.step_bytes) == (MIB, 2 * 4096 * 4)
    assert (learnt.ahead_bytes, learnt.building_bytes) == (4 * 32 * KIB, 32 * KIB)
    assert shallow.ahead_bytes == 32 * KIB


def test_rows_of_any_length_are_estimated_by_their_lengths() -> None:
    """Lengths are known without a read, so nothing is guessed."""
    data = hr.Ragged(np.ones(1000, np.int32), lengths=np.full(10, 100))
    with hr.Loader(data, 5) as ragged, hr.Loader(data, 5, collate=hr.PadCollator("values")) as pad:
        # Padded, each value has a flag beside it and each row its length.
        assert ragged.memory_estimate().step_bytes == 5 * 400
        assert pad.memory_estimate().step_bytes == 5 * (500 + 8)


def test_an_estimate_reads_well() -> None:
    """One line names every part."""
    with hr.Loader(WIDE, 8, workers=2, prefetch=4) as loader:
        assert repr(loader.memory_estimate()) == (
            "MemoryEstimate(768.0 KiB: ahead 512.0 KiB, in hand 256.0 KiB, building 0 B, "
            "spare 0 B, copies 0 B; batches of 128.0 KiB, at most 1.0 GiB ahead)"
        )


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", LOCAL)
def test_measured_memory_stays_within_the_estimate(name: str, workers: int, tmp_path: Path) -> None:
    """At its peak, over a run that delivers several times as much (S4-30, S4-47, S4-81)."""
    process, taken_bytes, peak_bytes = psutil.Process(), 0, 0
    with hr.Loader(**LOCAL[name](tmp_path), workers=workers, prefetch=8) as loader:
        for _ in loader.stream(steps=8):
            pass
        before_bytes = process.memory_info().rss
        for batch in loader.stream():
            taken_bytes += sum(column.nbytes for column in batch)
            peak_bytes = max(peak_bytes, process.memory_info().rss)
            if taken_bytes > 2 * (loader.memory_estimate().total_bytes + ALLOWANCE_BYTES):
                break
        estimate, stats = loader.memory_estimate(), loader.stats()

    assert peak_bytes - before_bytes <= estimate.total_bytes + ALLOWANCE_BYTES
    assert stats.get("ring_peak_bytes", 0) <= estimate.ahead_bytes
