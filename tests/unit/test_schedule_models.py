"""What schedules are made of, and what is refused (S-01 to S-03, S-10 to S-18). Every refusal is HRS-205."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, time, timedelta
from typing import Any

import pytest

import horsies
from horsies import (
    AppConfig,
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
    IntervalSchedule,
    Month,
    MonthlySchedule,
    MultipleValidationErrors,
    ScheduleConfig,
    TaskSchedule,
    Weekday,
    WeeklySchedule,
)
from horsies.core.errors import HorsiesError
from horsies.core.models import schedule as home
from horsies.core.models.schedule.patterns import numbers_of
from tests.each import each

NAMES = [
    "BothDays",
    "ByMonthDay",
    "ByWeekday",
    "CronEnumRange",
    "CronEnumStep",
    "CronEnumValues",
    "CronEvery",
    "CronRange",
    "CronSchedule",
    "CronStep",
    "CronValues",
    "DailySchedule",
    "DaySelector",
    "EitherDay",
    "EveryDay",
    "HourlySchedule",
    "IntervalSchedule",
    "Month",
    "MonthlySchedule",
    "ScheduleConfig",
    "SchedulePattern",
    "TaskSchedule",
    "Weekday",
    "WeeklySchedule",
]
NINE = time(9)


def refused(make: Callable[[], object]) -> list[str]:
    """The messages of what making it raises; all of them are HRS-205."""
    with pytest.raises(ValueError) as raised:
        make()
    assert isinstance(raised.value, HorsiesError), raised.value
    found = raised.value.errors if isinstance(raised.value, MultipleValidationErrors) else [raised.value]
    assert {error.code for error in found} == {"HRS-205"}
    return [error.message for error in found]


def task_schedule(**fields: Any) -> TaskSchedule:
    return TaskSchedule(**{"name": "nightly", "task_name": "report", "pattern": DailySchedule(time=NINE), **fields})


def cron(**fields: Any) -> CronSchedule:
    usual = {"minute": [CronValues(values=[0])], "hour": [CronEvery()], "month": [CronEvery()], "day": EveryDay()}
    return CronSchedule(**{**usual, **fields})


def february() -> list[Any]:
    return [CronEnumValues[Month](values=[Month.FEBRUARY])]


def on(*days: int) -> list[CronValues]:
    return [CronValues(values=days)]


def test_s01_the_names_are_importable_from_both_places() -> None:
    assert sorted(home.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(horsies, name) is getattr(home, name) and name in horsies.__all__


def test_s01_days_and_months_are_their_names_in_order() -> None:
    assert " ".join(Weekday) == "monday tuesday wednesday thursday friday saturday sunday"
    assert " ".join(Month).startswith("january february march") and len(Month) == 12


def test_s02_defaults_and_limits() -> None:
    assert ScheduleConfig().model_dump() == {"enabled": True, "check_interval_seconds": 1, "schedules": []}
    assert ScheduleConfig(check_interval_seconds=60).check_interval_seconds == 60
    for wrong in (0, 61, -1, True, "5", 1.5, None):
        assert refused(lambda wrong=wrong: ScheduleConfig(check_interval_seconds=wrong))
    assert "intervall" in refused(lambda: ScheduleConfig(intervall=3))[0]


def test_s02_names_are_unique() -> None:
    one, other = task_schedule(name="a"), task_schedule(name="b")
    assert len(ScheduleConfig(schedules=[one, other]).schedules) == 2
    assert "'a'" in refused(lambda: ScheduleConfig(schedules=[one, other, task_schedule(name="a")]))[0]


def test_s02_the_application_takes_it_and_tells_its_mistakes_as_hrs205() -> None:
    url = "postgresql://user:s3cr3t@db.example/app"
    assert AppConfig.for_database_url(url).schedule is None
    config = AppConfig.for_database_url(url, schedule=ScheduleConfig(schedules=[task_schedule()]))
    assert config.schedule is not None and config.schedule.schedules[0].name == "nightly"
    wrong = {"schedules": [{"name": "", "task_name": "x", "pattern": {"type": "hourly", "minute": 60}}]}
    assert len(refused(lambda: AppConfig.for_database_url(url, schedule=wrong))) == 2
    assert refused(lambda: AppConfig.for_database_url(url, schedule=7))


def test_s02_the_log_of_the_settings_names_schedules_but_not_their_arguments(caplog: pytest.LogCaptureFixture) -> None:
    schedules = [task_schedule(kwargs={"token": "s3cr3t"}), *(task_schedule(name=f"n{n}") for n in range(30))]
    config = AppConfig.for_database_url("postgresql://db/app", schedule=ScheduleConfig(schedules=schedules))
    with caplog.at_level(logging.INFO):
        config.log_config(logging.getLogger("horsies.test"))
    assert "schedules: 31 (nightly, n0, n1" in caplog.text
    assert "s3cr3t" not in caplog.text and "n29" not in caplog.text


def test_s03_defaults() -> None:
    assert task_schedule().model_dump(exclude={"name", "task_name", "pattern"}) == {
        "args": (),
        "kwargs": {},
        "queue_name": None,
        "enabled": True,
        "timezone": "UTC",
        "catch_up_missed": False,
        "max_catch_up_runs": 100,
    }


@each(
    ("field", "wrong"),
    [
        ("name", ["", "x" * 256, None, 7]),
        ("task_name", ["", None]),
        ("pattern", [None, "daily", 7, {"minute": 3}, {"type": "sometimes"}, EveryDay()]),
        ("args", ["text", 5, None]),
        ("kwargs", [{1: 2}, [], None]),
        ("max_catch_up_runs", [0, 10_001, True, "3", 2.5]),
        (
            "timezone",
            ["", "Mars/Olympus", "../UTC", "/etc/localtime", "America", "localtime", "right/UTC", None],
        ),
        ("queue_name", [5]),
        ("enabled", ["perhaps", None]),
        ("max_catchup", [1]),
    ],
)
def test_s03_what_is_refused(field: str, wrong: list[Any]) -> None:
    for value in wrong:
        said = refused(lambda value=value: task_schedule(**{field: value}))
        assert len(said) == 1 and field in said[0], (value, said)


def test_s03_the_edges_are_accepted() -> None:
    schedule = task_schedule(name="x" * 255, max_catch_up_runs=10_000, timezone="Asia/Kathmandu", args=[1, "two"])
    assert schedule.args == (1, "two") and task_schedule(max_catch_up_runs=1).max_catch_up_runs == 1


def test_s03_all_mistakes_are_told_together() -> None:
    assert len(refused(lambda: TaskSchedule(name="", task_name="x", pattern=None, timezone="Mars"))) == 3


@each(
    "schedule",
    [
        task_schedule(),
        IntervalSchedule(days=1),
        CronStep(step=3),
        ByWeekday(day_of_week=[CronEvery()]),
        ScheduleConfig(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_s03_models_are_immutable(schedule: Any) -> None:
    for name in type(schedule).model_fields:
        with pytest.raises(ValueError, match="frozen"):
            setattr(schedule, name, getattr(schedule, name))


PATTERNS = [
    IntervalSchedule(hours=1, seconds=30),
    HourlySchedule(minute=5, second=7),
    DailySchedule(time=time(23, 59, 58)),
    WeeklySchedule(days=[Weekday.SUNDAY, "monday"], time=NINE),
    MonthlySchedule(day=31, time=NINE),
    cron(),
    cron(
        minute=[CronStep(step=7), CronRange(start=1, end=9, step=2)],
        month=[
            CronEnumStep[Month](step=5),
            CronEnumRange[Month](start="may", end="june"),
            CronEnumValues(values=["may"]),
        ],
        day=EitherDay(day_of_month=on(1, 31), day_of_week=[CronEnumStep[Weekday](step=2)]),
    ),
    cron(day=BothDays(day_of_month=on(13), day_of_week=[CronEnumValues[Weekday](values=["friday"])])),
    cron(day=ByMonthDay(day_of_month=[CronEvery()])),
    cron(day=ByWeekday(day_of_week=[CronEnumRange[Weekday](start="monday", end="friday", step=2)])),
]


@each("pattern", PATTERNS, ids=lambda pattern: pattern.type)
def test_s03_d36_a_schedule_survives_json(pattern: Any) -> None:
    """The stored form says which pattern it is; whoever writes the code need not."""
    schedule = task_schedule(pattern=pattern, args=(1, [2, None]), kwargs={"a": {"b": True}}, timezone="Asia/Tokyo")
    stored = json.loads(json.dumps(schedule.model_dump(mode="json")))
    assert stored["pattern"]["type"] == pattern.type
    again = TaskSchedule(**stored)
    assert again == schedule == TaskSchedule.model_validate(stored)
    assert type(again.pattern) is type(pattern) and hash(again.pattern) == hash(pattern)
    assert again.model_dump(mode="json") == stored


def test_s03_a_copy_with_changes_is_checked_and_forgets_what_it_had_derived() -> None:
    hourly = HourlySchedule(minute=5)
    assert list(numbers_of(hourly.wall_times.minutes)) == [5]
    assert list(numbers_of(hourly.model_copy(update={"minute": 7}).wall_times.minutes)) == [7]
    assert refused(lambda: hourly.model_copy(update={"minute": 60}))


def test_s10_an_interval_is_the_sum_of_its_units() -> None:
    assert IntervalSchedule(days=1, hours=2, minutes=3, seconds=4).interval == timedelta(
        days=1, hours=2, minutes=3, seconds=4
    )
    assert IntervalSchedule(seconds=1).interval == timedelta(seconds=1)
    assert IntervalSchedule(days=2922).interval == timedelta(days=2922)


def test_s10_no_unit_zero_and_what_is_no_number_are_refused() -> None:
    assert "at least one" in refused(lambda: IntervalSchedule())[0]
    for unit in ("seconds", "minutes", "hours", "days"):
        for wrong in (0, -1, 1.5, True, "1"):
            said = refused(lambda unit=unit, wrong=wrong: IntervalSchedule(**{unit: wrong}))
            assert unit in said[0]
    assert refused(lambda: IntervalSchedule(seconds=0, hours=1))
    assert "eight years" in refused(lambda: IntervalSchedule(days=2922, seconds=1))[0]
    assert refused(lambda: IntervalSchedule(days=10**30)) and refused(lambda: IntervalSchedule(weeks=1))


def test_s11_minute_and_second() -> None:
    assert HourlySchedule(minute=59).second == 0 and HourlySchedule(minute=0, second=59).second == 59
    for wrong in ({"minute": 60}, {"minute": -1}, {"minute": 0, "second": 60}, {"minute": 0, "second": -1}, {}):
        assert refused(lambda wrong=wrong: HourlySchedule(**wrong))
    assert refused(lambda: HourlySchedule(minute=True)) and refused(lambda: HourlySchedule(minute="5"))


@each(
    "make",
    [
        lambda at: DailySchedule(time=at),
        lambda at: WeeklySchedule(days=["monday"], time=at),
        lambda at: MonthlySchedule(day=1, time=at),
    ],
    ids=["daily", "weekly", "monthly"],
)
def test_s12_s13_s14_the_time_is_naive_and_whole(make: Callable[[Any], Any]) -> None:
    assert make(time(23, 59, 59)).time == time(23, 59, 59)
    for wrong in (time(9, tzinfo=UTC), time(9, microsecond=1), 9, 9.5, None, "nine", timedelta(hours=9)):
        assert ".time: " in refused(lambda wrong=wrong: make(wrong))[0]
    for number in (9, 9.5, True):  # not seconds since midnight
        assert "the value must be a datetime.time" in refused(lambda number=number: make(number))[0]


def test_s13_days_are_weekdays_each_once() -> None:
    assert WeeklySchedule(days=["monday", Weekday.FRIDAY], time=NINE).days == (Weekday.MONDAY, Weekday.FRIDAY)
    for wrong in ([], ["monday", Weekday.MONDAY], ["mon"], [0], "monday", None, [Month.MAY]):
        assert "days" in refused(lambda wrong=wrong: WeeklySchedule(days=wrong, time=NINE))[0]


def test_s14_the_day_is_one_of_31() -> None:
    assert MonthlySchedule(day=31, time=NINE).day == 31
    for wrong in (0, 32, -1, True, "1"):
        assert "day" in refused(lambda wrong=wrong: MonthlySchedule(day=wrong, time=NINE))[0]


def test_s15_the_fields_of_cron_and_their_domains() -> None:
    assert cron().wall_times.second == 0
    assert cron(minute=[CronRange(start=0, end=59)], hour=[CronRange(start=0, end=23)])
    for field, wrong in (("minute", 60), ("minute", -1), ("hour", 24), ("hour", -1)):
        assert field in refused(lambda field=field, wrong=wrong: cron(**{field: on(wrong)}))[0]
        reaching = [CronRange(start=min(wrong, 3), end=max(wrong, 3))]
        assert field in refused(lambda field=field, reaching=reaching: cron(**{field: reaching}))[0]
    for wrong in (0, 32):
        assert "day_of_month" in refused(lambda wrong=wrong: ByMonthDay(day_of_month=on(wrong)))[0]
    for field in ("minute", "hour", "month", "day"):
        assert f"CronSchedule.{field}" in refused(lambda field=field: cron(**{field: None}))[0]
    assert refused(lambda: cron(second=[CronEvery()]))


@each(
    ("terms", "minutes"),
    [
        ([CronEvery()], list(range(60))),
        ([CronStep(step=20)], [0, 20, 40]),
        ([CronStep(step=25)], [0, 25, 50]),
        ([CronValues(values=[3, 1, 59])], [1, 3, 59]),
        ([CronRange(start=57, end=59)], [57, 58, 59]),
        ([CronRange(start=5, end=12, step=3)], [5, 8, 11]),
        ([CronRange(start=5, end=5)], [5]),
        ([CronStep(step=30), CronValues(values=[1]), CronRange(start=0, end=2)], [0, 1, 2, 30]),
    ],
)
def test_s16_what_numeric_terms_match(terms: list[Any], minutes: list[int]) -> None:
    assert list(numbers_of(cron(minute=terms).wall_times.minutes)) == minutes


@each(
    ("terms", "months"),
    [
        ([CronEvery()], list(range(1, 13))),
        ([CronEnumStep[Month](step=5)], [1, 6, 11]),
        ([CronEnumValues[Month](values=["december", "may"])], [5, 12]),
        ([CronEnumRange[Month](start="october", end="december")], [10, 11, 12]),
        ([CronEnumRange[Month](start="february", end="december", step=4)], [2, 6, 10]),
        ([CronEnumStep(step=11), CronEnumValues(values=[Month.MAY])], [1, 5, 12]),
    ],
)
def test_s16_what_enum_terms_match(terms: list[Any], months: list[int]) -> None:
    assert list(numbers_of(cron(month=terms).wall_times.months)) == months


def test_s16_steps_of_days_begin_with_the_first_and_with_monday() -> None:
    days = EitherDay(day_of_month=[CronStep(step=10)], day_of_week=[CronEnumStep[Weekday](step=3)])
    times = cron(day=days).wall_times
    assert list(numbers_of(times.month_days)) == [1, 11, 21, 31] and list(numbers_of(times.weekdays)) == [0, 3, 6]


STEPS: list[tuple[int, Callable[[int], Any]]] = [
    (59, lambda step: cron(minute=[CronStep(step=step)])),
    (59, lambda step: cron(minute=[CronRange(start=0, end=9, step=step)])),
    (23, lambda step: cron(hour=[CronStep(step=step)])),
    (23, lambda step: cron(hour=[CronRange(start=0, end=9, step=step)])),
    (30, lambda step: ByMonthDay(day_of_month=[CronStep(step=step)])),
    (11, lambda step: cron(month=[CronEnumStep[Month](step=step)])),
    (11, lambda step: cron(month=[CronEnumRange[Month](start="may", end="june", step=step)])),
    (6, lambda step: ByWeekday(day_of_week=[CronEnumStep[Weekday](step=step)])),
]


@each(("longest", "make"), STEPS)
def test_s16_steps_have_limits(longest: int, make: Callable[[int], Any]) -> None:
    assert make(longest) and make(1)
    for wrong in (longest + 1, 0, -1, True, 1.5, "2", 10**20):
        assert refused(lambda wrong=wrong: make(wrong))


def test_s16_empty_lists_duplicates_and_ranges_that_run_backwards_are_refused() -> None:
    for field in ("minute", "hour", "month"):
        assert field in refused(lambda field=field: cron(**{field: []}))[0]
    assert refused(lambda: ByMonthDay(day_of_month=[])) and refused(lambda: ByWeekday(day_of_week=[]))
    assert refused(lambda: CronValues(values=[])) and refused(lambda: CronEnumValues[Month](values=[]))
    assert "3 is" in refused(lambda: CronValues(values=[3, 4, 3]))[0]
    assert "may is" in refused(lambda: CronEnumValues[Month](values=["may", Month.MAY]))[0]
    assert refused(lambda: CronRange(start=5, end=4))
    assert refused(lambda: CronEnumRange[Weekday](start="saturday", end="monday"))
    assert refused(lambda: CronEnumRange[Month](start="december", end="january"))
    assert refused(lambda: CronEnumRange(start=Month.MAY, end=Weekday.SUNDAY))


def test_s16_numbers_are_no_months_and_months_are_no_weekdays() -> None:
    for wrong in (CronStep(step=2), CronValues(values=[1]), CronEnumStep[Weekday](step=2), "may", EveryDay()):
        assert "month" in refused(lambda wrong=wrong: cron(month=[wrong]))[0]
    for wrong in (CronEnumStep[Month](step=2), CronEnumValues(values=[Month.MAY]), CronStep(step=2)):
        assert "eekday" in refused(lambda wrong=wrong: ByWeekday(day_of_week=[wrong]))[0]
    assert "minute" in refused(lambda: cron(minute=[CronEnumStep[Month](step=2)]))[0]
    assert refused(lambda: CronEnumValues[Month](values=["monday"])) and refused(lambda: CronValues(values=["may"]))


def test_s17_day_selectors() -> None:
    both = {"day_of_month": on(13), "day_of_week": [CronEnumValues[Weekday](values=["friday"])]}
    assert cron(day=EitherDay(**both)).wall_times.days_match == "either"
    assert cron(day=BothDays(**both)).wall_times.days_match == "both"
    assert list(numbers_of(cron(day=BothDays(**both)).wall_times.month_days)) == [13]
    assert list(numbers_of(cron(day=ByWeekday(day_of_week=both["day_of_week"])).wall_times.weekdays)) == [4]
    for kind in (EitherDay, BothDays):
        assert refused(lambda kind=kind: kind(day_of_month=on(1)))
        assert refused(lambda kind=kind: kind(day_of_week=[CronEvery()]))
    assert refused(lambda: ByMonthDay()) and refused(lambda: EveryDay(day_of_month=on(1)))


def test_s18_days_that_never_come_are_refused() -> None:
    fridays = [CronEnumValues[Weekday](values=["friday"])]
    for wrong in (
        {"month": february(), "day": ByMonthDay(day_of_month=on(30, 31))},
        {"month": february(), "day": BothDays(day_of_month=on(30), day_of_week=fridays)},
        {
            "month": [CronEnumValues[Month](values=["april", "june", "september", "november"])],
            "day": ByMonthDay(day_of_month=on(31)),
        },
    ):
        assert "never run" in refused(lambda wrong=wrong: cron(**wrong))[0]


def test_s18_days_that_come_are_accepted() -> None:
    fridays = [CronEnumValues[Weekday](values=["friday"])]
    for day in (
        ByMonthDay(day_of_month=on(29)),
        ByMonthDay(day_of_month=on(28, 31)),
        BothDays(day_of_month=on(29), day_of_week=fridays),
        EitherDay(day_of_month=on(30), day_of_week=fridays),
    ):
        assert cron(month=february(), day=day).day == day
    assert cron(month=[CronEnumValues[Month](values=["april", "may"])], day=ByMonthDay(day_of_month=on(31)))
