"""The tables of the documentation say what is in the tree."""

from __future__ import annotations

import itertools

from docs import make_coverage, make_errors


def test_the_errors_page_is_current() -> None:
    """Each error that headrace raises is on the page; `make tables` brings it up to date."""
    assert make_errors.PAGE.read_text(encoding="utf-8") == make_errors.page()


def test_the_coverage_page_is_current() -> None:
    """The page names the tests that there are; `make tables` brings it up to date."""
    assert make_coverage.PAGE.read_text(encoding="utf-8") == make_coverage.page()


def test_each_demand_has_a_test_or_waits() -> None:
    """No row is forgotten (S4-84)."""
    rows = set(itertools.chain(*make_coverage.demands().values()))

    assert rows - set(make_coverage.tests_by_row()) - set(make_coverage.waiting()) == set()


def test_tests_and_waits_name_rows_that_exist() -> None:
    """A slip in a number would prove a demand that nobody made."""
    rows = set(itertools.chain(*make_coverage.demands().values()))

    assert set(make_coverage.tests_by_row()) - rows == set()
    assert set(make_coverage.waiting()) - rows == set()


def test_a_span_of_rows_is_spelled_out() -> None:
    """Rows may be named one by one or as a span."""
    words = "Proves (" + "S4" + "-73..75, " + "B" + "08) and " + "U" + "-35."

    assert list(make_coverage.rows_in(words)) == ["S4-73", "S4-74", "S4-75", "B08", "U-35"]
