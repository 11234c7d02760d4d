"""What holds a run up is told from measured times, in numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.explain import Advice, Explanation, Limit, Setup, explain
from headrace.measured import Building, Consumer, Measured, Transfer, Waiting, measured
from headrace.stats import BuildTimes, LandingTimes, LoaderStats
from tests.loader.kinds import KINDS

BULK = Setup(workers=2, prefetch_steps=8, is_bulk=True, is_serial=False, waits=False)
SAMPLES = replace(BULK, is_bulk=False)
AWAITED = replace(SAMPLES, waits=True)
SERIAL = replace(BULK, is_serial=True)
INLINE = replace(BULK, workers=0)

NOTHING = {
    **LoaderStats().numbers(),
    **BuildTimes().numbers(),
    **LandingTimes().numbers(),
}
"""A reading of a loader that has done nothing."""


def reading(
    steps: int = 100,
    consumer_s: float = 0.0,
    wait_s: float = 0.0,
    every_s: float = 0.001,
    copy_s: float = 0.0,
    **build_s: float,
) -> dict[str, float]:
    """Give what `stats()` says after some steady steps.

    Args:
        steps: Steps after the first batch, and as many built.
        consumer_s: The consumer's own time per step.
        wait_s: Waiting per step.
        every_s: What building gives a batch in.
        copy_s: Copying per step.
        build_s: Parts of building per step.
    """
    return {
        **NOTHING,
        "batches": steps + 1,
        "first_batches": 1,
        "consumer_s": (steps - 1) * consumer_s,
        "consumer_steps": steps - 1,
        "wait_s": steps * wait_s,
        "built_steps": steps,
        "building_s": steps * every_s,
        "span_s": 2 * steps * every_s,
        "copies": steps if copy_s else 0,
        "copy_s": steps * copy_s,
        **{f"{part}_s": steps * part_s for part, part_s in build_s.items()},
    }


# -- the times ---------------------------------------------------------------------------


def test_times_are_means_of_steady_steps() -> None:
    """Each part of a step is a mean over what it was measured on (S4-40, S4-42)."""
    after = NOTHING | {
        "batches": 22,
        "first_batches": 2,
        "first_wait_s": 3.0,
        "wait_s": 10.0,
        "wait_p50_s": 0.25,
        "wait_p99_s": 4.0,
        "first_consumer_s": 9.0,
        "consumer_s": 9.0,
        "consumer_steps": 18,
        "copies": 25,
        "copy_s": 12.5,
        "device_transform_s": 6.25,
        "built_steps": 30,
        "read_s": 60.0,
        "assemble_s": 15.0,
        "transform_s": 30.0,
        "handover_s": 3.0,
        "building_s": 40.0,
        "span_s": 120.0,
    }

    assert measured(after) == Measured(
        steps=20,
        step_s=1.75,
        consumer=Consumer(step_s=0.5, share=0.5 / 1.75, first_step_s=9.0),
        waiting=Waiting(step_s=0.5, share=0.5 / 1.75, p50_s=0.25, p99_s=4.0, first_batch_s=3.0),
        building=Building(
            steps=30,
            read_s=2.0,
            assemble_s=0.5,
            transform_s=1.0,
            handover_s=0.1,
            steps_per_s=0.75,
            spans_at_once=3.0,
        ),
        transfer=Transfer(copies=25, copy_s=0.5, transform_s=0.25, share=0.75 / 1.75),
    )


def test_an_earlier_reading_is_taken_off() -> None:
    """A slow start that lies before `since` does not count (S4-40)."""
    before = reading(steps=50, consumer_s=0.001, wait_s=9.0, read=9.0)
    after = {key: before[key] + value for key, value in reading(wait_s=0.5, read=0.25).items()}

    times = measured(after, before)

    assert (times.steps, times.waiting.step_s, times.building.read_s) == (100, 0.5, 0.25)


def test_two_equal_readings_measure_nothing() -> None:
    """No step between two readings divides by nothing."""
    once = reading(consumer_s=0.01)

    explanation = explain(once, once, BULK)

    assert explanation.measured.step_s == 0.0
    assert explanation.limit == "unknown"


def test_a_later_reading_is_refused() -> None:
    """Readings in the wrong order, or of two loaders, are not subtracted in silence."""
    with pytest.raises(hr.ConfigError, match=r"since: wanted an earlier stats\(\)"):
        measured(reading(steps=10), reading(steps=20))


def test_what_was_in_flight_does_not_go_below_zero() -> None:
    """Parts are counted at their end, so a difference of two readings can be short of them."""
    before = reading(steps=50, assemble=0.5)
    after = reading(steps=60) | {"assemble_s": 24.9}

    assert measured(after, before).building.assemble_s == 0.0


# -- the conclusion ----------------------------------------------------------------------

# (what was measured, the setup) -> (limit, advice)
CASES: dict[str, tuple[dict[str, float], Setup, Limit, Advice]] = {
    "hardly any waiting": (
        reading(consumer_s=0.1, wait_s=0.0019, read=9.0),
        BULK,
        "consumer",
        "nothing",
    ),
    "hardly any waiting, copies above all": (
        reading(consumer_s=0.1, wait_s=0.001, copy_s=0.2),
        BULK,
        "transfer",
        "nothing",
    ),
    "late at times": (
        reading(consumer_s=0.1, wait_s=0.0021, every_s=0.09, read=0.18),
        BULK,
        "uneven",
        "larger prefetch",
    ),
    "slow reads": (
        reading(consumer_s=0.1, wait_s=0.1, every_s=0.2, read=0.3, assemble=0.1),
        BULK,
        "read",
        "more workers",
    ),
    "slow reads, copies beside": (
        reading(consumer_s=0.1, wait_s=0.1, copy_s=0.05, every_s=0.16, read=0.3),
        BULK,
        "read",
        "more workers",
    ),
    "slow awaited reads": (
        reading(consumer_s=0.1, wait_s=0.1, every_s=0.2, read=0.3, assemble=0.1),
        AWAITED,
        "read",
        "larger prefetch",
    ),
    "no thread free to assemble": (
        reading(wait_s=0.1, every_s=0.2, read=0.1, handover=0.3, assemble=0.2),
        AWAITED,
        "handover",
        "more workers",
    ),
    "slow collating": (
        reading(wait_s=0.1, every_s=0.2, read=0.1, assemble=0.3),
        SAMPLES,
        "assemble",
        "bulk dataset",
    ),
    "slow delivery": (
        reading(wait_s=0.1, every_s=0.2, read=0.1, assemble=0.3),
        BULK,
        "assemble",
        "more workers",
    ),
    "slow transform": (
        reading(wait_s=0.1, every_s=0.2, read=0.1, transform=0.3),
        BULK,
        "transform",
        "more workers",
    ),
    "one builder must do": (
        reading(wait_s=0.1, every_s=0.2, read=0.2),
        SERIAL,
        "read",
        "nothing",
    ),
    "no thread, faster than the consumer": (
        reading(consumer_s=0.1, wait_s=0.05, every_s=0.05, read=0.05),
        INLINE,
        "read",
        "more workers",
    ),
    "too few taken": (
        reading(steps=9, wait_s=0.1, every_s=0.2, read=0.2),
        BULK,
        "unknown",
        "measure longer",
    ),
    "too few built": (
        reading(wait_s=0.1) | {"built_steps": 9},
        BULK,
        "unknown",
        "measure longer",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_largest_measured_time_decides(name: str) -> None:
    """Waiting under 2 % is nobody's fault; else the part that takes longest is named (S4-40)."""
    after, setup, limit, advice = CASES[name]

    explanation = explain(after, None, setup)

    assert (explanation.limit, explanation.advice) == (limit, advice)


