"""What is found wrong with schedules before anything fires (S-04), and what a scheduler needs to start (S-40)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from horsies import (
    AppConfig,
    BothDays,
    CronEnumValues,
    CronSchedule,
    CronValues,
    CustomQueueConfig,
    Horsies,
    Month,
    PayloadPolicy,
    QueueMode,
    ScheduleConfig,
    TaskSchedule,
    Weekday,
)
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.scheduler.payloads import (
    payload_of,
    require_schedule,
    schedule_problems,
)
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.service import Worker
from tests.each import each
from tests.scheduler_support import Report, make_app, schedule

URL = "postgresql://nobody@localhost:1/none"


def problems(app: Horsies, one: TaskSchedule) -> list[tuple[ErrorCode | None, str]]:
    return [(error.code, error.message) for error in schedule_problems(app, one)]


def test_s04_a_sound_schedule_has_no_problems() -> None:
    app = make_app(URL)
    assert problems(app, schedule(kwargs={"number": 3})) == []
    assert problems(app, schedule(task_name="report", args=(Report(title="x"),))) == []


@each(
    ("fields", "code", "text"),
    [
        ({"task_name": "tock"}, ErrorCode.TASK_NOT_REGISTERED, "there is no task 'tock'"),
        ({"queue_name": "default"}, ErrorCode.CONFIG_INVALID_SCHEDULE, "QueueMode.CUSTOM"),
        ({"task_name": "report"}, ErrorCode.CONFIG_INVALID_SCHEDULE, "what"),
        ({"args": (1, 2)}, ErrorCode.CONFIG_INVALID_SCHEDULE, "positional"),
        ({"kwargs": {"nmber": 1}}, ErrorCode.CONFIG_INVALID_SCHEDULE, "nmber"),
        ({"kwargs": {"number": "one"}}, ErrorCode.CONFIG_INVALID_SCHEDULE, "number"),
        ({"kwargs": {"number": object()}}, ErrorCode.CONFIG_INVALID_SCHEDULE, "number"),
        ({"kwargs": {"good_until": datetime(2030, 1, 1, tzinfo=UTC)}}, ErrorCode.CONFIG_INVALID_SCHEDULE, "good_until"),
        ({"name": "a\0b"}, ErrorCode.CONFIG_INVALID_SCHEDULE, "NUL"),
    ],
)
def test_s04_what_is_wrong_with_a_schedule(fields: dict[str, object], code: ErrorCode, text: str) -> None:
    one = schedule(**fields)
    [(found, message)] = problems(make_app(URL), one)
    assert found is code and text in message and message.startswith(f"schedule {one.name!r}: ")
    assert next(schedule_problems(make_app(URL), one)).location is not None


def test_s04_a_near_miss_of_a_task_name_is_named() -> None:
    (error,) = schedule_problems(make_app(URL), schedule(task_name="reprt"))
    assert error.help_text == "did you mean report?"


def test_s04_t13_the_queue_must_be_one_of_the_mode() -> None:
    queues = [CustomQueueConfig(name="usual", priority=50), CustomQueueConfig(name="urgent", priority=2)]
    app = make_app(URL, queue_mode=QueueMode.CUSTOM, custom_queues=queues)
    assert problems(app, schedule()) == problems(app, schedule(queue_name="urgent")) == []
    [(code, message)] = problems(app, schedule(queue_name="none"))
    assert code is ErrorCode.CONFIG_INVALID_SCHEDULE and "'none'" in message
    urgent = payload_of(app, schedule(queue_name="urgent")).ok_value
    assert (urgent.queue_name, urgent.priority) == ("urgent", 2)


def test_s04_s24_a_pattern_without_an_instant_in_eight_years_is_refused() -> None:
    days = BothDays(day_of_month=[CronValues(values=[29])], day_of_week=[CronEnumValues(values=[Weekday.MONDAY])])
    february = [CronEnumValues(values=[Month.FEBRUARY])]
    never = CronSchedule(
        minute=[CronValues(values=[0])], hour=[CronValues(values=[0])], month=february, day=days
    )  # fmt: skip
    [(code, message)] = problems(make_app(URL), schedule(pattern=never))
    assert code is ErrorCode.CONFIG_INVALID_SCHEDULE and "eight years" in message


def test_s04_t17_arguments_that_are_too_large_are_refused() -> None:
    app = make_app(URL, payload=PayloadPolicy(reject_bytes=30))
    [(code, message)] = problems(app, schedule(kwargs={"number": 10**40}))
    assert code is ErrorCode.CONFIG_INVALID_SCHEDULE and "reject_bytes" in message


@each("settings", [None, ScheduleConfig(enabled=False)])
def test_s40_a_scheduler_needs_settings_that_are_enabled(settings: ScheduleConfig | None) -> None:
    config = AppConfig.for_database_url(URL, schedule=settings)
    with pytest.raises(ConfigurationError) as refused:
        require_schedule(config)
    assert refused.value.code is ErrorCode.CONFIG_INVALID_SCHEDULE
    with pytest.raises(ConfigurationError, match="scheduler"):
        Worker(Horsies(config), WorkerConfig(with_scheduler=True, app_locator="shop:app"))


def test_s40_settings_without_schedules_serve_those_of_the_database() -> None:
    assert require_schedule(AppConfig.for_database_url(URL, schedule=ScheduleConfig())).schedules == []
