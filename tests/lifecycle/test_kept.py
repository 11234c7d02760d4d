"""Parts of batches that are kept while the loader runs on: what they hold, and what they do not.

`tests/proof` keeps parts in every form one by one; here they are kept among epochs that run on
with poisoned memory, at random, of every kind of column, through torch's own ways too.
"""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate, default_convert

import headrace as hr
from headrace.testing.ragged_rows import RaggedRows
from headrace.threads import start_thread

# Wide enough for blocks of their own kind: 16 rows of 16 KiB, beside a small label.
ROWS, WIDTH = 16, 4096
WIDE = np.arange(96 * WIDTH, dtype=np.int32).reshape(96, WIDTH)
LABELS = np.arange(96, dtype=np.int64)

Keep = Callable[[hr.Batch], Any]

# How a part of a batch is kept, and how its wide rows are found again.
WAYS: dict[str, tuple[Keep, Callable[[Any], Any]]] = {
    "batch": (lambda batch: batch, lambda kept: kept["wide"]),
    "copied batch": (copy.copy, lambda kept: kept["wide"]),
    "batch on the device": (lambda batch: batch.to("cpu"), lambda kept: kept["wide"]),
    "pinned": (lambda batch: batch.pin(), lambda kept: kept["wide"]),
    "pytree": (
        lambda batch: pytree.tree_map(lambda column: column, batch),
        lambda kept: kept["wide"],
    ),
    "mapped pytree": (
        lambda batch: pytree.tree_map(lambda column: column[:], batch),
        lambda kept: kept["wide"],
    ),
    "leaves": (pytree.tree_leaves, lambda kept: kept[0]),
    "default_convert": (
        lambda batch: default_convert(dict(batch.items())),
        lambda kept: kept["wide"],
    ),
    "default_collate": (
        lambda batch: default_collate([dict(batch.items())]),
        lambda kept: kept["wide"][0],
    ),
    "column": (lambda batch: batch["wide"], lambda kept: kept),
    "rows": (lambda batch: list(batch["wide"]), torch.stack),
    "detached": (lambda batch: batch["wide"].detach(), lambda kept: kept),
    "expanded": (lambda batch: batch["wide"].expand(3, -1, -1), lambda kept: kept[2]),
    "transposed": (lambda batch: batch["wide"].T, lambda kept: kept.T),
    "unbound": (lambda batch: batch["wide"].unbind(1), lambda kept: torch.stack(kept, 1)),
    "numpy": (lambda batch: batch["wide"].numpy(), torch.from_numpy),
    "numpy of numpy": (
        lambda batch: np.asarray(batch["wide"].numpy()[::-1])[::-1],
        lambda kept: torch.from_numpy(kept.copy()),
    ),
    "rebuilt": (lambda batch: batch.rebuild(), lambda kept: kept["wide"]),
    "with more columns": (
        lambda batch: batch.with_columns({"more": batch["label"]}),
        lambda kept: kept["wide"],
    ),
    "pickled": (pickle.dumps, lambda kept: pickle.loads(kept)["wide"]),
    "in a closure": (
        lambda batch: lambda column=batch["wide"]: column,
        lambda kept: kept(),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=[0, 2])
def loader(request: pytest.FixtureRequest) -> Iterator[hr.Loader]:
    data = hr.Arrays({"wide": WIDE, "label": LABELS})
    with hr.Loader(data, ROWS, workers=request.param, prefetch=3, seed=2) as loader:
        yield loader


@pytest.mark.parametrize("drops", ["here", "elsewhere"])
@pytest.mark.parametrize("way", WAYS)
def test_a_kept_part_never_changes(way: str, drops: str, loader: hr.Loader) -> None:
    """Two epochs run on over recycled, poisoned memory; the part stays, and then it is free."""
    keep, wide = WAYS[way]
    stream = loader.stream()
    batch = next(stream)
    wanted = torch.from_numpy(WIDE[batch.indices])
    kept = [keep(batch)]
    del batch

    for batch in itertools.islice(stream, 12):
        assert torch.equal(batch["wide"], torch.from_numpy(WIDE[batch.indices]))
    del batch
    gc.collect()

    assert torch.equal(wide(kept[0]), wanted)
    if drops == "elsewhere":
        start_thread(kept.clear, "elsewhere").join()
    kept.clear()
    stream.close()
    loader.close()
    gc.collect()
    assert loader.stats()["leases_out"] == 0


def test_kept_labels_hold_no_block(loader: hr.Loader) -> None:
    """A column that is small has storage of its own: a thousand kept labels hold no wide row."""
    labels = []
    for batch in itertools.islice(loader.stream(), 60):
        labels.append((batch["label"], batch.indices))
    del batch
    gc.collect()

    stats = loader.stats()
    # Only what is read ahead, or in the making, has leases.
    assert stats["leases_out"] <= 2 * loader.prefetch_depth + 1
    assert stats["blocks_made"] < 20
    for label, indices in labels:
        assert label.tolist() == indices.tolist()
        assert label.untyped_storage().nbytes() <= 64 << 10


def test_kept_batches_leave_the_bound_and_are_counted(loader: hr.Loader) -> None:
    """Batches that the user keeps do not stop the reading: they are no longer read ahead."""
    kept = [*itertools.islice(loader.stream(), 40)]

    stats = loader.stats()
    assert stats["leases_out"] >= 40
    for batch in kept:
        assert torch.equal(batch["wide"], torch.from_numpy(WIDE[batch.indices]))


def test_parts_kept_at_random(loader: hr.Loader, seed: int, full: bool) -> None:
    """Parts of any batch in any form live for any time; each is whole whenever it is looked at."""
    random_ = random.Random(seed)
    kept: list[tuple[Any, Callable[[Any], Any], Any]] = []
    for batch in itertools.islice(loader.stream(), 600 if full else 80):
        keep, wide = WAYS[random_.choice([*WAYS])]
        kept.append((keep(batch), wide, batch.indices))
        while len(kept) > random_.randrange(1, 20):
            part, wide, indices = kept.pop(random_.randrange(len(kept)))
            assert torch.equal(wide(part), torch.from_numpy(WIDE[indices]))
    # The last part in hand is one too.
    del batch, part, keep, wide
    kept.clear()
    loader.close()
    gc.collect()
    assert loader.stats()["leases_out"] == 0


def test_gradients_over_kept_columns(loader: hr.Loader) -> None:
    """What autograd saved of many batches is whole when it is used, epochs later."""
    scale = torch.ones(WIDTH, dtype=torch.float64, requires_grad=True)
    loss = torch.zeros((), dtype=torch.float64)
    wanted = torch.zeros(WIDTH, dtype=torch.float64)
    for batch in itertools.islice(loader.stream(), 18):
        wide = batch["wide"].double()
        loss = loss + (wide * scale).sum()
        wanted += torch.from_numpy(WIDE[batch.indices]).double().sum(0)

    loss.backward()

    assert scale.grad is not None
    assert torch.equal(scale.grad, wanted)


@pytest.mark.parametrize("workers", [0, 2])
def test_steady_state_makes_no_block(workers: int, tmp_path: Path) -> None:
    """Token shards, whose delivered columns are wider than the stored: blocks go round (S1-44)."""
    np.save(tmp_path / "a.npy", np.arange(60_000, dtype=np.uint16))
    data = hr.TokenShards(tmp_path, seq_len=512)
    with hr.Loader(data, 32, workers=workers, prefetch=3) as loader:
        stream = loader.stream()
        for batch in itertools.islice(stream, 30):
            first = batch["input"][0, 0].item()
            assert batch["target"][0].tolist() == [*range(first + 1, first + 513)]
        made = loader.stats()["blocks_made"]

        for batch in itertools.islice(stream, 60):
            first = batch["input"][0, 0].item()
            assert batch["target"][0].tolist() == [*range(first + 1, first + 513)]

        assert loader.stats()["blocks_made"] <= made + 2
        assert loader.stats()["blocks_lent"] > made


@pytest.mark.parametrize("workers", [0, 2])
def test_ragged_rows_that_are_kept(workers: int) -> None:
    """Open columns and their offsets stay, whatever comes after them."""
    lengths = [(7 * index) % 50 for index in range(64)]
    data = RaggedRows([[index] * length for index, length in enumerate(lengths)])
    with hr.Loader(data, 8, workers=workers, prefetch=3) as loader:
        stream = loader.stream()
        kept = [
            (batch["values"], batch["values/offsets"], batch.indices)
            for batch in itertools.islice(stream, 8)
        ]
        for _ in itertools.islice(stream, 16):
            pass

        for flat, offsets, indices in kept:
            rows = [flat[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]
            assert rows == [[index] * lengths[index] for index in indices.tolist()]
