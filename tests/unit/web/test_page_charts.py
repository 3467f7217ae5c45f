"""The charts of the overview (M-91, M-95): what is counted is drawn when its time is over."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from horsies.core.models.monitoring.history import FailureGroup, FailureReport, RollupPoint, RollupSeries
from horsies.web.pages.charts import drawn
from horsies.web.pages.failures import trend_of

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def a_series(*points: RollupPoint) -> RollupSeries:
    return RollupSeries(BEGIN, BEGIN + len(points) * MINUTE, 60.0, points)


def test_m91_a_minute_that_is_not_over_is_not_drawn_as_a_collapse() -> None:
    series = a_series(RollupPoint(BEGIN, completed=700, waiting=5), RollupPoint(BEGIN + MINUTE, completed=3, waiting=8))
    during = drawn(series, BEGIN + 1.5 * MINUTE).pictures
    assert "completed 700" in str(during[0]) and "completed 3" not in str(during[0])
    assert "latest 8" in str(during[3]).lower(), "what waits was looked at, not counted"
    afterwards = drawn(series, BEGIN + 2 * MINUTE).pictures
    assert "completed 3" in str(afterwards[0]) and "700" in str(afterwards[0]), "neither the first nor the last is lost"


def test_m95_without_statistics_there_is_nothing_to_see() -> None:
    assert drawn(a_series(RollupPoint(BEGIN)), BEGIN + MINUTE).is_empty
    assert not drawn(a_series(RollupPoint(BEGIN, failed=1)), BEGIN + MINUTE).is_empty


def test_m91_the_trend_of_failures_has_its_first_and_its_last_step() -> None:
    """The last step has just begun."""
    until = BEGIN + timedelta(minutes=6, seconds=10)
    trend = (40, 0, 0, 70)
    group = FailureGroup("mail", "BUSY", None, 110, BEGIN, until, trend, None)
    picture = str(trend_of(group, FailureReport(BEGIN, until, 120.0, (group,))))
    assert "latest 70" in picture.lower() and "highest 70" in picture and len(re.findall(r"[ML]", picture)) >= 4
