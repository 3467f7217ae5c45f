"""`horsies cancel` and `horsies rerun`: act on each of the given tasks, and report the outcome for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from horsies.cli import manual, output
from horsies.cli.ids import Ids, opened_for
from horsies.cli.options import DatabaseUrl
from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.monitoring.models.answers import to_jsonable
from horsies.core.types.result import Err, Ok
from horsies.monitoring import TaskActionError, TaskActionErrorCode, TaskCancelled, TaskRerun, cancel_task, rerun_task

T = TypeVar("T")

_ID = "0198c5de-0001-7000-8000-000000000001"


def cancel(
    what: Ids,
    include_running: Annotated[
        bool, typer.Option("--include-running", help="Also cancel running tasks; their code is stopped.")
    ] = False,
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Cancel tasks that have not ended. The exit code is 1 if one of them was not cancelled."""

    async def act(broker: PostgresBroker, task_id: str) -> Ok[TaskCancelled] | Err[TaskActionError]:
        return await cancel_task(broker, task_id, include_running=include_running)

    def say(done: TaskCancelled) -> str:
        return f"cancelled {done.task_id}, which was {done.previous_status}"

    with opened_for(what, database_url, f"horsies cancel shop.tasks:app {_ID}", acts=True) as (app, ids):
        return _each(app, ids, act, say, as_json=as_json, key="cancelled")


def rerun(what: Ids, as_json: manual.AsJson = False, database_url: DatabaseUrl = None) -> int:
    """Send failed, expired or cancelled tasks again as new tasks; the old tasks do not change. The exit code is 1 if
    one of them was not sent."""

    def say(done: TaskRerun) -> str:
        return f"sent {done.rerun_of} again as {done.task_id}"

    with opened_for(what, database_url, f"horsies rerun shop.tasks:app {_ID}", acts=True) as (app, ids):
        return _each(app, ids, rerun_task, say, as_json=as_json, key="rerun")


def _each(
    app: Horsies,
    ids: list[str],
    act: Callable[[PostgresBroker, str], Awaitable[Ok[T] | Err[TaskActionError]]],
    say: Callable[[T], str],
    *,
    as_json: bool,
    key: str,
) -> int:
    """Act on one task after the other. If the database is away, the remaining tasks are not tried."""
    done: list[T] = []
    refused: list[TaskActionError] = []

    async def run() -> None:
        for task_id in ids:
            result = await act(app.get_broker(), task_id)
            if isinstance(result, Ok):
                done.append(result.ok_value)
                if not as_json:
                    output.out().print(say(result.ok_value), markup=False)
                continue
            refused.append(result.err_value)
            output.say(_why(app, result.err_value))
            if result.err_value.code is TaskActionErrorCode.DB_OPERATION_FAILED:
                return

    asyncio.run(run())
    if as_json:
        manual.print_json({key: to_jsonable(done), "refused": [_refusal(app, one) for one in refused]})
    return 1 if refused else 0


def _why(app: Horsies, problem: TaskActionError) -> str:
    return app.config.broker.redact(problem.message)


def _refusal(app: Horsies, problem: TaskActionError) -> dict[str, Any]:
    return {
        "task_id": problem.task_id,
        "code": problem.code.value,
        "message": _why(app, problem),
        "current_status": problem.current_status,
    }
