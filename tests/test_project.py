"""Rules that hold for the tree as a whole."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headrace"
MODULES = sorted(PACKAGE.rglob("*.py"))

# The command may use what its extra brings; each of these costs an import that most never need.
OPTIONAL_OR_SLOW = {
    "aiohttp",
    "datasets",
    "obstore",
    "PIL",
    "psutil",
    "pyarrow",
    "rich",
    "s3fs",
    "typer",
    "unittest",
    "uvloop",
    "xml",
}


def test_no_module_is_named_after_nothing() -> None:
    """A module is named by the noun it owns."""
    vague = {"utils", "util", "common", "helpers", "base", "core", "misc"}

    assert [module for module in MODULES if {module.stem, module.parent.name} & vague] == []


def test_importing_headrace_imports_nothing_optional() -> None:
    """`import headrace` leaves optional and slow libraries alone until they are used."""
    code = "import torch, sys; before = set(sys.modules); import headrace"
    code += "; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert OPTIONAL_OR_SLOW & {name.partition(".")[0] for name in run.stdout.split()} == set()


def test_nothing_is_downloaded() -> None:
    """No module of ours opens a network connection by itself (S0-09)."""
    clients = {"urllib.request", "http.client", "requests", "httpx", "socket"}

    assert [module.name for module in MODULES if clients & set(imports_of(module))] == []


def imports_of(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def text_files() -> Iterator[Path]:
    """Give every text file of the tree, without what `make` builds and the test vectors."""
    yield from (file for file in ROOT.iterdir() if file.suffix in {".md", ".toml", ".txt", ".yml"})
    yield ROOT / "Makefile"
    for folder in (".ci", "benchmarks", "changes", "docs", "examples", "src", "tests"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".py", ".md", ".toml", ""} and file.is_file():
                yield file


def test_no_file_names_a_place_of_one_machine() -> None:
    """The tree works anywhere, so it names no home, no index of packages, no scratch folder."""
    place = re.compile(
        r"(?<![\w.])/(?:wor[k]|roo[t]|hom[e]|User[s]|tmp/ven[v])/|share[d]/|index-ur[l]"
    )

    assert [file for file in text_files() if place.search(file.read_text(encoding="utf-8"))] == []


def test_no_work_is_left_for_later() -> None:
    """What is promised is built: no markers, no sleeps in tests."""
    left = re.compile(r"\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b|time\.slee[p]\(")
    files = [*MODULES, *(ROOT / "tests").rglob("*.py")]

    assert [file.name for file in files if left.search(file.read_text(encoding="utf-8"))] == []


def test_every_tool_is_pinned() -> None:
    """`make` installs what was tried, torch at one release for all (S4-86)."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for group in (
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ):
        wanted += [need for need in group if isinstance(need, str)]
    names = {re.split(r"[<>=;\[ ]", need)[0].lower() for need in wanted}
    pinned = {line.partition("==")[0].lower() for line in pins.splitlines() if "==" in line}

    assert names <= pinned
    assert "torch==2.13.0" in pins.splitlines()
