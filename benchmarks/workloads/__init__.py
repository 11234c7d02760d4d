"""The workloads, by their letters."""

from __future__ import annotations

import json
from pathlib import Path

from workload import Workload

from workloads.images import Images
from workloads.pictures import Pictures
from workloads.sequences import Sequences
from workloads.tokens import Tokens
from workloads.vectors import Vectors

WORKLOADS: dict[str, type[Workload]] = {
    kind.name: kind for kind in (Tokens, Images, Pictures, Vectors, Sequences)
}


def open_workload(folder: Path, is_tuned: bool = False) -> Workload:
    """Open what `generate.py` made."""
    manifest = json.loads((folder / "manifest.json").read_text())
    workload = WORKLOADS[manifest["workload"]](folder)
    workload.is_tuned = is_tuned
    return workload
