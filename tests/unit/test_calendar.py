"""The next occurrence, rule by rule (S-20 to S-24). A search over random patterns is in test_calendar_search.py."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from horsies import (
    BothDays,
    CronEnumValues,
    CronSchedule,
    CronValues,
    DailySchedule,
    HourlySchedule,
    IntervalSchedule,
    Month,
    MonthlySchedule,
    TaskSchedule,
    Weekday,
    WeeklySchedule,
)
from horsies.core.scheduler.calendar import latest_occurrence, next_occurrence, occurrences
from tests.each import each

SECOND = timedelta(seconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(pattern: Any, after: str, zone: str, count: int) -> list[str]:
    """The next ones after a time on the zone's wall, as the wall then shows them, with the offset."""
    start = datetime.fromisoformat(after)
    start = start if start.tzinfo else start.replace(tzinfo=ZoneInfo(zone))
    found = occurrences(pattern, start.astimezone(UTC), zone, count=count)
    return [slot.astimezone(ZoneInfo(zone)).strftime("%m-%d %H:%M:%S %z") for slot in found]


@each(
    ("pattern", "after", "expected"),
    [
        (HourlySchedule(minute=15), "2026-01-01 10:15", "2026-01-01 11:15"),
        (HourlySchedule(minute=15), "2026-01-01 10:14:59.999999", "2026-01-01 10:15"),
        (HourlySchedule(minute=15, second=30), "2026-01-01 10:15", "2026-01-01 10:15:30"),
        (HourlySchedule(minute=0), "2026-12-31 23:30", "2027-01-01 00:00"),
        (DailySchedule(time=time(9)), "2026-01-01 09:00", "2026-01-02 09:00"),
        (DailySchedule(time=time(9)), "2026-01-01 08:59:59", "2026-01-01 09:00"),
        (DailySchedule(time=time(9)), "2026-12-31 09:00:00.000001", "2027-01-01 09:00"),
        (WeeklySchedule(days=["monday"], time=time(9)), "2026-01-01 00:00", "2026-01-05 09:00"),
        (WeeklySchedule(days=["sunday", "monday"], time=time(9)), "2026-01-04 09:00", "2026-01-05 09:00"),
        (MonthlySchedule(day=31, time=time(9)), "2026-01-31 09:00", "2026-03-31 09:00"),
        (MonthlySchedule(day=29, time=time(9)), "2026-01-31 09:00", "2026-03-29 09:00"),
        (MonthlySchedule(day=29, time=time(9)), "2028-01-31 09:00", "2028-02-29 09:00"),
        (CronSchedule.parse("15 */4 * * *"), "2026-01-01 20:15", "2026-01-02 00:15"),
        (CronSchedule.parse("0 0 1 1 *"), "2026-01-01 00:00", "2027-01-01 00:00"),
        (CronSchedule.parse("59 23 31 12 *"), "2026-01-01 00:00", "2026-12-31 23:59"),
        (CronSchedule.parse("0 0 13 * fri"), "2026-03-06 00:00", "2026-03-13 00:00"),
        (CronSchedule.parse("0 0 13 * fri"), "2026-04-10 00:00", "2026-04-13 00:00"),
        (CronSchedule.parse("0 0 13 * fri"), "2026-04-13 00:00", "2026-04-17 00:00"),
        (CronSchedule.parse("0 0 29 2 *"), "2096-02-29 00:00", "2104-02-29 00:00"),
    ],
)
def test_s14_s20_the_first_instant_strictly_later(pattern: Any, after: str, expected: str) -> None:
    assert next_occurrence(pattern, utc(after), "UTC") == utc(expected)


