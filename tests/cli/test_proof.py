"""What counts as the same stream: everything that could differ is noticed."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from headrace.cli.delivery import Delivered, Delivery, Size
from headrace.cli.proof import Proof, Redone, compare, compare_losses
from headrace.cli.report import show_proof


def state(next_step: int, digest: int) -> dict[str, Any]:
    return {"next_step": next_step, "content": {"from_step": 0, "digest": f"{digest:016x}"}}


def delivery(at_cut: int = 0xFFFF_FFFF_FFFF_FFF0, at_end: int = 0x20, rows: int = 4) -> Delivery:
    """Give four steps of 4 rows, cut after the third; digests of the last one wrap around."""
    return Delivery([Size(rows, 64)] + [Size(4, 64)] * 3, state(3, at_cut), state(4, at_end))


def proof(run: Delivery, redone: Redone | None = None, verified_steps: int = 4) -> Proof:
    parts = compare(run, delivery())
    return Proof(parts, redone or Redone(2, 0.0), verified_steps)


def test_digests_of_parts_add_up() -> None:
    """The digest of the part after the cut is the difference of two states, mod 2^64."""
    parts = compare(delivery(), delivery())

    assert [part.run for part in parts] == [
        Delivered(3, 12, 192, "fffffffffffffff0"),
        Delivered(1, 4, 64, "0000000000000030"),
        Delivered(4, 16, 256, "0000000000000020"),
    ]
    assert proof(delivery()).is_identical


@pytest.mark.parametrize(
    ("run", "differing"),
    [
        (delivery(at_cut=0xFFFF_FFFF_FFFF_FFF1), ["checkpointed", "resumed"]),
        (delivery(at_end=0x21), ["resumed", "whole run"]),
        (delivery(rows=5), ["checkpointed", "whole run"]),
    ],
    ids=["a digest before the stop", "a digest after it", "a row too many"],
)
def test_a_changed_part_is_named(run: Delivery, differing: list[str]) -> None:
    """A resume that gave other bytes shows in the parts that hold them."""
    found = proof(run)

    assert [part.name for part in found.parts if not part.is_identical] == differing
    assert not found.is_identical


def test_a_missing_step_is_found() -> None:
    """A run that ended early is not the whole stream, even with the same digest."""
    short = Delivery(delivery().sizes[:3], state(3, 0xFFFF_FFFF_FFFF_FFF0), state(4, 0x20))

    assert not proof(short).is_identical


def test_an_order_verified_in_part_is_not_enough() -> None:
    """All steps of the run must have been worked out again."""
    assert not proof(delivery(), verified_steps=3).is_identical


@pytest.mark.parametrize(
    ("again", "redone"),
    [
        ({1: 2.5, 2: 2.25, 3: 1.0}, Redone(2, 0.0)),
        ({1: 2.5, 2: 2.5}, Redone(2, 0.25)),
        ({3: 1.0}, Redone(0, 0.0)),
    ],
)
def test_losses_of_common_steps_are_compared(again: dict[int, float], redone: Redone) -> None:
    """The largest difference counts, of the steps that both processes did."""
    assert compare_losses({0: 3.0, 1: 2.5, 2: 2.25}, again) == redone


def test_other_losses_or_none_are_no_agreement() -> None:
    """A difference beyond rounding, a NaN, or nothing to compare: none of them proves anything."""
    not_a_number = compare_losses({0: math.nan, 1: 2.0}, {0: 2.0, 1: 2.0})

    assert Redone(2, 1e-5).agrees
    assert not Redone(2, 0.25).agrees
    assert not not_a_number.agrees
    assert not Redone(0, 0.0).agrees
    assert not proof(delivery(), Redone(2, 0.25)).is_identical


def test_a_difference_is_said_aloud() -> None:
    """The table marks the part, and the last line says that the stream differs."""
    console = Console(file=io.StringIO(), width=80)

    show_proof(console, proof(delivery(at_end=0x21), Redone(2, 0.25)))

    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("DIFFERS  \n") == 2
    assert "steps done twice (2): DIFFERENT by up to 0.25." in said
    assert said.rstrip().endswith("The stream DIFFERS. This must not happen: please report it.")


def test_digests_are_whole_on_a_terminal_of_80_columns() -> None:
    """What is to be compared by eye is not cut off."""
    console = Console(file=io.StringIO(), width=80)

    show_proof(console, proof(delivery()))

    assert console.file.getvalue().count("fffffffffffffff0  fffffffffffffff0") == 1  # type: ignore[attr-defined]
