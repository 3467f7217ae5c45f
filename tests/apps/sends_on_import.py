"""A module that sends a task at its top level, as nobody should."""

import os

from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.task("hasty")
def hasty() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


print(hasty.send().unwrap_err().code)
