"""The app of these measurements. Its settings come from the environment, as JSON: each worker may have others."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from benchmarks.scale.sizes import SHORT_S, VARIABLE, bulk
from horsies import AppConfig, Horsies, PostgresConfig, QueueMode, TaskError, TaskResult

settings: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
queues = [queue["name"] for queue in settings.get("custom_queues", [])]
if queues:
    settings["queue_mode"] = QueueMode.CUSTOM
notify = settings.pop("notify", "always")
broker = PostgresConfig(database_url=os.environ.get("DATABASE_URL", "embedded:./.horsies/bench"), notify=notify)
app = Horsies(AppConfig(broker=broker, **settings))
# Tasks that were put in as rows are of any queue; what is sent goes to the last one that was named.
QUEUE = queues[-1] if queues else None


@app.task("noop", queue_name=QUEUE)
def noop(n: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


@app.task("clock", queue_name=QUEUE)
def clock(n: int) -> TaskResult[int, TaskError]:
    """When its first line ran, in nanoseconds of the system's clock."""
    return TaskResult(ok=time.time_ns())


@app.task("short", queue_name=QUEUE)
def short(n: int) -> TaskResult[None, TaskError]:
    time.sleep(SHORT_S)
    return TaskResult(ok=None)


@app.task("large", queue_name=QUEUE)
def large(text: str) -> TaskResult[None, TaskError]:
    """Is given a large argument."""
    return TaskResult(ok=None)


@app.task("bulky", queue_name=QUEUE)
def bulky(n: int) -> TaskResult[str, TaskError]:
    """Has a large result."""
    return TaskResult(ok=bulk())
