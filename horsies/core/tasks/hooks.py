"""Code of the user around every task: `@app.before_task`, `@app.after_task`, `@app.on_failure` and `@app.around_task`.

Hooks run in the child, in the context of the task. A hook that raises is logged, and changes nothing about the task or
its result; so is one that is stopped after the function of the task has ended. Hooks that are `async def` (or async
context managers) are for `async def` tasks only, because nothing else has a loop to run them on; the others are for all
tasks. For a `def` task nothing below waits for anything, so it runs to its end at the first step.
"""

from __future__ import annotations

import inspect
import logging
from asyncio import CancelledError, current_task
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from horsies.core import errors
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.tasks.context import AsyncTaskContext, StopTask, TaskContext, current_run

log = logging.getLogger("horsies.hooks")
_FAILED: Final = object()  # instead of a context manager: the hook has raised, or is for other tasks

AnyHook = TypeVar("AnyHook", bound=Callable[..., Any])
AnyContext: TypeAlias = TaskContext | AsyncTaskContext
AnyResult: TypeAlias = TaskResult[Any, TaskError]


class TaskHooks:
    """The hooks of one app, in the order in which they were registered."""

    def __init__(self) -> None:
        self.before: list[Callable[..., Any]] = []
        self.after: list[Callable[..., Any]] = []
        self.failed: list[Callable[..., Any]] = []
        self.around: list[Callable[..., Any]] = []
        self.outermost: list[Callable[..., Any]] = []
        self.exist = False

    def add_outermost(self, hook: Callable[..., Any]) -> None:
        """For what a framework needs around a task: a context manager around the other hooks too, which are code of its
        users like the task."""
        self.outermost.append(_makes_managers(hook))
        self.exist = True

    async def surround(self, stack: AsyncExitStack, ctx: AnyContext) -> None:
        """What is around a task and all of its hooks. What was entered is left with the stack."""
        for hook in self.outermost:
            await _enter(stack, hook, ctx)

    async def enter(self, stack: AsyncExitStack, ctx: AnyContext) -> None:
        """Everything else that comes before a task."""
        for hook in self.before:
            await _call(hook, ctx)
        for hook in self.around:
            await _enter(stack, hook, ctx)

    async def leave(self, ctx: AnyContext, result: AnyResult) -> None:
        """Everything that comes after a task, when its context managers have been left."""
        for hook in self.after:
            await _call(hook, ctx, result)
        if result.err is not None:
            for hook in self.failed:
                await _call(hook, ctx, result.err)


class TakesHooks:
    """The decorators of an app. Each returns the function as it is."""

    task_hooks: TaskHooks

    def before_task(self, fn: AnyHook) -> AnyHook:
        """Call this with the context before each task, in its child. Usable as a decorator, like the others."""
        self._checked(fn, "before_task").before.append(fn)
        return fn

    def after_task(self, fn: AnyHook) -> AnyHook:
        """Call this with the context and the `TaskResult` after each task."""
        self._checked(fn, "after_task").after.append(fn)
        return fn

    def on_failure(self, fn: AnyHook) -> AnyHook:
        """Call this with the context and the `TaskError` after each attempt that failed."""
        self._checked(fn, "on_failure").failed.append(fn)
        return fn

    def around_task(self, fn: AnyHook) -> AnyHook:
        """Run each task inside this context manager: a function of the context with one `yield`, or one that returns a
        context manager; for `async def` tasks it may be an async one."""
        self._checked(fn, "around_task").around.append(_makes_managers(fn))
        return fn

    def _checked(self, fn: object, name: str) -> TaskHooks:
        """The hooks to add it to, from now on not empty."""
        if problem := _problem(fn, is_around=name == "around_task"):
            says, help_text = problem
            raise errors.misuse(f"app.{name} {says}", help_text, code=errors.ErrorCode.CHILD_HOOK_INVALID, of=fn)
        self.task_hooks.exist = True
        return self.task_hooks


