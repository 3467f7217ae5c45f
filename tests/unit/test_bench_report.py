"""The arithmetic of `make bench`: medians and ranges, verdicts, percentiles, and the page it writes into."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.process import Cpu
from benchmarks.report import BEGIN, END, Bar, Report, Row, number, percentiles, ratios, replaced

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


@pytest.mark.parametrize(
    ("bar", "value", "holds"),
    [
        (Bar(100), 100, True),
        (Bar(100), 99.9, False),
        (Bar(4, "under"), 3.9, True),
        (Bar(4, "under"), 4, False),
    ],
)
def test_a_bar_is_reached_from_above_or_from_below(bar: Bar, value: float, holds: bool) -> None:
    assert bar.holds(value) is holds


def test_the_median_of_the_runs_decides_and_the_range_is_shown() -> None:
    row = Row("drain", "drain", "tasks/s", (9_000, 21_000, 16_000), Bar(15_000))
    assert row.value == 16_000
    assert row.figure() == "16,000 tasks/s (9,000–21,000)"
    assert row.bar_text() == "at least 15,000 tasks/s"
    assert (row.holds, row.verdict()) == (True, "yes")


def test_one_run_has_no_range() -> None:
    assert Row("idle", "idle", "%", (0.256,)).figure() == "0.26 %"


def test_what_was_not_measured_holds_nothing() -> None:
    row = Row("many", "many", "tasks/s", (), Bar(25_000), "not there yet")
    assert (row.value, row.holds, row.figure(), row.verdict()) == (None, None, "–", "")


def test_a_figure_without_a_bar_has_no_verdict() -> None:
    assert Row("ceiling", "ceiling", "tasks/s", (1.0,)).holds is None


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(15000.4, "tasks/s", "15,000"), (0.5, "", "0.50"), (6, "ms", "6"), (2.345, "ms", "2.35"), (9.87, "µs", "9.9"),
     (53.2, "µs", "53"), (41.4, "MB", "41"), (1, "%", "1"), (3000.4, "nodes/s", "3,000")],
)  # fmt: skip
def test_numbers_have_the_digits_that_mean_something(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentiles([float(n) for n in range(300, 0, -1)]) == {50: 150, 95: 285, 99: 297}
    assert percentiles([7.0]) == {50: 7, 95: 7, 99: 7}


def test_ratios_compare_run_by_run() -> None:
    assert ratios([10, 30], [20, 40]) == [0.5, 0.75]
    with pytest.raises(ValueError):
        ratios([1], [1, 2])


def test_processor_time_is_a_difference_shared_among_tasks() -> None:
    spent = Cpu(3.0, 1.0, 2.5, 9.0).since(Cpu(1.0, 1.0, 0.5, 4.0))
    assert spent.per(2) == {"supervisor": 1.0, "launcher": 0.0, "children": 1.0, "postgres": 2.5}


def a_report() -> Report:
    report = Report({"cores": "2", "Python": "3.13.1"}, {"version": "18.1", "fsync": "on"})
    report.add("drain", "drain", "tasks/s", [16_000.0], Bar(15_000))
    report.add("many", "many", "tasks/s", [], Bar(25_000), "not there yet")
    return report


def test_the_json_has_every_run_and_its_bar() -> None:
    drain, many = json.loads(json.dumps(a_report().as_json()))["rows"]
    assert (drain["value"], drain["runs"], drain["holds"]) == (16_000, [16_000], True)
    assert drain["bar"] == {"limit": 15_000, "sense": "at least"}
    assert (many["value"], many["holds"], many["note"]) == (None, None, "not there yet")


def test_the_page_gets_facts_and_a_table() -> None:
    text = a_report().markdown()
    assert "cores 2, Python 3.13.1" in text
    assert "PostgreSQL 18.1, fsync on" in text
    assert "| drain | 16,000 tasks/s | at least 15,000 tasks/s | yes |" in text
    assert "| many | –; not there yet | at least 25,000 tasks/s |  |" in text


def test_only_what_is_between_the_markers_is_replaced() -> None:
    once = replaced(f"before\n{BEGIN}\nold\n{END}\nafter", "new\n")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter"
    assert replaced(once, "new") == once
    with pytest.raises(ValueError):
        replaced("a page without markers", "new")


def test_the_page_of_the_figures_has_its_markers() -> None:
    assert "new" in replaced(PAGE.read_text(), "new")
