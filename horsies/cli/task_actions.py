"""The commands that change tasks. `horsies send` sends one task of an app and may wait for its result. `horsies cancel`
and `horsies rerun` act on each of the given tasks and report the outcome for each. `horsies purge` deletes old ended
tasks or cancels the waiting tasks of a queue; without `--yes` it only counts. The commands that only read tasks are in
`tasks.py`.
"""

import asyncio
import difflib
import json
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import typer

from horsies import monitoring
from horsies.cli import database, options, output, project, session, tables
from horsies.cli.tables import Column
from horsies.core import errors, locate, task_decorator
from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.codec.shapes import CodecError
from horsies.core.models.monitoring.tasks import to_jsonable
from horsies.core.models.tasks import BUILTIN_KEY
from horsies.core.recovery import retention
from horsies.core.text import visible
from horsies.core.types import TASK_TERMINAL_STATES, Err, Ok, TaskStatus

T = TypeVar("T")
_ID = "0198c5de-0001-7000-8000-000000000001"
_LATELY = timedelta(minutes=5)
_ENDED = sorted(TASK_TERMINAL_STATES)
_NOW = timedelta(0)


def send(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODULE] TASK",
            help="The app, unless HORSIES_APP or [tool.horsies] names it, and the task's name.",
            autocompletion=options.modules,
        ),
    ],
    kwargs: Annotated[str | None, typer.Option(metavar="JSON", help="Keyword arguments, a JSON object.")] = None,
    args: Annotated[str | None, typer.Option(metavar="JSON", help="Positional arguments, a JSON list.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it as JSON.")] = False,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=options.parse_duration, metavar="D", help="Wait no longer than this.", show_default="no limit"
        ),
    ] = None,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Send a task and print its id. With --wait, print its result; the exit code is then 0 only if the task
    succeeded."""
    args_json, kwargs_json = options.parse_json(args, list, "--args"), options.parse_json(kwargs, dict, "--kwargs")
    if len(what) > 2:
        raise output.usage_error(visible(f"one task at a time: {' '.join(what)}"), "horsies send [MODULE] TASK")
    module, task = (what[0] if len(what) == 2 else project.required_app()), what[-1]
    app = locate.load_app(module)
    app.import_modules()
    found = _find(app, task)
    values, names = _decode(found, args_json, kwargs_json)
    chosen = database.choose(database_url, app.config.broker)
    output.say(chosen.opening_sentence())
    database.use(app, chosen)
    try:
        sent = found.send(*values, **names)
        if isinstance(sent, Err):
            raise errors.HorsiesError(
                f"the task was not sent: {sent.err_value.message}", notes=[f"{sent.err_value.code}"]
            )
        handle = sent.ok_value
        if not wait:
            output.write(handle.task_id)
            return 0
        output.say(f"sent {task} as {handle.task_id}")
        if app.worker_utils().list_active_workers_sync(_LATELY).map(len).unwrap_or(1) == 0:
            start = f"horsies worker {shlex.quote(module)}"
            output.say(f"no worker is registered, so the task cannot run yet: start one with {start}")
        result = handle.get(timeout_ms=None if timeout is None else int(timeout.total_seconds() * 1000))
        output.write(_as_json(found.codec.result.encode(result)))
        return 0 if result.is_ok() else 1
    finally:
        app.get_broker().close()


def _as_json(result: str) -> str:
    """The result as it is stored, with plain error codes."""
    if BUILTIN_KEY not in result:
        return result
    return json.dumps(output.with_plain_codes(json.loads(result)), separators=(",", ":"))


def _find(app: Horsies, name: str) -> task_decorator.TaskFunction[Any, Any]:
    if name in app.tasks:
        return app.tasks[name]
    near = difflib.get_close_matches(name, app.list_tasks(), n=3)
    known = ", ".join(near or sorted(app.list_tasks())[:10])
    raise errors.RegistryError(
        f"the app has no task named {name!r}",
        code=errors.ErrorCode.TASK_NOT_REGISTERED,
        help_text=f"did you mean {known}?" if near else f"its tasks: {known or 'none'}",
    )


def _decode(
    task: task_decorator.TaskFunction[Any, Any], args_json: str | None, kwargs_json: str | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Decode the arguments by the task's annotations: a JSON object becomes the model that the task expects. They are
    checked as strictly as those of a send in Python."""
    try:
        return task.codec.arguments.decode_typed(args_json, kwargs_json)
    except CodecError as problem:
        raise output.usage_error(f"the arguments do not fit the task {task.task_name!r}: {problem}") from None


