"""Where a pass stands: saved in its middle, and gone on with in another loader."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import headrace as hr
from tests.torch_door.data import OURS

SAMPLES = 23
PASSES = 3


class Counted(torch.utils.data.Dataset[int]):
    """Samples that are counted as they are fetched."""

    thread_safe = True

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        self.fetched.append(index)
        return index


class Shuffling(Sampler[int]):
    """A sampler as users write them, over the generators of the process."""

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        order = np.random.permutation(SAMPLES).tolist()
        random.shuffle(order)
        return iter(order)


class Stateful(Sampler[int]):
    """A sampler with a state of its own."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter([(index * self.passes) % SAMPLES for index in range(SAMPLES)])

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(11)


ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "stored": lambda: {"batch_size": 4},
    "shuffled by the process": lambda: {"batch_size": 4, "shuffle": True},
    "shuffled by a generator": lambda: {"batch_size": 4, "shuffle": True, "generator": seeded()},
    "one by one": lambda: {"batch_size": None, "shuffle": True, "generator": seeded()},
    "with replacement": lambda: {
        "batch_size": 4,
        "sampler": RandomSampler(range(SAMPLES), True, 70, generator=seeded()),
    },
    "weighted": lambda: {
        "batch_size": 4,
        "drop_last": True,
        "sampler": WeightedRandomSampler([1.0] * SAMPLES, 30, generator=seeded()),
    },
    "batches": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(range(SAMPLES), generator=seeded()), 5, False)
    },
    "a user's": lambda: {"batch_size": 4, "sampler": Shuffling()},
    "stateful": lambda: {"batch_size": 4, "sampler": Stateful()},
}
THREADS: list[dict[str, Any]] = [
    {},
    {"num_workers": 1},
    {"num_workers": 3, "prefetch_factor": 2},
    {"num_workers": 2, "persistent_workers": True},
]


def made(order: str, threads: dict[str, Any]) -> Any:
    return OURS(Counted(), **ORDERS[order](), **threads)


def states_of_process() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def put_states(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def seed_process() -> None:
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)


def plain(batch: Any) -> Any:
    """Give a batch as a value, and draw as a training would."""
    torch.rand(3)
    np.random.rand(3)
    random.random()
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


