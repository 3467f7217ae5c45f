"""Patterns in words (part of `horsies schedules`)."""

from __future__ import annotations

from datetime import time
from typing import Any

from horsies import (
    CronSchedule,
    DailySchedule,
    HourlySchedule,
    IntervalSchedule,
    MonthlySchedule,
    WeeklySchedule,
)
from horsies.core.scheduler.words import in_words
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
        (WeeklySchedule(days=["friday", "monday"], time=time(9)), "every Monday and Friday at 09:00 (UTC)"),
        (MonthlySchedule(day=31, time=time(3, 30)), "every month on the 31st at 03:30 (UTC)"),
        ("* * * * *", "every minute (UTC)"),
        ("*/15 * * * *", "every 15 minutes (UTC)"),
        ("0,15,30,45 * * * *", "every 15 minutes (UTC)"),
        ("*/25 * * * *", "every hour at :00, :25 and :50 (UTC)"),
        ("*/7 * * * *", "every hour at :00, :07, :14, :21, :28, :35, :42 and 2 more (UTC)"),
        ("15 */4 * * *", "every 4 hours at :15 (UTC)"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00 (UTC)"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59, every Monday to Friday (UTC)"),
        ("* 1,7-9 * * *", "every minute from 01:00 to 01:59 and 07:00 to 09:59 (UTC)"),
        (
            "5,20 9-17 1-7,15 jan,jul *",
            "at :05 and :20 of the hours 9 to 17, on the 1st to 7th and 15th, in January and July (UTC)",
        ),
        ("0 0 13 * fri", "on the 13th or every Friday at 00:00 (UTC)"),
        ("0 0 13 * */5", "on the 13th if it is a Friday or Sunday at 00:00 (UTC)"),
        ("0 0 1 1 *", "on the 1st in January at 00:00 (UTC)"),
        ("30 6 * 6-8 *", "every day in June to August at 06:30 (UTC)"),
        ("0 0 2,3,12,21,22,23 1 *", "on the 2nd, 3rd, 12th and 21st to 23rd in January at 00:00 (UTC)"),
    ],
)
def test_s15_patterns_in_words(pattern: Any, words: str) -> None:
    assert in_words(CronSchedule.parse(pattern) if isinstance(pattern, str) else pattern) == words


def test_s20_the_words_name_the_zone_except_for_intervals_which_ignore_it() -> None:
    assert in_words(DailySchedule(time=time(9)), "Europe/Berlin") == "every day at 09:00 (Europe/Berlin)"
    assert in_words(IntervalSchedule(hours=1), "Europe/Berlin") == "every hour"
