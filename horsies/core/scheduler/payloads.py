"""What a schedule sends, which mistakes it has (S-04), and how payloads are made in the background.

The arguments of a schedule never change, so its payload is made once and only dated when it is sent. Encoding runs code
of the app (its models and their serializers), which may be slow or never end. A `Preparer` therefore does it with a
time limit: a thread in the scheduler's own process, the helper child in a worker. `Preparation` keeps schedules until
their payload is ready, so that a slow schedule delays only itself. Its slot is not lost, because nothing is written
before there is a payload.
"""

import asyncio
import contextlib
import difflib
import heapq
import itertools
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple, Protocol

from horsies.core.codec.shapes import CodecError
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, RegistryError
from horsies.core.models.app import AppConfig
from horsies.core.models.schedule import ScheduleConfig, TaskSchedule
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.producer import envelope
from horsies.core.scheduler import calendar, fire, sync
from horsies.core.scheduler.timetable import Entry
from horsies.core.tasks.definition import NO_OPTIONS
from horsies.core.types import Err, Ok, Result

log = logging.getLogger("horsies.scheduler")

UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
BATCH = 100
LONGEST_REST_S = 300.0
LOOK_AGAIN_S = 0.05


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
    return Ok(_elsewhere(app, made.value, schedule.queue_name))


def _elsewhere(app: HasTasks, payload: TaskSendPayload, queue_name: str | None) -> TaskSendPayload:
    if queue_name is None:
        return payload
    return replace(payload, queue_name=queue_name, priority=app.config.priority_of(queue_name))


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

    among_others: float = 2.0
    alone: float = 10.0


USUAL = PreparationLimits()


class Wanted(NamedTuple):
    """A schedule whose payload is needed: one of the code, or one as it is stored."""

    name: str
    definition: dict[str, Any] | None


class Preparer(Protocol):
    """Makes payloads. A mistake in one schedule is the answer for that schedule; `PreparerFailed` means that there is
    no answer."""

    async def prepare(self, wanted: Sequence[Wanted], limit_s: float, /) -> list[Result[TaskSendPayload, str]]: ...


class PreparerFailed(Exception):
    """Encoding took too long, or its process died. `is_about_one`: one of the requested schedules caused it; that is
    the `culprit`, if it is known."""

    def __init__(self, why: str, culprit: int | None = None, *, is_about_one: bool = True) -> None:
        super().__init__(why)
        self.culprit = culprit
        self.is_about_one = is_about_one


