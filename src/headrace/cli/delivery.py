"""What a pass over the steps of a job delivered: how much, and the digests of the bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import headrace as hr

_MASK = (1 << 64) - 1


class Size(NamedTuple):
    """What one step delivered: rows, and bytes of all columns."""

    rows: int
    delivered_bytes: int


def size_of(batch: hr.Batch) -> Size:
    """Measure a batch."""
    return Size(batch.num_rows, sum(column.nbytes for column in batch))


@dataclass(frozen=True, slots=True)
class Delivered:
    """What consecutive steps delivered.

    Attributes:
        steps: How many steps.
        rows: Rows of all of them.
        delivered_bytes: Bytes of all columns.
        digest: The additive content digest of every row, 16 hex digits.
    """

    steps: int
    rows: int
    delivered_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A pass over all steps from 0 on, cut in two at a step.

    Attributes:
        sizes: By step.
        at_cut: The loader's state at the cut.
        at_end: The loader's state after the last step.
    """

    sizes: Sequence[Size]
    at_cut: Mapping[str, Any]
    at_end: Mapping[str, Any]

    @property
    def cut(self) -> int:
        """Steps before the cut."""
        return int(self.at_cut["next_step"])

    def before_cut(self) -> Delivered:
        """Give what came before the cut."""
        return _delivered(self.sizes[: self.cut], _digest(self.at_cut))

    def after_cut(self) -> Delivered:
        """Give what came after it: digests add up, so its own is the difference of two states."""
        digest = _digest(self.at_end) - _digest(self.at_cut)
        return _delivered(self.sizes[self.cut :], digest & _MASK)

    def whole(self) -> Delivered:
        """Give all of it."""
        return _delivered(self.sizes, _digest(self.at_end))


def _delivered(sizes: Sequence[Size], digest: int) -> Delivered:
    rows = sum(size.rows for size in sizes)
    delivered_bytes = sum(size.delivered_bytes for size in sizes)
    return Delivered(len(sizes), rows, delivered_bytes, f"{digest:016x}")


def _digest(state: Mapping[str, Any]) -> int:
    content = state["content"]
    assert content["from_step"] == 0, "a jump of the cursor began another digest"
    return int(content["digest"], 16)
