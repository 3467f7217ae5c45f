"""What a running task knows about itself (P-01, P-02): `TaskContext`, which a function gets as its parameter `ctx`, and
`current_task()`, which finds it from anywhere inside. Also the facts about a run that travel to a child, and the filter
that puts them on every log record.

The context of a run is a context variable: each task has its own, also when many async tasks share a loop, and threads
that copy their context (`asyncio.to_thread`) have it too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from datetime import UTC, datetime
from struct import Struct
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from horsies.core.codec.context import RunContext
from horsies.core.models.notes import Progress

if TYPE_CHECKING:
    from horsies.core.tasks.definition import TaskDefinition

_FACT_NAMES = ("task_id", "task", "attempt")
_NOWHERE = logging.getLogger("horsies.task")


class TaskFence(NamedTuple):
    """Which claim of a task this run belongs to (P-02): whoever runs it later has a higher `claim_seq`."""

    task_id: str
    claim_seq: int


class InWorkflow(NamedTuple):
    """The workflow that a task belongs to."""

    workflow_id: str
    node_id: str | None


class RunFacts(NamedTuple):
    """What the worker knows about one run. It is sent to the child as one text (`packed`)."""

    task_id: str
    claim_seq: int
    attempt: int  # 1-based
    queue: str
    enqueued_at: float | None  # seconds since 1970
    timeout_ms: int | None
    workflow_id: str | None
    node_id: str | None

    @classmethod
    def unpack(cls, text: bytes) -> RunFacts:
        seq, attempt, due, limit, id_size, queue_size, flow_size = _NUMBERS.unpack_from(text)
        words = text[_NUMBERS.size :].decode()
        queue_at = id_size
        flow_at = queue_at + queue_size
        node_at = flow_at + flow_size
        return cls(
            words[:queue_at],
            seq,
            attempt,
            words[queue_at:flow_at],
            due or None,
            limit or None,
            words[flow_at:node_at] or None,
            words[node_at:] or None,
        )


_NUMBERS = Struct("<qqdqHHH")  # claim_seq, attempt, enqueued_at, timeout_ms, and the lengths of the first three texts


def packed(
    task_id: str,
    seq: int,
    attempt: int,
    queue: str,
    due: float | None = None,
    limit: int | None = None,
    flow: str | None = None,
    node: str | None = None,
) -> bytes:
    """The fields of `RunFacts` as bytes: the numbers, and then the texts. This is done for every task of a worker."""
    flow_size = len(flow) if flow else 0
    numbers = _NUMBERS.pack(seq, attempt, due or 0.0, limit or 0, len(task_id), len(queue), flow_size)
    words = f"{task_id}{queue}{flow}{node or ''}" if flow else task_id + queue
    return numbers + words.encode("utf-8", "replace")


class StopTask(BaseException):
    """Raised into the code of a task that must stop, because its time is over or it was cancelled."""


class Station(Protocol):
    """The child that runs tasks, as their contexts see it."""

    def is_stopping(self, token: int) -> bool: ...
    def progress(self, token: int, progress: Progress) -> None: ...


class Outcome(NamedTuple):
    """How a function ended: what it returned, or what it raised."""

    value: Any
    error: BaseException | None = None


class Run:
    """One run of a task in this process. Most tasks never ask for it, so its facts are read when somebody does. Of a
    task with hooks, `outcome` is the end of its function: a stop that comes later only stops hooks (X-05)."""

    __slots__ = ("_context", "_facts", "began_at", "outcome", "station", "task", "token")

    def __init__(
        self, task: TaskDefinition[Any, Any], facts: bytes | RunFacts, station: Station | None = None, token: int = 0
    ) -> None:
        self.task = task
        self._facts = facts
        self._context: TaskContext | AsyncTaskContext | None = None
        self.began_at = time()
        self.outcome: Outcome | None = None
        self.station = station
        self.token = token

    @property
    def facts(self) -> RunFacts:
        if isinstance(self._facts, bytes):
            self._facts = RunFacts.unpack(self._facts)
        return self._facts

    @property
    def context(self) -> TaskContext | AsyncTaskContext:
        if self._context is None:
            self._context = AsyncTaskContext(self) if self.task.is_async else TaskContext(self)
        return self._context


_RUN: Final[ContextVar[Run | None]] = ContextVar("horsies_run", default=None)


class AnyTaskContext(RunContext):
    """What both kinds of contexts have."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def task_id(self) -> str:
        return self._run.facts.task_id

    @property
    def task_name(self) -> str:
        return self._run.task.task_name

    @property
    def queue(self) -> str:
        return self._run.facts.queue

    @property
    def attempt(self) -> int:
        """1 for the first one."""
        return self._run.facts.attempt

    @property
    def enqueued_at(self) -> datetime | None:
        """When the task became due; None in a direct call."""
        seconds = self._run.facts.enqueued_at
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    @property
    def deadline(self) -> datetime | None:
        """When `timeout_ms` ends this attempt; None without one."""
        limit = self._run.facts.timeout_ms
        return None if limit is None else datetime.fromtimestamp(self._run.began_at + limit / 1000, UTC)

    @property
    def is_stopping(self) -> bool:
        """Whether this task was told to stop (its time is over, it was cancelled), or its worker is shutting down."""
        run = self._run
        return run.station is not None and run.station.is_stopping(run.token)

    @property
    def workflow(self) -> InWorkflow | None:
        facts = self._run.facts
        return None if facts.workflow_id is None else InWorkflow(facts.workflow_id, facts.node_id)

    @property
    def fence(self) -> TaskFence:
        return TaskFence(self._run.facts.task_id, self._run.facts.claim_seq)

    @property
    def logger(self) -> logging.Logger:
        """A logger with the name of the task. Its records have task id, name and attempt, as all of the child have."""
        return _NOWHERE.getChild(self._run.task.task_name)

    def _note_progress(self, done: float, total: float | None, message: str | None) -> None:
        run, progress = self._run, Progress.of(done, total, message)
        if run.station is not None:
            run.station.progress(run.token, progress)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.task_name} {self.task_id}, attempt {self.attempt}>"


