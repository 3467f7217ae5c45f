"""Random patterns, zones and instants: most of them where the clocks are turned."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from horsies.core.models.schedule import (
    BothDays,
    ByMonthDay,
    ByWeekday,
    CronEnumRange,
    CronEnumStep,
    CronEnumValues,
    CronEvery,
    CronRange,
    CronSchedule,
    CronStep,
    CronValues,
    DailySchedule,
    EitherDay,
    EveryDay,
    HourlySchedule,
    Month,
    MonthlySchedule,
    SchedulePattern,
    Weekday,
    WeeklySchedule,
)
from tests.unit.schedule_reference import turns_of

# An hour, half an hour, two hours and a whole day; at midnight, before it and a minute after it; summer time in winter,
# twice a year around Ramadan, given up, moved by politics, and none.
ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Pacific/Apia",
    "UTC",
)
FIRST_YEAR, LAST_YEAR = 2008, 2035

zones = st.sampled_from(ZONES)


@lru_cache
def turns(timezone: str) -> list[datetime]:
    return turns_of(timezone, FIRST_YEAR, LAST_YEAR)


@st.composite
def moments(draw: st.DrawFn, timezone: str) -> datetime:
    """An instant, most often close to one at which the clocks of the zone are turned."""
    if turns(timezone) and draw(st.integers(0, 5)):
        around = draw(st.sampled_from(turns(timezone)))
        shift = draw(st.integers(-36 * 3600, 3 * 3600) | st.sampled_from([-7200, -3600, -1800, -1, 0, 1, 1800, 3600]))
        moment = around + timedelta(seconds=shift)
    else:
        years = st.datetimes(datetime(FIRST_YEAR, 1, 1), datetime(LAST_YEAR, 12, 31), timezones=st.just(UTC))
        moment = draw(years).replace(microsecond=0)
    return moment + timedelta(microseconds=draw(st.sampled_from([0, 0, 1, 999_999])))


@st.composite
def times_near(draw: st.DrawFn, timezone: str, moment: datetime) -> time:
    """A time of the day, most often close to one that the clocks skip or repeat near that moment."""
    near = [turn for turn in turns(timezone) if abs(turn - moment) < timedelta(days=3)]
    if near and draw(st.integers(0, 4)):
        shown = near[0].astimezone(ZoneInfo(timezone))
        minutes = draw(st.integers(-150, 150) | st.sampled_from([-60, -59, -30, -1, 0, 1, 29, 30, 59, 60]))
        at = (shown + timedelta(minutes=minutes)).time().replace(fold=0)
    else:
        at = draw(st.times()).replace(microsecond=0)
    return at.replace(second=draw(st.sampled_from([0, 0, 1, 30, 59])))


def values_of(draw: st.DrawFn, first: int, last: int) -> list[int]:
    return sorted(draw(st.sets(st.integers(first, last), min_size=1, max_size=6)))


@st.composite
def numeric_terms(draw: st.DrawFn, first: int, last: int, longest_step: int) -> list[Any]:
    def term(kind: str) -> Any:
        if kind == "every":
            return CronEvery()
        if kind == "step":
            return CronStep(step=draw(st.integers(1, longest_step)))
        if kind == "values":
            return CronValues(values=values_of(draw, first, last))
        start = draw(st.integers(first, last))
        return CronRange(start=start, end=draw(st.integers(start, last)), step=draw(st.integers(1, 5)))

    kinds = st.lists(st.sampled_from(["every", "step", "values", "range", "range"]), min_size=1, max_size=2)
    return [term(kind) for kind in draw(kinds)]


@st.composite
def enum_terms(draw: st.DrawFn, enum: Any, longest_step: int) -> list[Any]:
    members = list(enum)

    def term(kind: str) -> Any:
        if kind == "every":
            return CronEvery()
        if kind == "step":
            return CronEnumStep[enum](step=draw(st.integers(1, longest_step)))
        if kind == "values":
            return CronEnumValues[enum](values=[members[n] for n in values_of(draw, 0, len(members) - 1)])
        start = draw(st.integers(0, len(members) - 1))
        end = draw(st.integers(start, len(members) - 1))
        return CronEnumRange[enum](start=members[start], end=members[end], step=draw(st.integers(1, longest_step)))

    kinds = st.lists(st.sampled_from(["every", "every", "step", "values", "range"]), min_size=1, max_size=2)
    return [term(kind) for kind in draw(kinds)]


@st.composite
def day_selectors(draw: st.DrawFn) -> Any:
    of_month, of_week = numeric_terms(1, 31, 30), enum_terms(Weekday, 6)
    match draw(st.sampled_from(["every", "every", "month", "week", "either", "both"])):
        case "month":
            return ByMonthDay(day_of_month=draw(of_month))
        case "week":
            return ByWeekday(day_of_week=draw(of_week))
        case "either":
            return EitherDay(day_of_month=draw(of_month), day_of_week=draw(of_week))
        case "both":
            return BothDays(day_of_month=draw(of_month), day_of_week=draw(of_week))
    return EveryDay()


@st.composite
def cron_schedules(draw: st.DrawFn) -> CronSchedule:
    day, month = draw(day_selectors()), draw(enum_terms(Month, 11))
    minute, hour = draw(numeric_terms(0, 59, 59)), draw(numeric_terms(0, 23, 23))
    try:
        return CronSchedule(minute=minute, hour=hour, month=month, day=day)
    except ValueError:  # it would never fire, so it is given every month
        return CronSchedule(minute=minute, hour=hour, month=[CronEvery()], day=day)


@st.composite
def patterns(draw: st.DrawFn, timezone: str, moment: datetime) -> SchedulePattern:
    at = times_near(timezone, moment)
    match draw(st.sampled_from(["hourly", "daily", "daily", "weekly", "monthly", "cron", "cron"])):
        case "hourly":
            return HourlySchedule(minute=draw(st.integers(0, 59)), second=draw(st.sampled_from([0, 0, 1, 59])))
        case "daily":
            return DailySchedule(time=draw(at))
        case "weekly":
            days = draw(st.lists(st.sampled_from(Weekday), min_size=1, unique=True))
            return WeeklySchedule(days=days, time=draw(at))
        case "monthly":
            day = draw(st.just(moment.day) | st.integers(1, 31))
            return MonthlySchedule(day=day, time=draw(at))
    return draw(cron_schedules())
