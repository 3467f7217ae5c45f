"""The tasks of `separate.py`."""

import os
from pathlib import Path

import psutil

from horsies import Horsies, TaskError, TaskResult

app = Horsies.current()
assert app is not None, "a child makes its app current before it imports modules (W-40)"

with (Path(os.environ["TRACES"]) / "imports").open("a") as file:
    file.write(f"{os.getpid()}\n")


@app.task("sockets")
def sockets() -> TaskResult[int, TaskError]:
    """How many sockets this child has open."""
    return TaskResult(ok=len(psutil.Process().net_connections(kind="all")))
