"""The moments of a task's life at which a crash test lets something die (X-14), and what a worker that is to die has to
know. Plain values: `doomed.py` reaches the moments, `crash.py` runs the tests.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum

VARIABLE = "HORSIES_TESTING_DOOM"


class Moment(StrEnum):
    """When something dies, and what. They are in the order in which a task reaches them."""

    CLAIMED = "claimed"  # the worker, when it has claimed the task and not started it
    STARTED = "started"  # the worker, when the task is RUNNING and its code has not begun
    WORKER_KILLED = "worker killed"  # the worker, when the function of the task is about to run its first line
    CHILD_KILLED = "child killed"  # only the child process, when the function has run its last line
    RETURNED = "returned"  # the worker, when the function has returned and nobody knows its result
    FINALIZING = "finalizing"  # the worker, when it has the result and has not written it
    DATABASE_GONE = "database gone"  # every connection of the worker for a second, when it is about to write the result

    @property
    def is_end_of_worker(self) -> bool:
        """Whether another worker must recover the task."""
        return self not in (Moment.CHILD_KILLED, Moment.DATABASE_GONE)

    @property
    def is_in_child(self) -> bool:
        """Whether the process that runs the function has to notice it."""
        return self in (Moment.WORKER_KILLED, Moment.CHILD_KILLED, Moment.RETURNED)


@dataclass(frozen=True, slots=True)
class Doom:
    """What is to happen, once: for a task of this name, or for any. The file `mark` appears when it happens."""

    moment: Moment
    task_name: str | None
    mark: str
    supervisor: int = 0  # the pid of the worker

    def strikes(self, task_name: str) -> bool:
        """Whether this is the task. It happens once, whoever comes first."""
        if self.task_name not in (None, task_name):
            return False
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Doom:
        fields = json.loads(text)
        return cls(**{**fields, "moment": Moment(fields["moment"])})
