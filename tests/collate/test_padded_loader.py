"""Padding through the loader: no Python per sample where the data allows it, the same batches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import headrace as hr
from headrace.datasets.bounds import Indices
from headrace.testing.ragged_rows import AwaitedRows, RaggedRows

LENGTHS = [3, 0, 5, 1, 9, 2, 2, 7, 0, 4, 12, 6, 1, 8, 3]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
SEQUENCES = [list(range(i, i + n)) for i, n in enumerate(LENGTHS)]
FLAT = np.array([value for sequence in SEQUENCES for value in sequence], np.int32)


def ragged() -> hr.Ragged:
    return hr.Ragged(FLAT, OFFSETS, fixed={"length": np.array(LENGTHS)})


def one_column() -> hr.Ragged:
    return hr.Ragged(FLAT, OFFSETS)


KINDS: dict[str, Callable[[], Any]] = {
    "read side by side": ragged,
    "read end to end": lambda: RaggedRows(SEQUENCES),
    "awaited": lambda: AwaitedRows(RaggedRows(SEQUENCES)),
    "a subset": lambda: hr.Subset(ragged(), range(14, -1, -1)),
    "parts": lambda: hr.Concat(hr.Subset(ragged(), range(8)), hr.Subset(ragged(), range(8, 15))),
    "a choice": lambda: RaggedRows(SEQUENCES).select("values"),
}

Facts = list[tuple[int, dict[str, Any]]]


def facts(batches: Iterable[hr.Batch]) -> Facts:
    """Give steps and columns as comparable values, and hold no batch."""
    return [
        (batch.step, {name: (str(c.dtype), c.tolist()) for name, c in batch.items()})
        for batch in batches
    ]


def padded(data: Any, **knobs: Any) -> hr.Loader:
    knobs = {"batch_size": 4, "collate": hr.PadCollator("values", pad_value=-1), **knobs}
    return hr.Loader(data, **knobs)


def by_samples(data: Any, **knobs: Any) -> hr.Loader:
    """Give a loader that hands each sample to the collator."""
    return padded(data, sample_transform=lambda sample, key: sample, **knobs)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_gives_the_same_batches(kind: str, workers: int) -> None:
    """Bulk rows or samples, any workers and prefetch, across epochs (S1-02..04, S4-33)."""
    with by_samples(KINDS[kind](), workers=0) as loader:
        wanted = facts(loader.stream(steps=9))

    for prefetch in (1, 3, 8):
        with padded(KINDS[kind](), workers=workers, prefetch=prefetch) as loader:
            assert facts(loader.stream(steps=9)) == wanted
            assert facts(loader.stream(start=4, steps=5)) == wanted[4:]


@pytest.mark.parametrize("kind", ["read side by side", "read end to end", "awaited"])
@pytest.mark.parametrize(
    "knobs",
    [
        {"multiple": 4},
        {"max_length": 5, "too_long": "cut"},
        {"max_length": 5, "too_long": "cut", "multiple": 8},
        {"max_length": 20, "pad_to": "max_length"},
        {"max_length": 4, "too_long": "cut", "pad_to": "max_length", "multiple": 3},
    ],
)
def test_knobs_mean_the_same_in_every_way(kind: str, knobs: dict[str, Any]) -> None:
    """Multiples, cuts and fixed widths; columns are contiguous."""
    collate = hr.PadCollator("values", **knobs)
    with by_samples(KINDS[kind](), workers=0, collate=collate) as loader:
        wanted = facts(loader.epoch(1))

    with padded(KINDS[kind](), workers=2, collate=collate) as loader:
        assert facts(loader.epoch(1)) == wanted
        assert all(column.is_contiguous() for column in loader.batch_at(0))


def test_batches_hold_the_rows_in_order() -> None:
    """Literally: values, lengths, mask, then the label."""
    with padded(ragged(), shuffle=False) as loader:
        batch = next(iter(loader))

    assert batch.names == ("values", "values/lengths", "values/mask", "length")
    assert batch["values"].tolist() == [
        [0, 1, 2, -1, -1],
        [-1, -1, -1, -1, -1],
        [2, 3, 4, 5, 6],
        [3, -1, -1, -1, -1],
    ]
    assert batch["values/lengths"].tolist() == batch["length"].tolist() == [3, 0, 5, 1]
    assert batch["values/mask"].sum(1).tolist() == [3, 0, 5, 1]
    assert (batch["values"].dtype, batch.num_rows) == (torch.int32, 4)


async def test_batches_may_be_awaited() -> None:
    """The same ones, for every kind of reading."""
    with padded(RaggedRows(SEQUENCES)) as loader:
        wanted = facts(loader.epoch(0))
    for kind in ("read side by side", "read end to end", "awaited"):
        for workers in (0, 2):
            async with padded(KINDS[kind](), workers=workers) as loader:
                assert facts([batch async for batch in loader.epoch(0)]) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_goes_on_in_another_loader(kind: str) -> None:
    """From any step, with other threads, to the byte (S4-77)."""
    with padded(KINDS[kind](), workers=2, content_digest=True) as loader:
        whole, states = [], []
        for batch in loader.stream(steps=7):
            whole.append(facts([batch])[0])
            states.append(loader.state_dict())

    for state in states:
        with padded(KINDS[kind](), workers=0, content_digest=True) as other:
            other.load_state_dict(state)
            rest = facts(other.stream(steps=7 - state["next_step"]))
            assert rest == whole[state["next_step"] :]
            assert other.state_dict() == states[-1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["read side by side", "read end to end", "awaited"])
def test_a_fault_belongs_to_its_step(kind: str, workers: int) -> None:
    """A row that is too long fails its batch; those before it arrive (S4-34)."""
    collate = hr.PadCollator("values", max_length=11)
    with padded(KINDS[kind](), shuffle=False, workers=workers, collate=collate) as loader:
        stream = iter(loader)
        assert [next(stream).step, next(stream).step] == [0, 1]
        with pytest.raises(hr.CollateError, match="sample 10 has 12 elements"):
            next(stream)

        assert loader.batch_at(3).num_rows == 3


@pytest.mark.parametrize("kind", ["read side by side", "read end to end", "awaited"])
def test_a_batch_of_empty_rows_is_refused(kind: str) -> None:
    """Whichever way it is read (S4-34)."""
    empty = hr.Subset(KINDS[kind](), [1, 8, 0, 1])
    with (
        padded(empty, batch_size=2, shuffle=False) as loader,
        pytest.raises(hr.CollateError, match=r"every row of the batch is empty \(samples 0, 1\)"),
    ):
        next(iter(loader))


class BadRagged(hr.Ragged):
    """Rows some of which fail, told after the others are filled."""

    bad = (2, 9)

    def read_spread_blocking(
        self,
        indices: Indices,
        fixed: Mapping[str, NDArray[Any]],
        spread: Sequence[Mapping[str, NDArray[Any]]],
    ) -> None:
        super().read_spread_blocking(indices, fixed, spread)
        rows = [row for row, index in enumerate(indices.tolist()) if index in self.bad]
        if rows:
            raise hr.RowErrors({row: hr.DataError("bad") for row in rows})


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["replace", "mask"])
def test_bad_rows_are_replaced_alike(policy: Any, workers: int) -> None:
    """By the same draw, whichever way rows are read."""
    made = []
    for data in (BadRagged(FLAT, OFFSETS), RaggedRows(SEQUENCES, BadRagged.bad).select("values")):
        with padded(data, shuffle=False, workers=workers, on_bad_sample=policy) as loader:
            batches = list(loader.epoch(0))
            state = loader.state_dict()
        made.append(
            (
                facts(batches),
                [None if batch.mask is None else batch.mask.tolist() for batch in batches],
                [batch.indices.tolist() for batch in batches],
                state["bad_samples"]["count"],
            )
        )

    assert made[0] == made[1]
    assert made[0][3] == 2


def test_a_bad_row_names_its_sample() -> None:
    """Where bad samples are not survived."""
    with (
        padded(BadRagged(FLAT, OFFSETS), shuffle=False) as loader,
        pytest.raises(hr.SampleError, match="step 0, sample 2"),
    ):
        list(loader)


@pytest.mark.parametrize(
    ("data", "names"),
    [(ragged, ("length",)), (ragged, ("tokens",)), (lambda: hr.Arrays(np.arange(4)), ("0",))],
)
def test_the_open_columns_are_those_named(data: Callable[[], Any], names: tuple[str, ...]) -> None:
    """Refused where the loader is made; the error lists the open columns."""
    with pytest.raises(hr.ConfigError, match="collate: wanted PadCollator over") as caught:
        hr.Loader(data(), 2, collate=hr.PadCollator(*names))

    assert "Name all open columns and no other" in str(caught.value)


@pytest.mark.parametrize(
    ("taken", "collate"),
    [
        ("values/lengths", hr.PadCollator("values")),
        ("values/mask", hr.PadCollator("values")),
        ("values/offsets", None),
    ],
)
def test_a_column_called_as_an_added_one_is_refused(taken: str, collate: Any) -> None:
    """Neither of the two is dropped, whether rows are read side by side or laid out after."""
    data = hr.Ragged(FLAT, OFFSETS, fixed={taken: np.arange(len(OFFSETS) - 1)})
    for each in (data, hr.Concat(data, data)):
        with pytest.raises(hr.ConfigError, match=f"names all differ, got '{taken}'"):
            hr.Loader(each, 2, collate=collate)


def test_a_pad_value_that_does_not_fit_is_refused_before_any_read() -> None:
    """The dtype is known from the layout."""
    with pytest.raises(hr.ConfigError, match="pad_value: wanted a number that int32 holds"):
        padded(ragged(), collate=hr.PadCollator("values", pad_value=2**31))


class Doubled(hr.PadCollator):
    """A collator of a user's, which does more."""

    def __call__(self, samples: Sequence[Any], keys: hr.PickKeys) -> hr.Columns:
        made = super().__call__(samples, keys)
        return hr.Columns(made.names, (made.values[0] * 2, *made.values[1:]), made.num_rows)


