"""Small charts: gaps, facts in words, bounded size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies.web.svg.charts import ChartSeries, ChartWindow, Sample, area_svg, bars_svg, lines_svg
from tests.each import each
from tests.unit.web.reading import by_class, description, read, texts
from tests.unit.web.strategies import HOSTILE

NOW = datetime(2026, 1, 2, 3, 4, 30, tzinfo=UTC)
HOUR = ChartWindow(NOW)
DAY = ChartWindow(NOW, timedelta(days=1))


def minutes(*values: float | None) -> list[Sample]:
    """A value for each minute; the last is now."""
    return [(NOW - timedelta(minutes=len(values) - 1 - at), value) for at, value in enumerate(values)]


def parts(picture: str, name: str) -> list[str]:
    (path,) = by_class(read(picture), name)
    return path.get("d", "").split("M")[1:]


def test_m91_an_area_says_its_facts() -> None:
    root = read(area_svg(minutes(5, 1_500, 20, 1_200), title="Waiting tasks", window=HOUR))
    assert root[0].text == "Waiting tasks"
    assert description(root) == "Latest 1.2k (now), highest 1.5k (2 min ago), lowest 5 (3 min ago)."
    assert {"Waiting tasks", "1.2k", "1.5k", "0", "1 h ago", "now"} == set(texts(root))


def test_m91_missing_data_are_gaps() -> None:
    picture = area_svg(minutes(1, 2, None, 3, 4, float("nan"), 5), title="t", window=HOUR)
    assert len(parts(picture, "area")) == 3
    without = [sample for sample in minutes(1, 2, None, 3, 4) if sample[1] is not None]
    assert len(parts(area_svg(without, title="t", window=HOUR), "area")) == 2


def test_m91_a_single_value_can_be_seen() -> None:
    assert any(part.endswith("h3") for part in parts(area_svg(minutes(7), title="t", window=HOUR), "line"))


@each("samples", [[], minutes(None, None), [(NOW - timedelta(days=9), 4.0)]])
def test_m91_an_empty_series_says_no_data(samples: list[Sample]) -> None:
    series = [ChartSeries("failed", "failed", samples)]
    for picture in (
        area_svg(samples, title="t", window=HOUR),
        bars_svg(series, title="t", window=HOUR),
        lines_svg(series, title="t", window=HOUR),
        bars_svg([], title="t", window=HOUR),
    ):
        assert "no data" in texts(read(picture))
        assert description(read(picture)) == "No data."


def test_m91_an_old_value_says_how_old_it_is() -> None:
    root = read(area_svg([(NOW - timedelta(minutes=10), 4)], title="t", window=HOUR, unit="seconds"))
    assert "4 s (10 min ago)" in texts(root)


def test_m91_bars_stand_on_each_other() -> None:
    series = [ChartSeries("failed", "failed", minutes(10, 0)), ChartSeries("completed", "completed", minutes(90, 50))]
    root = read(bars_svg(series, title="Tasks per minute", window=HOUR))
    failed, completed = by_class(root, "part-failed"), by_class(root, "part-completed")
    assert (len(failed), len(completed)) == (1, 2)
    upper = float(completed[0].get("y", "")) + float(completed[0].get("height", ""))
    assert upper == pytest.approx(float(failed[0].get("y", "")), abs=0.11)
    assert float(completed[0].get("height", "")) == pytest.approx(9 * float(failed[0].get("height", "")), rel=0.05)
    assert "10 failed, 90 completed, 1 min ago" in [one.text for one in root.iter() if one.tag.endswith("title")]
    assert description(root) == (
        "Failed: latest 0 (now), highest 10 (1 min ago), lowest 0 (now). "
        "Completed: latest 50 (now), highest 90 (1 min ago), lowest 50 (now)."
    )


def test_m91_percentiles_are_lines_with_a_key() -> None:
    series = [ChartSeries(f"p{one}", f"p{one}", minutes(one / 1_000, one / 2_000)) for one in (50, 95, 99)]
    root = read(lines_svg(series, title="Latency", window=HOUR))
    assert [len(by_class(root, f"line-p{one}")) for one in (50, 95, 99)] == [1, 1, 1]
    assert {"p50 25 ms", "p95 48 ms", "p99 50 ms", "100 ms"} <= set(texts(root))
    assert "P99: latest 50 ms (now), highest 99 ms (1 min ago)" in description(root)


def test_m95_a_day_has_no_more_columns_than_can_be_seen() -> None:
    series = [ChartSeries("completed", "completed", minutes(*([2.0] * 1_440)))]
    picture = bars_svg(series, title="t", window=DAY)
    root = read(picture)
    assert len(by_class(root, "part-completed")) == 120
    assert "Each bar is the sum of 12 min." in description(root)
    assert "25" in texts(root), "12 minutes with 2 each, and the next round number"
    assert len(picture) < 30_000


def test_m91_a_spike_is_not_lost_in_a_long_window() -> None:
    values = [1.0] * 1_440
    values[700] = 1_000.0
    assert "1k" in texts(read(area_svg(minutes(*values), title="t", window=DAY)))


numbers = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**18), 10**18)
moments = st.datetimes(min_value=datetime(2025, 12, 31), max_value=datetime(2026, 1, 4)) | st.just(datetime(1, 1, 1))
samples = st.lists(st.tuples(moments, numbers), max_size=20)
windows = st.builds(
    ChartWindow,
    st.just(NOW),
    st.sampled_from((timedelta(0), timedelta(seconds=1), timedelta(hours=1), timedelta(days=4_000))),
    st.sampled_from((timedelta(0), timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1))),
)


@given(samples, samples, windows, st.sampled_from(("count", "seconds", "bytes", "percent")))
def test_m91_any_samples_give_a_picture(one: list[Sample], other: list[Sample], window: ChartWindow, unit: Any) -> None:
    series = [ChartSeries("failed", "failed", one), ChartSeries("completed", "completed", other)]
    for picture in (
        area_svg(one, title="t", window=window, unit=unit),
        bars_svg(series, title="t", window=window, unit=unit),
        lines_svg(series, title="t", window=window, unit=unit),
    ):
        for part in by_class(read(picture), "part"):
            assert 0 <= float(part.get("y", "")) <= 118
    assert area_svg(one, title="t", window=window) == area_svg(one, title="t", window=window)


@each("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_m93_hostile_texts_stay_texts(hostile: str) -> None:
    series = [ChartSeries(hostile, hostile, minutes(1, 2, 3))]
    for picture in (
        area_svg(minutes(1), title=hostile or "t", window=HOUR),
        bars_svg(series, title=hostile or "t", window=HOUR),
        lines_svg(series, title=hostile or "t", window=HOUR),
    ):
        read(picture)
        assert len(picture) < 30_000


def test_m92_titles_keys_and_values_leave_room_for_each_other() -> None:
    """A key is below a long title, and what is beside a short one is not cut."""
    samples: list[Sample] = [(NOW - timedelta(minutes=6.5), 492.0)]
    old = texts(read(area_svg(samples, title="Oldest due", window=HOUR, unit="seconds")))
    assert any(one.endswith("ago)") for one in old), old
    series = [ChartSeries("p50", "p50", samples)]
    keyed = read(lines_svg(series, title="Time from due to start", window=HOUR))
    title, key = (float(by_class(keyed, name)[0].get("y", "0")) for name in ("chart-title", "key"))
    assert key - title >= 12
