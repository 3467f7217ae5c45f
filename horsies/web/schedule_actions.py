"""What can be changed about schedules through the dashboard: run-time ones are paused, resumed and edited, and any of
the app's is triggered. Schedules of the code are changed in the code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from horsies.core.models.schedule.config import ScheduleErrorCode, ScheduleResult
from horsies.core.scheduler.runtime import Schedules
from horsies.core.types import Ok
from horsies.web.actions import perform
from horsies.web.answers import Refusal
from horsies.web.endpoints import Asked, Endpoint, Param, Text


@dataclass(frozen=True, slots=True)
class ScheduleActionDone:
    """What was done; for a triggered schedule, the task that was sent."""

    name: str
    action: str
    task_id: str | None = None


def schedules_of(asked: Asked) -> Schedules:
    """The schedules as the app knows them, or without an app those of the database."""
    return Schedules(asked.dashboard.acting_app, lambda: asked.dashboard.acting_broker)


async def pause(asked: Asked, *, name: str) -> ScheduleActionDone:
    return await _do(asked, "pause", name, lambda: schedules_of(asked).pause_async(name))


async def resume(asked: Asked, *, name: str) -> ScheduleActionDone:
    return await _do(asked, "resume", name, lambda: schedules_of(asked).resume_async(name))


async def trigger(asked: Asked, *, name: str) -> ScheduleActionDone:
    _refuse_without_app(asked)
    return await _do(asked, "trigger", name, lambda: schedules_of(asked).trigger_now_async(name))


async def change(
    asked: Asked, *, name: str, pattern: dict[str, Any] | None, timezone: str | None, enabled: bool | None
) -> ScheduleActionDone:
    _refuse_without_app(asked)
    new = {"pattern": pattern, "timezone": timezone, "enabled": enabled}
    schedules = schedules_of(asked)
    return await _do(
        asked,
        "edit",
        name,
        lambda: schedules.change_async(name, pattern=pattern, timezone=timezone, enabled=enabled),
        **{field: value for field, value in new.items() if value is not None},
    )


async def _do(
    asked: Asked, action: str, name: str, do: Callable[[], Awaitable[ScheduleResult[Any]]], **details: Any
) -> ScheduleActionDone:
    async def doing() -> ScheduleActionDone:
        value = _value(asked, await do())
        return ScheduleActionDone(name, action, getattr(value, "task_id", None))

    return await perform(asked, f"schedule.{action}", (name,), doing, **details)


def _value(asked: Asked, result: ScheduleResult[Any]) -> Any:
    if isinstance(result, Ok):
        return result.value
    error = result.error
    message = asked.dashboard.database.redact(error.message)
    if error.code is ScheduleErrorCode.SCHEDULE_NOT_FOUND:
        raise Refusal(404, error.code.value, message)
    if error.code is ScheduleErrorCode.DB_OPERATION_FAILED:
        raise Refusal(503, error.code.value, message, {"Retry-After": "2"} if error.retryable else None)
    raise Refusal(422 if error.code is ScheduleErrorCode.INVALID_SCHEDULE else 409, error.code.value, message)


def _refuse_without_app(asked: Asked) -> None:
    """Only the app knows the task and what its arguments look like."""
    if not asked.dashboard.has_app:
        raise Refusal(409, "APP_NEEDED", "this needs the app: start the dashboard with it")


_NAME = Param("name", Text, "the name of the schedule", any_text=True)


def _post(action: str, doc: str, ask: Any, *params: Param) -> Endpoint:
    path = f"schedules/{{name}}/{action}"
    return Endpoint("POST", path, doc, ScheduleActionDone, ask, (_NAME, *params), action=f"schedule.{action}")


SCHEDULE_ACTIONS: tuple[Endpoint, ...] = (
    _post("pause", "Pause a run-time schedule.", pause),
    _post("resume", "Resume a run-time schedule.", resume),
    _post("trigger", "Send the task of a schedule now, in addition to its runs.", trigger),
    _post(
        "edit",
        "Change when a run-time schedule runs; its arguments stay.",
        change,
        Param("pattern", dict[str, Any] | None, "when it runs, as horsies schedules --json shows it", None),
        Param("timezone", Annotated[str, Field(max_length=100)] | None, "the time zone of the pattern", None),
        Param("enabled", bool | None, "whether it runs", None),
    ),
)
