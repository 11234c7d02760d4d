"""Writes the tables of a run into docs/performance.md.

python benchmarks/report.py benchmarks/results/20260101-120000.json
python benchmarks/report.py --section tuned benchmarks/results/20260101-130000.json
python benchmarks/report.py --section peers benchmarks/results/20260101-140000.json
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from results import Results
from tables import all_tables, markdown

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


def main() -> None:
    """Write what the arguments name."""
    parser = argparse.ArgumentParser(description="Write results into the docs.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--section", default="main", help="main, tuned or peers")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    results = Results.load(asked.results)
    page = asked.page.read_text()
    asked.page.write_text(put(page, asked.section, section_of(results)))


def put(page: str, section: str, text: str) -> str:
    """Put text between the marks of a section, in place of what is there.

    Raises:
        SystemExit: The page has no such section.
    """
    begin, end = f"<!-- {section} results -->", f"<!-- end of {section} results -->"
    if begin not in page or end not in page:
        raise SystemExit(f"the page has no marks {begin} and {end}")
    before, rest = page.split(begin, 1)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}"


def section_of(results: Results) -> str:
    """Write where and how a run was made, and its tables."""
    parts = [about(results.facts), *map(markdown, all_tables(results))]
    if results.failures:
        parts.append("Could not be measured: " + "; ".join(results.failures) + ".\n")
    return "\n".join(parts)


def about(facts: dict[str, Any]) -> str:
    """Write the facts of a run in two sentences."""
    packages = ", ".join(f"{name} {found}" for name, found in facts["packages"].items())
    return (
        f"`{facts['command']}`, {facts['rounds']} rounds of {facts['seconds']:g} s, "
        f"data at scale {facts['scale']}, commit {facts['commit']}.\n"
        f"{facts['cpu']}, {facts['cores_used']} of {facts['cores']} cores, "
        f"{facts['memory_gib']} GiB, {facts['system']}, Python {facts['python']}, {packages}.\n"
    )


if __name__ == "__main__":
    main()
