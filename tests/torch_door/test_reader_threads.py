"""Threads in the role of torch's workers."""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import headrace as hr
from headrace.errors import BatchTimeoutError
from headrace.testing.gates import Gate
from tests.torch_door.data import OURS, Each


def thread_of(index: int) -> int:
    return threading.get_ident()


def info_of(index: int) -> tuple[int, int]:
    info = torch.utils.data.get_worker_info()
    return (-1, -1) if info is None else (info.id, info.num_workers)


def test_without_threads_all_is_done_by_the_caller() -> None:
    """Samples and collation run where the batch is asked for (S4-08)."""
    seen = []

    def collate(samples: list[int]) -> list[int]:
        seen.append(threading.get_ident())
        return samples

    batches = list(OURS(Each(thread_of), 4, collate_fn=collate))

    here = threading.get_ident()
    assert {ident for batch in batches for ident in batch} == {here}
    assert set(seen) == {here}


def test_samples_and_collation_of_a_batch_run_on_one_reader_thread() -> None:
    """A batch is never put together from parts of several threads (S4-08)."""
    loader = OURS(Each(thread_of, 16), 4, num_workers=2, collate_fn=threads_of)

    batches = list(loader)

    assert all(made_by == {collated_by} for made_by, collated_by in batches)
    assert len({ident for _, ident in batches}) == 2
    assert threading.get_ident() not in {ident for _, ident in batches}


both = threading.Barrier(2)


def threads_of(samples: list[int]) -> tuple[set[int], int]:
    # Two threads must be at work for either to go on.
    both.wait(timeout=60)
    return set(samples), threading.get_ident()


def test_a_thread_is_told_its_number_and_dataset() -> None:
    """`get_worker_info` gives in each thread what torch gives in each process (S4-17)."""
    data = Each(info_of)
    told: dict[int, Any] = {}

    def init(number: int) -> None:
        told[number] = torch.utils.data.get_worker_info()

    torch.manual_seed(3)
    loader = OURS(data, 4, num_workers=3, worker_init_fn=init)
    numbers = Counter(int(number) for ids, _ in loader for number in ids)

    assert sorted(told) == [0, 1, 2]
    assert set(numbers) <= {0, 1, 2}
    torch.manual_seed(3)
    base_seed = int(torch.empty((), dtype=torch.int64).random_().item())
    assert {number: info.seed - base_seed for number, info in told.items()} == {0: 0, 1: 1, 2: 2}
    assert {info.num_workers for info in told.values()} == {3}
    assert len({id(info.dataset) for info in told.values()} | {id(data)}) == 4
    assert {info.worker_method for info in told.values()} == {"thread"}


def test_nobody_else_is_told_anything() -> None:
    """The consumer, and a loader without threads, have no worker info."""
    with_threads = iter(OURS(Each(info_of), 4, num_workers=2))
    next(with_threads)

    without = list(OURS(Each(info_of), 23))

    assert torch.utils.data.get_worker_info() is None
    assert hr.torch.get_worker_info() is None
    assert without[0][0].tolist() == [-1] * 23
    with_threads.close()


def test_torchs_own_workers_still_hear_of_themselves() -> None:
    """Torch's function goes on to work in torch's processes, once ours has been taught."""
    list(OURS(Each(info_of), 4, num_workers=2))

    theirs = torch.utils.data.DataLoader(Each(info_of), batch_size=12, num_workers=2)

    assert [(ids[0].item(), of[0].item()) for ids, of in theirs] == [(0, 2), (1, 2)]


def test_collation_in_threads_takes_no_shared_memory() -> None:
    """Batches are ordinary tensors: shared ones would cost a file each."""
    loader = OURS(range(8), 4, num_workers=2)

    assert [batch.is_shared() for batch in loader] == [False, False]


