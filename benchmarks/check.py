"""Checks what a peer delivers against the data: contents, coverage and shuffle.

A peer that does less work than the others is no comparison.
"""

from __future__ import annotations

import numpy as np
import torch
from peers.peer import Peer
from workload import Columns, Rows, Workload


class WrongDeliveryError(AssertionError):
    """A peer delivered something else than the workload asks for."""


def check_columns(workload: Workload, columns: Columns) -> Rows:
    """Compare a batch with the data, every value of it.

    Returns:
        The numbers of its rows.

    Raises:
        WrongDeliveryError: Something differs: type, shape, layout or a value.
    """
    rows = workload.identify(columns)
    _require(len(rows) == workload.batch_rows, f"{len(rows)} rows in a batch")
    _require(bool((rows >= 0).all() and (rows < workload.rows).all()), "row numbers out of range")
    wanted = workload.expected(rows)
    _require(len(columns) == len(wanted), f"{len(columns)} columns, wanted {len(wanted)}")
    for number, (found, want) in enumerate(zip(columns, wanted, strict=True)):
        _require(found.dtype == want.dtype, f"column {number} is {found.dtype}, not {want.dtype}")
        _require(found.is_contiguous(), f"column {number} is not contiguous")
        _require(torch.equal(found, want), f"column {number} holds other values than the data")
    return rows


def check_epochs(workload: Workload, peer: Peer, epochs: int = 2) -> None:
    """Take whole epochs and check each batch, that each row comes once, and the shuffle.

    Raises:
        WrongDeliveryError: Naming what is wrong.
    """
    batches: list[Rows] = []

    def take(columns: Columns) -> bool:
        batches.append(check_columns(workload, columns))
        return False

    peer.feed(epochs, take)
    _require(len(batches) == epochs * workload.steps, f"{len(batches)} batches")
    orders = np.concatenate(batches).reshape(epochs, workload.rows)
    for epoch, order in enumerate(orders):
        whole = np.array_equal(np.sort(order), np.arange(workload.rows))
        _require(whole, f"epoch {epoch} does not hold each row once")
        if peer.is_global:
            _require_global_shuffle(order, workload)
    _require(not np.array_equal(orders[0], orders[1]), "two epochs have the same order")


def check_first(workload: Workload, peer: Peer, batches: int = 8) -> None:
    """Check the first batches only: for full-size data, before anything is timed.

    Raises:
        WrongDeliveryError: Naming what is wrong.
    """
    seen: list[Rows] = []

    def take(columns: Columns) -> bool:
        seen.append(check_columns(workload, columns))
        return len(seen) == batches

    peer.feed(1 + batches // workload.steps, take)
    rows = np.concatenate(seen)[: workload.rows]
    _require(len(np.unique(rows)) == len(rows), "a row came twice in one epoch")


def _require_global_shuffle(order: Rows, workload: Workload) -> None:
    """Require that the rows of a batch come from all over the data.

    The standard deviation of uniform draws is 0.289 of the range. Reading in order, or a
    shuffle inside a window, gives less.
    """
    batches = order.reshape(workload.steps, workload.batch_rows)
    spread = float(batches.std(axis=1).mean()) / workload.rows
    _require(0.25 < spread < 0.32, f"batches spread over {spread:.3f} of the data, wanted 0.289")


def _require(is_right: bool, fault: str) -> None:
    if not is_right:
        raise WrongDeliveryError(fault)
