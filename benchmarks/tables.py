"""The figures of a run as tables: headers and rows of text, for the screen and for the docs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from intervals import Interval, interval, ratio
from peers import PEERS
from results import Results
from targets import judge


@dataclass(frozen=True, slots=True)
class Table:
    """A title, column names, and rows of as many cells."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of the side table: a metric and how it is written."""

    metric: str
    header: str
    text: Callable[[float], str]


MANY_COLUMNS = 6

SIDE = [
    Figure("cpu_us_per_sample", "CPU us/sample", lambda v: f"{v:.2f}"),
    Figure("first_batch_ms", "first batch ms", lambda v: f"{v:.1f}"),
    Figure("first_batch_beyond_read_ms", "beyond its read ms", lambda v: f"{v:.1f}"),
    Figure("epoch_gap_ms", "epoch gap ms", lambda v: f"{v:.2f}"),
    Figure("inflation", "step inflation", lambda v: f"{v:+.1%}"),
    Figure("wait_p50_ms", "wait p50 ms", lambda v: f"{v:.3f}"),
    Figure("wait_p99_ms", "wait p99 ms", lambda v: f"{v:.3f}"),
    Figure("private_mib", "memory MiB", lambda v: f"{v:.0f}"),
    Figure("new_blocks_per_batch", "new blocks/batch", lambda v: f"{v:.3f}"),
    Figure("peak_pss_mib", "peak PSS MiB", lambda v: f"{v:.0f}"),
    Figure("resume_extra_ms", "resume extra ms", lambda v: f"{v:+.1f}"),
    Figure("resume_ratio", "resume ratio", lambda v: f"{v:.2f}"),
    Figure("state_bytes", "state bytes", lambda v: f"{v:.0f}"),
]


def all_tables(results: Results) -> list[Table]:
    """Give the tables of a run: per workload rates and the rest, then the targets."""
    workloads = list(dict.fromkeys(cell.workload for cell in results.cells))
    tables = []
    for workload in workloads:
        tables += [rates(results, workload), side(results, workload)]
    return [table for table in [*tables, imports(results), targets(results)] if table.rows]


def rates(results: Results, workload: str) -> Table:
    """Samples per second, and headrace over each peer, paired by round."""
    rows = []
    for peer, entry in PEERS.items():
        theirs = results.rounds(workload, peer, "samples_per_s")
        if theirs:
            rates = interval(list(theirs.values()))
            spread = (max(theirs.values()) - min(theirs.values())) / rates.median
            over = [
                _ratio(results.rounds(workload, ours, "samples_per_s"), theirs)
                if ours != peer
                else ""
                for ours in ("headrace", "headrace-0")
            ]
            rows.append([peer, entry.kind, f"{rates.median:,.0f}", f"{spread:.0%}", *over])
    header = ["peer", "kind", "samples/s", "spread", "headrace / peer", "headrace-0 / peer"]
    return Table(f"{workload}: rate", header, rows)


def side(results: Results, workload: str) -> Table:
    """All else that was measured of each peer, as medians."""
    peers = [peer for peer in PEERS if any(cell.peer == peer for cell in results.cells)]
    figures = [
        figure
        for figure in SIDE
        if any(results.rounds(workload, peer, figure.metric) for peer in peers)
    ]
    rows = [
        [
            peer,
            *(_text(figure, results.median(workload, peer, figure.metric)) for figure in figures),
        ]
        for peer in peers
    ]
    header = ["peer", *(figure.header for figure in figures)]
    return Table(f"{workload}: what users feel", header, [row for row in rows if any(row[1:])])


def imports(results: Results) -> Table:
    """The time to import each library after torch."""
    found: dict[str, float] = {}
    for peer, entry in PEERS.items():
        for workload in dict.fromkeys(cell.workload for cell in results.cells):
            value = results.median(workload, peer, "library_import_ms")
            if value is not None:
                found[entry.library] = value
    rows = [[library, f"{value:.0f}"] for library, value in found.items()]
    return Table("Import beyond torch", ["library", "ms"], rows)


def targets(results: Results) -> Table:
    """Every target, what was found, and whether that shows it."""
    rows = [
        [verdict.what, verdict.wanted, _interval(verdict.found), "yes" if verdict.is_met else "no"]
        for verdict in judge(results)
    ]
    return Table("Targets", ["target", "wanted", "median [90 % interval]", "met"], rows)


def markdown(table: Table) -> str:
    """Write a table as markdown."""
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    body = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"**{table.title}**\n\n{body}\n"


def show(table: Table) -> None:
    """Print a table: with rich where it is installed, else in plain columns."""
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
    except ImportError:
        print(plain(table))
        return
    rich = RichTable(title=table.title, title_justify="left")
    # Of many columns, names go on several lines: the columns are then as wide as their figures.
    gap = "\n" if len(table.header) > MANY_COLUMNS else " "
    for number, name in enumerate(table.header):
        justify: Literal["left", "right"] = "right" if number else "left"
        rich.add_column(name.replace(" ", gap), justify=justify, no_wrap=True)
    for row in table.rows:
        rich.add_row(*row)
    # A pipe has no width of its own; 80 columns would cut the figures.
    console = Console()
    Console(width=max(console.width, 160)).print(rich)


def plain(table: Table) -> str:
    """Write a table in columns of spaces."""
    lines = [table.header, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
    body = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return f"{table.title}\n{body}\n"


def _ratio(ours: dict[int, float], theirs: dict[int, float]) -> str:
    return _interval(ratio(ours, theirs)) if ours.keys() & theirs.keys() else ""


def _interval(found: Interval) -> str:
    return f"{_short(found.median)} [{_short(found.low)}, {_short(found.high)}]"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _text(figure: Figure, value: float | None) -> str:
    return "" if value is None else figure.text(value)