def test_s20_the_zone_decides_and_the_answer_is_utc() -> None:
    nine = DailySchedule(time=time(9))
    assert next_occurrence(nine, utc("2026-07-01 00:00"), "Europe/Berlin") == utc("2026-07-01 07:00")
    assert next_occurrence(nine, utc("2026-01-01 00:00"), "Europe/Berlin") == utc("2026-01-01 08:00")
    assert next_occurrence(nine, utc("2026-01-01 00:00"), "Asia/Kathmandu") == utc("2026-01-01 03:15")
    for pattern in (nine, IntervalSchedule(hours=1)):
        # A day earlier in the zone of the one who asks makes no difference.
        asked = datetime(2025, 12, 31, 19, 0, tzinfo=timezone(timedelta(hours=-5)))
        found = next_occurrence(pattern, asked, "Europe/Berlin")
        assert found is not None and found.tzinfo is UTC
        assert found == next_occurrence(pattern, asked.astimezone(UTC), "Europe/Berlin")


def test_s21_intervals_ignore_the_zone_and_do_not_drift() -> None:
    after = utc("2026-03-28 12:00:00.25")
    for zone in ("UTC", "Europe/Berlin", "Pacific/Apia"):
        found = list(occurrences(IntervalSchedule(days=1, seconds=1), after, zone, count=3))
        assert found == [after + number * timedelta(days=1, seconds=1) for number in (1, 2, 3)]


@each(
    ("pattern", "zone", "after", "expected"),
    [
        (
            DailySchedule(time=time(2, 30)),
            "Europe/Berlin",
            "2026-03-28 12:00",
            ["03-29 03:00:00 +0200", "03-30 02:30:00 +0200"],
        ),
        (
            DailySchedule(time=time(2, 0)),
            "Europe/Berlin",
            "2026-03-28 12:00",
            ["03-29 03:00:00 +0200", "03-30 02:00:00 +0200"],
        ),
        (
            DailySchedule(time=time(3, 0)),
            "Europe/Berlin",
            "2026-03-28 12:00",
            ["03-29 03:00:00 +0200", "03-30 03:00:00 +0200"],
        ),
        (  # midnight does not exist
            DailySchedule(time=time(0, 0)),
            "America/Havana",
            "2026-03-07 12:00",
            ["03-08 01:00:00 -0400", "03-09 00:00:00 -0400"],
        ),
        (  # half an hour
            DailySchedule(time=time(2, 10, 5)),
            "Australia/Lord_Howe",
            "2026-10-03 12:00",
            ["10-04 02:30:00 +1100", "10-05 02:10:05 +1100"],
        ),
        (  # a whole day: its nine o'clock is the end of the gap, and the next day has one of its own
            DailySchedule(time=time(9)),
            "Pacific/Apia",
            "2011-12-29 12:00",
            ["12-31 00:00:00 +1400", "12-31 09:00:00 +1400"],
        ),
        (  # the clocks are turned back for Ramadan and forward after it
            DailySchedule(time=time(2, 30)),
            "Africa/Casablanca",
            "2026-03-21 12:00",
            ["03-22 03:00:00 +0100", "03-23 02:30:00 +0100"],
        ),
        (
            WeeklySchedule(days=["sunday"], time=time(2, 30)),
            "Europe/Berlin",
            "2026-03-28 12:00",
            ["03-29 03:00:00 +0200"],
        ),
        (MonthlySchedule(day=29, time=time(2, 30)), "Europe/Berlin", "2026-03-28 12:00", ["03-29 03:00:00 +0200"]),
    ],
)
def test_s22_a_time_that_is_skipped_fires_when_the_gap_ends(
    pattern: Any, zone: str, after: str, expected: list[str]
) -> None:
    assert slots(pattern, after, zone, len(expected)) == expected


def test_s22_slots_of_one_instant_fire_once() -> None:
    assert slots(CronSchedule.parse("0,20,40 1-3 * * *"), "2026-03-29 01:30", "Europe/Berlin", 4) == [
        "03-29 01:40:00 +0100",
        "03-29 03:00:00 +0200",
        "03-29 03:20:00 +0200",
        "03-29 03:40:00 +0200",
    ]
    assert slots(HourlySchedule(minute=30), "2026-03-29 01:00", "Europe/Berlin", 3) == [
        "03-29 01:30:00 +0100",
        "03-29 03:00:00 +0200",
        "03-29 03:30:00 +0200",
    ]


