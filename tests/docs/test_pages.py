"""The pages answer the questions that they are there for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import headrace
from headrace.rng import Stream

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = Path(headrace.__file__).parent


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """Give the text under a heading, its line breaks as spaces; empty where there is none."""
    found = re.search(
        rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", text_of(page), re.DOTALL | re.MULTILINE
    )
    return " ".join(found[1].split()) if found else ""


@pytest.mark.parametrize(
    ("page", "heading", "answer"),
    [
        ("datasets.md", "Choose which kind of dataset to write", "no Python per sample"),  # S0-07
        ("datasets.md", "Choose which kind of dataset to write", "a question to measure"),  # S4-80
        ("datasets.md", "Choose which kind of dataset to write", "No format and no device is free"),
        # S4-80: six questions, none of them a size.
        ("choosing-data.md", "By measuring", "No size in gigabytes says which storage is right"),
        ("choosing-data.md", "By measuring", "**quality of the shuffle**"),
        ("choosing-data.md", "By measuring", "No format and no device is free"),  # S4-87
        ("choosing-data.md", "By where it lies", "Streaming is not zero memory"),  # S4-81
        ("choosing-data.md", "By where it lies", "memory, a map, files, or anything"),  # S0-82
        # S0-62
        ("choosing-data.md", "By what you have", "the same epoch again gives the same order"),
        # S4-81, S4-87: memory, maps and formats have their prices, and each is said.
        ("datasets.md", "Choose which kind of dataset to write", "random reads of a map larger"),
        ("datasets.md", "Write a dataset that threads share", "shared between them, not copied"),
        # S0-08, S1-13: which thread or loop calls what.
        ("datasets.md", "Write a dataset that threads share", "run on the engine's event loop"),
        (
            "datasets.md",
            "Write a dataset that threads share",
            "the same index gives the same bytes",
        ),
        # S4-15, S4-17: where handles are opened.
        ("datasets.md", "Write a dataset that threads share", "and handles out of `__init__`"),
        # S0-59
        ("datasets.md", "Draw random numbers", "The same index must always give the same bytes"),
        ("datasets.md", "Draw random numbers", "Keep it tensor operations"),  # S0-77
        (
            "datasets.md",
            "Put samples into a batch",
            "never stitched together from several",
        ),  # S4-08
        (
            "order.md",
            "Keep or drop the last short batch",
            "batch norm over a batch of one",
        ),  # S0-66
        ("order.md", "Keep or drop the last short batch", "values per channel"),  # S4-27
        ("order.md", "Average a metric over an epoch", "Weight by rows, not by batches"),  # S4-19
        ("order.md", "Validate in a fixed order", "needs a sampler of its own"),  # S4-21
        ("order.md", "Mix several datasets", "independently and with replacement"),  # S1-32
        ("padding.md", "Empty sequences", "Single samples may be empty"),  # S4-34
        ("padding.md", "Text with one label", "For labels of every token see"),  # S4-36
        ("language-models.md", "Predict the next token", "targets by `ignore_index`"),  # S4-36
        ("line-images.md", "From bytes to planes", "left to a library of yours"),  # S1-49
        ("order.md", "Bucketed: little padding", "may come at any step of the epoch"),  # S4-39
        ("state.md", "What counts as taken", "batches read ahead do not"),  # S4-75
        ("tuning.md", "Build the model first", "then make the loader"),  # U-06
        ("tuning.md", "Read-ahead and memory", "Do not multiply memory by workers"),  # S4-47
        ("diagnose.md", "Memory", "keep names, offsets and labels in arrays"),  # S4-47
        ("tuning.md", "Ask the loader how much it takes", "all workers share them"),  # S4-30
        ("limits.md", "Devices", "they do not prove that it does"),  # S4-25
    ],
)
def test_the_guides_answer(page: str, heading: str, answer: str) -> None:
    """Each question has its section, and the answer is in it."""
    assert answer in section(page, heading)


def test_reading_ahead_is_said_to_hide_latency_only() -> None:
    """No page promises that prefetch makes a source faster (S4-31)."""
    assert "It cannot make a source faster" in " ".join(text_of("tuning.md").split())


def test_each_stream_of_random_numbers_is_explained() -> None:
    """The table of streams lists those that the code has, and no other (S1-21)."""
    rows = re.findall(r"\| (\d+(?:, \d+)?) \|", section("datasets.md", "Draw random numbers"))

    assert [int(number) for row in rows for number in row.split(", ")] == list(Stream)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name
)
def test_no_page_claims_what_it_did_not_measure(page: Path) -> None:
    """No promise of speed without a number (S4-43, S4-45)."""
    claims = re.compile(
        r"blazing|lightning.(?:fast|quick|speed)|zero.overhead|always faster|weeks to days",
        re.IGNORECASE,
    )

    assert claims.findall(page.read_text(encoding="utf-8")) == []


def test_the_readme_says_what_was_run() -> None:
    """It names what was tested and what was not, and the release of torch (S4-85, S4-86)."""
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^torch==(\S+)$", pins, re.MULTILINE)

    assert "### What was tested, and what was not" in readme
    assert f"torch {pinned}, the versions that `make` installs" in readme
    assert torch.__version__.split("+")[0] == pinned


def test_the_life_of_a_sample_meets_real_files() -> None:
    """Each file and function that the page names is in the tree."""
    page = text_of("life-of-a-sample.md")
    files = set(re.findall(r"`((?:[a-z_]+/)?[a-z_]+\.py)`", page))
    methods = set(re.findall(r"`([A-Z]\w+)\.(\w+)`", page))

    assert len(files) >= 13
    assert [file for file in files if not (PACKAGE / file).is_file()] == []
    assert [f"{c}.{m}" for c, m in methods if not any(hasattr(k, m) for k in classes_of(c))] == []


def classes_of(name: str) -> list[type]:
    """Give the classes of headrace with a name."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(headrace.__path__, "headrace.")
        if not found.name.startswith(("headrace.testing", "headrace.cli", "headrace.__main__"))
    ]
    found = [getattr(module, name) for module in modules if hasattr(module, name)]
    return [kind for kind in found if inspect.isclass(kind)]


def test_links_between_the_pages_work_in_the_checkout() -> None:
    """A reader of the folder, or of its page on the web, finds what is linked to."""
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    ]

    assert len(links) > 50
    assert [
        (page.name, target) for page, target in links if not (page.parent / target).exists()
    ] == []
