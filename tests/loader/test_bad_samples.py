"""Bad data survived by choice: replaced or masked by a pure draw, within a bound.

Every dataset here has 23 samples of which some are bad.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

import headrace as hr
from headrace.datasets.dataset import Indices, Out
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows
from tests import model
from tests.loader.kinds import ByBatch, ByFetch, ByGet, ByItem, ByItems, arrays_of

N = 23
BAD = frozenset({3, 4, 11, 17, 22})
SEED = 7


def bad(index: int) -> hr.DataError:
    return hr.DataError(f"sample {index} does not decode")


def refuse(indices: Sequence[int], kind: Callable[[int], Exception] = bad) -> None:
    for index in indices:
        if index in BAD:
            raise kind(index)


def row_errors(indices: Sequence[int]) -> None:
    errors = {row: bad(index) for row, index in enumerate(indices) if index in BAD}
    if errors:
        raise hr.RowErrors(errors)


class BadItem(ByItem):
    def __getitem__(self, index: int) -> Any:
        refuse([index])
        return super().__getitem__(index)


class BadItems(ByItems):
    def __getitems__(self, indices: Sequence[int]) -> Any:
        refuse(indices)
        return super().__getitems__(indices)


class BadRowsOfItems(ByItems):
    def __getitems__(self, indices: Sequence[int]) -> Any:
        row_errors(indices)
        return super().__getitems__(indices)


class BadGet(ByGet):
    async def get(self, index: int) -> Any:
        refuse([index])
        return await super().get(index)


class BadFetch(ByFetch):
    async def fetch(self, indices: Sequence[int]) -> list[bytes]:
        refuse(indices)
        return await super().fetch(indices)


class BadRowsOfFetch(ByFetch):
    async def fetch(self, indices: Sequence[int]) -> list[bytes]:
        row_errors(indices)
        return await super().fetch(indices)


class BadDecode(ByFetch):
    def decode(self, raw: bytes) -> Any:
        refuse([int(raw)])
        return super().decode(raw)


class BadRows(hr.Arrays):
    """Tells the bad rows after filling the others, as the contract says."""

    def __init__(self, num_samples: int) -> None:
        super().__init__(arrays_of(num_samples))

    def read_into_blocking(self, indices: Indices, out: Out, rows: Indices) -> None:
        super().read_into_blocking(indices, out, rows)
        errors = {
            int(row): bad(int(index))
            for index, row in zip(indices, rows, strict=True)
            if int(index) in BAD
        }
        if errors:
            raise hr.RowErrors(errors)


def refusing_transform(sample: Any, key: hr.PickKey) -> Any:
    refuse([key.sample])
    return sample


LOADERS: dict[str, Callable[[], dict[str, Any]]] = {
    "item": lambda: {"data": BadItem(N)},
    "items": lambda: {"data": BadItems(N)},
    "rows of items": lambda: {"data": BadRowsOfItems(N)},
    "get": lambda: {"data": BadGet(N)},
    "fetch": lambda: {"data": BadFetch(N)},
    "rows of fetch": lambda: {"data": BadRowsOfFetch(N)},
    "decode": lambda: {"data": BadDecode(N)},
    "rows": lambda: {"data": BadRows(N)},
    "awaited rows": lambda: {"data": AwaitedRows(BadRows(N))},
    "rows as samples": lambda: {"data": BadRows(N), "sample_transform": lambda s, key: s},
    "sample_transform": lambda: {"data": ByItem(N), "sample_transform": refusing_transform},
}


def loader_of(name: str, **knobs: Any) -> hr.Loader:
    given = {"batch_size": 5, "seed": SEED, "probe": False, **LOADERS[name](), **knobs}
    return hr.Loader(**given)


def wanted(steps: int, bad_indices: Collection[int] = BAD) -> list[list[int]]:
    """Give the samples of each step, bad ones replaced as the contract says."""
    run = model.Model(model.shuffled(N, 5, SEED, drop_last=True))
    found = []
    for g in range(steps):
        step = run.step(g)
        found.append(
            [
                model.replacement(SEED, step.epoch, i, N, lambda k: k not in bad_indices)
                if i in bad_indices
                else i
                for i in step.samples
            ]
        )
    return found


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("name", LOADERS)
def test_a_bad_sample_is_replaced_by_a_pure_draw(name: str, workers: int) -> None:
    """The same replacement for any workers and prefetch, and the row count stays."""
    for prefetch in (1, 8):
        with loader_of(name, workers=workers, prefetch=prefetch, on_bad_sample="replace") as loader:
            batches = list(loader.stream(steps=9))

        assert [batch["id"].tolist() for batch in batches] == wanted(9)
        assert [batch.indices.tolist() for batch in batches] == wanted(9)
        assert [[key.sample for key in batch.pick_keys or ()] for batch in batches] == wanted(9)
        assert {batch.mask for batch in batches} == {None}


@pytest.mark.parametrize("name", ["item", "decode", "rows", "awaited rows"])
def test_masked_rows_count_for_nothing(name: str) -> None:
    """Masking replaces too, and says which rows; clean batches have no mask."""
    with loader_of(name, workers=2, on_bad_sample="mask") as loader:
        batches = list(loader.stream(steps=9))

    run = model.Model(model.shuffled(N, 5, SEED, drop_last=True))
    good = [[i not in BAD for i in run.step(g).samples] for g in range(9)]
    assert [batch["id"].tolist() for batch in batches] == wanted(9)
    assert [None if batch.mask is None else batch.mask.tolist() for batch in batches] == [
        None if all(rows) else rows for rows in good
    ]


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("awaited", [False, True])
def test_rows_of_open_length_are_replaced(workers: int, awaited: bool) -> None:
    """A replacement of another length moves the rows behind it."""
    sequences = [[i] * (i % 4) for i in range(N)]
    rows = RaggedRows(sequences, BAD)
    data = AwaitedRows(rows) if awaited else rows
    with hr.Loader(data, 5, seed=SEED, workers=workers, on_bad_sample="replace") as loader:
        for batch, samples in zip(loader.stream(steps=9), wanted(9), strict=True):
            ends = batch["values/offsets"].tolist()
            found = [batch["values"][a:b].tolist() for a, b in itertools.pairwise(ends)]
            assert found == [sequences[i] for i in samples]
            assert batch["length"].tolist() == [i % 4 for i in samples]


def test_a_replacement_draws_what_is_its_own() -> None:
    """The key of a replaced row is the replacement's, so its view is that of any other place."""

    def draw(sample: Any, key: hr.PickKey) -> Any:
        return {"id": sample["id"], "draw": key.rng().next_int(10**9)}

    with loader_of("item", workers=2, on_bad_sample="replace", sample_transform=draw) as loader:
        batches = list(loader.stream(steps=8))

    for batch, samples in zip(batches, wanted(8), strict=True):
        draws = [model.pick_rng(SEED, batch.epoch, index, 0).next_int(10**9) for index in samples]
        assert batch["draw"].tolist() == draws