def test_every_conclusion_is_among_the_cases() -> None:
    """The table above leaves out no word that an explanation can say."""
    assert {limit for _, _, limit, _ in CASES.values()} == set(get_args(Limit))
    assert {advice for _, _, _, advice in CASES.values()} == set(get_args(Advice))


@given(
    st.integers(10, 10**6),
    st.floats(1e-7, 10),
    st.floats(0, 0.019),
    st.floats(1e-7, 10),
    st.floats(1e-7, 10),
)
def test_no_build_time_alone_names_a_culprit(
    steps: int, consumer_s: float, waiting_share: float, every_s: float, read_s: float
) -> None:
    """However busy the builders were, a consumer that did not wait was not held up (S4-40)."""
    wait_s = consumer_s * waiting_share
    after = reading(steps, consumer_s, wait_s, every_s, read=read_s)

    assert explain(after, None, BULK).limit == "consumer"


def test_a_finding_gives_the_numbers_that_show_it() -> None:
    """One can check the conclusion from its sentence (S4-40)."""
    after = reading(consumer_s=0.02, wait_s=0.005, every_s=0.0246, read=0.04, assemble=0.0081)

    explanation = explain(after, None, BULK)

    assert explanation.finding == (
        "20.0 % of the time was waiting, building gave a batch every 24.6 ms, and the rest of a "
        "step takes 20 ms; reading is the largest part of building, 40 ms of 48.1 ms per step."
    )
    assert explanation.suggestion == (
        "Set workers above 2 and explain again: 2.0 spans were in flight at once."
    )


