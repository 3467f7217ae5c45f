"""An app with two tasks of one name."""

import os

from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.task("twice")
def first() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


@app.task("twice")
def second() -> TaskResult[int, TaskError]:
    return TaskResult(ok=2)
