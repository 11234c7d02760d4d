"""Writes docs/coverage.md: each numbered demand, and the tests that name it.

A test names rows in its docstring, in its module's docstring or in a comment inside it: `S1-28`,
`U-35`, `B08`, or a span of one document, `S4-73..77`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
TESTS = DOCS.parent / "tests"
PAGE = DOCS / "coverage.md"
ROW = re.compile(r"\b(?:(S0|S1|S4|U)-|(B))(\d\d)(?:\.\.(?:(?:S0|S1|S4|U)-|B)?(\d\d))?\b")
SHOWN = 3  # tests named per row; the rest are counted

HEAD = """# Coverage

One line per numbered demand: what it asks, and the tests that prove it. A row that waits says for
which work. The page is made by `make tables` from the rows that tests name; a test fails when it is
not current, and when a row has neither a test nor a reason to wait.
"""


def page() -> str:
    """Give the whole page."""
    tests, waits = tests_by_row(), waiting()
    parts = [HEAD]
    for document, rows in demands().items():
        parts.append(f"\n## {document}\n\n| row | demand | test |\n|---|---|---|\n")
        for row, text in rows.items():
            parts.append(f"| {row} | {text} | {_proof(tests.get(row, []), waits.get(row))} |\n")
    return "".join(parts)


def demands() -> dict[str, dict[str, str]]:
    """Give the words of each row, by document."""
    listed = {document: rows for document, rows in _listed().items() if document != "waits"}
    return {
        document: {_name(document, number): text for number, text in rows.items()}
        for document, rows in listed.items()
    }


def waiting() -> dict[str, str]:
    """Give the work that each row without a test waits for."""
    return {row: work for work, rows in _listed()["waits"].items() for row in rows_in(rows)}


def tests_by_row() -> dict[str, list[str]]:
    """Give the tests that name each row, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, words in _tests_in(path.read_text(encoding="utf-8")):
            for row in dict.fromkeys(rows_in(words)):
                found.setdefault(row, []).append(f"{path.relative_to(TESTS.parent)}::{name}")
    return found


def rows_in(words: str) -> Iterator[str]:
    """Give the rows named in a text, spans spelled out."""
    for document, fault, first, last in ROW.findall(words):
        for number in range(int(first), int(last or first) + 1):
            yield _name(document or fault, f"{number:02}")


def _listed() -> dict[str, dict[str, str]]:
    return tomllib.loads((DOCS / "rows.toml").read_text(encoding="utf-8"))


def _name(document: str, number: str) -> str:
    return f"B{number}" if document == "B" else f"{document}-{number}"


def _tests_in(source: str) -> Iterator[tuple[str, str]]:
    """Give the name of each test with the words that may name rows, its module's included."""
    lines, tree = source.splitlines(), ast.parse(source)
    shared = ast.get_docstring(tree) or ""
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.Module | ast.ClassDef):
            continue
        for node in scope.body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if (
                    name.startswith("test_")
                ):
                    first = min([node, *node.decorator_list], key=lambda part: part.lineno)
                    comments = _comments(lines[first.lineno - 1 : node.end_lineno])
                    yield name, f"{shared} {ast.get_docstring(node)} {comments}"


def _comments(lines: list[str]) -> str:
    return " ".join(line.partition("#")[2] for line in lines)


def _proof(tests: list[str], work: str | None) -> str:
    if not tests:
        return f"waits for {work}" if work else "none"
    more = f" and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
    return ", ".join(f"`{test.removeprefix('tests/')}`" for test in tests[:SHOWN]) + more


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
