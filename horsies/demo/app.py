"""The app of `horsies demo`: an ordinary app, as a user would write it. Its worker is an ordinary `horsies worker`.
Each run has its own queue, so that it meets neither the tasks of others nor those of an earlier run. Three environment
variables name the queue and the database.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from horsies import (
    AppConfig,
    CustomQueueConfig,
    Horsies,
    PostgresConfig,
    QueueMode,
    RecoveryConfig,
    RetryPolicy,
    TaskError,
    TaskResult,
    from_node,
)

QUEUE_VARIABLE = "HORSIES_DEMO_QUEUE"
DATABASE_VARIABLE = "HORSIES_DEMO_DATABASE_URL"
NOTIFY_VARIABLE = "HORSIES_DEMO_NOTIFY"
QUEUE = os.environ.get(QUEUE_VARIABLE, "demo")
NUMBERS = 300
LONG = 600.0  # seconds; no task that sleeps this long is waited for

_broker: dict[str, Any] = {
    "database_url": os.environ.get(DATABASE_VARIABLE, "embedded:.horsies/postgres"),
    "notify": os.environ.get(NOTIFY_VARIABLE, "always"),
}

app = Horsies(
    AppConfig(
        broker=PostgresConfig(**_broker),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[CustomQueueConfig(name=QUEUE)],
        recovery=RecoveryConfig(check_interval_ms=1_000),  # how often the deadlines of waiting tasks are checked
    )
)


@app.task("demo.add", queue_name=QUEUE)
def add(a: int, b: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=a + b)


@app.task("demo.echo", queue_name=QUEUE)
def echo(number: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=number)


@app.task("demo.withdraw", queue_name=QUEUE)
def withdraw(balance: int, amount: int) -> TaskResult[int, TaskError]:
    if amount > balance:
        error = TaskError(error_code="INSUFFICIENT_FUNDS", message="not enough money", data={"short": amount - balance})
        return TaskResult(err=error)
    return TaskResult(ok=balance - amount)


@app.task(
    "demo.flaky",
    queue_name=QUEUE,
    retry_policy=RetryPolicy.fixed([1], auto_retry_for=["NOT_YET"], jitter=False),
)
def flaky(note: str) -> TaskResult[str, TaskError]:
    """Fail at the first attempt."""
    if _is_first_time(note):
        return TaskResult(err=TaskError(error_code="NOT_YET", message="come back later"))
    return TaskResult(ok="at the second attempt")


@app.task("demo.too_late", queue_name=QUEUE)
def too_late() -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("demo.unwanted", queue_name=QUEUE)
def unwanted() -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("demo.stopped", queue_name=QUEUE)
def stopped(note: str) -> TaskResult[None, TaskError]:
    """Leave a second note when stopped, to show that the code really ended."""
    Path(note).touch()
    try:
        time.sleep(LONG)
    finally:
        Path(f"{note}.ended").touch()
    return TaskResult(ok=None)


@app.task("demo.endless", queue_name=QUEUE, timeout_ms=1_000)
def endless() -> TaskResult[None, TaskError]:
    time.sleep(LONG)
    return TaskResult(ok=None)


@app.task("demo.victim", queue_name=QUEUE)
def victim(note: str) -> TaskResult[str, TaskError]:
    """Sleep until the process is killed."""
    return _sleep_the_first_time(note)


@app.task(
    "demo.survivor",
    queue_name=QUEUE,
    retry_policy=RetryPolicy.fixed([1], auto_retry_for=["WORKER_CRASHED"], jitter=False),
)
def survivor(note: str) -> TaskResult[str, TaskError]:
    """The same, with a retry policy that runs it again."""
    return _sleep_the_first_time(note)


@app.task("demo.fetch", queue_name=QUEUE)
async def fetch(number: int) -> TaskResult[int, TaskError]:
    await asyncio.sleep(0.1)  # as if it waited for the answer of a server
    return TaskResult(ok=number)


@app.task("demo.numbers", queue_name=QUEUE)
def numbers(count: int) -> TaskResult[list[int], TaskError]:
    return TaskResult(ok=list(range(count)))


@app.task("demo.square", queue_name=QUEUE)
def square(number: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=number * number)


@app.task("demo.sum", queue_name=QUEUE)
def total(squares: TaskResult[list[TaskResult[int, TaskError]], TaskError]) -> TaskResult[int, TaskError]:
    return TaskResult(ok=sum(square.unwrap() for square in squares.unwrap()))


listed = numbers.node(node_id="numbers")(count=NUMBERS)
squared = square.map_node(node_id="squares", over=from_node(listed))()
summed = total.node(node_id="sum")(squares=from_node(squared))
sum_of_squares = app.workflow("sum of squares", [listed, squared, summed], output=summed, definition_key="demo.squares")


def _is_first_time(note: str) -> bool:
    try:
        Path(note).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _sleep_the_first_time(note: str) -> TaskResult[str, TaskError]:
    if _is_first_time(note):
        time.sleep(LONG)
    return TaskResult(ok="at the second attempt")
