"""A worker is killed in the middle of three tasks, and hooks decide what becomes of each of them.

Run it as `python examples/recovery_hooks.py`. A second worker on the same machine sees within seconds that the first
one is gone. Nobody sends anything again: the three rows are still there.
"""

import asyncio
import os
import sys
import time
from datetime import UTC, datetime, timedelta

from horsies import (
    AppConfig,
    Horsies,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    TaskError,
    TaskHandle,
    TaskInfo,
    TaskResult,
    TaskStatus,
    Worker,
    WorkerRecoveryConfig,
)

app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:.horsies/postgres"),
        worker_recovery=WorkerRecoveryConfig(recovery_delay=timedelta(0)),  # setting anything turns it on
    )
)

Done = TaskResult[str, TaskError]


def work(what: str) -> Done:
    time.sleep(float(os.environ.get("WORK_SECONDS", "0")))
    return TaskResult(ok=what)


@app.task("hooks.resize")
def resize(image: str) -> Done:
    return work(f"{image} is smaller now")


@app.task("hooks.charge_card")
def charge_card(order: int) -> Done:
    return work(f"order {order} is paid")


@app.task("hooks.report", flags={"slow": True})
def report(month: str) -> Done:
    return work(f"the report of {month}")


@app.hooks.on(JobRecovery)
async def policy(ctx: JobRecovery) -> JobRecoveryResult:
    if ctx.job.task_name == "hooks.charge_card":
        return JobRecoveryResult.FailWithBackoff  # by its own retry policy: it has none, so it is never charged twice
    if ctx.job.flags.get("slow"):
        return JobRecoveryResult.Reschedule(run_at=datetime.now(UTC) + timedelta(days=1), attempts=0)
    return JobRecoveryResult.Default  # run it again


@app.hooks.on(JobInterrupted)
def note(ctx: JobInterrupted) -> None:
    print(f"interrupted: {ctx.job.task_name}", file=sys.stderr)


async def until(status: TaskStatus, handle: TaskHandle[str]) -> TaskInfo:
    while (info := await info_of(handle)).status is not status:
        await asyncio.sleep(0.05)
    return info


async def info_of(handle: TaskHandle[str]) -> TaskInfo:
    info = (await handle.info_async(include_attempts=True)).unwrap()
    assert info is not None
    return info


async def main() -> None:
    photo = (await resize.send_async("photo.png")).unwrap()
    payment = (await charge_card.send_async(17)).unwrap()
    monthly = (await report.send_async("October")).unwrap()

    command = [sys.executable, "-m", "horsies", "worker", __file__, "--processes", "3", "--loglevel", "ERROR"]
    doomed = await asyncio.create_subprocess_exec(*command, env={**os.environ, "WORK_SECONDS": "600"})
    for handle in (photo, payment, monthly):
        await until(TaskStatus.RUNNING, handle)
    await asyncio.sleep(1)  # their code has begun: what has not is simply put back, and no hook is asked
    doomed.kill()  # SIGKILL: it can say nothing any more
    await doomed.wait()

    worker = Worker(app)
    serving = asyncio.create_task(worker.run())
    print(f"resize: {(await photo.get_async()).unwrap()}")
    failure = (await payment.get_async()).unwrap_err()
    print(f"charge_card: {failure.error_code}, not tried again")
    waiting = await until(TaskStatus.PENDING, monthly)
    print(f"report: {waiting.status}, due in {round((waiting.enqueued_at - datetime.now(UTC)) / timedelta(hours=1))} h")
    for name, handle in (("resize", photo), ("charge_card", payment), ("report", monthly)):
        attempts = sorted((await info_of(handle)).attempts or [], key=lambda attempt: attempt.attempt)
        outcomes = [str(attempt.outcome) for attempt in attempts]
        print(f"attempts of {name}: {', '.join(outcomes)}")
    (await app.get_broker().cancel_task_async(monthly.task_id)).unwrap()  # nobody waits for it until tomorrow
    worker.request_stop()
    await serving
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
