"""What anybody expects of a loader: the basics, one test for each intent.

Rows S0-01, S0-03, S0-05, S0-06, S0-60..66, S4-01..04, S4-18..22, S4-26, U-16, U-28, U-38.
"""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

import headrace as hr
from tests import model
from tests.loader.kinds import KINDS, ByBatch, ByItem, ByItems, Samples, arrays_of, columns_of

ALL = [pytest.param(kind, id=kind) for kind in KINDS]


def ids_of(stream: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in stream]


def flat(batches: list[list[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


@pytest.mark.parametrize("kind", ALL)
def test_sizes_of_an_ordered_epoch(kind: str) -> None:
    """23 samples in sevens: 7, 7, 7, 2, or 21 samples where the last is dropped (S4-02)."""
    with hr.Loader(KINDS[kind](23), 7, shuffle=False, workers=2) as loader:
        batches = ids_of(loader)
        assert [len(batch) for batch in batches] == [7, 7, 7, 2]
        assert flat(batches) == list(range(23))
        assert (len(loader), loader.num_batches, loader.num_picks) == (4, 4, 23)
        assert loader.samples_dropped == 0
    with hr.Loader(KINDS[kind](23), 7, shuffle=False, drop_last=True, workers=2) as loader:
        assert flat(ids_of(loader)) == list(range(21))
        assert (len(loader), loader.num_picks, loader.num_samples) == (3, 21, 23)
        assert loader.samples_dropped == 2
        assert loader.stats()["samples_dropped"] == 2


@pytest.mark.parametrize("kind", ALL)
def test_every_sample_comes_once_and_matches_its_id(kind: str) -> None:
    """Sorted ids are all ids, and a row holds the data of its id (S4-01, S4-04, S4-46)."""
    with hr.Loader(KINDS[kind](23), 7, drop_last=False, workers=4, prefetch=8) as loader:
        batches = list(loader)

    assert sorted(flat([batch["id"].tolist() for batch in batches])) == list(range(23))
    for batch in batches:
        ids = batch["id"]
        assert batch.indices.tolist() == ids.tolist()
        assert batch["square"].tolist() == (ids * ids).tolist()
        assert batch["x"].tolist() == [[i, i + 0.25, i + 0.5] for i in ids.tolist()]


def test_all_kinds_of_dataset_give_equal_batches() -> None:
    """Samples one by one, at once, awaited, in rows or in batches: the same columns (S0-06)."""
    found = []
    for kind in KINDS:
        with hr.Loader(KINDS[kind](20), 6, seed=5, workers=2) as loader:
            found.append([columns_of(batch) for batch in loader])
            dtypes = [column.dtype for column in loader.batch_at(0).columns]
            assert dtypes == [torch.int64, torch.int64, torch.float32]

    assert all(one == found[0] for one in found)


def test_tuples_of_tensors_stack_by_position() -> None:
    """Three tensors a sample are three columns "0", "1", "2", and unpack (S0-05, S0-24)."""

    class Triples(Samples):
        def __getitem__(self, index: int) -> Any:
            return torch.full((3, 4), index), torch.tensor(index), np.float64(index)

    with hr.Loader(Triples(8), 4, shuffle=False, workers=1) as loader:
        images, labels, weights = batch = next(iter(loader))

    assert batch.names == ("0", "1", "2")
    assert [list(column.shape) for column in batch] == [[4, 3, 4], [4], [4]]
    assert batch[1] is labels
    assert batch["2"] is weights
    assert images[3].tolist() == [[3] * 4] * 3


def test_the_quick_start_works() -> None:
    """Batch dataset, names, an epoch at a time, columns by name on the device (S0-01, S0-03)."""
    data = ByBatch(64)
    loader = hr.Loader(data, batch_size=32, device="cpu", names=["id", "label", "image"])

    for epoch in range(2):
        for batch in loader.epoch(epoch):
            assert batch["image"].device == torch.device("cpu")
            assert batch.has("label")
            assert not batch.has("square")
            assert (len(batch), batch.num_rows) == (3, 32)

    loader.close()


def test_epochs_differ_and_come_again() -> None:
    """Any epoch has an order of its own, whenever and however often it is asked for
    (S0-60, S0-62)."""
    run = model.Model(model.shuffled(30, 7, 42, drop_last=True))
    with hr.Loader(ByItem(30), 7, workers=2, probe=False) as loader:
        for epoch in (3, 0, 2, 3, 1, 0):
            assert flat(ids_of(loader.epoch(epoch))) == run.samples(epoch)

    assert len({tuple(run.samples(epoch)) for epoch in range(4)}) == 4


def test_defaults() -> None:
    """Seed 42, shuffled, the last short batch dropped; in order it is kept
    (S0-61, S0-65, U-02, U-03, U-05, U-15)."""
    with hr.Loader(ByItem(30), 7, probe=False) as loader:
        assert loader.seed == 42
        assert loader.device == torch.device("cpu")
        assert isinstance(loader.sampler, hr.Shuffled)
        run = model.Model(model.shuffled(30, 7, 42, drop_last=True))
        assert flat(ids_of(loader)) == run.samples(0)
        assert loader.names is None
    with hr.Loader(ByItem(30), 7, shuffle=False, probe=False) as loader:
        assert [len(batch) for batch in ids_of(loader)] == [7, 7, 7, 7, 2]


def test_a_seed_of_ones_own() -> None:
    """Another seed is another order, and the same seed the same one, of any sign (S0-61)."""
    found: dict[int, list[int]] = {}
    for seed in (0, 1, -1, 2**64 - 1, 1):
        with hr.Loader(ByItem(30), 7, seed=seed, probe=False) as loader:
            order = flat(ids_of(loader))
            assert found.setdefault(seed, order) == order
            assert order == model.Model(model.shuffled(30, 7, seed, True)).samples(0)

    assert found[0] != found[1]
    # Seeds are taken mod 2^64, so -1 is the largest of them.
    assert found[-1] == found[2**64 - 1]


def test_in_order_every_epoch_is_the_same() -> None:
    """`shuffle=False` is index order, in each epoch (S0-63, S4-21)."""
    with hr.Loader(ByItem(10), 4, shuffle=False, workers=2, probe=False) as loader:
        for epoch in loader.epochs(3):
            assert flat(ids_of(epoch)) == list(range(10))


def test_each_plain_pass_is_the_next_epoch() -> None:
    """As in torch: orders differ from pass to pass, and a rerun has the same ones (S4-20)."""
    run = model.Model(model.shuffled(20, 4, 42, drop_last=True))
    for _ in range(2):
        with hr.Loader(ByItem(20), 4, workers=2, probe=False) as loader:
            passes = [flat(ids_of(loader)) for _ in range(3)]
        assert passes == [run.samples(epoch) for epoch in range(3)]


def test_set_epoch_names_the_next_pass() -> None:
    """As in torch's DistributedSampler; the passes after it go on from there (S4-22)."""
    run = model.Model(model.shuffled(20, 4, 42, drop_last=True))
    with hr.Loader(ByItem(20), 4, workers=2, probe=False) as loader:
        loader.set_epoch(5)
        assert flat(ids_of(loader)) == run.samples(5)
        assert flat(ids_of(loader)) == run.samples(6)
        loader.set_epoch(0)
        assert flat(ids_of(loader)) == run.samples(0)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("workers", [0, 2])
def test_fewer_samples_than_a_batch(kind: str, workers: int) -> None:
    """No batch and no error, or one short batch; an endless stream of nothing is an error
    (U-28, C11)."""
    with hr.Loader(KINDS[kind](3), 8, workers=workers) as loader:
        assert ids_of(loader) == []
        assert len(loader) == 0
        assert loader.is_empty
        assert [ids_of(epoch) for epoch in loader.epochs(2)] == [[], []]
        with pytest.raises(ValueError, match=r"epochs|batch"):
            loader.stream()
    with hr.Loader(KINDS[kind](3), 8, drop_last=False, workers=workers) as loader:
        assert not loader.is_empty
        assert [sorted(batch) for batch in ids_of(loader)] == [[0, 1, 2]]


@pytest.mark.parametrize("kind", ALL)
def test_a_single_sample(kind: str) -> None:
    """One sample is one batch of one row."""
    with hr.Loader(KINDS[kind](1), 1, workers=2) as loader:
        assert [ids_of(epoch) for epoch in loader.epochs(2)] == [[[0]], [[0]]]


def test_exact_division() -> None:
    """A length that the batch size divides has no short batch, kept or dropped."""
    for drop_last in (True, False):
        with hr.Loader(ByItem(12), 4, drop_last=drop_last, workers=2, probe=False) as loader:
            assert [len(batch) for batch in ids_of(loader)] == [4, 4, 4]
            assert len(loader) == 3


def test_an_empty_dataset_is_refused() -> None:
    """When the loader is made, by the name of the knob (U-25)."""
    empty: list[Any] = [ByItem(0), [], np.empty((0, 3))]
    for data in empty:
        with pytest.raises(hr.ConfigError, match="data: wanted at least one sample"):
            hr.Loader(data, 4)


def test_a_dataset_without_a_tensor_is_refused() -> None:
    """A batch of words alone can train nothing (U-25)."""

    class Words(Samples):
        def get_batch(self, indices: Any) -> Any:
            return {"word": ["a"] * len(indices)}

    with (
        hr.Loader(Words(4), 2, workers=1) as loader,
        pytest.raises(ValueError, match="at least one tensor column"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_own_sampler_decides(workers: int) -> None:
    """Samplers of headrace and of torch, and lists; they win over `shuffle` (S0-64, U-03)."""
    data = ByItem(12)
    weighted = [3, 3, 3, 0, 11, 7, 3, 0]

    class Weighted:
        def __len__(self) -> int:
            return len(weighted)

        def __iter__(self) -> Any:
            return iter(weighted)

    samplers: dict[str, tuple[Any, int | None, list[list[int]]]] = {
        "headrace": (hr.Sequential(10, 4, drop_last=True), None, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        "torch": (SequentialSampler(range(6)), 4, [[0, 1, 2, 3], [4, 5]]),
        "batches": (BatchSampler(SequentialSampler(range(5)), 2, True), None, [[0, 1], [2, 3]]),
        "own": (Weighted(), 4, [[3, 3, 3, 0], [11, 7, 3, 0]]),
        "lists": ([[1], [4, 2, 0], [9, 9]], None, [[1], [4, 2, 0], [9, 9]]),
    }
    for sampler, batch_size, wanted in samplers.values():
        with hr.Loader(
            data, batch_size, sampler=sampler, shuffle=True, workers=workers, probe=False
        ) as loader:
            assert ids_of(loader.epoch(0)) == wanted
            assert len(loader) == len(wanted)


def test_a_random_sampler_of_torch_differs_by_epoch_and_comes_again() -> None:
    """A sampler without a generator is given one per epoch, made from the seed (S0-64)."""
    runs = []
    for _ in range(2):
        with hr.Loader(
            ByItem(12), 4, sampler=RandomSampler(range(12)), workers=2, probe=False
        ) as loader:
            runs.append([flat(ids_of(epoch)) for epoch in loader.epochs(3)])

    assert runs[0] == runs[1]
    assert all(sorted(epoch) == list(range(12)) for epoch in runs[0])
    assert runs[0][0] != runs[0][1]


@pytest.mark.parametrize(
    ("drawn", "length", "error", "words"),
    [
        ([0, 1, 2], 4, hr.ConfigError, "4 elements"),
        ([0, 1, 2, 3, 4], 4, hr.ConfigError, "more than 4"),
        ([0, 1, 2, 30], 4, IndexError, "index 30"),
        ([0, 1, 2, -1], 4, IndexError, "index -1"),
        ([0, 1, 2, "a"], 4, hr.ConfigError, "sampler"),
    ],
)
def test_a_wrong_sampler_is_named(
    drawn: list[Any], length: int, error: type[Exception], words: str
) -> None:
    """Too few, too many, out of range, or no index at all (S0-64, S4-03)."""

    class Wrong:
        def __len__(self) -> int:
            return length

        def __iter__(self) -> Any:
            return iter(drawn)

    with (
        hr.Loader(ByItem(12), 2, sampler=Wrong(), workers=2, probe=False) as loader,
        pytest.raises(error, match=words) as caught,
    ):
        next(iter(loader))

    assert isinstance(caught.value, hr.SampleError)
    assert caught.value.step == 0


def test_a_sampler_that_fails_in_a_later_epoch_lets_this_one_arrive() -> None:
    """Steps before the failing one are delivered, though the order is worked out ahead
    (S1-10)."""

    class FailsLater:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return 12

        def __iter__(self) -> Any:
            if self.epoch == 1:
                raise ValueError("boom")
            return iter(range(12))

    with hr.Loader(
        ByItem(12), 2, sampler=FailsLater(), workers=4, prefetch=8, probe=False
    ) as loader:
        stream = loader.stream()
        assert [next(stream).step for _ in range(6)] == list(range(6))
        with pytest.raises(ValueError, match="step 6, the batch: ValueError: boom"):
            next(stream)


def test_the_bulk_call_of_torch_is_used_where_it_is() -> None:
    """`__getitems__` gets the indices of a whole batch, in order (S4-06)."""
    asked: list[list[int]] = []

    class Noted(ByItems):
        def __getitems__(self, indices: Any) -> Any:
            asked.append(list(indices))
            return super().__getitems__(indices)

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("the bulk call is there")

    with hr.Loader(Noted(10), 4, shuffle=False, workers=1, probe=False) as loader:
        list(loader)

    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_dataset_may_give_whole_batches() -> None:
    """`get_batch` gets the indices and its columns are delivered as they are (S4-07, S0-06)."""

    class Prebatched(Samples):
        def get_batch(self, indices: Any) -> Any:
            return torch.tensor(indices), torch.tensor(indices).float().reshape(-1, 1, 1) / 2

    with hr.Loader(Prebatched(10), 4, shuffle=False, workers=2) as loader:
        ids, halves = next(iter(loader))

    assert ids.tolist() == [0, 1, 2, 3]
    assert halves.tolist() == [[[0.0]], [[0.5]], [[1.0]], [[1.5]]]


@pytest.mark.parametrize("kind", ALL)
def test_where_every_row_comes_from(kind: str) -> None:
    """`why` tells place, sample and view of each row of any step, and reads nothing."""
    run = model.Model(model.shuffled(20, 6, 42, drop_last=True, augment=2))
    with hr.Loader(KINDS[kind](20), 6, augment=2, workers=0) as loader:
        for g in (0, 3, 7, 1000):
            step = run.step(g)
            told = loader.why(g)
            assert [(row.step, row.epoch, row.step_in_epoch) for row in told] == [
                (g, step.epoch, step.step_in_epoch)
            ] * 6
            assert [row.slot for row in told] == list(range(6))
            assert [row.sample for row in told] == step.samples
            assert [row.repeat for row in told] == step.repeats
        assert loader.stats()["batches"] == 0


def test_steps_far_away_cost_no_more() -> None:
    """A step of epoch 10^6 over 10^12 samples is as near as the first (S1-30, S1-03)."""

    class Endless(Samples):
        def __getitem__(self, index: int) -> int:
            return index

    far = 10**6 * 10**9 + 12_345
    with hr.Loader(Endless(10**12), 1000, seed=3, workers=2, probe=False) as loader:
        batch = next(loader.stream(far))
        alone = loader.batch_at(far)

    key = model.derive(3, 10**6, 0, 0, model.ORDER)
    wanted = [model.permuted(12_345_000 + slot, 10**12, key) for slot in range(1000)]
    assert (batch.step, batch.epoch, batch.num_rows) == (far, 10**6, 1000)
    assert batch["0"].tolist() == wanted
    assert alone["0"].tolist() == wanted


def test_a_stream_knows_how_many_batches_are_left() -> None:
    """As a hint, for lists and progress bars; an endless stream has none (U-27)."""
    with hr.Loader(ByItem(23), 7, shuffle=False, workers=1, probe=False) as loader:
        stream = loader.epoch(1)
        left = [operator.length_hint(stream, -1)]
        left += [operator.length_hint(stream, -1) for _ in stream]
        left.append(operator.length_hint(stream, -1))

        assert left == [4, 3, 2, 1, 0, 0]
        assert operator.length_hint(loader.stream(), -1) == -1
        assert operator.length_hint(loader.stream(3, 9), -1) == 9


def test_weigh_a_metric_by_rows() -> None:
    """The mean over an epoch whose last batch is short is right when rows are counted (S4-19)."""
    with hr.Loader({"x": np.arange(23.0)}, 7, shuffle=False, workers=1) as loader:
        batches = list(loader)

    total = sum(batch["x"].mean().item() * batch.num_rows for batch in batches)
    assert total / sum(batch.num_rows for batch in batches) == pytest.approx(11.0)


def test_a_failed_step_may_be_tried_again() -> None:
    """A new stream from the step that failed reads its samples anew (U-33, C21)."""
    left = [2]

    class Flaky(ByItem):
        def __getitem__(self, index: int) -> Any:
            if index == 5 and left[0]:
                left[0] -= 1
                raise TimeoutError("late")
            return super().__getitem__(index)

    with hr.Loader(Flaky(10), 2, shuffle=False, workers=2, probe=False) as loader:
        found: list[list[int]] = []
        stream = loader.epoch(0)
        while len(found) < 5:
            try:
                found.append(next(stream)["id"].tolist())
            except TimeoutError:
                stream = loader.stream(steps=5 - len(found))

    assert found == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert left == [0]


def test_fields_of_unequal_length_are_never_cut() -> None:
    """The error names field, lengths and samples; shapes and dtypes likewise (B29)."""
    cases: list[tuple[list[Any], str]] = [
        ([{"t": ["a"]}, {"t": ["a", "b"]}], r"'t'.*length 1.*length 2"),
        ([{"x": np.zeros((3, 4))}, {"x": np.zeros((3, 5))}], r"'x'.*3, 4.*3, 5"),
        ([{"x": np.zeros(3)}, {"x": np.zeros(0)}], r"'x'.*3.*0"),
        ([{"x": np.zeros(2, np.int32)}, {"x": np.zeros(2, np.int64)}], r"'x'.*int32.*int64"),
        ([{"x": None}, {"x": 1}], r"'x'"),
    ]
    for samples, words in cases:
        with (
            hr.Loader(samples, 2, shuffle=False, workers=1) as loader,
            pytest.raises(ValueError, match=words) as caught,
        ):
            next(iter(loader))
        said = str(caught.value)
        assert said.startswith("step 0, the batch: ")
        assert "sample 0" in said
        assert "sample 1" in said


def test_what_a_loader_says_of_itself() -> None:
    """The facts that may be asked for, before and after the first batch (U-16)."""
    with hr.Loader(ByItem(23), 7, augment=2, prefetch=3, workers=2, probe=False) as loader:
        facts: dict[str, Callable[[], Any]] = {
            "num_samples": lambda: loader.num_samples,
            "num_picks": lambda: loader.num_picks,
            "num_batches": lambda: loader.num_batches,
            "len": lambda: len(loader),
            "batch_size": lambda: loader.batch_size,
            "device": lambda: str(loader.device),
            "is_empty": lambda: loader.is_empty,
            "samples_dropped": lambda: loader.samples_dropped,
            "prefetch_depth": lambda: loader.prefetch_depth,
            "resume": lambda: loader.resume,
        }
        before = {name: ask() for name, ask in facts.items()}
        next(iter(loader))
        after = {name: ask() for name, ask in facts.items()}
        said = repr(loader)

    assert before == after
    assert before == {
        "num_samples": 23,
        "num_picks": 42,
        "num_batches": 6,
        "len": 6,
        "batch_size": 7,
        "device": "cpu",
        "is_empty": False,
        "samples_dropped": 4,
        "prefetch_depth": 3,
        "resume": "seek",
    }
    assert said == (
        "Loader(ByItem(23 samples), batch_size=7, Shuffled, seed=42, device='cpu', workers=2, "
        "at step 1)"
    )


def test_prefetch_is_chosen_by_size() -> None:
    """Small batches are read far ahead, large ones less; 0 counts as 1 (U-04)."""
    small = hr.Loader(hr.Arrays(arrays_of(64)), 4)
    large = hr.Loader({"x": np.zeros((4, 1 << 22), np.float32)}, 2)
    none = hr.Loader(hr.Arrays(arrays_of(64)), 4, prefetch=0)

    assert (small.prefetch_depth, large.prefetch_depth, none.prefetch_depth) == (32, 4, 1)
    for loader in (small, large, none):
        loader.close()


def test_the_first_wait_is_told_apart() -> None:
    """Time to the first batch is no part of the steady wait (S4-42, S4-40)."""
    with hr.Loader(ByItem(40), 4, workers=1, probe=False) as loader:
        stream = iter(loader)
        next(stream)
        first = loader.stats()
        for _ in stream:
            pass
        last = loader.stats()

    assert first["first_wait_s"] > 0
    assert first["wait_s"] == 0
    assert last["first_wait_s"] == first["first_wait_s"]
    assert last["wait_s"] > 0
    assert (last["batches"], last["rows"]) == (10, 40)


def test_it_runs_where_no_accelerator_can_be_seen() -> None:
    """The host is enough, also with every device hidden (S0-02); `-O` leaves out the probe
    (S0-74)."""
    code = (
        "import headrace as hr, torch\n"
        "print(torch.cuda.is_available())\n"
        "with hr.Loader({'x': torch.arange(8)}, 4, shuffle=False) as loader:\n"
        "    print([batch['x'].tolist() for batch in loader])\n"
        "class Impure:\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, index): return torch.rand(())\n"
        "with hr.Loader(Impure(), 2) as loader:\n"
        "    print(len(list(loader)))\n"
    )
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, env=hidden, timeout=60
    )

    assert run.stderr == ""
    assert run.stdout == "False\n[[0, 1, 2, 3], [4, 5, 6, 7]]\n2\n"


def test_counts_of_a_mixture_follow_the_shares() -> None:
    """Within four standard deviations over 10,000 draws, through the loader (S1-33)."""
    sampler = hr.Mixing.end_to_end([100, 300], [1.0, 3.0], 100, 100, seed=9)
    with hr.Loader(ByBatch(400), sampler=sampler, workers=2) as loader:
        found = Counter(index < 100 for index in flat(ids_of(loader.epoch(0))))

    assert found[True] + found[False] == 10_000
    assert abs(found[True] - 2500) <= 4 * (10_000 * 0.25 * 0.75) ** 0.5