# -- words -------------------------------------------------------------------------------


def test_an_explanation_reads_as_a_table() -> None:
    """The four measured parts come first, then what follows from them (S4-40)."""
    after = reading(
        consumer_s=0.02, wait_s=0.005, every_s=0.0246, copy_s=0.0005, read=0.04, assemble=0.0081
    ) | {"first_wait_s": 1.25, "first_consumer_s": 2.5, "wait_p50_s": 4e-6, "wait_p99_s": 0.1}

    assert str(explain(after, None, BULK)).splitlines() == [
        "100 steps after the first batch, 25.5 ms each:",
        "  consumer        20 ms   78.4 %  2.5 s with the first batch",
        "  waiting          5 ms   19.6 %  median 4 us, p99 100 ms, first batch 1.25 s",
        "  transfer       500 us    2.0 %  100 blocking copies, 500 us each, then 0 us of "
        "transform",
        "100 steps built, 48.1 ms of builders' time each:",
        "  reading         40 ms   83.2 %",
        "  assembling     8.1 ms   16.8 %",
        "  transforming     0 us    0.0 %",
        "  hand-over        0 us    0.0 %",
        "  40.7 steps/s while building, 2.0 spans in flight at once",
        "limit: read. 19.6 % of the time was waiting, building gave a batch every 24.6 ms, and "
        "the rest of a step takes 20.5 ms; reading is the largest part of building, 40 ms of "
        "48.1 ms per step.",
        "advice: more workers. Set workers above 2 and explain again: 2.0 spans were in flight "
        "at once.",
    ]


PROMISES = re.compile(
    r"overlap|hidden|hides|solved|fixed|optimal|fully|perfect|guarantee|faster|speed|"
    r"utili[sz]|busy|idle|will\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", CASES)
def test_every_statement_carries_a_measured_number(name: str) -> None:
    """Nothing is claimed of overlap, and nothing is promised or said without a number (S4-43)."""
    after, setup, *_ = CASES[name]

    explanation = explain(after, None, setup)

    statements = [*str(explanation).splitlines(), explanation.finding, explanation.suggestion]
    parts = [line for line in statements if not re.search(r"\d", line)]
    assert parts == []
    assert PROMISES.findall(" ".join(statements)) == []


def test_a_host_target_measures_no_transfer() -> None:
    """Where nothing is copied, no transfer time is made up (S4-40, S4-43)."""
    text = str(explain(reading(consumer_s=0.1), None, BULK))

    assert "transfer      0 copies: batches stay in host memory, so none is measured" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 us"), (9.996e-4, "1000 us"), (0.00123456, "1.23 ms"), (0.9999, "1000 ms")],
)
def test_times_keep_three_digits(seconds: float, text: str) -> None:
    """No time is written with an exponent."""
    after = reading(consumer_s=0.1, wait_s=0.1) | {"first_wait_s": seconds}

    assert f"first batch {text}" in str(explain(after, None, BULK))


