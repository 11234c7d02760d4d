"""Every way to keep a part of a batch keeps its memory, and nothing else does."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.ring.blocks import POISON, BlockPool
from tests.proof.worlds import quiet_collector

ROWS = 4
WIDTH = 8192  # 64 KiB a row: the column lies in a block, whose size is that of two batches
DATA = np.arange(16 * WIDTH, dtype=np.float64).reshape(16, WIDTH)


class Saved(torch.autograd.Function):
    """Multiplies by the sum of a column, which it saves for the way back."""

    @staticmethod
    def forward(ctx: Any, column: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(column)
        return column.sum() * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, grad * ctx.saved_tensors[0].sum()


def saved(column: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    return scale, Saved.apply(column, scale)


def gradient(kept: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    scale, loss = kept
    loss.backward()
    assert scale.grad is not None
    return scale.grad


def same(kept: Any) -> Any:
    return kept


# How a part of a batch is kept, and how it is read later.
WAYS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], Any]]] = {
    "whole": (same, same),
    "slice": (lambda column: column[1:3, ::7], same),
    "view": (lambda column: column.view(torch.int64), same),
    "reshape": (lambda column: column.reshape(-1, 2), same),
    "numpy": (lambda column: column.numpy(), same),
    "slice of numpy": (lambda column: column.numpy()[1:].T, same),
    "DLPack": (torch.from_dlpack, same),
    "capsule": (torch.utils.dlpack.to_dlpack, torch.utils.dlpack.from_dlpack),
    "memoryview": (lambda column: memoryview(column.numpy()), same),
    "storage": (
        lambda column: column.untyped_storage(),
        lambda storage: torch.empty(0, dtype=torch.uint8).set_(storage),
    ),
    "autograd": (saved, gradient),
    "pickled": (pickle.dumps, pickle.loads),
}


@pytest.fixture(autouse=True, scope="module")
def collects_quickly() -> Iterator[None]:
    with quiet_collector():
        yield


@pytest.fixture
def loader() -> Iterator[hr.Loader]:
    with hr.Loader(hr.Arrays(DATA), ROWS, shuffle=False, workers=1, prefetch=4) as loader:
        yield loader


@pytest.mark.parametrize("drops", ["here", "elsewhere"])
@pytest.mark.parametrize("way", WAYS)
def test_a_part_that_is_kept_alone_keeps_its_memory(
    way: str, drops: str, loader: hr.Loader
) -> None:
    """The batch goes, a part stays, in any form; when that goes, in any thread, all is free."""
    keep, read = WAYS[way]
    stream = loader.stream()
    kept = [keep(next(stream)[0])]

    for _ in range(12):
        next(stream)
    gc.collect()

    wanted = read(keep(torch.from_numpy(DATA[:ROWS].copy())))
    found = read(kept[0])
    assert np.array_equal(np.array(memoryview_of(found)), np.array(memoryview_of(wanted)))
    del found
    if drops == "elsewhere":
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
    kept.clear()
    loader.close()
    gc.collect()
    assert loader._engine.pool.leases_out == 0


def memoryview_of(kept: Any) -> Any:
    return memoryview(kept.numpy()) if isinstance(kept, torch.Tensor) else kept


def test_a_pickle_holds_its_rows_alone(loader: hr.Loader) -> None:
    """A pickled batch owns its rows: its block and its neighbours do not travel with it."""
    batch = next(iter(loader))

    assert len(pickle.dumps(batch)) < ROWS * WIDTH * 8 + 4096


def test_blocks_are_as_many_as_steps_in_flight_need(loader: hr.Loader) -> None:
    """Batches that are dropped give their blocks to those that follow (S1-44).

    The first span has one step and a block of its own size. From then on blocks hold two
    steps: four in flight lie in at most three of them, and the caller holds one more.
    """
    stream = loader.stream()

    for _ in range(120):
        next(stream)

    assert loader.stats()["blocks_made"] <= 1 + 3 + 1
    assert loader.stats()["blocks_lent"] >= 60


def test_what_is_returned_is_poisoned() -> None:
    """The tests' own alarm works: a view that outlives its lease would see the poison."""
    pool = BlockPool(1 << 20, poison=True)
    block = pool.lend(4096)
    array = block.lease(0, (512,), "<f8")
    block.let_go()
    assert not (block.memory == POISON).all()

    del array

    assert pool.leases_out == 0
    assert (block.memory == POISON).all()
