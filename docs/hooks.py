"""Makes the pages that exist elsewhere: Home, the changelog, and the reference from docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# In the order in which a sample meets them; modules not named here come after, by name.
ORDER = [
    "loader", "stream", "batch", "state", "config", "stats", "measured", "explain", "budget",
    "errors", "pick", "rng", "samplers", "datasets", "sources", "collate", "plan", "build",
    "reader", "ring", "devices", "threads", "testing", "cli",
]  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the entry `reference` of the navigation by the pages that there will be."""
    pages = ["reference/index.md", *(_page_of(name) for name in _modules())]
    config.nav = [
        {"Reference": pages} if entry == {"Reference": "reference"} else entry
        for entry in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages themselves."""
    home = (
        _text_of("README.md").replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
    )
    files.append(File.generated(config, "index.md", content=home))
    files.append(File.generated(config, "changelog.md", content=_text_of("CHANGELOG.md")))
    modules = _modules()
    rows = [f"| [`{name}`]({name}.md) | {summary} |" for name, summary in modules.items()]
    index = "\n".join(["# Reference", "", "| module | what it gives |", "|---|---|", *rows, ""])
    files.append(File.generated(config, "reference/index.md", content=index))
    for name in modules:
        content = f"# {name}\n\n::: {name}\n"
        files.append(File.generated(config, _page_of(name), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of the checkout to the README and to modules to their pages here."""
    return re.sub(
        r"\]\(\.\./src/(headrace/[\w/]+)\.py\)",
        lambda found: f"]({_page_of(found[1].replace('/', '.'))})",
        markdown.replace("](../README.md", "](index.md"),
    )


def _text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _page_of(module: str) -> str:
    return f"reference/{module}.md"


def _modules() -> dict[str, str]:
    """Give the dotted name and first sentence of each module that says something."""
    found: dict[str, str] = {}
    for path in sorted((SOURCE / "headrace").rglob("*.py"), key=_position):
        summary = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if summary and (path.stem == "__init__" or not path.stem.startswith("_")):
            found[name] = summary.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return found


def _position(path: Path) -> tuple[Any, ...]:
    parts = path.relative_to(SOURCE / "headrace").with_suffix("").parts
    place = ORDER.index(parts[0]) if parts[0] in ORDER else len(ORDER)
    return (parts[0] != "__init__", place, parts)
