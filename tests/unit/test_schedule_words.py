"""Patterns in words (part of `horsies schedules`)."""

from __future__ import annotations

from datetime import time
from typing import Any

from horsies import (
    CronEnumValues,
    CronSchedule,
    CronStep,
    DailySchedule,
    EitherDay,
    HourlySchedule,
    IntervalSchedule,
    MonthlySchedule,
    Weekday,
    WeeklySchedule,
)
from horsies.cli.schedules import in_words
from tests.each import each


@each(
    ("pattern", "words"),
    [
        (IntervalSchedule(seconds=1), "every second"),
        (IntervalSchedule(minutes=5), "every 5 minutes"),
        (IntervalSchedule(days=1, hours=2, seconds=3), "every 1 day 2 hours 3 seconds"),
        (HourlySchedule(minute=5), "every hour at :05 (UTC)"),
        (HourlySchedule(minute=5, second=7), "every hour at :05:07 (UTC)"),
        (DailySchedule(time=time(9)), "every day at 09:00 (UTC)"),
        (DailySchedule(time=time(23, 59, 58)), "every day at 23:59:58 (UTC)"),
        (WeeklySchedule(days=["sunday"], time=time(9)), "every Sunday at 09:00 (UTC)"),
        (WeeklySchedule(days=["friday", "monday"], time=time(9)), "every Monday and Friday at 09:00 (UTC)"),
        (WeeklySchedule(days=["friday", "monday", "sunday"], time=time(9)),
         "every Monday, Friday and Sunday at 09:00 (UTC)"),
        (MonthlySchedule(day=31, time=time(3, 30)), "every month on day 31 at 03:30 (UTC)"),
    ],
)  # fmt: skip
def test_s10_s14_patterns_in_words(pattern: Any, words: str) -> None:
    assert pattern.in_words() == in_words(pattern) == words


@each(
    ("line", "shown"),
    [
        ("* * * * *", "* * * * *"),
        ("0,15,30,45 * * * *", "*/15 * * * *"),
        ("*/25 * * * *", "*/25 * * * *"),
        ("*/40 * * * *", "0,40 * * * *"),
        ("@weekly", "0 0 * * sun"),
        ("*/15 9-17 * * 1-5", "*/15 9-17 * * mon-fri"),
        ("5,20 9-17 1-7,15 jan,jul *", "5,20 9-17 1-7,15 1,7 *"),
        ("0 0 13 * fri", "0 0 13 * fri"),
        ("30 6 * */2 */2", "30 6 * */2 tue,thu,sat,sun"),
        ("0 0 1-31 * fri", "0 0 1-31 * fri"),
    ],
)
def test_s15_s19_a_cron_schedule_shows_a_line_that_means_the_same(line: str, shown: str) -> None:
    pattern = CronSchedule.parse(line)
    assert pattern.in_words() == f"{shown} (UTC)"
    assert CronSchedule.parse(shown).wall_times == pattern.wall_times


def test_s17_days_of_which_both_or_either_must_match() -> None:
    assert CronSchedule.parse("0 0 13 * */5").in_words() == "0 0 13 * fri,sun, if both days match (UTC)"
    either = EitherDay(
        day_of_month=[CronStep(step=10)], day_of_week=[CronEnumValues[Weekday](values=list(Weekday)[4:5])]
    )
    every = CronSchedule.parse("0 0 * * *").model_copy(update={"day": either})
    assert every.in_words() == "0 0 1,11,21,31 * fri (UTC)", "an asterisk would mean both"
    assert CronSchedule.parse("0 0 1,11,21,31 * fri").wall_times == every.wall_times


def test_s20_the_words_name_the_zone_except_for_intervals_which_ignore_it() -> None:
    assert DailySchedule(time=time(9)).in_words("Europe/Berlin") == "every day at 09:00 (Europe/Berlin)"
    assert CronSchedule.parse("0 9 * * *").in_words("Europe/Berlin") == "0 9 * * * (Europe/Berlin)"
    assert IntervalSchedule(hours=1).in_words("Europe/Berlin") == "every hour"
