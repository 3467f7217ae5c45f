"""The tasks of `scheduled_apart.py`."""

import os
import time
from pathlib import Path

from pydantic import BaseModel

from horsies import Horsies, TaskError, TaskResult

app = Horsies.current()
assert app is not None

with (Path(os.environ["TRACES"]) / "imports").open("a") as file:
    file.write(f"{os.getpid()}\n")


class Notice(BaseModel):
    title: str


@app.task("announce")
def announce(what: Notice) -> TaskResult[str, TaskError]:
    return TaskResult(ok=what.title)


@app.task("wait_for")
def wait_for(path: str) -> TaskResult[bool, TaskError]:
    while not Path(path).exists():
        time.sleep(0.01)
    return TaskResult(ok=True)
