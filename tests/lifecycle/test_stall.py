"""A take that waits long is reported once, in one line, and the run goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

import headrace as hr
from headrace.sources.source import ByteRange
from tests.lifecycle.data import KINDS, WAITING, Rows, all_ids, all_ids_awaited, ids_of

pytestmark = pytest.mark.usefixtures("libuv")

STALL_S = 0.02
ALL_IDS = [[4 * step, 4 * step + 1, 4 * step + 2, 4 * step + 3] for step in range(25)]


class Reports(logging.Handler):
    """Keeps the reports about step 3, where data waits; a busy machine may stall at others."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.come = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if "for step 3," in line:
            self.lines.append(line)
            self.come.set()


@pytest.fixture
def reports() -> Iterator[Reports]:
    handler = Reports()
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Located(Rows):
    """Rows that say where they lie."""

    def locate(self, index: int) -> hr.Location:
        return hr.Location("shard-7.npy", ByteRange(index * 8, index * 8 + 8))


def test_a_stall_says_where_everything_is(reports: Reports) -> None:
    """Step, sample, object, range, bytes in flight, and the line each reader is at."""
    data = Located(100, gated=12)
    with hr.Loader(
        data, 4, shuffle=False, workers=1, prefetch=4, stall_warning_s=STALL_S
    ) as loader:
        stream = loader.epoch(0)
        for wanted in ALL_IDS[:3]:
            assert ids_of(next(stream)) == wanted
        opening = threading.Thread(
            target=lambda: (reports.come.wait(20), data.gate.open()), daemon=True
        )
        opening.start()
        assert all_ids(stream) == ALL_IDS[3:]
        opening.join()

        (line,) = reports.lines
        assert line.startswith("waited 0.0 s for step 3, ")
        assert "sample 12 (shard-7.npy, bytes [96, 104))" in line
        assert "steps and" in line
        assert "bytes in flight" in line
        assert "headrace-reader-0 at " in line
        assert "gates.py" in line
        assert "wait_blocking" in line
        assert "\n" not in line
        assert loader.stats()["stalls"] >= 1


@pytest.mark.parametrize("face", ["for", "async for"])
@pytest.mark.parametrize(
    ("kind", "workers"), [(k, w) for k in KINDS for w in (0, 1, 2) if w or k in WAITING]
)
def test_a_stall_is_reported_once(kind: str, workers: int, face: str, reports: Reports) -> None:
    """One line for one wait, on either face, and all batches come (design 10)."""
    data = KINDS[kind](100, gated=12)
    with hr.Loader(
        data, 4, shuffle=False, workers=workers, probe=False, stall_warning_s=STALL_S
    ) as loader:

        def open_late() -> None:
            data.gate.arrived_blocking(1)
            reports.come.wait(20)
            data.gate.open()

        opening = threading.Thread(target=open_late, daemon=True)
        opening.start()
        seen = all_ids(loader) if face == "for" else asyncio.run(all_ids_awaited(loader))
        opening.join()

        assert seen == ALL_IDS
        assert len(reports.lines) == 1


@pytest.mark.parametrize("face", ["for", "async for", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stall_that_never_is(kind: str, face: str) -> None:
    """stall_warning_s takes infinity, and numbers beyond any clock, for never."""
    for never in (float("inf"), 1e300):
        with hr.Loader(
            KINDS[kind](100), 4, shuffle=False, workers=2, probe=False, stall_warning_s=never
        ) as loader:
            if face == "for":
                seen = all_ids(loader)
            else:
                factory = uvloop.new_event_loop if face == "uvloop" else None
                with asyncio.Runner(loop_factory=factory) as runner:
                    seen = runner.run(all_ids_awaited(loader))

        assert seen == ALL_IDS


def test_a_report_that_fails_does_not_end_the_run(reports: Reports) -> None:
    """Whatever `locate` raises, the line comes and the batches after it."""

    class Lost(Rows):
        def locate(self, index: int) -> Any:
            raise ZeroDivisionError

    data = Lost(100, gated=12)
    with hr.Loader(data, 4, shuffle=False, workers=1, stall_warning_s=STALL_S) as loader:
        opening = threading.Thread(
            target=lambda: (reports.come.wait(20), data.gate.open()), daemon=True
        )
        opening.start()
        assert all_ids(loader) == ALL_IDS
        opening.join()

    assert len(reports.lines) == 1
