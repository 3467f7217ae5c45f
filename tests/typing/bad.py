"""What a type checker must refuse: each line that ends in `E:` and a code, and no other."""

from __future__ import annotations

from horsies import (
    AppConfig,
    HookRegistry,
    Horsies,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    PostgresConfig,
    TaskError,
    TaskResult,
    WorkerRecovered,
)

app = Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql+psycopg://h/d")))


@app.task("resize")
def resize(name: str, width: int = 640) -> TaskResult[bytes, TaskError]:
    return TaskResult(ok="text")  # E: arg-type


@app.task("other")
def other() -> int:
    return 1


@app.task("misspelt", retries=3)  # E: untyped-decorator
def misspelt() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


resize.send()  # E: call-arg
resize.send(5)  # E: arg-type
resize.send("a", width="b")  # E: arg-type
resize.send("a", height=3)  # E: call-arg
resize.send("a", 1, 2)  # E: call-arg
resize.schedule("soon", "a")  # E: arg-type
resize.schedule(5)  # E: call-arg
resize.with_options().send(5)  # E: arg-type
resize.with_options(deadline=None)  # E: call-arg
resize("a", "b")  # E: arg-type
resize.prepare()  # E: call-arg
resize.prepare(5)  # E: arg-type
resize.with_options().prepare("a", height=3)  # E: call-arg
resize.send_many(["a", "b"])  # E: list-item
resize.send_many(5)  # E: arg-type
resize.send_many([other.prepare()])  # E: list-item
resize.with_options(connection="postgresql://h/d")  # E: arg-type

handle = resize.send("a").unwrap()
number: int = handle.get().unwrap()  # E: assignment
print(handle.get().err_value.reason)  # E: attr-defined
handle.get("soon")  # E: arg-type


async def awaiting() -> None:
    await resize.send_async(5)  # E: arg-type
    await resize.schedule_async(5, 5)  # E: arg-type
    other: int = (await handle.get_async()).ok_value  # E: assignment
    print(other)


PostgresConfig(database_url=5)  # E: arg-type
PostgresConfig(database_url="x", pool_sise=5)  # E: call-arg
print(number)

hooks = HookRegistry()


@hooks.on(JobRecovery)  # E: type-var
async def wrong_context(ctx: JobInterrupted) -> JobRecoveryResult:
    return JobRecoveryResult.Skip


@hooks.on(JobRecovery)  # E: type-var
def wrong_answer(ctx: JobRecovery) -> bool:
    return True


hooks.on(JobRecovery, lambda ctx: ctx.dead_worker_ids)  # E: attr-defined
hooks.on(WorkerRecovered, wrong_context)  # E: arg-type
hooks.on(int, wrong_answer)  # E: arg-type
JobRecoveryResult.Reschedule()  # E: call-arg
JobRecoveryResult.Reschedule(run_at="tomorrow")  # E: arg-type
print(JobRecoveryResult.Retry)  # E: attr-defined
Horsies(app.config, hooks=[])  # E: arg-type
