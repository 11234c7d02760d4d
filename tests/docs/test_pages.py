"""The pages answer the questions that they are there for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.rng import Stream

DOCS = Path(__file__).parents[2] / "docs"


def section(page: str, heading: str) -> str:
    """Give the text under a heading, its line breaks as spaces; empty where there is none."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    return " ".join(found[1].split()) if found else ""


@pytest.mark.parametrize(
    ("heading", "answer"),
    [
        ("Choose which kind of dataset to write", "no Python per sample"),  # S0-07, S0-58
        ("Write a dataset that threads share", "shared between them, not copied"),  # S0-08, S1-13
        ("Write a dataset that threads share", "heavy work and handles out of `__init__`"),  # S4-15
        ("Draw random numbers", "The same index must always give the same bytes"),  # S0-59
        ("Draw random numbers", "Keep it tensor operations"),  # S0-77
        ("Keep or drop the last short batch", "batch norm over a batch of one"),  # S0-66
        ("Keep or drop the last short batch", "values per channel"),  # S4-27
        ("Average a metric over an epoch", "Weight by rows, not by batches"),  # S4-19
        ("Validate in a fixed order", "needs a sampler of its own"),  # S4-21
        ("Mix several datasets", "independently and with replacement"),  # S1-32
        ("Build the model first", "then make the loader"),  # U-06
    ],
)
def test_the_how_to_page_answers(heading: str, answer: str) -> None:
    """Each question of the guide has its section, and the answer is in it."""
    assert answer in section("how-to.md", heading)


def test_each_stream_of_random_numbers_is_explained() -> None:
    """The table of streams lists those that the code has, and no other (S1-21)."""
    rows = re.findall(r"\| (\d+(?:, \d+)?) \|", section("how-to.md", "Draw random numbers"))

    assert [int(number) for row in rows for number in row.split(", ")] == list(Stream)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_no_page_claims_what_it_did_not_measure(page: Path) -> None:
    """No promise of speed without a number (S4-43, S4-45)."""
    claims = re.compile(
        r"blazing|lightning|zero.overhead|always faster|weeks to days", re.IGNORECASE
    )

    assert claims.findall(page.read_text(encoding="utf-8")) == []
