"""Tests of your own code: `app.testing` runs what is sent, looks at it, lets time pass and crashes workers. The
fixtures for pytest are in the module `pytest_horsies`, which pytest finds by itself.
"""

from horsies.testing.crash import (
    Crash,
    CrashOutcome,
    CrashReport,
    InvariantBroken,
    MomentNotReached,
    NotSettled,
    TaskUnknown,
)
from horsies.testing.drain import DrainedTask, DrainIncomplete
from horsies.testing.kit import AppTesting
from horsies.testing.moments import Moment
from horsies.testing.sent import SentTask, SentTasks
from horsies.testing.worker_process import SpawnedWorker, WorkerFailed

__all__ = [
    "AppTesting",
    "Crash",
    "CrashOutcome",
    "CrashReport",
    "DrainIncomplete",
    "DrainedTask",
    "InvariantBroken",
    "Moment",
    "MomentNotReached",
    "NotSettled",
    "SentTask",
    "SentTasks",
    "WorkerFailed",
    "SpawnedWorker",
    "TaskUnknown",
]