@pytest.mark.parametrize("threads", THREADS, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_any_batch_of_any_pass_can_be_gone_on_from(
    order: str, threads: dict[str, Any], full: bool
) -> None:
    """A state in JSON, and the process's generators, give what would have come (S4-20)."""
    seed_process()
    loader = made(order, threads)
    saved: list[tuple[Any, tuple[Any, ...]]] = [(loader.state_dict(), states_of_process())]
    given: list[Any] = []
    for _ in range(PASSES):
        for batch in loader:
            given.append(plain(batch))
            saved.append((json.loads(json.dumps(loader.state_dict())), states_of_process()))
    loader._iterator = None

    for taken in range(0, len(saved), 1 if full else 4):
        state, states = saved[taken]
        put_states(states)
        resumed = made(order, threads)
        resumed.load_state_dict(state)
        rest = [plain(batch) for _ in range(resumed.passes, PASSES) for batch in resumed]
        resumed._iterator = None
        assert rest == given[taken:], f"from batch {taken}"


@pytest.mark.parametrize("order", ["stored", "shuffled by a generator", "batches"])
def test_a_run_goes_on_with_any_number_of_threads(order: str) -> None:
    """What was read by kept threads is gone on with by none, and the other way round."""
    for one, other in [
        (THREADS[3], THREADS[0]),
        (THREADS[0], THREADS[3]),
        (THREADS[1], THREADS[2]),
    ]:
        seed_process()
        whole = made(order, one)
        wanted = [batch.tolist() for _ in range(PASSES) for batch in whole]
        whole._iterator = None

        seed_process()
        first, second = made(order, one), made(order, other)
        iterator = iter(first)
        taken = [batch.tolist() for batch in iterator]
        iterator = iter(first)
        taken += [next(iterator).tolist() for _ in range(2)]
        second.load_state_dict(first.state_dict())
        rest = [batch.tolist() for _ in range(second.passes, PASSES) for batch in second]
        first._iterator = second._iterator = None
        iterator.close()

        assert taken + rest == wanted


def test_samples_that_were_taken_are_not_fetched_again() -> None:
    """Going on draws keys anew and reads only what is left ("replay")."""
    loader = made("shuffled by a generator", {})
    iterator = iter(loader)
    taken = [next(iterator) for _ in range(4)]
    resumed = made("shuffled by a generator", {})

    resumed.load_state_dict(loader.state_dict())
    rest = list(resumed)

    had = [index for batch in taken for index in batch.tolist()]
    left = [index for batch in rest for index in batch.tolist()]
    assert sorted(had + left) == list(range(SAMPLES))
    assert resumed.dataset.fetched == left


def test_going_on_leaves_the_generators_of_the_process_alone() -> None:
    """The training's draws are where the program put them, not where the pass began."""
    loader = made("a user's", {})
    next(iter(loader))
    state = loader.state_dict()
    seed_process()
    wanted = torch.rand(1), np.random.random(), random.random()

    seed_process()
    resumed = made("a user's", {})
    resumed.load_state_dict(state)
    iterator = iter(resumed)

    assert (torch.rand(1), np.random.random(), random.random()) == wanted
    iterator.close()


def test_a_state_tells_what_was_taken_not_what_was_read_ahead() -> None:
    """Threads run ahead of it."""
    loader = made("stored", {"num_workers": 2, "prefetch_factor": 3})
    iterator = iter(loader)

    before = loader.state_dict()["taken"]
    next(iterator)
    after = loader.state_dict()["taken"]

    assert (before, after) == (0, 1)
    iterator.close()


def test_passes_count_what_a_loop_over_epochs_has_left() -> None:
    """`range(loader.passes, epochs)` neither repeats an epoch nor leaves one out."""
    loader = OURS(range(4), 2)
    counts = [loader.passes]

    iterator = iter(loader)
    next(iterator)
    in_the_middle = OURS(range(4), 2)
    in_the_middle.load_state_dict(loader.state_dict())
    next(iterator)
    at_the_end = OURS(range(4), 2)
    at_the_end.load_state_dict(loader.state_dict())
    counts += [in_the_middle.passes, at_the_end.passes, loader.passes]

    assert counts == [0, 0, 1, 1]
    assert len(list(in_the_middle)) == 1
    assert len(list(at_the_end)) == 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_end_of_a_pass_is_known_at_its_last_batch(num_workers: int) -> None:
    """Frameworks that count batches never ask for one more, and a state must not expect it."""
    loader = OURS(range(6), 2, num_workers=num_workers)
    iterator = iter(loader)

    taken = []
    for _ in range(3):
        next(iterator)
        state = loader.state_dict()
        taken.append((state["passes"], state["taken"]))

    assert taken == [(0, 1), (0, 2), (1, 0)]
    iterator.close()


def test_a_state_may_be_asked_from_another_thread() -> None:
    """Checkpoint threads see a whole state."""
    loader = made("shuffled by a generator", {"num_workers": 2})
    states: list[Any] = []
    iterator = iter(loader)
    next(iterator)

    asking = threading.Thread(target=lambda: states.append(loader.state_dict()))
    asking.start()
    asking.join()

    assert states == [loader.state_dict()]
    iterator.close()


def test_an_epoch_of_a_distributed_sampler_is_gone_on_with() -> None:
    """`set_epoch` is the program's to call, before and after (S4-22)."""

    def make() -> tuple[Any, Any]:
        sampler: Any = DistributedSampler(range(SAMPLES), num_replicas=2, rank=1, shuffle=True)
        return sampler, OURS(range(SAMPLES), 3, sampler=sampler)

    sampler, loader = make()
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs.append([batch.tolist() for batch in loader])
    sampler.set_epoch(2)
    iterator = iter(loader)
    next(iterator)
    other_sampler, other = make()
    other_sampler.set_epoch(2)
    other.load_state_dict(loader.state_dict())

    assert [batch.tolist() for batch in other] == epochs[2][1:]
    assert epochs[0] != epochs[1]


def test_a_state_tells_samplers_their_epoch() -> None:
    """Who resumes in mid-epoch need not call `set_epoch`: a framework may begin to count anew."""
    sampler: Any = DistributedSampler(range(SAMPLES), num_replicas=1, rank=0)
    loader = OURS(range(SAMPLES), 3, sampler=sampler)
    sampler.set_epoch(4)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in iterator]
    sampler.set_epoch(0)

    loader.load_state_dict(state)

    assert [batch.tolist() for batch in loader] == rest
    assert sampler.epoch == 4


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_sampler_may_be_told_its_epoch_after_iter(num_workers: int) -> None:
    """Lightning resumes so at the end of an epoch; what is read ahead follows it."""

    def make() -> Any:
        sampler: Any = DistributedSampler(range(SAMPLES), num_replicas=1, rank=0)
        return OURS(range(SAMPLES), 3, sampler=sampler, num_workers=num_workers)

    loader, resumed = make(), make()
    list(loader)
    state = loader.state_dict()
    loader.sampler.set_epoch(1)

    resumed.load_state_dict(state)
    iterator = iter(resumed)
    waiting = resumed.state_dict()
    resumed.sampler.set_epoch(1)

    assert repr(iterator) == "Pass(not begun)"
    assert waiting == state
    assert [batch.tolist() for batch in iterator] == [batch.tolist() for batch in loader]
    assert resumed.passes == loader.passes == 2