def test_a_subclass_is_called() -> None:
    """The way around samples is for PadCollator itself."""
    with padded(ragged(), shuffle=False, collate=Doubled("values")) as loader:
        assert next(iter(loader))["values"][0].tolist() == [0, 2, 4, 0, 0]


def test_names_are_known_before_the_first_batch() -> None:
    """Those of the columns that batches have, however they are made."""
    columns = ("values", "values/lengths", "values/mask", "length")
    for kind in ("read side by side", "read end to end", "awaited"):
        with padded(KINDS[kind]()) as loader:
            assert loader.names == next(iter(loader)).names == columns
        with hr.Loader(KINDS[kind](), 4) as loader:
            assert loader.names == next(iter(loader)).names
    with by_samples(ragged()) as loader:
        assert loader.names is None


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_transform_see_padded_columns(kind: str) -> None:
    """As of any batch."""
    columns = ("tokens", "lengths", "mask", "label")[: 3 if kind == "a choice" else 4]

    def halve(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
        return batch.with_columns({"tokens": batch["tokens"][:, ::2]})

    with padded(KINDS[kind](), names=columns, transform=halve) as loader:
        for batch in loader:
            assert batch.names == columns
            assert batch["tokens"].shape[1] == (batch["mask"].shape[1] + 1) // 2


@pytest.mark.parametrize("kind", ["read side by side", "read end to end", "awaited"])
def test_grants_are_what_batches_hold(kind: str) -> None:
    """To the byte, from lengths alone, before anything is read."""
    with padded(KINDS[kind](), workers=0, shuffle=False) as loader:
        held = [
            sum(column.numel() * column.element_size() for column in batch)
            for batch in loader.epoch(0)
        ]
        builder = loader._engine._builder
        picks = loader.sampler.picks(range(len(held)))
        ends = np.searchsorted(picks.step, np.arange(len(held) + 1))

        assert builder.bytes_of(picks, ends) == held
        assert builder.step_bytes >= max(held)


LONG_OFFSETS = np.concatenate([[0], np.cumsum(np.arange(256) % 97 + 400)])


def long_rows() -> hr.Ragged:
    labels = np.arange(256)
    return hr.Ragged(np.arange(LONG_OFFSETS[-1]), LONG_OFFSETS, fixed={"label": labels})


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "data", [long_rows, lambda: AwaitedRows(long_rows())], ids=["side by side", "awaited"]
)
def test_blocks_are_lent_again(data: Callable[[], Any], workers: int) -> None:
    """A long run needs no more blocks than a short one (S1-43, S1-44)."""
    with padded(data(), batch_size=8, workers=workers, prefetch=4) as loader:
        for batch in loader.stream(steps=640):
            del batch
        stats = loader.stats()

    # Widths from 400 to 496 make blocks of four sizes, for spans of one or two steps, read and
    # laid out; of each there may be those in flight, one being taken and one in hand.
    assert stats["blocks_made"] <= 4 * 2 * 2 * (4 + 2)
    assert stats["blocks_lent"] >= 640 / 2


