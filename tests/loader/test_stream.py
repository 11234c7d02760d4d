"""The loader against the naive model: one stream, whatever delivers it.

Rows S1-01..06, S1-08, S1-13, S0-60, S0-67, S4-05, S4-06.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import headrace as hr
from tests import model
from tests.loader.kinds import KINDS, columns_of, expected

FACES = ("for", "async for")
WORKERS = (0, 1, 2, 4)
PREFETCH = (1, 3, 8)
SAMPLERS = ("sequential", "shuffled", "uniform", "blocks", "mixing", "bucketed")
DIMENSIONS: tuple[tuple[Any, ...], ...] = (tuple(KINDS), SAMPLERS, WORKERS, PREFETCH, FACES)


@dataclass(frozen=True)
class Case:
    """One way to deliver one stream, with the sizes of its data drawn at random."""

    kind: str
    order: str
    workers: int
    prefetch: int
    face: str
    num_samples: int
    batch_size: int
    seed: int
    drop_last: bool
    augment: int

    def loader(self) -> hr.Loader:
        knobs: dict[str, Any] = {
            "sequential": {"shuffle": False, "augment": self.augment},
            "shuffled": {"augment": self.augment},
        }.get(self.order, {"sampler": self._sampler()})
        if "sampler" not in knobs:
            knobs |= {"batch_size": self.batch_size, "drop_last": self.drop_last}
        return hr.Loader(
            KINDS[self.kind](self.num_samples),
            seed=self.seed,
            workers=self.workers,
            prefetch=self.prefetch,
            **knobs,
        )

    def _sampler(self) -> hr.Sampler | None:
        n, batch, seed, drop = self.num_samples, self.batch_size, self.seed, self.drop_last
        match self.order:
            case "uniform":
                return hr.Shuffled(
                    n, batch, seed, drop_last=drop, augment=self.augment, order="uniform"
                )
            case "blocks":
                return hr.BlockShuffled(
                    n, batch, seed, block=3, window=2, drop_last=drop, augment=self.augment
                )
            case "mixing":
                return hr.Mixing(self._sources(), [1.0, 2.5, 0.5], batch, 5, seed)
            case "bucketed":
                return hr.Bucketed(self._lengths(), batch, 2, seed, drop_last=drop)
        return None

    def model(self) -> model.Model:
        n, batch, seed, drop = self.num_samples, self.batch_size, self.seed, self.drop_last
        match self.order:
            case "sequential":
                order = model.sequential(n, batch, drop, self.augment)
            case "shuffled":
                order = model.shuffled(n, batch, seed, drop, self.augment)
            case "uniform":
                order = model.uniform(n, batch, seed, drop, self.augment)
            case "blocks":
                order = model.block_shuffled(n, batch, seed, drop, 3, 2, self.augment)
            case "mixing":
                order = model.mixing(self._sources(), [1.0, 2.5, 0.5], batch, 5, seed)
            case _:
                order = model.bucketed(self._lengths(), batch, 2, seed, drop)
        return model.Model(order)

    def _sources(self) -> list[tuple[int, int]]:
        third = self.num_samples // 3
        return [(0, third), (third, self.num_samples - third), (0, self.num_samples)]

    def _lengths(self) -> list[int]:
        return [(7 * i) % 11 for i in range(self.num_samples)]


def cases(seed: int, full: bool) -> Iterator[Case]:
    """Give every combination, or enough that every two values meet."""
    rng = random.Random(seed)
    combinations = itertools.product(*DIMENSIONS) if full else pairwise(rng)
    for kind, order, workers, prefetch, face in combinations:
        batch_size = rng.randint(1, 6)
        yield Case(
            kind,
            order,
            workers,
            prefetch,
            face,
            num_samples=rng.randint(batch_size, 29),
            batch_size=batch_size,
            seed=rng.choice([0, 42, rng.getrandbits(63)]),
            drop_last=rng.random() < 0.5,
            augment=rng.choice([1, 1, 2, 3]),
        )


def pairwise(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    """Give combinations in which any two values of two dimensions meet at least once."""
    wanted = {
        (a, one, b, other)
        for (a, first), (b, second) in itertools.combinations(enumerate(DIMENSIONS), 2)
        for one in first
        for other in second
    }
    while wanted:
        tries = [tuple(rng.choice(values) for values in DIMENSIONS) for _ in range(30)]
        best = max(tries, key=lambda chosen: len(pairs_of(chosen) & wanted))
        if pairs_of(best) & wanted:
            wanted -= pairs_of(best)
            yield best


def pairs_of(chosen: tuple[Any, ...]) -> set[tuple[int, Any, int, Any]]:
    return {
        (a, one, b, other) for (a, one), (b, other) in itertools.combinations(enumerate(chosen), 2)
    }


def delivered(loader: hr.Loader, start: int, steps: int, face: str) -> list[hr.Batch]:
    """Take some steps of the run by either face."""
    if face == "for":
        with loader:
            return list(loader.stream(start, steps))

    async def taken() -> list[hr.Batch]:
        async with loader:
            return [batch async for batch in loader.stream(start, steps)]

    return asyncio.run(taken())


def facts_of(batch: hr.Batch) -> dict[str, Any]:
    """Give what a batch says and holds, as plain values."""
    keys = batch.pick_keys
    assert keys is not None
    return {
        "step": batch.step,
        "epoch": batch.epoch,
        "step_in_epoch": keys.step_in_epoch,
        "indices": batch.indices.tolist(),
        "key_samples": keys.sample.tolist(),
        "repeats": keys.repeat.tolist(),
        "slots": keys.slot.tolist(),
        "columns": columns_of(batch),
    }


def wanted_facts(oracle: model.Model, g: int) -> dict[str, Any]:
    """Give what the model says of a step, in the same form."""
    step = oracle.step(g)
    return {
        "step": g,
        "epoch": step.epoch,
        "step_in_epoch": step.step_in_epoch,
        "indices": step.samples,
        "key_samples": step.samples,
        "repeats": step.repeats,
        "slots": list(range(len(step.samples))),
        "columns": expected(step.samples),
    }


def test_every_loader_delivers_the_stream_of_the_model(seed: int, full: bool) -> None:
    """Kind of dataset, sampler, workers, prefetch and face change no batch of two epochs.

    The starting step is drawn too: a run begun anywhere is the rest of the whole run
    (S0-82, S1-03, S1-04, S1-06, S1-08).
    """
    rng = random.Random(seed)
    for case in cases(seed, full):
        oracle = case.model()
        start = rng.choice([0, rng.randint(0, 3 * oracle.steps_per_epoch)])
        steps = 2 * oracle.steps_per_epoch + 1

        batches = delivered(case.loader(), start, steps, case.face)

        for g, batch in zip(range(start, start + steps), batches, strict=True):
            assert facts_of(batch) == wanted_facts(oracle, g), (case, f"step {g}, --seed={seed}")
