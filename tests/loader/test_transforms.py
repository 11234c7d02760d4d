"""Augmentation: more views of each sample, keys that draw for them, and the three transforms."""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import headrace as hr
from headrace.assemble import _with_keys
from tests import model
from tests.loader.kinds import KINDS, ByGet, ByItem, arrays_of

N = 20
SEED = 11
VIEWS = 10**12


def rows(num_samples: int = N) -> hr.Arrays:
    return hr.Arrays(arrays_of(num_samples))


def keys_of(batch: hr.Batch) -> hr.PickKeys:
    assert batch.pick_keys is not None
    return batch.pick_keys


def views_of(loader: hr.Loader, epoch: int = 0) -> list[tuple[int, int]]:
    """Give (sample, repeat) of every row of an epoch, in order."""
    return [(key.sample, key.repeat) for batch in loader.epoch(epoch) for key in keys_of(batch)]


@pytest.mark.parametrize("views", [2, 3, 5])
def test_every_sample_comes_as_often_as_augment_says(views: int) -> None:
    """An epoch is a shuffle of all views, and batches are as many as these need (S0-67)."""
    with hr.Loader(rows(), 6, seed=SEED, augment=views, drop_last=False, workers=2) as loader:
        found = [views_of(loader, epoch) for epoch in range(3)]

        assert len(loader) == -(-N * views // 6)
        assert loader.num_picks == N * views
        assert loader.num_samples == N
    for epoch in found:
        assert sorted(epoch) == [(i, view) for i in range(N) for view in range(views)]
    assert found[0] != found[1]


def one(samples: Any) -> Any:
    return {"seen": torch.tensor([1] * len(samples))}


def option(samples: Any, pad_value: Any = 2) -> Any:
    return {"seen": torch.tensor([pad_value] * len(samples))}


def option_and_rest(samples: Any, pad_value: Any = 2, *rest: Any) -> Any:
    return option(samples, pad_value)


def keyed(samples: Any, keys: Any) -> Any:
    return {"seen": torch.tensor([key.slot for key in keys])}


def all_given(*given: Any) -> Any:
    return keyed(*given)


def named_only(samples: Any, *, keys: Any = 3) -> Any:
    return option(samples, keys)


@pytest.mark.parametrize(
    ("collate", "seen"),
    [
        (one, [1, 1, 1]),
        (option, [2, 2, 2]),
        (option_and_rest, [2, 2, 2]),
        (functools.partial(keyed, keys=range(0)), []),
        (functools.partial(option, pad_value=4), [4, 4, 4]),
        (keyed, [0, 1, 2]),
        (all_given, [0, 1, 2]),
        (named_only, [3, 3, 3]),
    ],
)
def test_collate_gets_keys_only_where_it_must_be_given_something(
    collate: Callable[..., Any], seen: list[int]
) -> None:
    """A second parameter with a default is an option, and is left alone."""
    keys = [types.SimpleNamespace(slot=slot) for slot in range(3)]

    found = _with_keys(collate)(["a", "b", "c"], keys)

    assert found["seen"].tolist() == seen


def test_an_option_of_collate_keeps_its_default_in_a_loader() -> None:
    """No key comes in its place."""
    with hr.Loader(rows(), 3, seed=SEED, collate=option, workers=0) as loader:
        assert next(iter(loader))["seen"].tolist() == [2, 2, 2]


def test_a_sample_of_arrays_is_a_dict_of_its_columns_for_collate_and_transform() -> None:
    """Of a TensorDataset too, though torch gives tuples: columns without names are numbered."""
    seen: list[tuple[str, ...]] = []

    def transform(sample: Any, key: hr.PickKey) -> Any:
        seen.append(tuple(sample))
        return sample

    def collate(samples: Any) -> Any:
        return {"sum": torch.stack([sample["0"] + sample["1"] for sample in samples])}

    data = TensorDataset(torch.arange(4), torch.arange(4))
    with hr.Loader(
        data, 4, shuffle=False, sample_transform=transform, collate=collate, workers=0
    ) as loader:
        assert next(iter(loader))["sum"].tolist() == [0, 2, 4, 6]

    assert set(seen) == {("0", "1")}


def test_views_are_spread_over_the_epoch() -> None:
    """Two views of one sample are neighbours about as often as chance has it (S0-67).

    Of 1,999 pairs of neighbours among 2,000 picks with 3 other views each, 3 are expected; the
    bound is six standard deviations above.
    """
    with hr.Loader(rows(500), 50, seed=SEED, augment=4, workers=0) as loader:
        for epoch in range(4):
            samples = [sample for sample, _ in views_of(loader, epoch)]
            neighbours = sum(a == b for a, b in itertools.pairwise(samples))
            assert neighbours <= 14
            # Each quarter of the epoch has about a quarter of the views.
            quarters = [Counter(samples[at : at + 500]) for at in range(0, 2000, 500)]
            assert all(len(quarter) > 280 for quarter in quarters)


def test_views_without_a_transform_oversample() -> None:
    """The rows of all views of a sample are the same bytes (S0-69)."""
    with hr.Loader(rows(), 8, augment=3, drop_last=False, workers=2) as loader:
        found = Counter(
            (i, tuple(x))
            for batch in loader.epoch(0)
            for i, x in zip(batch["id"].tolist(), batch["x"].tolist(), strict=True)
        )

    assert found == {(i, (i, i + 0.25, i + 0.5)): 3 for i in range(N)}


def test_a_key_draws_for_its_view_alone() -> None:
    """One key, one sequence of draws; all keys of two epochs differ (S0-71)."""
    with hr.Loader(rows(), 8, seed=SEED, augment=2, drop_last=False, workers=0) as loader:
        keys = [key for epoch in (0, 1) for batch in loader.epoch(epoch) for key in keys_of(batch)]

    draws = [key.rng().next_int(VIEWS) for key in keys]
    assert [key.rng().next_int(VIEWS) for key in keys] == draws
    assert len(set(draws)) == 4 * N
    assert draws == [
        model.pick_rng(SEED, key.epoch, key.sample, key.repeat).next_int(VIEWS) for key in keys
    ]
    assert [key.slot_rng().next_int(VIEWS) for key in keys] == [
        model.slot_rng(SEED, key.epoch, key.step_in_epoch, key.slot).next_int(VIEWS) for key in keys
    ]


def test_keys_draw_for_a_whole_batch_at_once() -> None:
    """Row r of `rngs()` draws what `keys[r].rng()` draws (S0-71)."""
    with hr.Loader(rows(), 8, seed=SEED, augment=2, workers=0) as loader:
        keys = keys_of(next(iter(loader)))

    at_once, slots_at_once = keys.rngs(), keys.slot_rngs()

    assert at_once.next_int(VIEWS).tolist() == [key.rng().next_int(VIEWS) for key in keys]
    assert slots_at_once.next_int(VIEWS).tolist() == [
        key.slot_rng().next_int(VIEWS) for key in keys
    ]


def noisy(sample: Any, key: hr.PickKey) -> Any:
    """Add a draw of the view to a sample, in a new sample."""
    return {"id": sample["id"], "draw": key.rng().next_int(VIEWS)}


def draws_by_view(loader: hr.Loader, epochs: int = 2) -> dict[tuple[int, int, int], int]:
    """Give the draw of each (epoch, sample, repeat)."""
    with loader:
        return {
            (key.epoch, key.sample, key.repeat): draw
            for epoch in range(epochs)
            for batch in loader.epoch(epoch)
            for key, draw in zip(keys_of(batch), batch["draw"].tolist(), strict=True)
        }


@pytest.mark.parametrize("batch_size", [1, 7, 20])
@pytest.mark.parametrize("workers", [0, 4])
def test_the_view_of_a_sample_does_not_move(batch_size: int, workers: int) -> None:
    """Draws depend on seed, epoch, sample and view, not on batch, slot or reader (S0-72)."""
    loader = hr.Loader(
        ByItem(N),
        batch_size,
        seed=SEED,
        augment=2,
        drop_last=False,
        workers=workers,
        sample_transform=noisy,
    )

    assert draws_by_view(loader) == {
        (epoch, i, view): model.pick_rng(SEED, epoch, i, view).next_int(VIEWS)
        for epoch in range(2)
        for i in range(N)
        for view in range(2)
    }


def shifted(batch: hr.Batch, keys: hr.PickKeys) -> Any:
    """Add a draw of each view to each row, as tensor operations."""
    draws = torch.from_numpy(keys.rngs().next_int(1000))
    return {**batch, "draw": draws, "x": batch["x"] + draws[:, None]}


async def shifted_later(batch: hr.Batch, keys: hr.PickKeys) -> Any:
    await asyncio.sleep(0)
    return shifted(batch, keys)


class Shifting:
    """A transform that is an object with an awaited call."""

    async def __call__(self, batch: hr.Batch, keys: hr.PickKeys) -> Any:
        return await shifted_later(batch, keys)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "plain": shifted,
    "awaited": shifted_later,
    "object": Shifting(),
}


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_transform_sees_every_batch_with_its_keys(
    kind: str, transform: str, workers: int, face: str
) -> None:
    """Plain or awaited, for every kind of dataset, on both faces (S0-70)."""
    loader = hr.Loader(
        KINDS[kind](N),
        6,
        seed=SEED,
        workers=workers,
        prefetch=4,
        content_digest=True,
        transform=TRANSFORMS[transform],
    )

    batches: list[hr.Batch] = []
    if face == "for":
        with loader:
            batches += loader.stream(steps=7)
    else:

        async def take() -> None:
            async with loader:
                async for batch in loader.stream(steps=7):
                    batches.append(batch)

        asyncio.run(take())

    assert [batch.step for batch in batches] == list(range(7))
    for batch in batches:
        draws = [
            model.pick_rng(SEED, batch.epoch, i, 0).next_int(1000) for i in batch["id"].tolist()
        ]
        assert batch["draw"].tolist() == draws
        moved = batch["id"] + batch["draw"]
        assert batch["x"].tolist() == [[i, i + 0.25, i + 0.5] for i in moved.tolist()]