class TaskContext(AnyTaskContext):
    """The context of a `def` task."""

    __slots__ = ()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the task has come. It costs little, so say it as often as you like: the newest is written about
        once a second (P-50)."""
        self._note_progress(done, total, message)


class AsyncTaskContext(AnyTaskContext):
    """The context of an `async def` task: the same names, awaited."""

    __slots__ = ()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Say how far the task has come. It costs little, so say it as often as you like: the newest is written about
        once a second (P-50)."""
        self._note_progress(done, total, message)
        return _SAID


class _Said:
    """It is done already, also if nobody awaits it."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_SAID: Final = _Said()


def begin(run: Run) -> None:
    """What follows in this context belongs to this run."""
    _RUN.set(run)


def current_run() -> Run | None:
    return _RUN.get()


def current_task() -> TaskContext | AsyncTaskContext | None:
    """The context of the task that is running here; None outside of tasks."""
    run = _RUN.get()
    return None if run is None else run.context


def direct(task: TaskDefinition[Any, Any]) -> Run:
    """The run of a direct call (T-23): nothing is recorded, and nobody stops it."""
    return Run(task, RunFacts("", 0, 1, task.queue_name, None, task.options.timeout_ms, None, None))


def log_facts() -> dict[str, Any]:
    """Task id, name and attempt of the task that is running here; empty outside of tasks."""
    run = _RUN.get()
    if run is None:
        return {}
    return {"task_id": run.facts.task_id, "task": run.task.task_name, "attempt": run.facts.attempt}


def mark_log_records() -> None:
    """From now on every log record of this process has `task_id`, `task` and `attempt` (None outside of tasks), unless
    its `extra` has them, for handlers and formats of the user; our own formats show them as facts (P-51). Not by a
    record factory: what it sets, `extra` may not set again."""
    make = logging.Logger.makeRecord

    def make_marked(self: logging.Logger, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(self, *args, **kwargs)
        facts = log_facts()
        for name in _FACT_NAMES:
            record.__dict__.setdefault(name, facts.get(name))
        if facts:
            given = record.__dict__.get("horsies")
            record.horsies = {**facts, **given} if isinstance(given, dict) else facts
        return record

    logging.Logger.makeRecord = make_marked  # type: ignore[method-assign]