@pytest.mark.parametrize("workers", [0, 2])
def test_kept_batches_stay_as_they_are(workers: int) -> None:
    """Poison that is written to free blocks never shows in what is held."""
    offsets = LONG_OFFSETS.tolist()
    with padded(long_rows(), batch_size=8, workers=workers) as loader:
        kept = list(loader.epoch(0))
        for batch in loader.epoch(1):
            del batch

    for batch in kept:
        for row, index in enumerate(batch["label"].tolist()):
            real = batch["values"][row][batch["values/mask"][row]]
            assert real.tolist() == list(range(*offsets[index : index + 2]))


def spoil(batch: hr.Batch, keys: hr.PickKeys) -> hr.Batch:
    """Write to all columns in place, as a transform may."""
    for column in batch:
        column.copy_(torch.zeros_like(column))
    return batch


class KeptSizes(RaggedRows):
    """Gives out the very lengths that it keeps, where all are asked for."""

    def sizes(self, indices: Indices) -> Mapping[str, NDArray[np.int64]]:
        in_order = len(indices) == len(self) and bool((np.diff(indices) == 1).all())
        return {"values": self._lengths} if in_order else super().sizes(indices)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data", [ragged, lambda: KeptSizes(SEQUENCES)])
def test_writing_to_a_batch_damages_no_data(data: Callable[[], Any], workers: int) -> None:
    """Not even the lengths that a dataset keeps (S0-75)."""
    knobs: dict[str, Any] = {"batch_size": len(LENGTHS), "shuffle": False, "workers": workers}
    source = data()
    with padded(source, transform=spoil, **knobs) as loader:
        assert [int(batch["values/lengths"].sum()) for batch in loader] == [0]

    with padded(source, **knobs) as loader:
        assert next(iter(loader))["values/lengths"].tolist() == LENGTHS


