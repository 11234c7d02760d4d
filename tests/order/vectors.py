"""The golden files of `tests/vectors`, as cases for parametrized tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "vectors"


def cases(name: str, **wanted: Any) -> list[dict[str, Any]]:
    """Give the cases of a file; `has="field"` or `field=value` choose among them."""
    has = wanted.pop("has", None)
    found = json.loads((FOLDER / f"{name}.json").read_text())["cases"]
    return [
        case
        for case in found
        if (has is None or has in case) and all(case.get(k) == v for k, v in wanted.items())
    ]


def word(text: str | int) -> int:
    """Give the number of a field, which is hex if it is text."""
    return int(text, 16) if isinstance(text, str) else text