def test_a_pass_that_was_not_begun_can_be_closed() -> None:
    """Nothing is taken from it afterwards, and no thread is left."""
    loader = OURS(range(SAMPLES), 3, num_workers=2)
    list(loader)
    loader.load_state_dict(loader.state_dict())

    iterator: Any = iter(loader)
    iterator.close()

    assert list(iterator) == []


def test_the_state_of_one_rank_goes_on_on_another() -> None:
    """Frameworks save the state of the first rank alone, and load it on all of them."""

    def make(rank: int) -> Any:
        sampler: Any = DistributedSampler(range(SAMPLES), num_replicas=2, rank=rank)
        return OURS(range(SAMPLES), 3, sampler=sampler)

    first, second, resumed = make(0), make(1), make(1)
    iterator = iter(first)
    next(iterator)
    next(iterator)

    resumed.load_state_dict(first.state_dict())

    assert [batch.tolist() for batch in resumed] == [batch.tolist() for batch in second][2:]


def test_a_generator_behind_a_wrapped_batch_sampler_is_in_the_state() -> None:
    """A wrapper that holds its batch sampler by that name is looked into."""

    class Wrapper:
        def __init__(self, batch_sampler: Any) -> None:
            self.batch_sampler = batch_sampler

        def __iter__(self) -> Any:
            return iter(self.batch_sampler)

    def make() -> Any:
        sampler: Any = RandomSampler(range(SAMPLES), generator=seeded())
        return OURS(range(SAMPLES), batch_sampler=Wrapper(BatchSampler(sampler, 3, False)))  # type: ignore[arg-type]

    loader, other = make(), make()
    list(loader)
    iterator = iter(loader)
    next(iterator)

    other.load_state_dict(loader.state_dict())

    assert [batch.tolist() for batch in other] == [batch.tolist() for batch in iterator]


def test_a_sampler_that_yields_something_else_is_named() -> None:
    """Another order is found by its keys, before any batch."""
    order = [4, 2, 0, 1]
    loader = OURS(range(5), 2, sampler=order)
    next(iter(loader))
    state = loader.state_dict()
    order.sort()

    loader.load_state_dict(state)

    with pytest.raises(hr.StateError, match=r"does not yield what it yielded .*set_epoch"):
        iter(loader)


def test_a_resume_that_could_not_begin_can_be_tried_again() -> None:
    """The state is not lost to a mistake that is mended."""
    keys = [[0], [1], [2]]
    loader = OURS(range(9), batch_sampler=keys)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    keys[0] = [5]
    with pytest.raises(hr.StateError):
        iter(loader)

    keys[0] = [0]

    assert [batch.tolist() for batch in loader] == [[1], [2]]


def test_a_shorter_sampler_is_named() -> None:
    """Fewer keys than were taken are no pass of this loader."""
    keys = [[0], [1], [2]]
    loader = OURS(range(9), batch_sampler=keys)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    state = loader.state_dict()
    del keys[1:]

    loader.load_state_dict(state)

    with pytest.raises(hr.StateError, match="taken and check of their keys"):
        iter(loader)


def test_a_state_of_another_loader_names_what_differs() -> None:
    """Sizes and samplers are compared when the state is loaded, all at once."""
    loader = OURS(range(10), 4, shuffle=True)
    other = OURS(range(11), 5, drop_last=True)

    with pytest.raises(hr.StateError) as found:
        other.load_state_dict(loader.state_dict())

    assert found.value.differences == {
        "samples": (10, 11),
        "batch_size": (4, 5),
        "drop_last": (False, True),
        "sampler": ("RandomSampler", "SequentialSampler"),
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("taken", "3"),
        ("own", None),
        ("taken", -1),
        ("own", ["?"]),
        ("own", []),
        ("epochs", ["0"]),
    ],
)
def test_a_damaged_state_is_refused(field: str, value: Any) -> None:
    """Each field has a kind, and generators are counted."""
    loader = OURS(range(10), 4, shuffle=True, generator=seeded())
    next(iter(loader))
    state = {**loader.state_dict(), field: value}

    with pytest.raises(hr.StateError, match=field):
        go_on(loader, state)


def go_on(loader: Any, state: Any) -> Any:
    loader.load_state_dict(state)
    return iter(loader)


def test_what_is_no_state_is_refused() -> None:
    """A state of something else says so."""
    for state in (None, [], {}, hr.Loader(np.arange(4), 2).state_dict()):
        with pytest.raises(hr.StateError):
            OURS(range(4)).load_state_dict(state)  # type: ignore[arg-type]


def test_a_loaded_state_can_be_saved_again_before_it_is_used() -> None:
    """A checkpoint right after a resume is the checkpoint that was resumed."""
    loader = OURS(range(10), 4, shuffle=True, generator=seeded())
    next(iter(loader))
    state = loader.state_dict()
    other = OURS(range(10), 4, shuffle=True, generator=seeded())

    other.load_state_dict(state)

    assert other.state_dict() == state