def pictures() -> hr.Ragged:
    images = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 20_000, axis=1)
    lengths = np.full(256, 400)
    fixed: dict[str, Any] = {"image": images, "label": np.arange(256)}
    return hr.Ragged(np.arange(lengths.sum()), lengths=lengths, fixed=fixed)


@pytest.mark.parametrize("workers", [0, 2])
def test_large_columns_beside_lie_in_blocks_too(workers: int) -> None:
    """They are lent again, and what is kept of them stays (S1-43, S1-44)."""
    with padded(pictures(), batch_size=8, workers=workers, prefetch=4, epochs=6) as loader:
        kept = [(batch["image"][3], int(batch["label"][3])) for batch in loader.epoch(0)]
        for epoch in loader.epochs(6):
            for batch in epoch:
                assert batch["image"][:, -1].tolist() == batch["label"].tolist()
        stats = loader.stats()

    # Spans are of one or two steps, of pages and images: what is kept, in flight and in hand.
    assert stats["blocks_made"] <= 32 + 2 * 2 * (4 + 2)
    assert stats["blocks_lent"] >= 6 * 32
    assert all(image.tolist() == [label] * 20_000 for image, label in kept)


def test_a_kept_label_keeps_no_block() -> None:
    """Small columns and lengths have storage of their own."""
    with padded(long_rows(), batch_size=8, workers=0) as loader:
        kept = [(batch["label"], batch["values/lengths"]) for batch in loader]
        gc.collect()

        assert loader.stats()["leases_out"] == 0
        assert sorted(int(i) for labels, _ in kept for i in labels) == list(range(256))


