"""An app with a schedule whose tasks live in a module of their own, which notes each process that imports it."""

import os
from pathlib import Path

from horsies import AppConfig, Horsies, IntervalSchedule, ScheduleConfig, TaskSchedule

every_second = IntervalSchedule(seconds=1)
by_code = TaskSchedule(
    name="code", task_name="announce", kwargs={"what": {"title": "code"}}, pattern=every_second, catch_up_missed=True
)
app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"], schedule=ScheduleConfig(schedules=[by_code])))
app.discover_tasks([str(Path(__file__).with_name("scheduled_apart_tasks.py"))])
