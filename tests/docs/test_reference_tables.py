"""The tables of the guides list what the code has, and nothing else."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import RandomSampler

import headrace as hr
from tests.docs.test_pages import PACKAGE, ROOT, text_of


def table(page: str, heading: str) -> list[list[str]]:
    """Give the cells of the first table under a heading, without its head."""
    body = text_of(page).partition(f"## {heading}\n")[2]
    lines = body[body.index("\n|") :].strip().splitlines()
    rows = [line for line in lines[: next_blank(lines)] if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def next_blank(lines: list[str]) -> int:
    return next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_each_knob_is_in_the_table_with_its_default() -> None:
    """Names, order and defaults are those of the signature (S0-94)."""
    knobs = list(inspect.signature(hr.Loader.__init__).parameters.values())[1:]

    found = [(codes(name)[0], default) for name, default, *_ in table("tuning.md", "Every knob")]

    assert found == [(knob.name, default_of(knob)) for knob in knobs]


def default_of(knob: inspect.Parameter) -> str:
    return "required" if knob.default is knob.empty else f"`{knob.default!r}`"


def test_each_environment_variable_is_listed() -> None:
    """What the library reads of the environment is in the table, and no more (U-39)."""
    named = {
        name
        for module in PACKAGE.rglob("*.py")
        if "testing" not in module.parts
        for name in re.findall(
            r'environ(?:\.get\(|\[)\s*"(\w+)"', module.read_text(encoding="utf-8")
        )
    }

    listed = {codes(row[0])[0] for row in table("tuning.md", "Environment variables")}

    assert listed == named


def test_each_number_of_stats_is_explained() -> None:
    """The table lists the keys of `loader.stats()`."""
    with hr.Loader(np.arange(40), batch_size=4) as loader:
        next(iter(loader))
        counted = set(loader.stats())

    listed = {
        name for row in table("tuning.md", "What the loader counts") for name in codes(row[0])
    }

    assert listed == counted


def test_each_field_of_a_state_is_explained() -> None:
    """The table lists every field that some loader writes."""
    listed = {name for row in table("state.md", "What is in a state") for name in codes(row[0])}

    assert listed == {field for state in states() for field in state}


def states() -> Iterator[dict[str, Any]]:
    with hr.Loader(Half(), batch_size=4, content_digest=True, on_bad_sample="replace") as loader:
        loader.skip_step(0)
        next(iter(loader))
        yield loader.state_dict()
    with hr.Loader(np.arange(8), 4, sampler=RandomSampler(range(8)), transform=Steady()) as loader:
        yield loader.state_dict()


class Half:
    """A dataset of which every second sample is bad."""

    thread_safe = True

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index % 2:
            raise ValueError("odd")
        return index


class Steady:
    """A transform with a state that never changes."""

    def __call__(self, batch: hr.Batch, keys: Any) -> hr.Batch:
        return batch

    def state_dict(self) -> dict[str, int]:
        return {"factor": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        assert state == {"factor": 1}


def test_the_layers_of_the_page_are_those_that_are_held() -> None:
    """The table of layers says what the linter checks, and leaves no module out."""
    layers = [set(codes(modules)) for _, modules, *_ in table("architecture.md", "Layers")]
    known = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix in ("", ".py") and not path.stem.startswith("__")
    }

    assert layers == [{name for name in layer if name in known} for layer in held()]
    assert set.union(*layers) == known


def held() -> Iterator[list[str]]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = config["tool"]["importlinter"]["contracts"]
    for layer in contract["layers"]:
        yield [name.strip(" ()") for name in layer.split("|")]


def test_no_guide_names_a_file_that_is_not_there() -> None:
    """Paths of modules in the architecture page and the decisions exist."""
    pages = [Path("architecture.md"), *Path(ROOT / "docs" / "adr").glob("0*.md")]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"`((?:[a-z_]+/)?[a-z_]+\.py)`", (ROOT / "docs" / page).read_text())
    }

    assert [pair for pair in named if not (PACKAGE / pair[1]).is_file()] == []