# -- JSON --------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "version": int,
    "measured": {
        "steps": int,
        "step_s": float,
        "consumer": {"step_s": float, "share": float, "first_step_s": float},
        "waiting": {
            "step_s": float,
            "share": float,
            "p50_s": float,
            "p99_s": float,
            "first_batch_s": float,
        },
        "building": {
            "steps": int,
            "read_s": float,
            "assemble_s": float,
            "transform_s": float,
            "handover_s": float,
            "steps_per_s": float,
            "spans_at_once": float,
        },
        "transfer": {"copies": int, "copy_s": float, "transform_s": float, "share": float},
    },
    "limit": str,
    "finding": str,
    "advice": str,
    "suggestion": str,
}


def kinds_in(value: Any) -> Any:
    """Give the types in place of the values."""
    if isinstance(value, dict):
        return {key: kinds_in(part) for key, part in value.items()}
    return type(value)


@pytest.mark.parametrize("name", CASES)
def test_json_has_one_schema(name: str) -> None:
    """A report can be read by a program, whatever it says (S4-40)."""
    after, setup, limit, _ = CASES[name]

    report = json.loads(explain(after, None, setup).to_json())

    assert kinds_in(report) == SCHEMA
    assert (report["version"], report["limit"]) == (1, limit)


# -- real runs ---------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_explains_itself(kind: str, workers: int) -> None:
    """Every kind of dataset gives all four parts, and shares that add up to one (S4-40)."""
    with hr.Loader(KINDS[kind](96), 4, workers=workers, epochs=1) as loader:
        fresh = loader.stats()
        for _ in loader:
            pass
        explanation = loader.explain(since=fresh)

    times = explanation.measured
    shares = (times.consumer.share, times.waiting.share, times.transfer.share)
    assert (times.steps, times.building.steps, times.transfer.copies) == (23, 24, 0)
    assert sum(shares) == pytest.approx(1.0)
    assert times.building.step_s > 0
    assert times.building.spans_at_once >= 1.0
    assert kinds_in(json.loads(explanation.to_json())) == SCHEMA


def test_the_first_batch_is_left_out() -> None:
    """What is slow once, such as opening files, does not look like the run (S4-42)."""
    with hr.Loader(KINDS["arrays"](96), 4, workers=0) as loader:
        for _ in loader:
            pass
        times = loader.explain().measured

    assert (times.steps, times.building.steps) == (23, 23)


def test_a_run_for_a_device_explains_its_copies() -> None:
    """The fourth part is measured where batches are copied (S4-40)."""
    with hr.Loader(KINDS["arrays"](96), 4, workers=1, device="meta") as loader:
        for _ in loader:
            pass
        transfer = loader.explain().measured.transfer

    assert transfer.copies == 23
    assert transfer.copy_s > 0


def test_a_run_explains_a_part_of_itself() -> None:
    """`since` leaves out what came before it."""
    with hr.Loader(KINDS["arrays"](96), 4, workers=1) as loader:
        stream = loader.stream(steps=24)
        for _ in range(8):
            next(stream)
        earlier = loader.stats()
        for _ in stream:
            pass
        explanation = loader.explain(since=earlier)

    assert isinstance(explanation, hr.Explanation)
    assert explanation.measured.steps == 16


def test_a_fresh_loader_has_too_few_steps() -> None:
    """Asking before the first batch says so, and starts nothing."""
    loader = hr.Loader(KINDS["arrays"](96), 4, workers=1)

    explanation: Explanation = loader.explain()

    assert explanation.finding == "0 steps were taken after the first batch, too few to tell."
    assert explanation.suggestion == "Explain again after 10 steps or more."
    loader.close()
