"""What a type checker must accept, and what it must infer."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from horsies import (
    AppConfig,
    BrokerResult,
    CustomQueueConfig,
    Err,
    FailureReason,
    HookRegistry,
    Horsies,
    Job,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    Ok,
    OperationalErrorCode,
    PostgresConfig,
    QueueMode,
    Result,
    RetryPolicy,
    TaskError,
    TaskHandle,
    TaskInfo,
    TaskResult,
    TaskSendError,
    TaskSendOptions,
    TaskStatus,
    WorkerRecovered,
    WorkerRecoveryConfig,
    is_ok,
)
from horsies.core.producer.many import PreparedTask

config = AppConfig(
    broker=PostgresConfig(
        database_url="postgresql+psycopg://h/d",
        session_database_url=None,
        pgbouncer_transaction_mode=False,
        pool_size=5,
        max_overflow=10,
        worker_pool_size=None,
        worker_max_overflow=None,
        notify="when_waiting",
        pool_timeout=30,
        pool_recycle=1800,
        pool_pre_ping=True,
        echo=False,
        tcp_keepalives=True,
        tcp_keepalives_idle=30,
        tcp_keepalives_interval=10,
        tcp_keepalives_count=3,
        tcp_user_timeout_ms=30_000,
    ),
    queue_mode=QueueMode.CUSTOM,
    custom_queues=[CustomQueueConfig(name="fast", priority=1)],
    worker_recovery=WorkerRecoveryConfig(sweep_interval=timedelta(seconds=5)),
    exception_mapper={KeyError: "NO_KEY"},
)
app = Horsies(config)


@app.task(
    "resize",
    queue_name="fast",
    retry_policy=RetryPolicy.fixed([1, 2], auto_retry_for=[OperationalErrorCode.WORKER_CRASHED, "BUSY"]),
    flags=["big"],
)
def resize(name: str, width: int = 640, *, crop: bool = False) -> TaskResult[bytes, TaskError]:
    if not name:
        return TaskResult(err=TaskError(error_code="NO_NAME"))
    return TaskResult(ok=b"")


@app.task("fetch")
async def fetch(url: str) -> TaskResult[dict[str, int] | None, TaskError]:
    return TaskResult(ok=None)


assert_type(resize("a", crop=True), TaskResult[bytes, TaskError])
unawaited = assert_type(fetch("u"), Coroutine[Any, Any, TaskResult[dict[str, int] | None, TaskError]])

sent = resize.send("img-7", width=640)
assert_type(sent, Ok[TaskHandle[bytes]] | Err[TaskSendError])
assert_type(resize.schedule(5, "img-7"), Ok[TaskHandle[bytes]] | Err[TaskSendError])
assert_type(
    resize.with_options(good_until=datetime.now(UTC), flags={"big": False}).send("a", 3),
    Ok[TaskHandle[bytes]] | Err[TaskSendError],
)
options: TaskSendOptions[[str], dict[str, int] | None] = fetch.with_options(idempotency_key="k")

prepared = resize.prepare("img-7", width=640)
calls: list[PreparedTask[..., bytes]] = [resize.with_options(idempotency_key="k").prepare("img-8", crop=True)]
resize.send_many(calls)
many = resize.send_many([prepared, resize.prepare("img-9"), ("img-10", 3), {"name": "img-11", "crop": True}])
assert_type(many, Ok[list[TaskHandle[bytes]]] | Err[TaskSendError])
assert_type(resize.send_many(("img", n) for n in range(3)).unwrap(), list[TaskHandle[bytes]])
if isinstance(many, Err):
    assert_type(many.error.position, int | None)
    assert_type(resize.retry_send(many.error), Ok[TaskHandle[bytes]] | Err[TaskSendError])


def transactions(conn: psycopg.Connection[tuple[Any, ...]]) -> None:
    assert_type(resize.with_options(connection=conn).send("a"), Ok[TaskHandle[bytes]] | Err[TaskSendError])
    with create_engine("").begin() as other, Session(other) as session:
        resize.with_options(connection=other, flags=["big"]).schedule(5, "a")
        resize.with_options(connection=session).with_options(connection=None).send("a")
        resize.with_options(connection=session).send_many([prepared])


async def async_transactions(conn: psycopg.AsyncConnection[dict[str, Any]]) -> None:
    (await resize.with_options(connection=conn).send_async("a")).unwrap()
    async with create_async_engine("").begin() as other, AsyncSession(other) as session:
        await resize.with_options(connection=other).send_async("a")
        await resize.with_options(connection=session).send_many_async([("a",), {"name": "b"}])


match sent:
    case Ok(handle):
        assert_type(handle, TaskHandle[bytes])
        outcome = handle.get(timeout_ms=10_000)
        assert_type(outcome, TaskResult[bytes, TaskError])
        assert_type(outcome.ok, bytes | None)
        assert_type(outcome.ok_value, bytes)
        assert_type(outcome.unwrap(), bytes)
        assert_type(outcome.err, TaskError | None)
        assert_type(outcome.err_value.message, str | None)
        assert_type(handle.info(), BrokerResult[TaskInfo | None])
    case Err(problem):
        assert_type(problem, TaskSendError)
        if problem.retryable:
            resize.retry_send(problem)

if is_ok(sent):
    assert_type(sent.value, TaskHandle[bytes])
else:
    assert_type(sent.error, TaskSendError)
assert_type(sent.unwrap(), TaskHandle[bytes])
assert_type(sent.err_value, TaskSendError)


async def awaiting() -> None:
    async_sent = await fetch.send_async("u")
    result = await async_sent.unwrap().get_async()
    assert_type(result, TaskResult[dict[str, int] | None, TaskError])
    assert_type(await fetch("u"), TaskResult[dict[str, int] | None, TaskError])


plain = TaskResult(ok=3)
assert_type(plain.ok_value, int)
wider: TaskResult[float, TaskError] = plain


def parse(text: str) -> Result[int, ValueError]:
    try:
        return Ok(int(text))
    except ValueError as error:
        return Err(error)


assert_type(parse("1").map(str).unwrap_or(None), str | None)
assert_type(parse("1").ok(), int | None)
assert_type(parse("1").err(), ValueError | None)
assert_type(parse("1").unwrap_or_raise(KeyError), int)

hooks = HookRegistry()


@hooks.on(JobRecovery)
async def decide(ctx: JobRecovery) -> JobRecoveryResult:
    assert_type(ctx.job, Job)
    assert_type(ctx.job.status, TaskStatus)
    assert_type(ctx.job.kwargs, dict[str, Any])
    assert_type(ctx.reason, FailureReason)
    if ctx.job.attempts > 3:
        return JobRecoveryResult.FailWithBackoff
    return JobRecoveryResult.Reschedule(run_at=datetime.now(UTC) + timedelta(days=1), attempts=0)


@hooks.on(JobRecovery)
def decide_plainly(ctx: JobRecovery) -> JobRecoveryResult | None:
    return JobRecoveryResult.Skip if ctx.previous_worker_id == ctx.worker_id else None


@hooks.on(WorkerRecovered)
async def heard(ctx: WorkerRecovered) -> None:
    assert_type(ctx.dead_worker_ids, list[str])


assert_type(decide_plainly(JobRecovery(Job("id", "name"), "me", "it")), JobRecoveryResult | None)
hooks.on(JobRecovery, decide)
hooks.on(JobRecovery, lambda ctx: JobRecoveryResult.Default if ctx.job.flags.get("slow") else None)
hooks.on(JobInterrupted, lambda ctx: print(ctx.job.id, ctx.reason))
Horsies(config, hooks=hooks).hooks.on(WorkerRecovered, heard)
