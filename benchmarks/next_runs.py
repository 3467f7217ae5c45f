"""What finding the next run of a schedule costs: `python -m benchmarks.next_runs`. No database is needed.

Microseconds of processor time, on ordinary days and where the clocks are turned, for each kind of pattern; and for the
most recent of a year's missed runs.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from functools import partial

from horsies import (
    CronSchedule,
    DailySchedule,
    HourlySchedule,
    IntervalSchedule,
    MonthlySchedule,
    SchedulePattern,
    WeeklySchedule,
)
from horsies.core.scheduler.calendar import latest_occurrence, next_occurrence

ZONE = "Europe/Berlin"
PATTERNS: dict[str, SchedulePattern] = {
    "interval": IntervalSchedule(seconds=5),
    "hourly": HourlySchedule(minute=30),
    "daily": DailySchedule(time=time(2, 30)),
    "weekly": WeeklySchedule(days=["monday", "friday"], time=time(9)),
    "monthly": MonthlySchedule(day=31, time=time(9)),
    "cron, every minute": CronSchedule.parse("* * * * *"),
    "cron, office hours": CronSchedule.parse("*/15 9-17 * * mon-fri"),
    "cron, 29 February": CronSchedule.parse("0 0 29 2 *"),
}
MOMENTS = {
    "usual": datetime(2026, 11, 13, 17, 40, 12, 345, tzinfo=UTC),
    "gap": datetime(2026, 3, 29, 0, 59, tzinfo=UTC),
    "overlap": datetime(2026, 10, 25, 0, 15, tzinfo=UTC),
}


def main() -> None:
    print(f"{'':20} {'next':>12} {'at a gap':>12} {'at an overlap':>14} {'latest of a year':>18}")
    until = MOMENTS["usual"]
    before = until - timedelta(days=365)
    for name, pattern in PATTERNS.items():
        usual, gap, overlap = (spent(partial(next_occurrence, pattern, at, ZONE)) for at in MOMENTS.values())
        latest = spent(partial(latest_occurrence, pattern, before, until, ZONE), 300)
        print(f"{name:20} {usual:9.1f} µs {gap:9.1f} µs {overlap:11.1f} µs {latest:15.1f} µs")


def spent(call: Callable[[], object], times: int = 3_000) -> float:
    """Microseconds of this process for one call, the best of five."""
    rounds = []
    for _ in range(5):
        began = clock.process_time()
        for _ in range(times):
            call()
        rounds.append((clock.process_time() - began) / times * 1e6)
    return min(rounds)


if __name__ == "__main__":
    main()