@each(
    ("pattern", "zone", "after", "expected"),
    [
        (
            DailySchedule(time=time(2, 30)),
            "Europe/Berlin",
            "2026-10-24 12:00",
            ["10-25 02:30:00 +0200", "10-26 02:30:00 +0100"],
        ),
        (  # asked in the second pass
            DailySchedule(time=time(2, 30)),
            "Europe/Berlin",
            "2026-10-25 02:10+01:00",
            ["10-26 02:30:00 +0100"],
        ),
        (
            DailySchedule(time=time(3, 0)),
            "Europe/Berlin",
            "2026-10-25 02:10+01:00",
            ["10-25 03:00:00 +0100"],
        ),
        (
            CronSchedule.parse("*/30 1-3 * * *"),
            "Europe/Berlin",
            "2026-10-25 01:15",
            ["10-25 01:30:00 +0200", "10-25 02:00:00 +0200", "10-25 02:30:00 +0200", "10-25 03:00:00 +0100"],
        ),
        (  # every hour but one is not every hour
            CronSchedule.parse("30 0-22 * * *"),
            "Europe/Berlin",
            "2026-10-25 02:00",
            ["10-25 02:30:00 +0200", "10-25 03:30:00 +0100"],
        ),
        (
            DailySchedule(time=time(1, 45)),
            "Australia/Lord_Howe",
            "2026-04-05 01:00",
            ["04-05 01:45:00 +1100", "04-06 01:45:00 +1030"],
        ),
    ],
)
def test_s23_a_time_that_is_repeated_fires_the_first_time(
    pattern: Any, zone: str, after: str, expected: list[str]
) -> None:
    assert slots(pattern, after, zone, len(expected)) == expected


def test_s23_a_day_that_begins_twice_fires_once() -> None:
    first_of_november, zone = CronSchedule.parse("30 0 1 11 *"), "America/Havana"
    assert next_occurrence(first_of_november, utc("2026-10-31 12:00"), zone) == utc("2026-11-01 04:30")
    assert next_occurrence(first_of_november, utc("2026-11-01 04:30"), zone) == utc("2027-11-01 04:30")


@each(
    ("pattern", "zone", "after", "expected"),
    [
        (
            HourlySchedule(minute=30, second=5),
            "Europe/Berlin",
            "2026-10-25 02:00",
            ["10-25 02:30:05 +0200", "10-25 02:30:05 +0100", "10-25 03:30:05 +0100"],
        ),
        (
            CronSchedule.parse("*/30 * * * *"),
            "Europe/Berlin",
            "2026-10-25 01:40",
            [
                "10-25 02:00:00 +0200",
                "10-25 02:30:00 +0200",
                "10-25 02:00:00 +0100",
                "10-25 02:30:00 +0100",
                "10-25 03:00:00 +0100",
            ],
        ),
        (  # all hours, said differently
            CronSchedule.parse("30 0-11,12-23 * * *"),
            "Europe/Berlin",
            "2026-10-25 02:00",
            ["10-25 02:30:00 +0200", "10-25 02:30:00 +0100"],
        ),
        (
            HourlySchedule(minute=45),
            "Australia/Lord_Howe",
            "2026-04-05 01:00",
            ["04-05 01:45:00 +1100", "04-05 01:45:00 +1030", "04-05 02:45:00 +1030"],
        ),
        (  # asked in the second pass
            HourlySchedule(minute=30),
            "Europe/Berlin",
            "2026-10-25 02:10+01:00",
            ["10-25 02:30:00 +0100", "10-25 03:30:00 +0100"],
        ),
        (  # the day before ends twice
            CronSchedule.parse("50 * 4 4 *"),
            "America/Santiago",
            "2026-04-04 23:00-03:00",
            ["04-04 23:50:00 -0300", "04-04 23:50:00 -0400"],
        ),
    ],
)
def test_s23_what_fires_every_hour_fires_in_both_passes(
    pattern: Any, zone: str, after: str, expected: list[str]
) -> None:
    assert slots(pattern, after, zone, len(expected)) == expected


