"""The figures of a run: kept as JSON, asked for by workload, peer and metric."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

FOLDER = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Cell:
    """One peer, one workload, one round.

    Attributes:
        round: Number of the round.
        workload: Its letter.
        peer: Name in `PEERS`.
        values: Metric to value.
    """

    round: int
    workload: str
    peer: str
    values: dict[str, float]


@dataclass
class Results:
    """All cells of a run, and under what they were measured.

    Attributes:
        facts: Machine, libraries, command.
        cells: In the order they ran.
        failures: Peers that could not be measured, and why.
    """

    facts: dict[str, Any]
    cells: list[Cell] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def rounds(self, workload: str, peer: str, metric: str) -> dict[int, float]:
        """Give round to value, for the rounds that measured it."""
        return {
            cell.round: cell.values[metric]
            for cell in self.cells
            if cell.workload == workload and cell.peer == peer and metric in cell.values
        }

    def median(self, workload: str, peer: str, metric: str) -> float | None:
        """Give the median over the rounds, or None where nothing was measured."""
        values = self.rounds(workload, peer, metric).values()
        return median(values) if values else None

    def add(self, round_number: int, workload: str, peer: str, values: dict[str, float]) -> None:
        """Keep what a cell found. Two cells of one round are one."""
        for cell in self.cells:
            if (cell.round, cell.workload, cell.peer) == (round_number, workload, peer):
                cell.values.update(values)
                return
        self.cells.append(Cell(round_number, workload, peer, dict(values)))

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        facts = json.loads(path.read_text())
        cells = [Cell(**cell) for cell in facts["cells"]]
        return cls(facts["facts"], cells, facts["failures"])
