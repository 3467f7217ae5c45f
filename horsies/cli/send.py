"""`horsies send`: send one task of an app from the command line; with `--wait`, print its result."""

from __future__ import annotations

import difflib
from datetime import timedelta
from typing import Annotated, Any

import typer

from horsies.cli import database, output
from horsies.cli.options import DatabaseUrl, Module, parse_duration, parse_json
from horsies.core.app import Horsies
from horsies.core.codec.serde import CodecError
from horsies.core.errors import ErrorCode, HorsiesError, RegistryError
from horsies.core.task_decorator import TaskFunction
from horsies.core.types.result import Err
from horsies.core.worker.locate import load_app

_LATELY = timedelta(minutes=5)


def send(
    module: Module,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")],
    kwargs: Annotated[str | None, typer.Option(metavar="JSON", help="Keyword arguments, a JSON object.")] = None,
    args: Annotated[str | None, typer.Option(metavar="JSON", help="Positional arguments, a JSON list.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it as JSON.")] = False,
    timeout: Annotated[
        timedelta | None,
        typer.Option(parser=parse_duration, metavar="D", help="Wait no longer than this.", show_default="no limit"),
    ] = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Send a task and print its id. With --wait, print its result; the exit code is then 0 only if the task
    succeeded."""
    args_json, kwargs_json = parse_json(args, list, "--args"), parse_json(kwargs, dict, "--kwargs")
    app = load_app(module)
    app.import_modules()
    found = _find(app, task)
    values, names = _decode(found, args_json, kwargs_json)
    chosen = database.choose(database_url, app.config.broker)
    output.say(chosen.opening_sentence())
    database.use(app, chosen)
    try:
        sent = found.send(*values, **names)
        if isinstance(sent, Err):
            raise HorsiesError(f"the task was not sent: {sent.err_value.message}", notes=[f"{sent.err_value.code}"])
        handle = sent.ok_value
        if not wait:
            output.out().print(handle.task_id, markup=False)
            return 0
        output.say(f"sent {task} as {handle.task_id}")
        if app.worker_utils().list_active_workers_sync(_LATELY).map(len).unwrap_or(1) == 0:
            output.say(f"no worker is registered, so the task cannot run yet: start one with horsies worker {module}")
        result = handle.get(timeout_ms=None if timeout is None else int(timeout.total_seconds() * 1000))
        output.out().print(found.codec.result.encode(result), markup=False)
        return 0 if result.is_ok() else 1
    finally:
        app.get_broker().close()


def _find(app: Horsies, name: str) -> TaskFunction[Any, Any]:
    if name in app.tasks:
        return app.tasks[name]
    near = difflib.get_close_matches(name, app.list_tasks(), n=3)
    known = ", ".join(near or sorted(app.list_tasks())[:10])
    raise RegistryError(
        f"the app has no task named {name!r}",
        code=ErrorCode.TASK_NOT_REGISTERED,
        help_text=f"did you mean {known}?" if near else f"its tasks: {known or 'none'}",
    )


def _decode(
    task: TaskFunction[Any, Any], args_json: str | None, kwargs_json: str | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Decode the arguments by the task's annotations: a JSON object becomes the model that the task expects."""
    try:
        return task.codec.arguments.decode(args_json, kwargs_json)
    except CodecError as problem:
        raise output.usage_error(f"the arguments do not fit the task {task.task_name!r}: {problem}") from None
