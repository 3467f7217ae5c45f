"""An app with the settings that every app has."""

import os

from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.task("add")
def add(a: int, b: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=a + b)
