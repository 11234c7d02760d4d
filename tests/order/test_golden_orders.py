"""The orders of all samplers are those of the golden files, to the last pick."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from headrace.samplers import BlockShuffled, Bucketed, Mixing, Sampler, Sequential, Shuffled
from headrace.samplers.schedule import Run
from tests.order.vectors import FOLDER, cases, word
from tests.vectors import make_own


def plain(case: dict[str, Any]) -> Sampler:
    """Give the sampler of a case of `samplers.json`."""
    if case["kind"] == "sequential":
        return Sequential(case["n"], case["batch_size"], drop_last=case["drop_last"])
    seed = word(case["seed"])
    return Shuffled(case["n"], case["batch_size"], seed, drop_last=case["drop_last"])


def batch(sampler: Sampler, epoch: int, step: int) -> list[int]:
    """Give the samples of one step of an epoch."""
    g = sampler.first_step(epoch) + step
    return sampler.picks(range(g, g + 1)).sample.tolist()


def views(sampler: Sampler, epoch: int) -> list[list[int]]:
    """Give sample and repeat of every pick of an epoch, asked for at once."""
    first = sampler.first_step(epoch)
    picks = sampler.picks(range(first, first + (sampler.steps_in(epoch) or 0)))
    return np.stack([picks.sample, picks.repeat], axis=1).tolist()


@pytest.mark.parametrize("case", cases("samplers"))
def test_sequential_and_shuffled(case: dict[str, Any]) -> None:
    """Batches by epoch and step, and by global step (S1-02, S1-24, S1-25, S1-27, S0-60, S0-63)."""
    sampler = plain(case)

    assert sampler.steps_in(0) == case["expect_steps_per_epoch"]
    for b in case["batches"]:
        assert batch(sampler, b["epoch"], b["step"]) == b["indices"]
    for b in case.get("global_steps", []):
        assert sampler.locate(b["g"]) == (b["epoch"], b["step"])
        assert sampler.picks(range(b["g"], b["g"] + 1)).sample.tolist() == b["indices"]


@pytest.mark.parametrize("case", cases("mixing"))
def test_mixing(case: dict[str, Any]) -> None:
    """Source and sample of every slot, slot by slot and in bulk (S1-31, C05)."""
    knobs = (case["sources"], case["shares"], case["batch_size"], case["steps_per_epoch"])
    sampler = Mixing(*knobs, seed=word(case["seed"]))

    assert sampler.steps_in(0) == case["expect_steps_per_epoch"]
    for b in case["batches"]:
        slots = range(case["batch_size"])
        drawn = [sampler.draw(b["epoch"], b["step"], slot) for slot in slots]
        assert drawn == list(zip(b["sources"], b["indices"], strict=True))
        assert batch(sampler, b["epoch"], b["step"]) == b["indices"]


@pytest.mark.parametrize("case", cases("mixing", has="counts_epoch0"))
def test_mixing_keeps_the_shares(case: dict[str, Any]) -> None:
    """Draws per source are the vectors', within four standard deviations (S1-32, S1-33)."""
    counts = case["counts_epoch0"]
    draws = counts["draws"]
    size, seed = case["batch_size"], word(case["seed"])
    sampler = Mixing(case["sources"], case["shares"], size, case["steps_per_epoch"], seed=seed)

    sources = [
        sampler.draw(0, step, slot)[0] for step in range(-(-draws // size)) for slot in range(size)
    ][:draws]

    taking = [w if n else 0 for w, (_, n) in zip(case["shares"], case["sources"], strict=True)]
    for source, found in enumerate(counts["per_source"]):
        p = taking[source] / sum(taking)
        assert sources.count(source) == found
        assert abs(found - draws * p) <= 4 * (draws * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("case", cases("bucketed"))
def test_bucketed(case: dict[str, Any]) -> None:
    """Whole epochs, batch by batch and at once (S1-34, C06, C07)."""
    knobs = (case["lengths"], case["batch_size"], case["pool_batches"], word(case["seed"]))
    sampler = Bucketed(*knobs, drop_last=case["drop_last"])

    assert sampler.steps_in(0) == case["expect_steps_per_epoch"]
    for plan in case["plans"]:
        steps = range(len(plan["batches"]))
        assert [batch(sampler, plan["epoch"], step) for step in steps] == plan["batches"]
        whole = [sample for served in plan["batches"] for sample in served]
        assert [sample for sample, _ in views(sampler, plan["epoch"])] == whole


@pytest.mark.parametrize("case", cases("own_uniform"))
def test_uniform(case: dict[str, Any]) -> None:
    """Fisher-Yates with stream 110, `augment` views of each sample (S0-67)."""
    sampler = Shuffled(
        case["num_samples"],
        4,
        case["seed"],
        drop_last=False,
        augment=case["augment"],
        order="uniform",
    )

    assert views(sampler, case["epoch"]) == case["views"]


@pytest.mark.parametrize("case", cases("own_blocks"))
def test_blocks(case: dict[str, Any]) -> None:
    """Blocks by stream 105, windows by stream 106, asked for at once and step by step."""
    sampler = BlockShuffled(
        case["num_samples"],
        2,
        case["seed"],
        block=case["block"],
        window=case["window"],
        drop_last=False,
        augment=case["augment"],
    )
    first = sampler.first_step(case["epoch"])
    steps = range(first, first + sampler.steps_in(case["epoch"]))

    one_by_one = [sampler.picks(range(step, step + 1)) for step in steps]

    assert views(sampler, case["epoch"]) == case["views"]
    assert [s for picks in one_by_one for s in picks.sample.tolist()] == [
        s for s, _ in case["views"]
    ]


def test_our_own_golden_files_are_what_their_generator_makes() -> None:
    """The files and the plain-integer reference beside them agree."""
    for name, text in make_own.files().items():
        assert (FOLDER / name).read_text() == text
        assert json.loads(text)["cases"]


def test_a_run_of_steps_is_one_epoch_and_one_batch_size() -> None:
    """What a position-based sampler is asked for is a few numbers, however long the run."""
    sampler = Shuffled(10**12, 100)

    [run] = sampler.schedule.runs(range(10**10, 10**10 + 5))

    assert run == Run(1, 10**10, 5, 0, 0, 100, 10**12, 10**12)
