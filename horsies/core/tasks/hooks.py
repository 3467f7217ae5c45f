"""Code of the user around every task: `@app.before_task`, `@app.after_task`, `@app.on_failure` and `@app.around_task`.

Hooks run in the child, in the context of the task. A hook that raises is logged, and changes nothing about the task or
its result. Hooks that are `async def` (or async context managers) are for `async def` tasks only, because nothing else
has a loop to run them on; the others are for all tasks.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, TypeAlias

from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.tasks.context import AsyncTaskContext, TaskContext

log = logging.getLogger("horsies.hooks")

RAISED = (Exception, SystemExit, KeyboardInterrupt)  # by a hook. What stops or cancels the task passes.

AnyContext: TypeAlias = TaskContext | AsyncTaskContext
AnyResult: TypeAlias = TaskResult[Any, TaskError]
BeforeTask: TypeAlias = Callable[[Any], None] | Callable[[Any], Awaitable[None]]
AfterTask: TypeAlias = Callable[[Any, Any], None] | Callable[[Any, Any], Awaitable[None]]
AroundTask: TypeAlias = (
    Callable[[Any], AbstractContextManager[Any]]
    | Callable[[Any], AbstractAsyncContextManager[Any]]
    | Callable[[Any], Iterator[Any]]
    | Callable[[Any], AsyncIterator[Any]]
)


class TaskHooks:
    """The hooks of one app, in the order in which they were registered."""

    def __init__(self) -> None:
        self.before: list[Callable[..., Any]] = []
        self.after: list[Callable[..., Any]] = []
        self.failed: list[Callable[..., Any]] = []
        self.around: list[Callable[..., Any]] = []

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.failed or self.around)

    def add_around(self, hook: Callable[..., Any]) -> None:
        """A function with one `yield` becomes a context manager."""
        if inspect.isgeneratorfunction(hook):
            hook = contextmanager(hook)
        elif inspect.isasyncgenfunction(hook):
            hook = asynccontextmanager(hook)
        self.around.append(hook)

    def enter(self, stack: ExitStack, ctx: AnyContext) -> None:
        """Everything that comes before a `def` task. What was entered is left with the stack."""
        for hook in self.before:
            _call(hook, ctx)
        for hook in self.around:
            manager = _call(hook, ctx)
            if hasattr(manager, "__enter__"):
                _enter(stack, hook, manager)

    def leave(self, ctx: AnyContext, result: AnyResult) -> None:
        """Everything that comes after a `def` task."""
        for hook in self.after:
            _call(hook, ctx, result)
        if result.err is not None:
            for hook in self.failed:
                _call(hook, ctx, result.err)

    async def enter_async(self, stack: AsyncExitStack, ctx: AnyContext) -> None:
        """The same before an `async def` task."""
        for hook in self.before:
            await _call_async(hook, ctx)
        for hook in self.around:
            manager = _call(hook, ctx, or_coroutine=True)
            if hasattr(manager, "__aenter__"):
                await _enter_async(stack, hook, manager)
            elif hasattr(manager, "__enter__"):
                _enter(stack, hook, manager)

    async def leave_async(self, ctx: AnyContext, result: AnyResult) -> None:
        """The same after an `async def` task."""
        for hook in self.after:
            await _call_async(hook, ctx, result)
        if result.err is not None:
            for hook in self.failed:
                await _call_async(hook, ctx, result.err)


def _call(hook: Callable[..., Any], *args: Any, or_coroutine: bool = False) -> Any:
    if inspect.iscoroutinefunction(hook) and not or_coroutine:
        return None  # for async tasks only
    try:
        return hook(*args)
    except RAISED:
        _tell(hook)
        return None


async def _call_async(hook: Callable[..., Any], *args: Any) -> None:
    try:
        answer = hook(*args)
        if inspect.isawaitable(answer):
            await answer
    except RAISED:
        _tell(hook)


def _enter(stack: ExitStack | AsyncExitStack, hook: Callable[..., Any], manager: AbstractContextManager[Any]) -> None:
    try:
        manager.__enter__()
    except RAISED:
        _tell(hook)
        return

    def leave(kind: Any, error: Any, trace: Any) -> bool:
        try:
            manager.__exit__(kind, error, trace)
        except RAISED as problem:
            if problem is not error:
                _tell(hook)
        return False  # the outcome of the task is its own

    stack.push(leave)


async def _enter_async(
    stack: AsyncExitStack, hook: Callable[..., Any], manager: AbstractAsyncContextManager[Any]
) -> None:
    try:
        await manager.__aenter__()
    except RAISED:
        _tell(hook)
        return

    async def leave(kind: Any, error: Any, trace: Any) -> bool:
        try:
            await manager.__aexit__(kind, error, trace)
        except RAISED as problem:
            if problem is not error:
                _tell(hook)
        return False

    stack.push_async_exit(leave)


def _tell(hook: Callable[..., Any]) -> None:
    name = getattr(hook, "__qualname__", repr(hook))
    log.error("the hook %s raised; the task goes on without it", name, exc_info=True)
