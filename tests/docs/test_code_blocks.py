"""Every Python block of the README and the documentation runs.

The blocks of a page run in order in one namespace, in an empty folder, as a reader would type
them; a block may await at its top level, as in a notebook. A block under the comment
`<!-- not run: reason -->` is only compiled, and must be listed in NOT_RUN below.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import pad
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN_MARK = re.compile(r"<!-- not run: (?P<reason>[^\n]+) -->\n+$")

# (page, reason) of each block that needs what a test machine may not have.
NOT_RUN = {("docs/frameworks.md", "Accelerate is not installed with headrace")}


def blocks_of(page: Path) -> list[Example]:
    parser = CodeBlockParser(language="python", evaluator=run)
    return list(Sybil([parser], path=str(page.parent)).parse(page).examples())


def reason_not_to_run(block: Example) -> str | None:
    mark = NOT_RUN_MARK.search(block.document.text[: block.region.start])
    return mark["reason"] if mark else None


def run(block: Example) -> None:
    code = compiled(block)
    if reason_not_to_run(block) is None:
        result = eval(code, block.namespace)
        if inspect.iscoroutine(result):
            asyncio.run(result)


def compiled(block: Example) -> CodeType:
    source = pad(block.parsed, block.line + block.parsed.line_offset)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, block.path, "exec", flags=flags, dont_inherit=True)
    return code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a page tells the reader to type works (S0-01, S0-03)."""
    monkeypatch.chdir(tmp_path)

    for block in blocks_of(page):
        block.evaluate()


def test_every_block_that_does_not_run_is_listed() -> None:
    """No block is left out in passing."""
    found = {
        (str(page.relative_to(ROOT)), reason)
        for page in PAGES
        for block in blocks_of(page)
        if (reason := reason_not_to_run(block)) is not None
    }

    assert found == NOT_RUN


def page_with(text: str, folder: Path) -> list[Any]:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    blocks = blocks_of(page)
    for block in blocks:
        block.evaluate()
    return blocks


def test_blocks_share_names_and_may_await(tmp_path: Path) -> None:
    """The second block sees what the first one made, and awaits without a function."""
    blocks = page_with(
        "```python\nimport asyncio\nrows = [1]\n```\n\ntext\n\n"
        "```python\nawait asyncio.sleep(0)\nrows.append(2)\n```\n\n"
        "```console\n$ rm rows\n```\n",
        tmp_path,
    )

    assert blocks[0].namespace["rows"] == [1, 2]


def test_a_failing_block_points_at_its_line(tmp_path: Path) -> None:
    """The traceback names the page and the line in it."""
    with pytest.raises(ZeroDivisionError) as caught:
        page_with("# Page\n\n```python\nrows = 0\n1 / rows\n```\n", tmp_path)

    last = caught.traceback[-1]
    assert (Path(last.path).name, last.lineno + 1) == ("page.md", 5)


def test_a_block_that_is_not_run_must_still_compile(tmp_path: Path) -> None:
    """The mark spares a block its run, not its grammar."""
    page_with("<!-- not run: needs a GPU -->\n```python\n1 / 0\n```\n", tmp_path)

    with pytest.raises(SyntaxError):
        page_with("<!-- not run: needs a GPU -->\n```python\n1 /\n```\n", tmp_path)
