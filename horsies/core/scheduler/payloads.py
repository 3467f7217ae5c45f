"""What a schedule sends, which mistakes it has (S-04), and how payloads are made in the background.

The arguments of a schedule never change, so its payload is made once and only dated when it is sent. Encoding runs code
of the app (its models and their serializers), which may be slow or never end. A `Preparer` therefore does it with a
time limit: a thread in the scheduler's own process, the helper child in a worker. `Preparation` asks it for one
schedule after the other, so that a slow schedule delays only itself. Its slot is not lost, because nothing is written
before there is a payload.

Rows of run-time schedules can be written by hand. A mistake in a row is HRS-205 and concerns only that row.
"""

import asyncio
import contextlib
import difflib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread
from typing import Any, NamedTuple, Protocol

from horsies.core.codec.shapes import CodecError
from horsies.core.db import describe
from horsies.core.errors import (
    ConfigurationError,
    ErrorCode,
    HorsiesError,
    MultipleValidationErrors,
    RegistryError,
)
from horsies.core.models.app import AppConfig
from horsies.core.models.schedule import ScheduleConfig, TaskSchedule
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.producer import envelope
from horsies.core.scheduler import calendar, fire
from horsies.core.store.schedules import StoredSchedule
from horsies.core.tasks.definition import NO_OPTIONS
from horsies.core.types import Err, Ok, Result

log = logging.getLogger("horsies.scheduler")

UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_REST_S = 300.0


class HasTasks(Protocol):
    """What is needed from an app."""

    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def config(self) -> AppConfig: ...
    def task_queue_problem(self, queue_name: str | None, /) -> str | None: ...


def payload_of(app: HasTasks, schedule: TaskSchedule, *, is_stored: bool = False) -> Result[TaskSendPayload, str]:
    """The payload, or why there is none. The arguments of a stored schedule are already JSON."""
    task = app.tasks.get(schedule.task_name)
    if task is None:
        return Err(f"there is no task {schedule.task_name!r}")
    if schedule.queue_name is not None and (problem := app.task_queue_problem(schedule.queue_name)):
        return Err(problem)
    args, kwargs = schedule.args, schedule.kwargs
    try:
        if is_stored:
            args, kwargs = task.codec.arguments.decode(_text(args), _text(kwargs))
        elif envelope.has_deadline(task, kwargs):
            return Err("good_until is not an argument of the task, and one moment cannot be the deadline of every run")
    except (CodecError, HorsiesError, ValueError) as problem:
        return Err(f"its arguments do not fit the task {task.task_name!r}: {problem}")
    made = envelope.build(task, args, kwargs, NO_OPTIONS, UNDATED)
    if not isinstance(made, Ok):
        return Err(made.error.message)
    if schedule.queue_name is None:
        return made
    priority = app.config.priority_of(schedule.queue_name)
    return Ok(replace(made.value, queue_name=schedule.queue_name, priority=priority))


def _text(value: Any) -> str | None:
    """The stored form: NULL if there are none."""
    return json.dumps(list(value) if isinstance(value, tuple) else value) if value else None


def stored_form(schedule: TaskSchedule, payload: TaskSendPayload) -> dict[str, Any]:
    """A schedule as it is stored in the database: the fields of S-03, with its arguments as in the payload."""
    plain = schedule.model_copy(update={"args": (), "kwargs": {}}).model_dump(mode="json")
    return {
        **plain,
        "args": json.loads(payload.args_json or "[]"),
        "kwargs": json.loads(payload.kwargs_json or "{}"),
    }


def read(stored: StoredSchedule) -> TaskSchedule:
    """The schedule that a row describes; raises the mistakes in it."""
    if stored.problem is not None:
        raise unusable(stored.problem)
    return schedule_of(stored.name, stored.definition)


def schedule_of(name: str, definition: object) -> TaskSchedule:
    """The same for its definition. The name is that of the row, whatever the definition says."""
    if not isinstance(definition, dict):
        raise unusable("its definition is not an object")
    try:
        return TaskSchedule(**{**definition, "name": name})
    except HorsiesError:
        raise
    except Exception as problem:
        raise unusable(f"its definition cannot be used: {describe(problem)}") from None


def unusable(why: str) -> ConfigurationError:
    """HRS-205."""
    return ConfigurationError(why, code=ErrorCode.CONFIG_INVALID_SCHEDULE)


def in_one_line(problem: HorsiesError) -> str:
    """The mistake on one line, for a log."""
    errors = problem.errors if isinstance(problem, MultipleValidationErrors) else [problem]
    return "; ".join(describe(error) for error in errors)


def schedule_problems(app: HasTasks, schedule: TaskSchedule, *, is_stored: bool = False) -> Iterator[HorsiesError]:
    """The mistakes of a schedule; none if it is valid. The arguments of a stored schedule are already JSON."""
    if "\0" in schedule.name or schedule.name.encode("utf-8", "replace").decode() != schedule.name:
        yield _problem(schedule, "its name contains a NUL or a lone surrogate, which PostgreSQL cannot store")
    if calendar.next_occurrence(schedule.pattern, datetime.now(UTC), schedule.timezone) is None:
        yield _problem(schedule, "its pattern has no run within the next eight years")
    if schedule.task_name not in app.tasks:
        yield _no_such_task(app, schedule)
    elif isinstance(made := payload_of(app, schedule, is_stored=is_stored), Err):
        yield _problem(schedule, made.error)


def _no_such_task(app: HasTasks, schedule: TaskSchedule) -> HorsiesError:
    near = difflib.get_close_matches(schedule.task_name, list(app.tasks), n=3)
    return RegistryError(
        f"schedule {schedule.name!r}: there is no task {schedule.task_name!r}",
        code=ErrorCode.TASK_NOT_REGISTERED,
        location=schedule.location,
        help_text=f"did you mean {', '.join(near)}?" if near else None,
    )


