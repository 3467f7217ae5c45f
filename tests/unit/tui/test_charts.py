"""Charts of block characters (M-80)."""

from __future__ import annotations

from datetime import timedelta

from horsies.tui import charts
from horsies.tui.lines import plain
from tests.each import each
from tests.tui_support import NOW, ago

HOUR = timedelta(hours=1)


def test_m80_a_bar_shows_its_part() -> None:
    assert [charts.bar(part, 4) for part in (0, 0.01, 0.5, 1, 7)] == ["░░░░", "█░░░", "██░░", "████", "████"]
    assert [charts.share(part, 10, 4) for part in (0, 1, 5, 10)] == ["", "█", "██", "████"]


def test_m80_a_chart_has_columns_of_eighths() -> None:
    assert charts.columns_of([0, 1, 2, 4, 8, None], 1, 8) == ["▁▁▂▄█ "]
    assert charts.columns_of([0, 8, 12, 16], 2, 16) == ["  ▄█", "▁███"]
    assert charts.columns_of([5], 1, 0) == ["▁"]


def test_m80_points_are_laid_out_over_time() -> None:
    points = [(ago(minutes=45), 1.0), (ago(minutes=30), 2.0), (ago(minutes=15), 3.0), (NOW, 4.0)]
    assert charts.over_time(points, NOW, HOUR, 4) == [1.0, 2.0, 3.0, 4.0]
    assert charts.over_time(points, NOW, HOUR, 8) == [None, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0]


def test_m80_where_nothing_was_reported_a_chart_is_empty() -> None:
    points = [(ago(minutes=minute), 1.0) for minute in (50, 49, 48, 2, 1, 0)]
    found = charts.over_time(points, NOW, HOUR, 60)
    assert found[9:14] == [1.0] * 5 and found[14:57] == [None] * 43 and found[57:] == [1.0] * 3
    assert charts.over_time([], NOW, HOUR, 3) == [None, None, None]
    assert charts.over_time([(NOW, None)], NOW, HOUR, 2) == [None, None], "a row without this value"


@each(("height", "said"), [(1, "running"), (2, "running|4"), (3, "running|to 4|now 4")])
def test_m80_a_chart_says_its_scale_and_its_newest_value(height: int, said: str) -> None:
    found = charts.chart("running", [1.0, 4.0], height=height, top=4)
    assert "|".join(plain(one)[: charts.LABEL].rstrip() for one in found) == said
    assert {len(plain(one)) for one in found} == {charts.LABEL + 2}


def test_m80_a_chart_without_values_says_so() -> None:
    assert "no values" in plain(charts.chart("cpu", [None, None], height=3)[-1])


def test_m80_the_axis_is_as_wide_as_the_chart() -> None:
    assert len(plain(charts.axis("24h", 40))) == charts.LABEL + 40
