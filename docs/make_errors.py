"""Writes the table of docs/errors.md from the classes in headrace.errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from headrace import errors

PAGE = Path(__file__).with_name("errors.md")
START, END = "<!-- table: make tables -->\n", "<!-- end of table -->\n"


def page() -> str:
    """Give the page with its table made anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    after = rest.partition(END)[2]
    head = "| error | is also | when |\n|---|---|---|\n"
    return before + START + head + "".join(_rows()) + END + after


def _rows() -> Iterator[str]:
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.HeadraceError):
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
            meaning = (error.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ")
            yield f"| `{name}` | {bases} | {meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
