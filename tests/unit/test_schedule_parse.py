"""Cron lines become the typed form, with the meaning that cron gives them (S-19)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horsies import (
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
    EitherDay,
    EveryDay,
    Month,
    Weekday,
)
from horsies.core.errors import HorsiesError, MultipleValidationErrors
from horsies.core.models.schedule.patterns import numbers_of
from tests.each import each

ZERO = [CronValues(values=[0])]
EVERY = [CronEvery()]


def typed(minute: Any = ZERO, hour: Any = ZERO, month: Any = EVERY, day: Any = None) -> CronSchedule:
    return CronSchedule(minute=minute, hour=hour, month=month, day=day or EveryDay())


def weekdays(*days: str) -> list[Any]:
    return [CronEnumValues[Weekday](values=days)]


@each(
    ("line", "expected"),
    [
        ("15 */4 * * *", typed([CronValues(values=[15])], [CronStep(step=4)])),
        ("* * * * *", typed(EVERY, EVERY)),
        ("@hourly", typed(hour=EVERY)),
        ("@daily", typed()),
        ("@midnight", typed()),
        ("@weekly", typed(day=ByWeekday(day_of_week=weekdays("sunday")))),
        ("@monthly", typed(day=ByMonthDay(day_of_month=[CronValues(values=[1])]))),
        (
            "@yearly",
            typed(
                month=[CronEnumValues[Month](values=["january"])], day=ByMonthDay(day_of_month=[CronValues(values=[1])])
            ),
        ),
        ("  0\t0 * *  * \n", typed()),
        ("0,30,7 0 * * *", typed([CronValues(values=[0, 30, 7])])),
        ("5-59/15 0 * * *", typed([CronRange(start=5, end=59, step=15)])),
        ("0 9-17 * * *", typed(hour=[CronRange(start=9, end=17)])),
        ("1,*/9,3-5 0 * * *", typed([CronValues(values=[1]), CronStep(step=9), CronRange(start=3, end=5)])),
        ("0 0 * jan,DEC *", typed(month=[CronEnumValues[Month](values=["january", "december"])])),
        ("0 0 * February-may/2 *", typed(month=[CronEnumRange[Month](start="february", end="may", step=2)])),
        ("0 0 * */3 *", typed(month=[CronEnumStep[Month](step=3)])),
        ("0 0 * 2-12 *", typed(month=[CronEnumRange[Month](start="february", end="december")])),
        ("0 0 * * mon-fri", typed(day=ByWeekday(day_of_week=[CronEnumRange[Weekday](start="monday", end="friday")]))),
        ("0 0 * * 1-5", typed(day=ByWeekday(day_of_week=[CronEnumRange[Weekday](start="monday", end="friday")]))),
        ("0 0 * * 0", typed(day=ByWeekday(day_of_week=weekdays("sunday")))),
        ("0 0 * * 7", typed(day=ByWeekday(day_of_week=weekdays("sunday")))),
        ("0 0 * * Fri-Sun", typed(day=ByWeekday(day_of_week=[CronEnumRange[Weekday](start="friday", end="sunday")]))),
        ("0 0 * * sun-tue", typed(day=ByWeekday(day_of_week=weekdays("monday", "tuesday", "sunday")))),
        ("0 0 * * sun-sun", typed(day=ByWeekday(day_of_week=weekdays("sunday")))),
        ("0 0 * * sunday-sun/3", typed(day=ByWeekday(day_of_week=weekdays("sunday")))),
        ("0 0 * * 0-7", typed(day=ByWeekday(day_of_week=weekdays(*Weekday)))),
        ("0 0 * * 0,7", typed(day=ByWeekday(day_of_week=weekdays("sunday")))),
        ("0,30,0 0 * may,5 *", typed([CronValues(values=[0, 30])], month=[CronEnumValues[Month](values=["may"])])),
        ("0 0 * * */2", typed(day=ByWeekday(day_of_week=weekdays("tuesday", "thursday", "saturday", "sunday")))),
    ],
)
def test_s19_lines_and_their_typed_form(line: str, expected: CronSchedule) -> None:
    assert CronSchedule.parse(line) == expected


def test_s19_two_day_fields_mean_either_unless_one_begins_with_an_asterisk() -> None:
    friday, the_13th = weekdays("friday"), [CronValues(values=[13])]
    assert CronSchedule.parse("0 0 13 * fri").day == EitherDay(day_of_month=the_13th, day_of_week=friday)
    odd = BothDays(day_of_month=[CronStep(step=2)], day_of_week=friday)
    assert CronSchedule.parse("0 0 */2 * fri").day == odd
    some = weekdays("friday", "sunday")
    assert CronSchedule.parse("0 0 13 * */5").day == BothDays(day_of_month=the_13th, day_of_week=some)


@each(
    ("line", "fields"),
    [
        ("60 * * * *", ["minute"]),
        ("* 24 * * *", ["hour"]),
        ("* * 0 * *", ["day of month"]),
        ("* * 32 * *", ["day of month"]),
        ("* * * 13 *", ["month"]),
        ("* * * 0 *", ["month"]),
        ("* * * * 8", ["day of week"]),
        ("* * * * funday", ["day of week"]),
        ("* * * maybe *", ["month"]),
        ("jan * * * *", ["minute"]),
        ("* * * mon *", ["month"]),
        ("-5 * * * *", ["minute"]),
        ("1.5 * * * *", ["minute"]),
        ("٣ * * * *", ["minute"]),
        ("1, * * * *", ["minute"]),
        ("*/0 * * * *", ["minute"]),
        ("*/60 * * * *", ["minute"]),
        ("* */24 * * *", ["hour"]),
        ("* * */31 * *", ["day of month"]),
        ("* * * */12 *", ["month"]),
        ("* * * * */7", ["day of week"]),
        ("*/x * * * *", ["minute"]),
        ("5/15 * * * *", ["minute"]),
        ("9-5 * * * *", ["minute"]),
        ("* * * * sat-mon", ["day of week"]),
        ("* * * nov-feb *", ["month"]),
        ("? * * * *", ["minute"]),
        ("* * L * *", ["day of month"]),
        ("99 99 99 99 99", ["minute", "hour", "day of month", "month", "day of week"]),
    ],
)
def test_s19_an_invalid_line_names_its_fields(line: str, fields: list[str]) -> None:
    problems = refused(line)
    assert [problem.message.split(": ")[1] for problem in problems] == fields
    assert all(repr(line) in problem.message for problem in problems)


@each("line", ["", "*", "* * * *", "* * * * * *", "@reboot", "@", "0 0 30 2 *", None, b"* * * * *"])
def test_s19_what_is_no_cron_line_at_all_is_refused(line: Any) -> None:
    assert len(refused(line)) == 1


def refused(line: Any) -> list[HorsiesError]:
    with pytest.raises(ValueError) as raised:
        CronSchedule.parse(line)
    assert isinstance(raised.value, HorsiesError)
    found = raised.value.errors if isinstance(raised.value, MultipleValidationErrors) else [raised.value]
    assert {error.code for error in found} == {"HRS-205"}
    return found


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(line=st.text(alphabet="0123456789*/-,@ abfinmorsuwy\x00é", max_size=24))
def test_s19_any_text_is_a_schedule_or_hrs205(line: str) -> None:
    try:
        assert CronSchedule.parse(line).type == "cron"
    except HorsiesError as problem:
        assert problem.code == "HRS-205"


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(start=st.integers(0, 6), length=st.integers(0, 6), step=st.integers(1, 6), is_every=st.booleans())
def test_s19_weekdays_are_counted_as_cron_counts_them(start: int, length: int, step: int, is_every: bool) -> None:
    end = min(start + length, 7)
    line = f"0 0 * * {'*' if is_every else f'{start}-{end}'}/{step}"
    numbers = range(0, 7, step) if is_every else range(start, end + 1, step)
    found = CronSchedule.parse(line).wall_times.weekdays
    assert sorted(numbers_of(found)) == sorted({(number - 1) % 7 for number in numbers})
