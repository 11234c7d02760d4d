"""The face of the second door: arguments, attributes, and what frameworks do with them."""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

import headrace as hr
from tests.torch_door.data import OURS, THEIRS, Each, pair

REFUSED: list[dict[str, Any]] = [
    {"num_workers": -1},
    {"timeout": -0.5},
    {"prefetch_factor": 2},
    {"prefetch_factor": 0},
    {"num_workers": 2, "prefetch_factor": -1},
    {"persistent_workers": True},
    {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"batch_sampler": [[1]], "sampler": [1]},
    {"batch_sampler": [[1]], "drop_last": True},
    {"batch_size": None, "drop_last": True},
    {"batch_size": 0},
    {"batch_size": True},
    {"drop_last": 1},
    {"num_workers": "2"},
    {"multiprocessing_context": "fork"},
    {"num_workers": 1, "multiprocessing_context": "threads"},
    {"num_workers": 1, "multiprocessing_context": 5},
]


@pytest.mark.parametrize("knobs", REFUSED, ids=str)
def test_what_torch_refuses_is_refused_as_the_same_class(knobs: dict[str, Any]) -> None:
    """Arguments that contradict each other fail when the loader is made (S4-28, S4-29, S4-38)."""
    with pytest.raises(Exception) as theirs:
        THEIRS([1, 2], **knobs)

    with pytest.raises(theirs.type):
        OURS([1, 2], **knobs)


def test_a_refusal_says_what_was_wanted_found_and_what_to_do() -> None:
    """The words are ours: knob, wish, value and cure."""
    with pytest.raises(hr.ConfigError) as found:
        OURS([1, 2], prefetch_factor=4)

    assert str(found.value) == (
        "prefetch_factor: wanted None with num_workers=0, got 4. Nothing is read ahead without "
        "threads: set num_workers, or leave this out."
    )


def test_a_time_out_without_threads_fails_where_torch_fails() -> None:
    """The loader can be made, and its first pass fails with an AssertionError."""
    theirs, ours = THEIRS([1], timeout=3), OURS([1], timeout=3)

    with pytest.raises(AssertionError):
        iter(theirs)
    with pytest.raises(AssertionError, match="timeout: wanted 0 with num_workers=0, got 3"):
        iter(ours)


def test_streams_are_refused_with_what_to_use() -> None:
    """An IterableDataset names the loader that reads it."""

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(hr.ConfigError, match=r"torch\.utils\.data\.DataLoader"):
        OURS(Stream())


def test_datasets_that_must_be_awaited_name_the_first_door() -> None:
    """What has no samples without `await` is refused with what reads it."""

    class Awaited(hr.Dataset):
        def __len__(self) -> int:
            return 4

        async def get(self, index: int) -> int:
            return index

    with pytest.raises(hr.ConfigError, match=r"headrace\.Loader"):
        OURS(Awaited())  # type: ignore[arg-type]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_datasets_of_headrace_give_their_rows(num_workers: int) -> None:
    """A bulk dataset is read as one of dicts."""
    data: Any = hr.Arrays({"x": torch.arange(5.0), "y": torch.arange(5) % 2})

    batches = list(OURS(data, 3, num_workers=num_workers))

    assert [batch["x"].tolist() for batch in batches] == [[0, 1, 2], [3, 4]]
    assert [batch["y"].tolist() for batch in batches] == [[0, 1, 0], [1, 0]]


def test_names_and_defaults_are_those_of_torch() -> None:
    """Each argument is where torch has it, with torch's default (S0-65)."""
    theirs = inspect.signature(THEIRS.__init__).parameters.values()
    ours = inspect.signature(OURS.__init__).parameters.values()

    assert [(p.name, p.kind, p.default) for p in ours] == [
        (p.name, p.kind, p.default) for p in theirs
    ]