def test_what_was_survived_is_told() -> None:
    """Stats and state count bad samples as they are taken, and the state names the last."""
    with loader_of("item", workers=4, prefetch=8, on_bad_sample="replace") as loader:
        stream = loader.epoch(0)
        counts = []
        for _ in range(4):
            next(stream)
            counts.append(int(loader.stats()["bad_samples"]))
        state = loader.state_dict()

    run = model.Model(model.shuffled(N, 5, SEED, drop_last=True))
    bad_rows = [(g, i) for g in range(4) for i in run.step(g).samples if i in BAD]
    assert counts == [sum(g <= step for g, _ in bad_rows) for step in range(4)]
    assert state["bad_samples"]["count"] == len(bad_rows)
    assert state["bad_samples"]["last"] == [
        [g, i, "", f"DataError: sample {i} does not decode"] for g, i in bad_rows
    ]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_bad_samples_are_bounded(workers: int) -> None:
    """The stream ends at the first step that passes the bound, whatever was read ahead."""
    run = model.Model(model.shuffled(N, 5, SEED, drop_last=True))
    bad_by_step = [sum(i in BAD for i in run.step(g).samples) for g in range(8)]
    for bound in (0, 2, 5):
        with loader_of(
            "item", workers=workers, on_bad_sample="replace", max_bad_samples=bound
        ) as loader:
            total = [sum(bad_by_step[: g + 1]) for g in range(8)]
            last = next(g for g in range(8) if total[g] > bound)
            stream = loader.stream(steps=8)
            assert [next(stream).step for _ in range(last)] == list(range(last))

            said = (
                f"^step {last}: more than {bound} bad samples; the last: sample .*max_bad_samples"
            )
            with pytest.raises(hr.TooManyBadSamplesError, match=said) as caught:
                next(stream)
            assert (caught.value.step, caught.value.limit) == (last, bound)
            assert caught.value.cure in str(caught.value)

            assert list(stream) == []


class UnidentifiedError(OSError):
    """What Pillow raises for a file that is no image."""


UnidentifiedError.__name__ = "UnidentifiedImageError"

