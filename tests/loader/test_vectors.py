"""The golden streams, end to end: a whole loader gives the bytes that the vectors name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import headrace as hr
from tests.collate.line_images import LineImages, collator_of, crop
from tests.order.vectors import cases, word

AUGMENTATION = 1


def int32(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def sampler_of(case: dict[str, Any]) -> hr.Sampler:
    facts = {name: value for name, value in case["sampler"].items() if name != "kind"}
    facts["seed"] = word(facts["seed"])
    match case["sampler"]["kind"]:
        case "shuffled":
            return hr.Shuffled(facts.pop("n"), facts.pop("batch_size"), **facts)
        case "bucketed":
            return hr.Bucketed(**facts)
        case _:
            return hr.Mixing(**facts)


def loader_of(case: dict[str, Any], workers: int, prefetch: int) -> hr.Loader:
    sampler = sampler_of(case)
    return hr.Loader(
        LineImages(case["channels"], case["height"], sampler.num_samples),
        sampler=sampler,
        seed=word(case["seed"]),
        sample_transform=crop if case["transform"] == "crop" else None,
        collate=collator_of(case),
        workers=workers,
        prefetch=prefetch,
    )


def digest_of(batch: hr.Batch) -> str:
    """Give the digest of a batch as the vectors define it, every zero written as 0.0."""
    found = hashlib.sha256(int32(batch["images"].shape).tobytes())
    for column in batch.columns:
        found.update((column.numpy() + 0).tobytes())
    return found.hexdigest()


def described(batches: Iterator[hr.Batch]) -> list[dict[str, Any]]:
    return [
        {
            "g": batch.step,
            "indices": batch["indices"].tolist(),
            "shape": list(batch["images"].shape),
            "widths": batch["widths"].tolist(),
            "sha256": digest_of(batch),
        }
        for batch in batches
    ]


@pytest.mark.parametrize("case", range(len(cases("stream"))))
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_a_loader_gives_the_golden_streams(case: int, workers: int) -> None:
    """To the byte, for any workers and prefetch (S1-01..04, S1-22, S1-36..40, S1-42)."""
    golden = cases("stream")[case]
    for prefetch in (1, 3, 8):
        with loader_of(golden, workers, prefetch) as loader:
            found = described(loader.stream(steps=len(golden["steps"])))

        assert found == golden["steps"]


@pytest.mark.parametrize("case", range(len(cases("stream"))))
def test_a_golden_stream_may_be_begun_anywhere(case: int) -> None:
    """From step k on it is the rest, and `batch_at` gives any step alone (S1-06, S1-07)."""
    golden = cases("stream")[case]
    with loader_of(golden, workers=2, prefetch=3) as loader:
        for start in range(len(golden["steps"])):
            rest = described(loader.stream(start, len(golden["steps"]) - start))
            assert rest == golden["steps"][start:]
        alone = described(map(loader.batch_at, reversed(range(len(golden["steps"])))))

    assert alone[::-1] == golden["steps"]