def cancel(
    what: session.Ids,
    include_running: Annotated[
        bool, typer.Option("--include-running", help="Also cancel running tasks; their code is stopped.")
    ] = False,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Cancel tasks that have not ended. The exit code is 1 if one of them was not cancelled."""

    async def act(
        broker: PostgresBroker, task_id: str
    ) -> Ok[monitoring.TaskCancelled] | Err[monitoring.TaskActionError]:
        return await monitoring.cancel_task(broker, task_id, include_running=include_running)

    def say(done: monitoring.TaskCancelled) -> str:
        return f"cancelled {done.task_id}, which was {done.previous_status}"

    with session.open_for_ids(what, database_url, f"horsies cancel shop.tasks:app {_ID}", acts=True) as (app, ids):
        return _each(app, ids, act, say, as_json=as_json, key="cancelled")


def rerun(what: session.Ids, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Send failed, expired or cancelled tasks again as new tasks; the old tasks do not change. The exit code is 1 if
    one of them was not sent."""

    def say(done: monitoring.TaskRerun) -> str:
        return f"sent {done.rerun_of} again as {done.task_id}"

    with session.open_for_ids(what, database_url, f"horsies rerun shop.tasks:app {_ID}", acts=True) as (app, ids):
        return _each(app, ids, monitoring.rerun_task, say, as_json=as_json, key="rerun")


def run_now(what: session.Ids, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Make waiting tasks that are due later, or are to be tried again later, due at once. The exit code is 1 if one of
    them was not."""

    def say(done: monitoring.TaskDue) -> str:
        return f"{done.task_id} is due now, instead of at {output.text_of(done.was_due_at)}"

    with session.open_for_ids(what, database_url, f"horsies run-now shop.tasks:app {_ID}", acts=True) as (app, ids):
        return _each(app, ids, monitoring.run_task_now, say, as_json=as_json, key="due")


def _each(
    app: Horsies,
    ids: list[str],
    act: Callable[[PostgresBroker, str], Awaitable[Ok[T] | Err[monitoring.TaskActionError]]],
    say: Callable[[T], str],
    *,
    as_json: bool,
    key: str,
) -> int:
    """Act on one task after the other. If the database is away, the remaining tasks are not tried."""
    done: list[T] = []
    refused: list[monitoring.TaskActionError] = []

    async def run() -> None:
        for task_id in ids:
            result = await act(app.get_broker(), task_id)
            if isinstance(result, Ok):
                done.append(result.ok_value)
                if not as_json:
                    output.write(say(result.ok_value))
                continue
            refused.append(result.err_value)
            output.say(_why(app, result.err_value))
            if result.err_value.code is monitoring.TaskActionErrorCode.DB_OPERATION_FAILED:
                return

    asyncio.run(run())
    if as_json:
        output.print_json({key: to_jsonable(done), "refused": [_refusal(app, one) for one in refused]})
    return 1 if refused else 0


def _why(app: Horsies, problem: monitoring.TaskActionError) -> str:
    if problem.code is monitoring.TaskActionErrorCode.TASK_NOT_CANCELLABLE and problem.current_status == "RUNNING":
        return f"task {problem.task_id} is RUNNING; --include-running stops it"
    return app.config.broker.redact(problem.message)


def _refusal(app: Horsies, problem: monitoring.TaskActionError) -> dict[str, Any]:
    return {
        "task_id": problem.task_id,
        "code": problem.code.value,
        "message": _why(app, problem),
        "current_status": problem.current_status,
    }


def purge(
    module: options.OptionalModule = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            parser=options.parse_age,
            metavar="D",
            show_default="required; 0 with --waiting",
            help="Minimum age: time since the end, or since the send with --waiting (300, 30s, 5m, 2h, 30d).",
        ),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            "-s",
            metavar="STATES",
            help="Only tasks in these states: completed, failed, cancelled, expired.",
            autocompletion=options.members(_ENDED),
        ),
    ] = None,
    queue: options.Queues = None,
    task: options.TaskNames = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Cancel the waiting tasks of the queues given with --queue.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Really do it; without this option the tasks are only counted.")
    ] = False,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Delete tasks that ended long ago, with their attempts; with --waiting, cancel tasks that have not started.

    Tasks of workflows are not touched; they are deleted together with their workflow. The command works in small
    batches while workers run, and you can interrupt it at any time. Retention (RecoveryConfig) deletes old records
    automatically; use this command for everything else.
    """
    chosen = retention.Purge(
        age=older_than if older_than is not None else _NOW,
        statuses=options.parse_members(TaskStatus, status, "--status", _ENDED),
        queues=options.parse_names(queue, "--queue") or (),
        task_names=options.parse_names(task, "--task") or (),
    )
    _refuse_what_is_unclear(chosen, waiting=waiting, has_age=older_than is not None)
    with session.open_app(module, database_url) as app:
        counting = retention.count_waiting_sync if waiting else retention.count_ended_sync
        groups = session.value_of(counting(app.get_broker(), chosen), app)
        done, is_complete = _act(app, chosen, waiting=waiting) if yes and groups else (0, True)
    total = done if yes else sum(group.count for group in groups)
    if as_json:
        output.print_json(
            {
                "action": "cancel" if waiting else "delete",
                "dry_run": not yes,
                "count": total,
                "complete": is_complete,
                "groups": [asdict(group) for group in groups],
            }
        )
    else:
        _show_purged(groups, total, waiting=waiting, is_dry=not yes)
    if not is_complete:
        output.say(
            "incomplete: it was interrupted, or another process is deleting now; run the command again to continue"
        )
    return 0 if is_complete else 1


def _refuse_what_is_unclear(chosen: retention.Purge, *, waiting: bool, has_age: bool) -> None:
    if waiting and chosen.statuses:
        raise output.usage_error("--waiting and --status cannot be combined", "waiting tasks are always PENDING")
    if waiting and not chosen.queues:
        raise output.usage_error("--waiting needs --queue", "name the queue: horsies purge --waiting --queue mail")
    if not waiting and not has_age:
        raise output.usage_error(
            "--older-than is missing", "horsies purge --older-than 30d; --older-than 0 deletes all ended tasks"
        )


def _act(app: Horsies, chosen: retention.Purge, *, waiting: bool) -> tuple[int, bool]:
    """How many tasks were changed, and whether those were all. Finished batches are kept, also after Ctrl-C."""
    batches: list[int] = []
    broker, is_complete = app.get_broker(), True
    try:
        if waiting:
            session.value_of(retention.cancel_waiting_sync(broker, chosen, batches.append), app)
        else:
            is_complete = session.value_of(retention.delete_ended_sync(broker, chosen, batches.append), app)
    except KeyboardInterrupt:
        is_complete = False
    except errors.HorsiesError as problem:
        raise problem.with_note(f"{output.count(sum(batches), 'task')} {_verb(waiting)} before that") from None
    return sum(batches), is_complete


def _show_purged(groups: list[retention.PurgeCount], total: int, *, waiting: bool, is_dry: bool) -> None:
    if not groups:
        output.write("no task matches")
        return
    if is_dry:
        output.print_rows(tables.Table(_PURGED), groups)
    tasks = output.count(total, "task")
    told = f"dry run: {tasks} would be {_verb(waiting)}; --yes does it" if is_dry else f"{_verb(waiting)} {tasks}"
    output.write(told)


def _verb(waiting: bool) -> str:
    return "cancelled" if waiting else "deleted"


_PURGED = (
    Column("status", lambda group: output.styled((group.status.value, output.style_of(group.status)))),
    Column("queue", lambda group: group.queue, folds=True),
    Column("name", lambda group: group.task_name, folds=True),
    Column("tasks", lambda group: group.count),
)
