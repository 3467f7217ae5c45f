"""`app.schedules`: schedules that are added, paused, triggered and removed at run time (D-36).

A change is written under the lock of its schedule, so that the old version never runs after the call has returned;
every scheduler picks it up at its next check. Schedules of the code can be triggered and listed, but not changed. Each
method is written once, async, and runs on the broker's bridge; its blocking twin has the plain name.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from horsies.core.db import Bridge, Connection, as_result, facts_of, is_about_content, on_bridge
from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import IntervalSchedule, TaskSchedule
from horsies.core.models.schedule import config as models
from horsies.core.producer import enqueue, envelope
from horsies.core.producer.send import TaskHandle
from horsies.core.scheduler import calendar, payloads, plan
from horsies.core.store import schedules as store
from horsies.core.store import sends
from horsies.core.types import Ok, run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

P = ParamSpec("P")
T = TypeVar("T")

UPCOMING = 5


class Refused(Exception):
    """Why it was refused."""

    def __init__(self, code: models.ScheduleErrorCode, message: str, errors: tuple[HorsiesError, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.errors = errors

    @classmethod
    def for_mistakes(cls, errors: Iterable[HorsiesError]) -> Refused:
        found = tuple(errors)
        message = "; ".join(map(payloads.in_one_line, found))
        return cls(models.ScheduleErrorCode.INVALID_SCHEDULE, message, found)


def _failed(problem: Exception, _schedules: Schedules, *args: Any, **_: Any) -> models.ScheduleError:
    given = args[0] if args else None
    name = given.name if isinstance(given, TaskSchedule) else given if isinstance(given, str) else None
    if isinstance(problem, Refused):
        return models.ScheduleError(problem.code, str(problem), name, problem.errors)
    code, facts = models.ScheduleErrorCode.DB_OPERATION_FAILED, facts_of(problem)
    if is_about_content(facts["exception"]):  # a name or arguments that it cannot store
        code = models.ScheduleErrorCode.INVALID_SCHEDULE
    return models.ScheduleError(code, name=name, **facts)


_as_result = as_result(_failed)


class Schedules:
    """The schedules of one app, as stored in its database."""

    def __init__(self, app: payloads.HasTasks, broker: Callable[[], PostgresBroker]) -> None:
        self._app = app
        self._broker = broker

    @property
    def bridge(self) -> Bridge[Any]:
        return self._broker().bridge

    @_as_result
    @on_bridge
    async def put_async(self, schedule: TaskSchedule) -> None:
        """Add a schedule, or replace the one with its name. It starts with its next run; a paused schedule stays
        paused. A mistake in it is INVALID_SCHEDULE."""
        if not isinstance(schedule, TaskSchedule):
            given = type(schedule).__name__
            raise Refused(models.ScheduleErrorCode.INVALID_SCHEDULE, f"put takes a TaskSchedule, not {given}")
        self._refuse_code(schedule.name, "choose another name")
        if errors := tuple(payloads.schedule_problems(self._app, schedule)):
            raise Refused.for_mistakes(errors)
        made = payloads.payload_of(self._app, schedule)
        assert isinstance(made, Ok)
        definition = json.dumps(payloads.stored_form(schedule, made.value))
        async with self._changing(schedule.name) as conn:
            if await store.put(conn, schedule.name, definition):
                await store.restart(conn, schedule.name)
            await store.bump(conn)

    put = run_sync(put_async)

    @_as_result
    @on_bridge
    async def remove_async(self, name: str) -> None:
        """Remove a run-time schedule, even if a schedule of the code hides it. It does not run any more once this has
        returned."""
        async with self._changing(name) as conn:
            if not await store.remove(conn, name):
                self._refuse_code(name, "remove it there")
                _found(name, False)
            await store.bump(conn)

    remove = run_sync(remove_async)

    @_as_result
    @on_bridge
    async def pause_async(self, name: str) -> None:
        """Pause a run-time schedule: it does not run any more once this has returned."""
        await self._set_paused(name, True)

    pause = run_sync(pause_async)

    @_as_result
    @on_bridge
    async def resume_async(self, name: str) -> None:
        """Resume a schedule. Missed runs are treated as always: the last one is sent, or each of them with
        `catch_up_missed`."""
        await self._set_paused(name, False)

    resume = run_sync(resume_async)

    @_as_result
    @on_bridge
    async def change_async(
        self,
        name: str,
        *,
        pattern: Mapping[str, Any] | None = None,
        timezone: str | None = None,
        enabled: bool | None = None,
    ) -> None:
        """Change when a run-time schedule runs, in which time zone, or whether; what is None stays, and so do its
        arguments. A changed pattern starts with its next run. A mistake is INVALID_SCHEDULE."""
        given = {"pattern": pattern, "timezone": timezone, "enabled": enabled}
        fields = {field: value for field, value in given.items() if value is not None}
        self._refuse_code(name, "change it there")
        async with self._changing(name) as conn:
            before, _ = await self._find(conn, name)
            try:
                after = payloads.schedule_of(name, {**before.model_dump(mode="json"), **fields})
            except HorsiesError as problem:
                raise Refused.for_mistakes([problem]) from None
            if errors := tuple(payloads.schedule_problems(self._app, after, is_stored=True)):
                raise Refused.for_mistakes(errors)
            await store.put(conn, name, json.dumps(after.model_dump(mode="json")))
            await store.bump(conn)

    change = run_sync(change_async)

    @_as_result
    @on_bridge
    async def trigger_now_async(self, name: str) -> TaskHandle[Any]:
        """Send the task of a schedule now, in addition to its runs. This also works if it is paused or defined in
        code."""
        async with self._changing(name) as conn:
            schedule, is_stored = await self._find(conn, name)
            made = payloads.payload_of(self._app, schedule, is_stored=is_stored)
            if not isinstance(made, Ok):
                raise Refused(models.ScheduleErrorCode.INVALID_SCHEDULE, f"schedule {name!r}: {made.error}")
            now = (await store.look(conn)).now
            send = sends.Send(enqueue.new_task_id(), envelope.with_sha(replace(made.value, sent_at=now)))
            statement = sends.insert([send], now)
            await conn.execute(statement.text, statement.params)
            await store.triggered(conn, name, send.task_id)
        codec = self._app.tasks[schedule.task_name].codec.result
        return TaskHandle(send.task_id, self._broker(), codec)

    trigger_now = run_sync(trigger_now_async)

    @_as_result
    @on_bridge
    async def list_async(self) -> list[models.ScheduleInfo]:
        """Every schedule, of the code and of the database, by name."""
        of_code = self._of_code()
        async with self._broker().hub.connection() as conn:
            now = (await store.look(conn)).now
            stored = {one.name: one for one in await store.changes(conn, {})}
            names = sorted({*of_code, *stored})
            states = await store.states(conn, names)
        return [_info(name, of_code.get(name), stored.get(name), states.get(name), now) for name in names]

    list = run_sync(list_async)

    async def _set_paused(self, name: str, paused: bool) -> None:
        self._refuse_code(name, "set enabled=False there")
        async with self._changing(name) as conn:
            _found(name, await store.pause(conn, name, paused))
            await store.bump(conn)

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncIterator[Connection]:
        async with self._broker().hub.connection() as conn, conn.transaction():
            await store.lock(conn, name)
            yield conn

    def _of_code(self) -> dict[str, TaskSchedule]:
        config = self._app.config.schedule
        return {} if config is None else {schedule.name: schedule for schedule in config.schedules}

    def _refuse_code(self, name: str, what_to_do: str) -> None:
        if name in self._of_code():
            message = f"the schedule {name!r} is defined in the code of the app: {what_to_do}"
            raise Refused(models.ScheduleErrorCode.SCHEDULE_IN_CODE, message)

    async def _find(self, conn: Connection, name: str) -> tuple[TaskSchedule, bool]:
        if (schedule := self._of_code().get(name)) is not None:
            return schedule, False
        stored = await store.definitions(conn, [name])
        _found(name, bool(stored))
        try:
            return payloads.read(stored[0]), True
        except HorsiesError as problem:
            raise Refused.for_mistakes([problem]) from None


def _info(
    name: str,
    schedule: TaskSchedule | None,
    stored: store.StoredSchedule | None,
    state: store.ScheduleState | None,
    now: datetime,
) -> models.ScheduleInfo:
    """What is known of a schedule. The code hides a stored one of the same name."""
    source, problem, is_paused = models.ScheduleSource.CODE, None, False
    if schedule is None and stored is not None:
        source, is_paused = models.ScheduleSource.DATABASE, stored.paused
        try:
            schedule = payloads.read(stored)
        except HorsiesError as error:
            problem = payloads.in_one_line(error)
    state = state or store.ScheduleState(name, None, None, None, 0, None)
    runs = schedule is not None and schedule.enabled and not is_paused
    return models.ScheduleInfo(
        name=name,
        source=source,
        schedule=schedule,
        is_paused=is_paused,
        problem=problem,
        next_run_at=state.next_run_at,
        last_run_at=state.last_run_at,
        last_task_id=state.last_task_id,
        run_count=state.run_count,
        upcoming=_upcoming(schedule, state, now) if schedule is not None and runs else (),
    )


def _upcoming(schedule: TaskSchedule, state: store.ScheduleState, now: datetime) -> tuple[datetime, ...]:
    """The next runs, of which the first may be overdue. Without a state of this configuration, the scheduler has not
    seen it yet."""
    first = state.next_run_at if state.config_hash == plan.config_hash(schedule) else None
    first = first or calendar.next_occurrence(schedule.pattern, now, schedule.timezone)
    if first is None or first >= store.FAR_OFF:
        return ()
    after = max(first, now) if not isinstance(schedule.pattern, IntervalSchedule) else first
    return (first, *calendar.occurrences(schedule.pattern, after, schedule.timezone, count=UPCOMING - 1))


def _found(name: str, is_there: bool) -> None:
    if not is_there:
        raise Refused(models.ScheduleErrorCode.SCHEDULE_NOT_FOUND, f"there is no run-time schedule {name!r}")