def _problem(schedule: TaskSchedule, why: str) -> HorsiesError:
    return ConfigurationError(
        f"schedule {schedule.name!r}: {why}", code=ErrorCode.CONFIG_INVALID_SCHEDULE, location=schedule.location
    )


def require_schedule(config: AppConfig) -> ScheduleConfig:
    """The settings of the scheduler; HRS-205 if there are none, or if they are disabled (S-40)."""
    schedule = config.schedule
    if schedule is not None and schedule.enabled:
        return schedule
    why = "has no AppConfig.schedule" if schedule is None else "has AppConfig.schedule with enabled=False"
    raise ConfigurationError(
        f"the app {why}: there is nothing for a scheduler to do",
        code=ErrorCode.CONFIG_INVALID_SCHEDULE,
        help_text="AppConfig(..., schedule=ScheduleConfig(schedules=[...])); without schedules it serves those that "
        "are put in place at run time",
    )


class PreparationLimits(NamedTuple):
    """How long the arguments of one schedule may take, in seconds."""

    first: float = 2.0
    again: float = 10.0


USUAL = PreparationLimits()


class Wanted(NamedTuple):
    """A schedule whose payload is needed: one of the code, or one as it is stored."""

    name: str
    definition: dict[str, Any] | None


class Preparer(Protocol):
    """Makes a payload, or says why it could not."""

    async def prepare(self, wanted: Wanted, limit_s: float, /) -> Result[TaskSendPayload, str]: ...


class Preparation:
    """Makes payloads in the background, one after the other. A schedule stays in `pending` until it has its payload.
    After a failure it is tried again after 1, 2, 4 … s, for longer, and only one such schedule at a time is between
    the others."""

    def __init__(
        self, preparer: Preparer, is_wanted: Callable[[fire.Entry], bool], limits: PreparationLimits = USUAL
    ) -> None:
        self.pending: dict[fire.Entry, asyncio.Task[None]] = {}
        self._preparer = preparer
        self._is_wanted = is_wanted
        self._limits = limits
        self._turn = asyncio.Lock()
        self._turn_of_failed = asyncio.Lock()
        self._news = asyncio.Event()

    def ask(self, entry: fire.Entry) -> None:
        """Make its payload."""
        self.pending[entry] = asyncio.create_task(self._make(entry), name="payload of a schedule")

    @property
    def is_quick(self) -> bool:
        """Whether there is a new payload, or probably will be in a moment, because a schedule that has not failed is
        waiting for it."""
        return self._news.is_set() or any(not entry.failures for entry in self.pending)

    def forget_news(self) -> None:
        """Whoever calls this is about to use the payloads that there are."""
        self._news.clear()

    async def wait(self, seconds: float) -> None:
        """Wait for this long, or until there is a new payload or failure."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def close(self) -> None:
        """Drop everything."""
        for work in self.pending.values():
            work.cancel()

    async def _make(self, entry: fire.Entry) -> None:
        async with self._turn:
            await self._try(entry, self._limits.first)
        while entry.payload is None and self._is_wanted(entry):
            await asyncio.sleep(min(2.0 ** min(entry.failures - 1, 10), LONGEST_REST_S))
            async with self._turn_of_failed, self._turn:
                await self._try(entry, self._limits.again)
        del self.pending[entry]
        self._news.set()

    async def _try(self, entry: fire.Entry, limit_s: float) -> None:
        if not self._is_wanted(entry):
            return
        try:
            made = await self._preparer.prepare(Wanted(entry.name, entry.definition), limit_s)
        except Exception as problem:
            log.exception("the arguments of schedules cannot be encoded")
            made = Err(type(problem).__name__)
        if isinstance(made, Ok):
            entry.payload = made.value
            entry.failures = 0
        else:
            fire.complain(entry, made.error)
            self._news.set()


class LocalPreparer:
    """Encodes in this process, which has imported the app's modules, in a thread that the end of the process does not
    wait for. A hanging thread cannot be ended, so the same work is not started a second time while it runs."""

    def __init__(self, app: HasTasks) -> None:
        self._app = app
        self._hanging: dict[str, Future[Result[TaskSendPayload, str]]] = {}

    async def prepare(self, wanted: Wanted, limit_s: float) -> Result[TaskSendPayload, str]:
        self._hanging = {what: answer for what, answer in self._hanging.items() if not answer.done()}
        if repr(wanted) in self._hanging:
            return Err("its arguments are still being encoded")
        answer: Future[Result[TaskSendPayload, str]] = Future()
        answer.set_running_or_notify_cancel()  # whoever gives up does not cancel it
        work = lambda: answer.set_result(prepared(self._app, wanted))  # noqa: E731
        Thread(target=work, name="horsies payloads", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), limit_s)
        except TimeoutError:
            self._hanging[repr(wanted)] = answer
            return Err(f"its arguments took longer than {limit_s:g} s to encode")


def prepared(app: HasTasks, wanted: Wanted) -> Result[TaskSendPayload, str]:
    """The payload of this schedule."""
    try:
        if wanted.definition is not None:
            return payload_of(app, schedule_of(wanted.name, wanted.definition), is_stored=True)
        of_code = app.config.schedule.schedules if app.config.schedule is not None else []
        found = next((schedule for schedule in of_code if schedule.name == wanted.name), None)
        return Err("the app has no such schedule") if found is None else payload_of(app, found)
    except BaseException as problem:  # raised by a model or serializer of the app; also SystemExit
        return Err(f"{type(problem).__name__}: {problem}")