def test_an_awaited_transform_runs_on_one_loop() -> None:
    """All batches are awaited on the engine's loop, several at once (S0-70)."""
    loops: set[asyncio.AbstractEventLoop] = set()
    threads: set[str] = set()

    async def transform(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        loops.add(asyncio.get_running_loop())
        threads.add(threading.current_thread().name)
        return batch

    for data in (ByItem(N), ByGet(N), rows()):
        with hr.Loader(data, 2, workers=3, transform=transform) as loader:
            for epoch in loader.epochs(2):
                for _ in epoch:
                    pass
        assert len(loops) == 1
        loops.clear()
    assert threads == {"headrace-loop"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_must_keep_the_rows(workers: int) -> None:
    """Fewer or more rows than keys are an error at the batch (U-24)."""
    with (
        hr.Loader(
            rows(), 4, workers=workers, transform=lambda batch, keys: batch["x"][1:]
        ) as loader,
        pytest.raises(hr.ConfigError, match="transform: wanted 4 rows") as caught,
    ):
        next(iter(loader))

    assert isinstance(caught.value, hr.SampleError)
    assert caught.value.step == 0


def test_a_transform_that_forgets_to_be_async_is_told() -> None:
    """What gives an awaitable without being a coroutine function names the cure."""
    with (
        hr.Loader(rows(), 4, transform=lambda batch, keys: shifted_later(batch, keys)) as loader,
        pytest.raises(TypeError, match="async def"),
    ):
        next(iter(loader))


def test_sample_transform_comes_before_collation_and_transform_last() -> None:
    """Three places, in order; the first may change shapes (S4-05, S1-42)."""
    seen: list[str] = []

    def sample_transform(sample: Any, key: hr.PickKey) -> Any:
        seen.append("sample")
        return sample["x"][:2]

    def collate(samples: Any) -> Any:
        seen.append("collate")
        return {"pair": torch.tensor([sample.tolist() for sample in samples])}

    def transform(batch: hr.Batch, keys: hr.PickKeys) -> Any:
        seen.append("transform")
        return {"sum": batch["pair"].sum(1)}

    with hr.Loader(
        ByItem(4),
        2,
        shuffle=False,
        workers=1,
        probe=False,
        sample_transform=sample_transform,
        collate=collate,
        transform=transform,
    ) as loader:
        found = [batch["sum"].tolist() for batch in loader]

    assert found == [[0.25, 2.25], [4.25, 6.25]]
    assert seen == ["sample", "sample", "collate", "transform"] * 2


def test_columns_are_named_by_the_user(full: bool) -> None:
    """`names=` counts the columns of every kind of dataset (S0-24, U-05, U-25)."""
    for kind in KINDS:
        with hr.Loader(KINDS[kind](8), 4, names=["a", "b", "c"], workers=1) as loader:
            assert loader.names == ("a", "b", "c")
            assert next(iter(loader)).names == ("a", "b", "c")
    for kind in ("item", "get", "batch"):
        with (
            hr.Loader(KINDS[kind](8), 4, names=["a", "b"], workers=1) as loader,
            pytest.raises(hr.ConfigError, match="names: wanted 3 names"),
        ):
            next(iter(loader))
    with pytest.raises(hr.ConfigError, match="names: wanted 3 names"):
        hr.Loader(rows(), 4, names=["a", "b"])