def test_init_runs_once_for_each_thread_of_each_pass() -> None:
    """Threads begin anew with each pass, unless they are kept (S4-28)."""
    for kept, calls in [(False, 6), (True, 2)]:
        numbers: list[int] = []
        loader = OURS(
            range(8), 2, num_workers=2, worker_init_fn=numbers.append, persistent_workers=kept
        )

        for _ in range(3):
            assert len(list(loader)) == 4
        loader._iterator = None

        assert sorted(numbers) == sorted([0, 1] * (calls // 2))


def test_kept_threads_keep_their_copy_and_fresh_ones_see_changes() -> None:
    """A change of the dataset reaches later passes only where copies are fresh (S4-28)."""
    for kept, seen in [(False, [0, 1, 2]), (True, [0, 0, 0])]:
        data = Shifted()
        loader = OURS(data, 4, num_workers=1, persistent_workers=kept)
        firsts = []

        for shift in range(3):
            data.shift = shift
            firsts.append(next(iter(loader))[0].item())
        loader._iterator = None

        assert firsts == seen


class Shifted(torch.utils.data.Dataset[int]):
    shift = 0

    def __init__(self) -> None:
        self.shift = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index + self.shift


def test_an_error_of_init_is_met_at_the_batches_of_its_thread() -> None:
    """It keeps its class and its line."""

    def init(number: int) -> None:
        raise PermissionError(f"no licence for {number}")

    loader = OURS(range(4), 2, num_workers=1, worker_init_fn=init)

    with pytest.raises(PermissionError, match="no licence for 0"):
        next(iter(loader))


def test_init_cannot_seed_the_generators_of_the_training() -> None:
    """Torch's recipe for seeding workers leaves the process as it was, and says so."""

    def recipe(number: int) -> None:
        seed = torch.initial_seed() % 2**32
        np.random.seed(seed)
        random.seed(seed)

    np.random.seed(1)
    random.seed(2)
    wanted = np.random.RandomState(1).random(), random.Random(2).random()
    loader = OURS(range(4), 2, num_workers=2, worker_init_fn=recipe)

    with pytest.warns(UserWarning, match="worker_init_fn seeded generators") as warned:
        list(loader)

    assert (np.random.random(), random.random()) == wanted
    assert [warning.filename for warning in warned] == [__file__]


def test_generators_of_a_thread_are_seeded_by_the_batch() -> None:
    """Draws from `rng` are those of any number of threads; batches and passes differ (B07)."""
    passes = []

    for num_workers in (1, 3):
        torch.manual_seed(9)
        loader = OURS(Each(drawn), 4, num_workers=num_workers)
        passes.append([[part.tolist() for part in batch] for _ in range(2) for batch in loader])

    one, three = passes
    assert one == three
    assert one[:6] != one[6:]
    assert len({str(batch) for batch in one}) == 12


def drawn(index: int) -> tuple[int, float, float]:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    by_torch = torch.randint(2**40, (), generator=torch.thread_safe_generator())
    return int(by_torch), info.rng.random_generator.random(), info.rng.numpy_generator.random()


def test_an_error_keeps_its_class_its_facts_and_the_users_line() -> None:
    """The traceback shows the line of the dataset, with threads and without (S4-23)."""
    for num_workers in (0, 2):
        iterator = iter(OURS(Each(broken), 4, num_workers=num_workers))
        next(iterator)

        with pytest.raises(Odd) as met:
            next(iterator)

        assert type(met.value) is Odd
        assert met.value.index == 6
        frames = traceback.extract_tb(met.value.__traceback__)
        assert frames[-1].name == "broken"
        assert frames[-1].filename == __file__
        assert next(iterator).tolist() == [8, 9, 10, 11]
        iterator.close()


class Odd(Exception):  # noqa: N818 - users name theirs as they like
    """An error that can be made only of its own facts, as torch cannot carry between processes."""

    def __init__(self, index: int, *, why: str) -> None:
        super().__init__(f"{index} is odd: {why}")
        self.index = index


def broken(index: int) -> int:
    if index == 6:
        raise Odd(index, why="six")
    return index


def test_an_error_of_collation_is_met_at_its_batch() -> None:
    """Unequal shapes fail as torch's collation fails, at their own batch (S4-16, S4-32)."""
    loader = iter(OURS([torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.zeros(3)], 2))

    assert next(loader).shape == (2, 2)
    with pytest.raises(RuntimeError, match="equal size"):
        next(loader)


def test_a_sample_that_ends_iterations_is_an_error() -> None:
    """StopIteration from a dataset does not end the pass in silence, as it does with torch."""

    def ends(index: int) -> int:
        return next(iter(()))

    for num_workers in (0, 2):
        with pytest.raises(RuntimeError, match="StopIteration was raised"):
            list(OURS(Each(ends), 4, num_workers=num_workers))


def test_a_batch_that_is_late_raises_and_can_be_waited_for_again() -> None:
    """`timeout` bounds one wait; the batch is not lost."""
    gate = Gate()
    loader = OURS(Gated(gate), 2, num_workers=1, timeout=0.05)
    iterator = iter(loader)

    with pytest.raises(RuntimeError, match=r"no batch within timeout=0.05 s; readers: headrace-"):
        next(iterator)
    gate.open()
    batches = []
    while len(batches) < 2:
        try:
            batches.append(next(iterator).tolist())
        except BatchTimeoutError:
            continue

    assert batches == [[0, 1], [2, 3]]
    iterator.close()


class Gated(torch.utils.data.Dataset[int]):
    thread_safe = True

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        self.gate.wait_blocking()
        return index