def test_bucketing_pads_less_through_the_loader() -> None:
    """Lengths 1, 2, 9, 10 at batch 2: 24 positions against 38, 22 real either way (S4-37)."""
    lengths = np.array([1, 10, 2, 9])
    data = hr.Ragged(np.arange(22), lengths=lengths)

    def positions(**knobs: Any) -> tuple[int, int]:
        with padded(data, **{"batch_size": 2, **knobs}) as loader:
            masks = [batch["values/mask"] for batch in loader.epoch(0)]
        return sum(mask.numel() for mask in masks), sum(int(mask.sum()) for mask in masks)

    bucketed = hr.Bucketed(lengths, batch_size=2, pool_batches=2)
    assert positions(sampler=bucketed, batch_size=None) == (24, 22)
    assert positions(shuffle=False) == (38, 22)


def test_bucketing_is_in_the_state() -> None:
    """Its settings, and a digest of the lengths; samples and labels are those of any order (S4-39).

    So is the number of real positions, by which a loss is divided.
    """
    lengths = np.array(LENGTHS)
    bucketed = hr.Bucketed(lengths, batch_size=4, pool_batches=2, drop_last=False)
    with padded(ragged(), batch_size=None, sampler=bucketed) as loader:
        batches = list(loader.epoch(0))
        state = loader.state_dict()

    with padded(ragged(), shuffle=False) as loader:
        plain = list(loader.epoch(0))
    for batch in batches:
        assert batch["length"].tolist() == lengths[batch.indices].tolist()
    assert sum(int(batch["values/mask"].sum()) for batch in batches + plain) == 2 * sum(LENGTHS)
    assert (state["sampler"]["kind"], state["sampler"]["pool_batches"]) == ("Bucketed", 2)
    other = hr.Bucketed(lengths, batch_size=4, pool_batches=3, drop_last=False)
    with (
        padded(ragged(), batch_size=None, sampler=other) as loader,
        pytest.raises(hr.StateError, match="pool_batches: the state has 2, this loader has 3"),
    ):
        loader.load_state_dict(state)


class Reviews:
    """Text samples one by one, of a user's own class."""

    thread_safe = True

    def __len__(self) -> int:
        return len(SEQUENCES)

    def __getitem__(self, index: int) -> tuple[list[int], int]:
        return SEQUENCES[index], index % 2


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_text_goes_through_the_loader(workers: int) -> None:
    """Samples of a class that knows nothing of headrace (S4-33)."""
    with hr.Loader(Reviews(), 4, shuffle=False, collate=hr.TextCollator(), workers=workers) as all_:
        batch = next(iter(all_))

    assert batch["tokens"].tolist() == [
        [0, 1, 2, 0, 0],
        [0, 0, 0, 0, 0],
        [2, 3, 4, 5, 6],
        [3, 0, 0, 0, 0],
    ]
    assert (batch["lengths"].tolist(), batch["labels"].tolist()) == ([3, 0, 5, 1], [0, 1, 0, 1])


def test_language_model_batches_come_of_bulk_rows() -> None:
    """Samples are dicts of tensors there (S4-36)."""
    collate = hr.NextTokenCollator("values")
    with hr.Loader(one_column(), 4, shuffle=False, collate=collate) as loader:
        batch = next(iter(loader))

    assert batch["input"].tolist()[2] == [2, 3, 4, 5]
    assert batch["target"].tolist()[0] == [1, 2, -100, -100]