class Preparation:
    """Schedules that are requested here are kept until `take` returns them with a payload."""

    def __init__(self, preparer: Preparer, is_wanted: Callable[[Entry], bool], limits: PreparationLimits) -> None:
        self._preparer = preparer
        self._limits = limits
        self._is_wanted = is_wanted
        self._waiting: deque[Entry] = deque()
        self._alone: deque[Entry] = deque()  # these are slow, or have failed before
        self._resting: list[tuple[float, int, Entry]] = []
        self._numbers = itertools.count()
        self._ready: list[Entry] = []
        self._is_quick = True  # the payloads that are being made usually take only a moment
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    @property
    def pause_s(self) -> float:
        """The number of seconds after which there may be something to take."""
        if self._ready or self._is_busy:
            return LOOK_AGAIN_S
        return self._resting[0][0] - monotonic() if self._resting else inf

    @property
    def _is_busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def ask(self, entries: Iterable[Entry]) -> None:
        """Make the payloads of these schedules; a schedule that has failed before is handled alone."""
        for entry in entries:
            (self._alone if entry.failures else self._waiting).append(entry)
        if (self._waiting or self._alone) and not self._is_busy:
            self._is_quick = bool(self._waiting)
            self._work = asyncio.create_task(self._make_all(), name="payloads of schedules")

    def take(self) -> list[Entry]:
        """The schedules that have a payload now. Those whose delay is over are requested again."""
        rested: list[Entry] = []
        while self._resting and self._resting[0][0] <= monotonic():
            rested.append(heapq.heappop(self._resting)[2])
        if rested:
            self.ask(rested)
        ready, self._ready = self._ready, []
        return [entry for entry in ready if self._is_wanted(entry)]

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something to take, for at most this time; False if there is nothing. Schedules that are
        known to be slow are not waited for."""
        if not self._ready and self._is_busy and self._is_quick:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        return bool(self._ready)

    def close(self) -> None:
        """Drop everything."""
        if self._work is not None:
            self._work.cancel()

    async def _make_all(self) -> None:
        try:
            while self._waiting or self._alone:
                is_alone = not self._waiting
                self._is_quick = not is_alone
                if is_alone:
                    self._news.set()
                count = min(BATCH, len(self._waiting))
                batch = [self._alone.popleft()] if is_alone else [self._waiting.popleft() for _ in range(count)]
                wanted = [entry for entry in batch if self._is_wanted(entry)]
                if wanted:
                    await self._make(wanted, is_alone)
        finally:
            self._news.set()

    async def _make(self, entries: list[Entry], is_alone: bool) -> None:
        wanted = [Wanted(entry.name, entry.definition) for entry in entries]
        limit_s = self._limits.alone if is_alone else self._limits.among_others
        try:
            answers = await self._preparer.prepare(wanted, limit_s)
        except PreparerFailed as problem:
            if problem.is_about_one and not is_alone:
                self._set_apart(entries, problem.culprit)
                return
            answers = [Err(str(problem)) for _ in entries]
        except Exception as problem:
            log.exception("the arguments of schedules cannot be encoded")
            answers = [Err(type(problem).__name__) for _ in entries]
        for entry, answer in zip(entries, answers, strict=True):
            if isinstance(answer, Ok):
                entry.payload = answer.value
                entry.failures = 0
                self._ready.append(entry)
            else:
                self._rest(entry, answer.error)
        if self._ready:
            self._news.set()

    def _set_apart(self, entries: list[Entry], culprit: int | None) -> None:
        if culprit is None:
            self._alone.extend(entries)
        else:
            self._alone.append(entries.pop(culprit))
            self._waiting.extendleft(reversed(entries))

    def _rest(self, entry: Entry, why: str) -> None:
        fire.complain(entry, why)
        seconds = min(2.0 ** min(entry.failures - 1, 10), LONGEST_REST_S)
        heapq.heappush(self._resting, (monotonic() + seconds, next(self._numbers), entry))


class LocalPreparer:
    """Encodes in this process, which has imported the app's modules, in a thread that the end of the process does not
    wait for. A hanging thread cannot be ended, so the same work is not started a second time while it runs."""

    def __init__(self, app: HasTasks) -> None:
        self._app = app
        self._hanging: dict[str, Thread] = {}

    async def prepare(self, wanted: Sequence[Wanted], limit_s: float) -> list[Result[TaskSendPayload, str]]:
        self._hanging = {what: thread for what, thread in self._hanging.items() if thread.is_alive()}
        for place, one in enumerate(wanted):
            if repr(one) in self._hanging:
                raise PreparerFailed("its arguments are still being encoded", place)
        loop = asyncio.get_running_loop()
        is_done = loop.create_future()
        made: list[Result[TaskSendPayload, str]] = []

        def work() -> None:
            try:
                for answer in each_prepared(self._app, wanted):
                    made.append(answer)
            except BaseException as problem:  # this includes SystemExit: user code does not end our thread
                made.append(Err(f"{type(problem).__name__}: {problem}"))
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, is_done)

        thread = Thread(target=work, name="horsies payloads", daemon=True)
        thread.start()
        try:
            await asyncio.wait_for(is_done, limit_s)
        except TimeoutError:
            place = min(len(made), len(wanted) - 1)
            self._hanging[repr(wanted[place])] = thread
            raise PreparerFailed(f"its arguments took longer than {limit_s:g} s to encode", place) from None
        return [*made, *(Err("the encoding process ended at another schedule") for _ in wanted[len(made) :])]


def _settle(is_done: asyncio.Future[None]) -> None:
    if not is_done.done():  # whoever waited may have given up
        is_done.set_result(None)


def each_prepared(app: HasTasks, wanted: Sequence[Wanted]) -> Iterator[Result[TaskSendPayload, str]]:
    """The payloads, one after the other, in order."""
    config = app.config.schedule
    of_code = {schedule.name: schedule for schedule in config.schedules} if config is not None else {}
    for one in wanted:
        yield _prepared(app, one, of_code.get(one.name))


def _prepared(app: HasTasks, wanted: Wanted, of_code: TaskSchedule | None) -> Result[TaskSendPayload, str]:
    try:
        if wanted.definition is not None:
            return payload_of(app, sync.schedule_of(wanted.name, wanted.definition), is_stored=True)
        return payload_of(app, of_code) if of_code is not None else Err("the app has no such schedule")
    except Exception as problem:  # raised by a model or serializer of the app; the other schedules go on
        return Err(f"{type(problem).__name__}: {problem}")
