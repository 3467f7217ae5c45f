"""Tasks that know themselves, with hooks around them that write down what they saw."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from horsies import AppConfig, AsyncTaskContext, Horsies, RetryPolicy, TaskContext, TaskError, TaskResult, current_task

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"], exception_mapper={ConnectionError: "NO_NETWORK"}))
log = logging.getLogger("shop")


def note(text: str) -> None:
    if path := os.environ.get("NOTES"):
        with open(path, "a") as file:
            file.write(text + "\n")


def known(ctx: TaskContext | AsyncTaskContext) -> dict[str, Any]:
    return {
        "task_id": ctx.task_id,
        "task_name": ctx.task_name,
        "queue": ctx.queue,
        "attempt": ctx.attempt,
        "is_due": ctx.enqueued_at is not None,
        "limit_s": None if ctx.deadline is None or ctx.enqueued_at is None else ctx.deadline.timestamp(),
        "is_stopping": ctx.is_stopping,
        "fence": list(ctx.fence),
        "workflow": ctx.workflow and list(ctx.workflow),
    }


@app.task("know", timeout_ms=60_000, retry_policy=RetryPolicy.fixed([1], auto_retry_for=["AGAIN"]))
def know(ctx: TaskContext, again: bool = False) -> TaskResult[dict[str, Any], TaskError]:
    log.warning("knows itself")
    if again and ctx.attempt == 1:
        return TaskResult(err=TaskError(error_code="AGAIN"))
    assert current_task() is ctx
    return TaskResult(ok=known(ctx))


@app.task("know_async")
async def know_async(number: int, *, ctx: AsyncTaskContext) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    assert current_task() is ctx
    found = await asyncio.to_thread(current_task)
    assert found is ctx
    ctx.logger.warning("number %s", number)
    return {**known(ctx), "number": number}


@app.task("fail")
def fail(kind: str) -> None:
    raise {"network": ConnectionResetError, "other": ZeroDivisionError}[kind]("oh no")


@app.task("wait_until_told")
def wait_until_told(ctx: TaskContext) -> str:
    import time

    note("waiting")
    while not ctx.is_stopping:
        time.sleep(0.01)
    return "told"


if os.environ.get("HOOKED"):

    @app.before_task
    def before(ctx: TaskContext) -> None:
        note(f"before {ctx.task_name} {ctx.attempt}")
        raise ValueError("a hook that fails")

    @app.after_task
    def after(ctx: TaskContext, result: TaskResult[Any, TaskError]) -> None:
        note(f"after {ctx.task_name} {'ok' if result.is_ok() else result.unwrap_err().code}")
        raise (SystemExit if ctx.task_name == "know" else asyncio.CancelledError)("a hook that wants to leave")

    @app.on_failure
    async def failed_async(ctx: AsyncTaskContext, error: TaskError) -> None:
        note(f"failed async {ctx.task_name} {error.code}")

    @app.on_failure
    def failed(ctx: TaskContext, error: TaskError) -> None:
        note(f"failed {ctx.task_name} {error.code}")

    @app.around_task
    def around(ctx: TaskContext) -> Iterator[None]:
        note(f"enter {ctx.task_name}")
        try:
            yield
        finally:
            note(f"leave {ctx.task_name}")

    @app.around_task
    @contextmanager
    def swallow(ctx: TaskContext) -> Iterator[None]:
        try:
            yield
        except Exception:
            note("swallowed")

    @app.around_task
    async def around_async(ctx: AsyncTaskContext) -> AsyncIterator[None]:
        note(f"enter async {ctx.task_name}")
        yield
        raise ValueError("a hook that fails at its end")