DATA_ERRORS: list[Exception] = [
    hr.DataError("bad"),
    hr.FormatError("a.npy", "magic", "nothing"),
    ValueError("bad"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    KeyError("label"),
    IndexError("no such field"),
    EOFError("short"),
    struct.error("bad"),
    zlib.error("bad"),
    UnidentifiedError("bad"),
]
OTHER_ERRORS: list[Exception] = [
    TimeoutError("late"),
    PermissionError("denied"),
    FileNotFoundError("gone"),
    ConnectionResetError("reset"),
    hr.SourceChangedError("store", "a.npy", "a", "b"),
    hr.NotFoundError("store", "a.npy"),
    MemoryError("full"),
    hr.ConfigError("knob", "1", 2),
    RuntimeError("broken"),
    TypeError("broken"),
    AttributeError("broken"),
    AssertionError("broken"),
]


def ordered_failing(error: Exception, on_bad_sample: str) -> hr.Loader:
    class Failing(ByItem):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise error
            return super().__getitem__(index)

    return hr.Loader(
        Failing(10),
        2,
        shuffle=False,
        workers=1,
        probe=False,
        on_bad_sample=on_bad_sample,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("error", DATA_ERRORS, ids=lambda error: type(error).__name__)
def test_bad_data_may_be_survived(error: Exception) -> None:
    """Decoding, checksums and missing fields are faults of the data."""
    with ordered_failing(error, "replace") as loader:
        assert len(list(loader)) == 5
    with ordered_failing(error, "raise") as loader, pytest.raises(hr.SampleError, match="step 2"):
        list(loader)


@pytest.mark.parametrize("error", OTHER_ERRORS, ids=lambda error: type(error).__name__)
def test_other_faults_are_never_survived(error: Exception) -> None:
    """Time-outs, denied access, full memory and faults of a program end the stream."""
    for on_bad_sample in ("replace", "mask"):
        with (
            ordered_failing(error, on_bad_sample) as loader,
            pytest.raises(hr.SampleError, match="step 2, sample 5"),
        ):
            list(loader)


def test_a_dataset_that_is_bad_as_a_whole_is_told() -> None:
    """When 64 draws are all bad, the step fails by the error of its sample."""

    class Broken(ByItem):
        def __getitem__(self, index: int) -> Any:
            raise hr.DataError(f"sample {index} does not decode")

    with (
        hr.Loader(Broken(500), 2, workers=2, probe=False, on_bad_sample="replace") as loader,
        pytest.raises(hr.DataError, match="does not decode") as caught,
    ):
        next(iter(loader))
    (note,) = caught.value.__notes__
    told = [f"Sample {row.sample} of this step was bad, and so was all" for row in loader.why(0)]
    assert note.startswith(tuple(told))


def test_a_whole_batch_cannot_be_replaced() -> None:
    """A dataset that gives batches names no row, so its errors are raised."""

    class Broken(ByBatch):
        def get_batch(self, indices: Sequence[int]) -> Any:
            raise hr.DataError("the batch does not decode")

    with (
        hr.Loader(Broken(10), 2, workers=2, on_bad_sample="replace") as loader,
        pytest.raises(hr.DataError, match="step 0, the batch"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("name", ["item", "get", "rows"])
def test_any_batch_of_the_run_is_replaced_alike(name: str) -> None:
    """`batch_at` gives the batch that the stream gives."""
    with loader_of(name, workers=2, on_bad_sample="mask") as loader:
        for batch in loader.stream(steps=8):
            alone = loader.batch_at(batch.step)
            assert alone["id"].tolist() == batch["id"].tolist()
            assert alone.indices.tolist() == batch.indices.tolist()
            masks = [None if one.mask is None else one.mask.tolist() for one in (alone, batch)]
            assert masks[0] == masks[1]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_step_that_fails_may_be_skipped(workers: int) -> None:
    """Load the state of before, skip the step, go on; the state remembers."""
    with loader_of("item", workers=workers, shuffle=False) as loader:
        with pytest.raises(hr.DataError, match="step 0, sample 3"):
            next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        loader.skip_step(0)
        stream = iter(loader)
        assert next(stream).step == 1
        with pytest.raises(hr.DataError, match="step 2, sample 11") as caught:
            next(stream)
        assert caught.value.step == 2  # type: ignore[attr-defined]
        for step in (2, 3, 4):
            loader.skip_step(step)
        state = loader.state_dict()

        assert [batch.step for batch in loader.epoch(0)] == [1]
        assert state["skips"] == [0, 2, 3, 4]
        assert loader.stats()["skipped_steps"] > 0
        assert loader.verify(loader.state_dict()) == 5

    with loader_of("item", workers=workers, shuffle=False) as loader:
        loader.load_state_dict(state)
        # The rest of epoch 0 is skipped, and epoch 1 has its own steps.
        assert list(loader.epoch(0)) == []


def test_a_step_read_ahead_may_be_skipped() -> None:
    """A skip holds from the next take on, also for what is built already."""
    with hr.Loader(ByItem(40), 2, shuffle=False, workers=2, prefetch=8, probe=False) as loader:
        stream = loader.epoch(0)
        steps = [next(stream).step]

        loader.skip_step(1)
        loader.skip_step(15)
        steps += [batch.step for batch in stream]

        assert steps == [step for step in range(20) if step not in (1, 15)]
        assert loader.verify(loader.state_dict()) == 20