def test_drop_last_is_off_unless_asked_for() -> None:
    """23 samples in batches of 7 give four batches, and three with drop_last (S0-65)."""
    kept, dropped = OURS(range(23), 7), OURS(range(23), 7, drop_last=True)

    assert [len(batch) for batch in kept] == [7, 7, 7, 2]
    assert [len(batch) for batch in dropped] == [7, 7, 7]
    assert (len(kept), len(dropped)) == (4, 3)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_attributes_that_frameworks_read_are_those_of_torch(num_workers: int) -> None:
    """Every attribute of torch's loader is there, with an equal value."""
    data = Each(pair)
    generator = torch.Generator()
    threads: dict[str, Any] = {}
    if num_workers:
        threads = {"persistent_workers": True, "prefetch_factor": 3, "timeout": 9}
    knobs = {"batch_size": 5, "generator": generator, "num_workers": num_workers, **threads}

    theirs, ours = THEIRS(data, **knobs), OURS(data, **knobs)

    named = [name for name in vars(theirs) if not name.startswith("_")]
    plain = [name for name in named if name not in ("sampler", "batch_sampler")]
    assert len(plain) >= 13
    assert {name: getattr(ours, name) for name in plain} == {
        name: getattr(theirs, name) for name in plain
    }
    assert type(ours.sampler) is SequentialSampler
    assert type(ours.batch_sampler) is BatchSampler
    assert ours.multiprocessing_context is None
    assert isinstance(ours, THEIRS)


def test_what_torch_fixes_at_the_start_stays_fixed() -> None:
    """Attributes that decide the order cannot be put, others can."""
    loader = OURS(range(4))

    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 2
    loader.collate_fn = len

    assert list(loader) == [1, 1, 1, 1]


def test_a_framework_can_make_it_anew_from_its_attributes() -> None:
    """Every argument can be read back by its name, as those do that put in another sampler."""
    loader = OURS(range(6), 2, shuffle=True, num_workers=1, collate_fn=sum)
    names = set(inspect.signature(type(loader).__init__).parameters) - {"self", "shuffle"}
    held = {name: getattr(loader, name) for name in names}

    changed = {
        **held,
        "batch_size": 1,
        "drop_last": False,
        "sampler": None,
        "batch_sampler": BatchSampler(range(6), 3, True),
    }
    made = type(loader)(**changed)

    assert list(made) == [0 + 1 + 2, 3 + 4 + 5]


def test_a_start_method_is_taken_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    """There are no processes to start, so it changes nothing (S4-24)."""
    caplog.set_level(logging.INFO, "headrace")

    loader = OURS(range(4), 2, num_workers=1, multiprocessing_context="spawn")

    assert "multiprocessing_context has no effect" in caplog.text
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_pinning_without_an_accelerator_warns_as_torch_does() -> None:
    """`pin_memory` changes nothing there, and says so when a pass begins (S4-25)."""
    if torch.accelerator.is_available():
        assert all(batch.is_pinned() for batch in OURS(range(4), pin_memory=True))
        return

    for kind in (THEIRS, OURS):
        loader = kind(range(4), 2, pin_memory=True)
        with pytest.warns(UserWarning, match="no accelerator") as warned:
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
        assert [warning.filename for warning in warned] == [
            __file__ if kind is OURS else torch.utils.data.dataloader.__file__
        ]


def test_batches_are_pinned_whatever_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is an accelerator, tensors in any nesting are pinned, on reader threads."""
    threads = set()

    class Accelerator:
        type = "cuda"

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        threads.add(threading.get_ident())
        return tensor + 100

    monkeypatch.setattr(torch.accelerator, "current_accelerator", Accelerator)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)

    (batch,) = OURS([{"x": (1, "text")}], num_workers=1, pin_memory=True)

    assert batch["x"][0].tolist() == [101]
    assert batch["x"][1] == ("text",)
    assert threads
    assert threading.get_ident() not in threads


def test_a_pickle_or_copy_is_a_loader_at_its_beginning() -> None:
    """Configuration travels, a pass does not."""
    loader = OURS(range(6), 2, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)

    pickled, copied = pickle.loads(pickle.dumps(loader)), copy.copy(loader)

    for other in (pickled, copied):
        assert [batch.tolist() for batch in other] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(iterator)


def test_the_front_door_does_not_load_the_second_one() -> None:
    """`import headrace` imports it only when it is named."""
    script = (
        "import sys, headrace as hr\n"
        "assert 'headrace.torch' not in sys.modules\n"
        "assert hr.torch.DataLoader is sys.modules['headrace.torch'].DataLoader\n"
    )

    ended = subprocess.run([sys.executable, "-c", script], check=False)

    assert ended.returncode == 0
