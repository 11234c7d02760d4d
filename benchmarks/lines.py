"""Measures batches of line images (L): rates by the number of workers, and memory.

    python benchmarks/lines.py
    python benchmarks/lines.py --write   # into docs/performance.md
    python benchmarks/lines.py --check

2,048 line images of height 32 and width 64 to 256, in memory; batches of 128, padded to a multiple
of 4, with one gain and one offset for each image, 8 steps ahead. Every run first checks every
value of an epoch. The rates are indicative: two runs, headrace alone, one machine. Collation is
Python between calls of numpy, and only those let other threads run, so more workers help less
than there are cores.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from machine import commit, cpu_model
from measures.process import memory
from noise import noise
from numpy.typing import NDArray
from report import PAGE, put

import headrace as hr

IMAGES = 2_048
HEIGHT, NARROWEST, WIDEST = 32, 64, 256
BATCH_ROWS = 128
WIDTH_MULTIPLE = 4
PREFETCH = 8
SEED = 1
WORKERS = (0, 1, 4)
RUNS = 2
AUGMENTATION_STREAM = 1

Pixels = NDArray[np.float32]


class LineImages(hr.Dataset):
    """Planar float32 images `[1, 32, width]` of noise; the label of an image is its number."""

    def __init__(self, images: int = IMAGES) -> None:
        widths = noise(5000, images * 2).view(np.uint16) % (WIDEST - NARROWEST + 1) + NARROWEST
        self.ends = np.cumsum(widths.astype(np.int64) * HEIGHT)
        self.pixels = noise(5001, int(self.ends[-1])).astype(np.float32) / np.float32(255)
        self.targets = [np.arange(number % 20, dtype=np.int64) + 1 for number in range(images)]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> tuple[Pixels, NDArray[np.int64], int]:
        start = self.ends[index - 1] if index else 0
        image = self.pixels[start : self.ends[index]].reshape(1, HEIGHT, -1)
        return image, self.targets[index], index


def gain_and_offset(image: Pixels, rng: hr.SampleRng) -> None:
    """Scale and shift an image in place."""
    image *= np.float32(0.8) + np.float32(0.4) * np.float32(rng.next_single())
    image += np.float32(0.2) * np.float32(rng.next_single()) - np.float32(0.1)


def loader_of(data: LineImages, workers: int) -> hr.Loader:
    """Give the loader of the setting."""
    collate = hr.ImageCollator(WIDTH_MULTIPLE, augmentation=gain_and_offset)
    return hr.Loader(
        data, BATCH_ROWS, collate=collate, seed=SEED, workers=workers, prefetch=PREFETCH
    )


def check_epoch(data: LineImages, loader: hr.Loader) -> None:
    """Compare every value of the first epoch with the images, each scaled and shifted anew.

    Raises:
        AssertionError: A batch is not as it should be, or an image came twice or not at all.
    """
    seen: list[int] = []
    for step, batch in enumerate(loader.epoch(0)):
        indices = batch["indices"].tolist()
        assert batch["labels"].tolist() == indices, f"labels of step {step}"
        assert batch["images"].shape[3] % WIDTH_MULTIPLE == 0, f"width of step {step}"
        targets = np.concatenate([data.targets[index] for index in indices])
        assert batch["targets"].tolist() == targets.tolist(), f"targets of step {step}"
        for slot, index in enumerate(indices):
            wanted = np.array(data[index][0])
            state = hr.derive(SEED, 0, step, slot, AUGMENTATION_STREAM)
            gain_and_offset(wanted, hr.SampleRng(state))
            found, width = batch["images"][slot].numpy(), wanted.shape[2]
            assert width == batch["widths"][slot], f"width of image {index}"
            assert np.array_equal(found[:, :, :width], wanted), f"pixels of image {index}"
            assert not found[:, :, width:].any(), f"padding of image {index}"
        seen += indices
    assert sorted(seen) == list(range(len(data))), "an image came twice or not at all"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run found.

    Attributes:
        samples_per_s: Rate after two epochs.
        new_blocks_per_batch: Blocks of host memory that were made and not used again.
        memory_mib: What the run added to the memory of the process.
        estimate_mib: What the loader says that it takes.
    """

    samples_per_s: float
    new_blocks_per_batch: float
    memory_mib: float
    estimate_mib: float


def measure(data: LineImages, workers: int, seconds: float) -> Run:
    """Run one loader over the ends of epochs; the second epoch warms it up."""
    held_bytes = private_bytes()
    with loader_of(data, workers) as loader:
        check_epoch(data, loader)
        steps = len(loader)
        stream = loader.stream(start=steps)
        for _ in range(steps):
            next(stream)
        before, begun = loader.stats(), perf_counter()
        for _ in stream:
            if (passed := perf_counter() - begun) > seconds:
                break
        after = loader.stats()
        added_bytes = private_bytes() - held_bytes
        estimate_bytes = loader.memory_estimate().total_bytes
    batches = after["batches"] - before["batches"]
    made = after["blocks_made"] - before["blocks_made"]
    rate = batches * BATCH_ROWS / passed
    return Run(rate, made / batches, added_bytes / 2**20, estimate_bytes / 2**20)


def private_bytes() -> int:
    """Read the memory of this process without mapped files; 0 where the system does not say."""
    return memory().private_bytes if sys.platform == "linux" else 0


def table(runs: dict[int, list[Run]]) -> str:
    """Write the runs of every number of workers as a markdown table."""
    lines = [
        "| workers | samples/s, two runs | new blocks per batch | memory MiB | estimate MiB |",
        "|---|---|---|---|---|",
    ]
    for workers, found in runs.items():
        rates = ", ".join(f"{run.samples_per_s:,.0f}" for run in found)
        made = sum(run.new_blocks_per_batch for run in found) / len(found)
        held, estimate = max(run.memory_mib for run in found), found[0].estimate_mib
        lines.append(f"| {workers} | {rates} | {made:.3f} | {held:.0f} | {estimate:.0f} |")
    return "\n".join(lines)


def section(seconds: float) -> str:
    """Measure everything, and write under what and what was found."""
    load, data = os.getloadavg()[0], LineImages()
    runs = {workers: [measure(data, workers, seconds) for _ in range(RUNS)] for workers in WORKERS}
    return (
        f"Indicative: {RUNS} runs of {seconds:g} s each, headrace {hr.__version__}, "
        f"commit {commit()}.\n{cpu_model()}, {os.cpu_count()} cores, load {load:.1f} at the "
        f"start.\n\n{table(runs)}\n"
    )


def main() -> None:
    """Measure, or only check."""
    parser = argparse.ArgumentParser(description="Measure batches of line images.")
    parser.add_argument("--check", action="store_true", help="contents and coverage only")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    asked = parser.parse_args()
    if asked.check:
        data = LineImages(2 * BATCH_ROWS)
        for workers in WORKERS:
            with loader_of(data, workers) as loader:
                check_epoch(data, loader)
            print(f"L workers={workers}: right")
        return
    found = section(asked.seconds)
    print(found)
    if asked.write:
        PAGE.write_text(put(PAGE.read_text(), "lines", found))


if __name__ == "__main__":
    main()
