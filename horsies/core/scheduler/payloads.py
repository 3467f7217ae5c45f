"""What a schedule sends. Its arguments never change, so its payload is made once and only dated when it is sent.

Encoding runs code of the app (its models and their serializers), so it goes through a `Preparer`: a thread in the
scheduler's own process, the helper child in a worker. Both have a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread
from typing import Any, NamedTuple, Protocol

from horsies.core.codec.serde import CodecError
from horsies.core.errors import HorsiesError
from horsies.core.models.app import AppConfig
from horsies.core.models.schedule import TaskSchedule
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.producer import envelope
from horsies.core.producer.options import NO_OPTIONS
from horsies.core.scheduler.stored import schedule_of
from horsies.core.types.result import Err, Ok, Result

UNDATED = datetime(1970, 1, 1, tzinfo=UTC)


class HasTasks(Protocol):
    """What is needed from an app."""

    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def config(self) -> AppConfig: ...
    def task_queue_problem(self, queue_name: str | None, /) -> str | None: ...


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
            except BaseException as problem:  # SystemExit too: user code does not end a thread of ours
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


def stored_form(schedule: TaskSchedule, payload: TaskSendPayload) -> dict[str, Any]:
    """A schedule as it is stored in the database: the fields of S-03, with its arguments as in the payload."""
    plain = schedule.model_copy(update={"args": (), "kwargs": {}}).model_dump(mode="json")
    return {
        **plain,
        "args": json.loads(payload.args_json or "[]"),
        "kwargs": json.loads(payload.kwargs_json or "{}"),
    }


def _prepared(app: HasTasks, wanted: Wanted, of_code: TaskSchedule | None) -> Result[TaskSendPayload, str]:
    try:
        if wanted.definition is not None:
            return payload_of(app, schedule_of(wanted.name, wanted.definition), is_stored=True)
        return payload_of(app, of_code) if of_code is not None else Err("the app has no such schedule")
    except Exception as problem:  # of a model or a serializer of the app: the other schedules go on
        return Err(f"{type(problem).__name__}: {problem}")


def _elsewhere(app: HasTasks, payload: TaskSendPayload, queue_name: str | None) -> TaskSendPayload:
    if queue_name is None:
        return payload
    return replace(payload, queue_name=queue_name, priority=app.config.priority_of(queue_name))


def _text(value: Any) -> str | None:
    """The stored form: NULL if there are none."""
    return json.dumps(list(value) if isinstance(value, tuple) else value) if value else None