def leap_monday() -> CronSchedule:
    """29 February, if it is a Monday: every 28 years."""
    return CronSchedule(
        minute=[CronValues(values=[0])],
        hour=[CronValues(values=[0])],
        month=[CronEnumValues[Month](values=["february"])],
        day=BothDays(day_of_month=[CronValues(values=[29])], day_of_week=[CronEnumValues[Weekday](values=["monday"])]),
    )


def test_s24_what_does_not_come_within_eight_years_does_not_come() -> None:
    assert next_occurrence(leap_monday(), utc("2044-02-29 00:00"), "UTC") is None
    assert next_occurrence(leap_monday(), utc("2036-02-29 00:00"), "UTC") == utc("2044-02-29 00:00")
    assert next_occurrence(leap_monday(), utc("2036-02-29 00:00") - SECOND, "UTC") is None
    assert next_occurrence(leap_monday(), utc("2035-02-28 00:00"), "UTC") is None
    assert list(occurrences(leap_monday(), utc("2036-03-01 00:00"), "UTC")) == [utc("2044-02-29 00:00")]


def test_s24_the_calendar_has_an_end() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    for pattern in (IntervalSchedule(days=1), DailySchedule(time=time(0)), MonthlySchedule(day=30, time=time(9))):
        for zone in ("UTC", "Pacific/Apia", "America/New_York"):
            assert next_occurrence(pattern, end - timedelta(hours=1), zone) is None
    assert next_occurrence(DailySchedule(time=time(9)), utc("9999-12-30 10:00"), "UTC") == utc("9999-12-31 09:00")


def test_s24_zones_are_those_of_zoneinfo() -> None:
    with pytest.raises(KeyError):
        next_occurrence(DailySchedule(time=time(9)), utc("2026-01-01 00:00"), "Mars/Olympus")
    with pytest.raises(ValueError, match="Mars/Olympus"):
        TaskSchedule(name="a", task_name="b", pattern=IntervalSchedule(days=1), timezone="Mars/Olympus")


def test_s35_s36_the_slots_between_two_instants_include_the_end_and_not_the_start() -> None:
    hourly, noon = HourlySchedule(minute=0), utc("2026-01-01 12:00")
    three = timedelta(hours=3)
    assert list(occurrences(hourly, noon, "UTC", until=noon + three)) == [noon + n * three / 3 for n in (1, 2, 3)]
    assert list(occurrences(hourly, noon, "UTC", until=noon + three, count=2)) == [noon + n * three / 3 for n in (1, 2)]
    assert list(occurrences(hourly, noon, "UTC", until=noon)) == []
    assert list(occurrences(hourly, noon, "UTC", count=0)) == []


@each(
    ("pattern", "until", "expected"),
    [
        (HourlySchedule(minute=0), "2026-01-01 12:59", None),
        (HourlySchedule(minute=0), "2026-01-01 13:00", "2026-01-01 13:00"),
        (HourlySchedule(minute=0), "2026-05-05 13:59:59.999999", "2026-05-05 13:00"),
        (HourlySchedule(minute=30), "2026-01-01 13:29", "2026-01-01 12:30"),
        (CronSchedule.parse("* * * 1 *"), "2026-07-05 13:00", "2026-01-31 23:59"),
        (CronSchedule.parse("* * * * *"), "2033-07-05 13:00:07", "2033-07-05 13:00"),
        (CronSchedule.parse("* * * * *"), "2033-07-05 13:00", "2033-07-05 13:00"),
        (IntervalSchedule(minutes=7), "2026-01-01 12:06:59", None),
        (IntervalSchedule(minutes=7), "2026-01-01 12:07", "2026-01-01 12:07"),
        (IntervalSchedule(seconds=1), "2030-01-01 00:00:00.5", "2030-01-01 00:00"),
    ],
)
def test_s35_the_latest_slot_is_found_without_walking(pattern: Any, until: str, expected: str | None) -> None:
    found = latest_occurrence(pattern, utc("2026-01-01 12:00"), utc(until), "UTC")
    assert found == (utc(expected) if expected else None)
