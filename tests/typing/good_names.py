"""All public names at once, and the names of the two packages that have some of them."""

# ruff: noqa: F403, F405

from typing import assert_type

from horsies import *
from horsies.core.models import schedule, workflow

app = Horsies(AppConfig.for_database_url("postgresql://h/d", queue_mode=QueueMode.DEFAULT))
assert_type(app.ping_database(), BrokerResult[DatabasePing])
assert_type(app.get_broker().get_task_info("id"), BrokerResult[TaskInfo | None])
assert_type(schedule.CronSchedule.parse("@daily"), CronSchedule)
assert_type(workflow.slugify("a b"), str)
