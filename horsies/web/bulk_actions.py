"""What can be done to many tasks through the dashboard (M-91): by their ids, or to a group of failed ones. Each route
has a dry run, which changes nothing and is not written down. Of the others, the ids of the changed tasks are written
down, and how many were changed and left alone (M-94)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from pydantic import Field

from horsies import monitoring
from horsies.core.types import TaskStatus
from horsies.monitoring import BulkResult
from horsies.web.actions import perform
from horsies.web.answers import Refusal
from horsies.web.endpoints import Asked, Endpoint, Param, Text, Texts, answered

MOST_IDS = 500


async def cancel(asked: Asked, *, ids: list[str], include_running: bool, dry_run: bool) -> BulkResult:
    def act() -> Awaitable[monitoring.MonitoringResult[BulkResult]]:
        broker = asked.dashboard.acting_broker
        return monitoring.cancel_tasks(broker, ids, include_running=include_running, dry_run=dry_run)

    return await _done(asked, "task.cancel", ids, act, dry_run=dry_run, include_running=include_running)


async def rerun(
    asked: Asked, *, ids: list[str], task_names: list[str], error_codes: list[str], dry_run: bool
) -> BulkResult:
    if ids and (task_names or error_codes):
        raise Refusal(422, "INVALID_ARGUMENT", "name tasks by ids, or a group by names and codes, not both")
    if not (ids or task_names or error_codes):  # all that ever failed is never meant by saying nothing
        raise Refusal(422, "INVALID_ARGUMENT", "name tasks by ids, or a group by names or codes")

    def act() -> Awaitable[monitoring.MonitoringResult[BulkResult]]:
        return monitoring.rerun_tasks(
            asked.dashboard.acting_broker,
            ids,
            statuses=[] if ids else [TaskStatus.FAILED],
            task_names=task_names,
            error_codes=error_codes,
            dry_run=dry_run,
        )

    return await _done(asked, "task.rerun", ids, act, dry_run=dry_run, task_names=task_names, error_codes=error_codes)


async def move(asked: Asked, *, ids: list[str], queue: str | None, priority: int | None, dry_run: bool) -> BulkResult:
    def act() -> Awaitable[monitoring.MonitoringResult[BulkResult]]:
        broker = asked.dashboard.acting_broker
        return monitoring.move_tasks(broker, ids, queue=queue, priority=priority, dry_run=dry_run)

    return await _done(asked, "task.move", ids, act, dry_run=dry_run, queue=queue, priority=priority)


async def _done(
    asked: Asked,
    action: str,
    ids: list[str],
    act: Callable[[], Awaitable[monitoring.MonitoringResult[BulkResult]]],
    *,
    dry_run: bool,
    **details: Any,
) -> BulkResult:
    async def do() -> BulkResult:
        return answered(await act())

    if dry_run:
        return await do()
    given = {name: value for name, value in details.items() if value not in (None, [], False)}
    return await perform(asked, action, ids, do, ids_of=lambda done: done.changed_ids, details_of=_numbers, **given)


def _numbers(done: BulkResult) -> dict[str, Any]:
    return {"changed": done.changed, **({"skipped": dict(done.skipped)} if done.skipped else {})}


_IDS = Param("ids", Annotated[list[Text], Field(min_length=1, max_length=MOST_IDS)], "the tasks")
_DRY_RUN = Param("dry_run", bool, "only say how many there are", False)


def _post(name: str, doc: str, ask: Any, *params: Param) -> Endpoint:
    return Endpoint("POST", f"bulk/{name}", doc, BulkResult, ask, (*params, _DRY_RUN), action=f"task.{name}")


BULK_ACTIONS: tuple[Endpoint, ...] = (
    _post(
        "cancel",
        "Cancel tasks that have not ended.",
        cancel,
        _IDS,
        Param("include_running", bool, "also those that are running; their code is then stopped", False),
    ),
    _post(
        "rerun",
        "Send tasks that ended without success again, each of them once: these, or the failed ones of a group.",
        rerun,
        Param("ids", Annotated[list[Text], Field(max_length=MOST_IDS)], "the tasks; empty for a group", []),
        Param("task_names", Texts, "of a group: only tasks with one of these names", []),
        Param("error_codes", Texts, "of a group: only tasks with one of these error codes", []),
    ),
    _post(
        "move",
        "Give waiting tasks another queue, another priority, or both.",
        move,
        _IDS,
        Param("queue", Text | None, "the new queue", None),
        Param("priority", int | None, "the new priority", None),
    ),
)
