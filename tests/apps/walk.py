"""Tasks for measuring the walk of one task: `walked` returns the modules of ours that its process has entered."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import horsies
from horsies import AppConfig, Horsies, PostgresConfig, TaskError, TaskResult

PACKAGE = str(Path(horsies.__file__).parent) + os.sep

# What runs by the clock or once in a while is no part of the walk: heartbeats, recovery, snapshots, the row that says
# that the worker waits, and the opening of connections. Neither is what they call.
BESIDE = {
    f"{PACKAGE}core/{name}.py"
    for name in ("worker/liveness", "worker/background", "worker/metrics", "worker/idle", "store/workers", "db/connect")
}

app = Horsies(AppConfig(broker=PostgresConfig(database_url=os.environ["DATABASE_URL"])))
entered: set[str] = set()
is_on = False


def note(frame: FrameType, event: str, _argument: Any) -> None:
    """A profile hook: remember the file whose function is entered."""
    if not is_on:
        sys.setprofile(None)  # of a thread that outlives the measurement
    elif event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and not _is_beside(frame):
        entered.add(frame.f_code.co_filename.removeprefix(PACKAGE))


def _is_beside(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename in BESIDE:
            return True
        frame = frame.f_back
    return False


def switch(on: bool) -> None:
    """Give the hook to this thread and to all that start from now on; from Python 3.12 on also to those that run."""
    global is_on
    is_on = on
    hook = note if on else None
    threading.setprofile(hook)
    if sys.version_info >= (3, 12):
        threading.setprofile_all_threads(hook)
    sys.setprofile(hook)


@app.task("watch")
def watch() -> TaskResult[None, TaskError]:
    """The main thread of a child, which runs its tasks, has the hook from now on."""
    switch(True)
    return TaskResult(ok=None)


@app.task("double")
def double(value: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=2 * value)


@app.task("walked")
def walked() -> TaskResult[list[str], TaskError]:
    return TaskResult(ok=sorted(entered))
