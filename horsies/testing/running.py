"""Runs one attempt of a task in this process, as a child of a worker would: from its stored arguments, with the app's
hooks, in a context of its own. What the function raised is kept, so that a test can show it.

A `def` task runs in the thread of the caller. An `async def` task runs on the loop of a caller who awaits; for a caller
who blocks it gets a loop of its own, in another thread if a loop runs in this one. Nothing is stopped: `timeout_ms`
needs a process that can be interrupted.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from horsies.core.models.tasks import OperationalErrorCode, TaskError
from horsies.core.tasks import context, execute
from horsies.core.tasks.execute import AnyTask, Report
from horsies.core.types import is_blocking


class Attempt(NamedTuple):
    """How one attempt ended, and the exception that left the function, if one did."""

    report: Report
    raised: BaseException | None


class Ways:
    """How code of the other kind is called: a `def` task by a caller who awaits, an `async def` task by one who blocks.
    Where connections belong to threads, a framework has ways of its own (`AppTesting.ways`)."""

    async def call(self, run: Callable[[], Report]) -> Report:
        return run()

    def block_on(self, make: Callable[[], Coroutine[Any, Any, Report]]) -> Report:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(make())
        with ThreadPoolExecutor(1, "horsies inline") as aside:
            return aside.submit(contextvars.copy_context().run, asyncio.run, make()).result()


async def run_here(task: AnyTask, args_json: str | None, kwargs_json: str | None, facts: bytes, ways: Ways) -> Attempt:
    """Run the function once; `facts` are those that a child would get. What concerns the test and not the task (Ctrl-C,
    a time limit of pytest) is raised."""
    caught = _Caught()
    watched = _watched(task, caught)
    this = context.Run(watched, facts)

    async def alone() -> Report:
        """A task of its own has a copy of the context, and the caller does not see what is set in it."""
        return await asyncio.create_task(execute.run_async(watched, args_json, kwargs_json, this))

    try:
        if not task.is_async:
            run = partial(contextvars.copy_context().run, partial(_call, watched, args_json, kwargs_json, this))
            report = run() if is_blocking() else await ways.call(run)
        elif is_blocking():
            report = ways.block_on(alone)
        else:
            report = await alone()
    except CancelledError as error:
        if caught.raised is not error:
            raise
        report = execute.report_of(execute.error_of_exception(task, error))
    if caught.raised is not None and not isinstance(caught.raised, Exception | SystemExit | CancelledError):
        raise caught.raised
    return Attempt(report, caught.raised)


def unknown(task_name: str) -> Attempt:
    """Nobody has registered a task of this name here."""
    message = f"no task named {task_name!r} is registered in this app"
    error = TaskError(error_code=OperationalErrorCode.WORKER_RESOLUTION_ERROR, message=message)
    return Attempt(execute.report_of(error), None)


class _Caught(AbstractContextManager["_Caught"]):
    """The innermost context manager around the function: it sees what leaves it."""

    raised: BaseException | None = None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.raised = error


def _watched(task: AnyTask, caught: _Caught) -> AnyTask:
    """The same task with one hook more."""
    hooks = copy.copy(task.hooks)
    hooks.around = [*task.hooks.around, lambda ctx: caught]
    hooks.exist = True
    watched = copy.copy(task)
    watched.hooks = hooks
    return watched


def _call(task: AnyTask, args_json: str | None, kwargs_json: str | None, this: context.Run) -> Report:
    context.begin(this)
    return execute.run(task, args_json, kwargs_json, this)
