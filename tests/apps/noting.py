"""Tasks that say how far they have come, and that log, for the tests with real workers."""

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path

from horsies import AppConfig, AsyncTaskContext, Horsies, RetryPolicy, TaskContext, TaskLogs, current_task

_LOGS = os.environ.get("TASK_LOGS")
app = Horsies(
    AppConfig.for_database_url(
        os.environ["DATABASE_URL"], task_logs=None if _LOGS is None else TaskLogs(**json.loads(_LOGS))
    )
)
log = logging.getLogger("shop.orders")


def wait_for(name: str) -> None:
    """Until the test makes this file."""
    while not Path(os.environ["SIGNALS"], name).exists():
        time.sleep(0.01)


@app.task("count")
def count(ctx: TaskContext, total: int, until: str) -> int:
    ctx.progress(0, total, "begins")
    for number in range(1, total):
        ctx.progress(number, total, f"at {number}")
    wait_for(until)
    ctx.progress(total, total, "all done")
    return total


@app.task("count_async")
async def count_async(ctx: AsyncTaskContext, total: int, until: str) -> int:
    await ctx.progress(1, total)
    ctx.progress(2, total)  # nobody has to await it
    await asyncio.to_thread(wait_for, until)
    return total


@app.task("again", retry_policy=RetryPolicy.fixed([1, 1], auto_retry_for=["UNHANDLED_EXCEPTION"], jitter=False))
def again(ctx: TaskContext) -> int:
    if ctx.attempt == 1:
        ctx.progress(50, 100, "first")
        log.info("the first attempt")
        raise RuntimeError("not yet")
    wait_for("look")
    ctx.progress(1, 10, "second")
    wait_for("go")
    return 1


@app.task("silent")
def silent(until: str) -> None:
    wait_for(until)


@app.task("talk")
def talk(lines: int, until: str = "") -> int:
    log.debug("too low")
    for number in range(1, lines + 1):
        log.info("line %d", number)
    if until:
        wait_for(until)
        log.warning("after the wait")
    return lines


@app.task("shout")
async def shout(text: str) -> None:
    print("printed", end=" ")
    print(text)
    print("no end of line", end="")
    sys.stdout.flush()
    current = current_task()
    assert current is not None
    current.logger.warning("odd: %s", "\0\ud800\x1b[31m")
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("it went wrong")
    log.info("%d is not a number", "x")  # logging complains, the task goes on


@app.task("die")
def die() -> None:
    log.info("the last words")
    wait_for("die")
    os._exit(9)
