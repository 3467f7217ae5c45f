"""The calendar says what a search minute by minute finds, for random patterns and zones around every kind of turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horsies.core.models.schedule import (
    CronSchedule,
    DailySchedule,
    HourlySchedule,
    MonthlySchedule,
    SchedulePattern,
    WeeklySchedule,
)
from horsies.core.scheduler.calendar import latest_occurrence, next_occurrence, occurrences
from tests.each import each
from tests.slow import IS_RUN, larger
from tests.unit.schedule_reference import brute_force, days_by_hand, matcher, turns_of
from tests.unit.schedule_strategies import ZONES, cron_schedules, moments, patterns, times_near, turns, zones

pytestmark = larger("twenty times as many examples")
LOOK = timedelta(hours=40)


def examples(number: int) -> settings:
    """So many in every run, always the same; twenty times as many, and new ones, when they are asked for."""
    return settings(
        max_examples=number * (20 if IS_RUN else 1),
        derandomize=not IS_RUN,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(3600 if IS_RUN else 120)
@examples(40)
@given(data=st.data())
def test_s20_s22_s23_every_slot_around_a_turn_is_the_one_that_a_search_finds(data: st.DataObject) -> None:
    timezone = data.draw(zones)
    after = data.draw(moments(timezone))
    pattern = data.draw(patterns(timezone, after))
    until = after + LOOK
    expected = list(brute_force(pattern, after, until, timezone))
    assert list(occurrences(pattern, after, timezone, until=until)) == expected
    first = next_occurrence(pattern, after, timezone)
    assert first == expected[0] if expected else first is None or first > until
    assert latest_occurrence(pattern, after, until, timezone) == (expected[-1] if expected else None)


@pytest.mark.timeout(3600 if IS_RUN else 120)
@examples(60)
@given(pattern=cron_schedules(), after=st.datetimes(datetime(1999, 1, 1), datetime(2101, 1, 1)))
def test_s15_s16_s17_s24_the_days_of_a_cron_schedule_are_those_that_a_search_finds(
    pattern: CronSchedule, after: datetime
) -> None:
    found = next_occurrence(pattern, after.replace(tzinfo=UTC), "UTC")
    days = islice(days_by_hand(pattern, after, 8), 2)  # the first may have no time left
    minutes = (day + timedelta(minutes=number) for day in days for number in range(24 * 60))
    times = filter(matcher(pattern), minutes)
    expected = next((at for at in times if at > after), None)
    if expected is not None and expected - after > timedelta(days=2922):
        expected = None
    assert found == (expected and expected.replace(tzinfo=UTC))


@pytest.mark.timeout(3600 if IS_RUN else 120)
@examples(50)
@given(data=st.data())
def test_s23_what_does_not_fire_every_hour_never_fires_twice_for_one_time_on_the_wall(data: st.DataObject) -> None:
    timezone = data.draw(st.sampled_from([zone for zone in ZONES if turns(zone)]))
    turn = data.draw(st.sampled_from(turns(timezone)))
    pattern = DailySchedule(time=data.draw(times_near(timezone, turn)))
    slots = list(occurrences(pattern, turn - LOOK, timezone, until=turn + LOOK))
    days = 2 * LOOK // timedelta(days=1)
    # A day more or less at the ends, and one that the clocks skip altogether fires when they have.
    assert days - 1 <= len(slots) <= days + 2 and len(set(slots)) == len(slots)


TEN_YEARS: list[tuple[str, int, SchedulePattern]] = [
    ("Europe/Berlin", 2024, HourlySchedule(minute=17, second=5)),
    ("America/New_York", 2024, CronSchedule.parse("*/20 1-3 * * *")),
    ("Australia/Lord_Howe", 2024, CronSchedule.parse("45 * * * sun")),
    ("Africa/Casablanca", 2024, CronSchedule.parse("30 2 * * *")),
    ("Pacific/Apia", 2009, CronSchedule.parse("0 */6 * * *")),
    ("America/Havana", 2024, MonthlySchedule(day=8, time=datetime(2000, 1, 1, 0, 30).time())),
    ("Asia/Tehran", 2014, WeeklySchedule(days=["sunday", "tuesday"], time=datetime(2000, 1, 1, 0, 15).time())),
    ("Antarctica/Troll", 2024, CronSchedule.parse("10,50 0-4 * mar,oct sun")),
]


@pytest.mark.slow("a search minute by minute through ten years")
@pytest.mark.timeout(600)
@each(("timezone", "year", "pattern"), TEN_YEARS, ids=[zone for zone, _, _ in TEN_YEARS])
def test_s20_s22_s23_ten_years_minute_by_minute(timezone: str, year: int, pattern: SchedulePattern) -> None:
    after, until = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 10, 1, 1, tzinfo=UTC)
    assert len(turns_of(timezone, year, year + 9)) >= 10
    expected = list(brute_force(pattern, after, until, timezone))
    assert list(occurrences(pattern, after, timezone, until=until)) == expected
    assert len(expected) > 100
