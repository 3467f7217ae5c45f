"""Tasks by the clock: what is due when, in which zone, and what happens when clocks are turned.

Run it as `python examples/schedules.py`. A real system runs `horsies scheduler` and `horsies worker` on its module
instead of starting both itself.
"""

import asyncio
import os
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

from horsies import (
    AppConfig,
    CronSchedule,
    DailySchedule,
    Horsies,
    IntervalSchedule,
    ScheduleConfig,
    TaskError,
    TaskResult,
    TaskSchedule,
    Worker,
    WorkerConfig,
)
from horsies.core.scheduler.calendar import occurrences
from horsies.core.worker.scheduler_process import SchedulerProcess

SCHEDULES = [
    TaskSchedule(name="tick", task_name="clock.tick", pattern=IntervalSchedule(seconds=1)),
    TaskSchedule(
        name="night-shift",
        task_name="clock.report",
        pattern=DailySchedule(time=time(2, 30)),
        timezone="Europe/Berlin",
        kwargs={"about": "the night"},
    ),
    TaskSchedule(
        name="office-hours",
        task_name="clock.report",
        pattern=CronSchedule.parse("*/30 9-17 * * mon-fri"),
        timezone="America/New_York",
        kwargs={"about": "the office"},
    ),
]

app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:.horsies/postgres"), schedule=ScheduleConfig(schedules=SCHEDULES)
    )
)


@app.task("clock.tick")
def tick() -> TaskResult[str, TaskError]:
    return TaskResult(ok="tick")


@app.task("clock.report")
def report(about: str) -> TaskResult[str, TaskError]:
    return TaskResult(ok=f"a report about {about}")


def show(schedule: TaskSchedule, after: datetime) -> None:
    slots = occurrences(schedule.pattern, after, schedule.timezone, count=3)
    walls = [slot.astimezone(ZoneInfo(schedule.timezone)).strftime("%d %b %H:%M:%S") for slot in slots]
    print(f"{schedule.name}, {schedule.pattern.in_words(schedule.timezone)}: {', '.join(walls)}")


async def ticked(times: int) -> str:
    """Wait until the schedule has fired so often; what the last task said."""
    while True:
        states = {one.name: one for one in (await app.schedules.list_async()).unwrap()}
        last = states["tick"].last_task_id
        if states["tick"].run_count >= times and last is not None:
            return str((await app.get_result_async(last)).unwrap().unwrap())
        await asyncio.sleep(0.1)


async def main() -> None:
    # In Berlin the clocks skip the hour after two in that night.
    for schedule in SCHEDULES:
        show(schedule, datetime(2026, 3, 28, 12, tzinfo=UTC))
    worker, scheduler = Worker(app, WorkerConfig(processes=1)), SchedulerProcess(app)
    serving = [asyncio.create_task(worker.run()), asyncio.create_task(scheduler.run())]
    print(f"sent by the clock: {await ticked(2)}")
    handle = (await app.schedules.trigger_now_async("night-shift")).unwrap()
    print(f"sent by hand: {(await handle.get_async()).unwrap()}")
    scheduler.request_stop()
    worker.request_stop()
    await asyncio.gather(*serving)
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
