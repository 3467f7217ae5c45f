"""An app for crash tests: its tasks leave a line in a file, and are not retried after a crash unless they say so."""

from __future__ import annotations

import os
from pathlib import Path

from horsies import AppConfig, Horsies, RetryPolicy, TaskError, TaskResult, WorkflowSpec

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")))


def effects(name: str) -> int:
    """How often the effect of this name has happened."""
    path = Path(os.environ["TRACES"]) / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def act(name: str) -> None:
    with (Path(os.environ["TRACES"]) / name).open("a") as file:
        file.write("done\n")


@app.task("fragile.once")
def once(name: str) -> int:
    act(name)
    return os.getpid()


@app.task("fragile.again", retry_policy=RetryPolicy.fixed([3600], auto_retry_for=["WORKER_CRASHED"]))
async def again(name: str) -> TaskResult[int, TaskError]:
    act(name)
    return TaskResult(ok=os.getpid())


@app.task("fragile.after")
def after(before: TaskResult[int, TaskError], name: str) -> TaskResult[int, TaskError]:
    act(f"after {name}")
    return before


def line(name: str) -> WorkflowSpec[int]:
    """Two nodes, of which the first is retried."""
    first = again.node()(name=name)
    second = after.node(waits_for=[first], args_from={"before": first})(name=name)
    return app.workflow("line", [first, second], output=second, definition_key="fragile.line")