def _problem(fn: Any, *, is_around: bool) -> tuple[str, str] | None:
    """What is wrong with a hook, and what helps; None if it can be called."""
    if not callable(fn):
        return f"takes a function, not {type(fn).__name__}", "put it above a function: def hook(ctx, ...): ..."
    has_yield = inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)
    if has_yield and not is_around:
        return f"calls a function, but {_name(fn)} has a `yield`", "@app.around_task takes functions with one `yield`"
    if is_around and inspect.iscoroutinefunction(fn):
        says = f"takes a context manager, but {_name(fn)} has no `yield`"
        return says, "async def hook(ctx): ...; yield; ..., or @app.before_task for code that only comes before"
    return None


async def _call(hook: Callable[..., Any], ctx: AnyContext, *more: Any) -> None:
    is_async = isinstance(ctx, AsyncTaskContext)
    if inspect.iscoroutinefunction(hook) and not is_async:
        return
    try:
        answer = hook(ctx, *more)
        if is_async and inspect.isawaitable(answer):
            await answer
    except BaseException as problem:
        _tell(hook, problem)


def _makes_managers(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A function with one `yield` becomes one that returns a context manager."""
    if inspect.isgeneratorfunction(hook):
        return contextmanager(hook)
    return asynccontextmanager(hook) if inspect.isasyncgenfunction(hook) else hook


async def _enter(stack: AsyncExitStack, hook: Callable[..., Any], ctx: AnyContext) -> None:
    """Enter the context manager of a hook, and let the stack leave it."""
    try:
        manager = hook(ctx)
        if isinstance(ctx, AsyncTaskContext) and _has(manager, "__aenter__"):
            await manager.__aenter__()
            end = manager.__aexit__
        elif _has(manager, "__enter__"):
            manager.__enter__()
            end = manager.__exit__
        else:
            if not _has(manager, "__aenter__"):  # that is for async tasks only
                _tell_useless(hook, manager)
            return
    except BaseException as problem:
        _tell(hook, problem)
        return

    async def leave(kind: Any, error: Any, trace: Any) -> bool:
        kind, error, trace = _end_of_function(kind, error, trace)
        try:
            answer = end(kind, error, trace)
            if inspect.isawaitable(answer):
                await answer
        except BaseException as problem:
            if problem is not error:
                _tell(hook, problem)
        return False  # the outcome of the task is its own

    stack.push_async_exit(leave)


def _end_of_function(kind: Any, error: Any, trace: Any) -> tuple[Any, Any, Any]:
    """What a context manager is told: how the function ended, also if the stop of another hook is on its way."""
    run = current_run()
    if run is None or run.outcome is None:
        return kind, error, trace
    raised = run.outcome.error
    return (None, None, None) if raised is None else (type(raised), raised, raised.__traceback__)


def _tell(hook: Callable[..., Any], problem: BaseException) -> None:
    """Log what a hook has raised, whatever it is; unless it means that the task was told to stop, which goes on."""
    if isinstance(problem, StopTask) or (isinstance(problem, CancelledError) and _is_cancelled()):
        if (run := current_run()) is not None and run.outcome is not None:
            text = "the hook %s was stopped with its task, whose function had ended; its result is kept"
            log.error(text, _name(hook))
        raise problem
    log.error("the hook %s raised; the task goes on without it", _name(hook), exc_info=problem)


def _tell_useless(hook: Callable[..., Any], returned: Any) -> None:
    """Log that a hook of `around_task` has given nothing that a task could run in."""
    if inspect.iscoroutine(returned):
        returned.close()  # nobody will await it
    log.error(
        "the hook %s returned %s; the task goes on without it. A hook of @app.around_task has one `yield`, or returns "
        "a context manager",
        _name(hook),
        type(returned).__name__,
    )


def _has(manager: object, method: str) -> bool:
    """As a `with` statement looks: at the class, whatever the object itself may answer."""
    return hasattr(type(manager), method)


def _name(hook: Callable[..., Any]) -> str:
    return str(getattr(hook, "__qualname__", None) or type(hook).__qualname__)


def _is_cancelled() -> bool:
    """Whether somebody wants the task to end. A hook may also raise this because something else was cancelled."""
    with suppress(RuntimeError):  # there is no loop
        task = current_task()
        return task is not None and task.cancelling() > 0
    return False
