"""Waits for tasks or workflows to end, for any number of callers, with one LISTEN connection and one statement at a
time; `result_of` turns the end of a wait into the `TaskResult` for the caller (T-61).

A caller's id goes into a registry and is looked up at once. It is looked up again when it may have ended unheard: after
a notification of its end, after a new LISTEN session, after a change of the notify mode. If the mode is not `always`,
or there is no session to listen in (O-01), it is also looked up after a few growing delays. All ids that are due at the
same time are looked up together. NOTIFY only saves time: every second some ids are looked up that nothing was heard of,
those first that were not looked up for longest. Up to a hundred that is all of them; of more, as many as let each have
its turn in time (`share`). If the database does not answer, the waiter waits briefly and then reports that; nothing
raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from psycopg import AsyncConnection

from horsies.core.codec.serde import SerializationError, task_result_from_json
from horsies.core.codec.shapes import ResultCodec
from horsies.core.db import Backoff, Listener, Pool, broker_error, describe, is_transient
from horsies.core.models import broker
from horsies.core.models import tasks as models
from horsies.core.models.base import A_YEAR_MS
from horsies.core.schema.install import read_meta
from horsies.core.store import sends, workflow_reads
from horsies.core.types import Err, Ok, Result, TaskStatus

log = logging.getLogger("horsies.waiter")
POLL_SECONDS = 1.0
ROUND_SECONDS = 30.0  # in this time, every id is looked up that nothing was heard of
POLLING_ROUND_SECONDS = 5.0  # the same where nothing can be heard
FEW = 100  # so many are looked up every second in any case
PAUSES = (0.02, 0.1, 0.4, 1.5)  # between looks; a task may have ended just before our waiting mark was there
POLLING_PAUSES = (0.02, 0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.27, 0.4, 0.6)  # a wait lasts at most half as long again
MODE_SECONDS = 5.0  # how often the recorded notify mode is read again
PATIENCE_SECONDS = 5.0  # how long an unreachable database is not reported
FIRST_LOOK_SECONDS = 0.5  # the time for one look if the caller's own time is over
WORD_SECONDS = 600.0  # how long a waiting mark in horsies_waiting is valid; it causes one notification at most
LONGEST_MS = 100 * A_YEAR_MS
CHUNK = 500
EndedT = TypeVar("EndedT", bound=sends.EndedTask | workflow_reads.WorkflowEnded)


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The timeout passed before the task or the workflow ended."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """This process waits no longer, because it stops (X-21)."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The database could not be queried."""

    problem: BaseException


NoEnding: TypeAlias = TimedOut | Interrupted | Unreachable
Ending: TypeAlias = sends.EndedTask | NoEnding
WorkflowEnding: TypeAlias = workflow_reads.WorkflowEnded | NoEnding


@dataclass(frozen=True, slots=True)
class WaitSubject(Generic[EndedT]):
    """What is waited for: the channel of its end, the query for it, and whether its notification depends on the notify
    mode."""

    channel: str
    look: Callable[[AsyncConnection[Any], list[str]], Awaitable[list[EndedT]]]
    by_mode: bool


TASKS = WaitSubject("task_done", sends.ended, by_mode=True)
WORKFLOWS = WaitSubject("workflow_done", workflow_reads.ended, by_mode=False)


def patience_s(timeout_ms: float | None) -> float | None:
    """The time that a caller is willing to wait, in seconds; no timer takes more than `LONGEST_MS`."""
    return None if timeout_ms is None else max(0.0, min(timeout_ms, LONGEST_MS) / 1000)


class Waiter(Generic[EndedT]):
    """The registry of all waiting callers, and the task that queries."""

    def __init__(
        self, pool: Pool, listener: Listener, subject: WaitSubject[EndedT], *, holder: str, notify: str = "always"
    ) -> None:
        self._pool = pool
        self._listener = listener
        self._subject = subject
        self._holder = holder
        # A program that cannot listen asks for no notifications.
        self._by_mode = subject.by_mode and not listener.is_off
        self._notify = "off" if listener.is_off else notify if subject.by_mode else "always"
        self._pauses = POLLING_PAUSES if listener.is_off else PAUSES
        self._places: dict[str, list[_Place[EndedT]]] = {}
        self._due: dict[str, None] = {}  # a set that keeps its order
        self._word: dict[str, float] = {}  # id -> when its waiting mark must be renewed
        self._unneeded: set[str] = set()  # ids whose waiting mark can be withdrawn
        self._again: list[deque[tuple[float, list[str]]]] = [
            deque() for _ in self._pauses
        ]  # for each pause: when to look at which ids
        self._wake = asyncio.Event()
        self._backoff = Backoff(initial=0.1, maximum=POLL_SECONDS)
        self._failures = 0
        self._outage_since: float | None = None
        self._next_poll = 0.0
        self._next_mode = 0.0
        self._background: list[asyncio.Task[None]] = []
        self._is_interrupted = False

    async def wait(self, id_: str, timeout: float | None) -> EndedT | NoEnding:
        """How it ended, or why that is not known. At least one query is made, however short the timeout."""
        self._begin()
        timeout = 0.0 if self._is_interrupted else timeout
        place: _Place[EndedT] = _Place(asyncio.get_running_loop().create_future())
        self._places.setdefault(id_, []).append(place)
        self._look_at([id_])
        try:
            await asyncio.wait([place.future], timeout=timeout)
            if not place.future.done() and not place.looked:
                place.overdue = True
                await asyncio.wait([place.future], timeout=FIRST_LOOK_SECONDS)
            return place.future.result() if place.future.done() else self._late()
        finally:
            self._leave(id_, place)

    def interrupt(self) -> None:
        """Whoever waits is told that this process waits no longer; later callers get one look each."""
        self._is_interrupted = True
        for id_ in list(self._places):
            self._tell(id_, Interrupted())

    def _late(self) -> TimedOut | Interrupted:
        return Interrupted() if self._is_interrupted else TimedOut()

    async def stop(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._unneeded.update(self._word)
        self._places.clear()
        if self._unneeded:
            with contextlib.suppress(Exception):
                await self._take_back_words()

    def _begin(self) -> None:
        if self._background:
            return
        self._listener.subscribe(self._subject.channel, self._on_done)
        self._listener.on_reconnect(self._listens_anew)
        # The first look does not wait for LISTEN. When the session is there, every id is looked up once more.
        self._background = [asyncio.create_task(self._listen()), asyncio.create_task(self._keep_looking())]

    async def _listen(self) -> None:
        await self._listener.start()
        await self._listener.in_step()  # an older session did not LISTEN for this id at the first look
        self._look_at(self._places)

    def _listens_anew(self) -> None:
        """Notifications were missed. After a crash of the server the rows in the waiting table are gone too, because it
        is unlogged."""
        self._word = dict.fromkeys(self._word, 0.0)
        self._look_at(self._places)

    def _on_done(self, id_: str) -> None:
        if id_ in self._places:
            self._look_at([id_])

    def _look_at(self, ids: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(ids))
        self._wake.set()

    def _leave(self, id_: str, place: _Place[EndedT]) -> None:
        places = self._places.get(id_, [])
        if place in places:
            places.remove(place)
        if not places:
            self._places.pop(id_, None)
            if id_ in self._word:
                self._unneeded.add(id_)
                self._wake.set()

    async def _keep_looking(self) -> None:
        while True:
            await self._until_due()
            ids = self._take_due()
            try:
                await self._look(ids)
                self._failures, self._outage_since = 0, None
            except Exception as problem:
                await self._could_not_look(ids, problem)

    async def _until_due(self) -> None:
        """Sleep until an id is due or, while anybody waits, until the next poll. An idle waiter costs nothing."""
        clock = asyncio.get_running_loop().time
        if not self._due and not self._unneeded:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_look()):
                    await self._wake.wait()
        self._take_ripe(clock())
        if clock() >= self._next_poll:
            self._next_poll = clock() + POLL_SECONDS
            self._due.update(dict.fromkeys(self._take_turns()))

    def _take_turns(self) -> list[str]:
        """The ids to look up though nothing was heard of them; next time they are the last."""
        can_hear = self._notify != "off" and self._listener.connected
        ids = list(islice(self._places, share(len(self._places), can_hear=can_hear)))
        for id_ in ids:
            self._places[id_] = self._places.pop(id_)
        return ids

    def _next_look(self) -> float | None:
        if not self._places:
            return None
        return min([self._next_poll, *(line[0][0] for line in self._again if line)])

    def _take_ripe(self, now: float) -> None:
        """Mark ids whose delay is over as due, and set their next delay."""
        for nth, line in enumerate(self._again):
            while line and line[0][0] <= now:
                ids = [id_ for id_ in line.popleft()[1] if id_ in self._places]
                self._due.update(dict.fromkeys(ids))
                self._plan_look(ids, nth + 1)

    def _plan_look(self, ids: list[str], nth: int) -> None:
        if ids and nth < len(self._pauses):
            self._again[nth].append((asyncio.get_running_loop().time() + self._pauses[nth], ids))

    def _take_due(self) -> list[str]:
        ids = list(islice(self._due, CHUNK))
        for id_ in ids:
            del self._due[id_]
        return [id_ for id_ in ids if id_ in self._places]

    async def _look(self, ids: list[str]) -> None:
        if self._unneeded:
            await self._take_back_words()
        if not ids:
            return
        async with self._pool.connection() as conn:
            now = asyncio.get_running_loop().time()
            if self._by_mode and now >= self._next_mode:
                await self._follow_mode(conn)
                self._next_mode = now + MODE_SECONDS
            if self._notify == "when_waiting" and (wordless := [i for i in ids if self._word.get(i, 0.0) <= now]):
                # Known before it is there, so that it is taken back even if we are stopped meanwhile.
                self._word.update(dict.fromkeys(wordless, 0.0))
                # The mark is committed before the look: a worker that ends the task later sees it and notifies.
                await sends.announce(conn, wordless, self._holder, WORD_SECONDS)
                self._word.update(dict.fromkeys(wordless, now + WORD_SECONDS / 2))
                self._unneeded.update(i for i in wordless if i not in self._places)  # their callers have gone meanwhile
            rows = await self._subject.look(conn, ids)
        for row in rows:
            self._tell(row[0], row)
        if self._notify != "always":
            self._plan_look([i for i in ids if any(not place.looked for place in self._places.get(i, ()))], 0)
        for id_ in ids:
            self._mark_looked(id_)

    async def _follow_mode(self, conn: AsyncConnection[Any]) -> None:
        """Another mode may want waiting marks: without them, the ends of tasks are not heard any more."""
        recorded = await read_meta(conn)
        if recorded is not None and recorded.notify != self._notify:
            self._notify = recorded.notify
            self._look_at(self._places)

    def _mark_looked(self, id_: str) -> None:
        for place in self._places.get(id_, ()):
            place.looked = True
            if place.overdue:
                place.tell(self._late())

    def _tell(self, id_: str, ending: EndedT | NoEnding) -> None:
        for place in self._places.pop(id_, ()):
            place.tell(ending)

    async def _could_not_look(self, ids: list[str], problem: Exception) -> None:
        now = asyncio.get_running_loop().time()
        self._outage_since = self._outage_since or now
        self._failures += 1
        log.debug("the query for results failed: %s", problem)
        if not is_transient(problem):
            self._give_up(ids, problem)
        elif now - self._outage_since >= PATIENCE_SECONDS:
            self._give_up(list(self._places), problem)
        else:
            self._due.update(dict.fromkeys(ids))
        await asyncio.sleep(self._backoff.delay(self._failures))

    def _give_up(self, ids: list[str], problem: Exception) -> None:
        for id_ in ids:
            self._tell(id_, Unreachable(problem))

    async def _take_back_words(self) -> None:
        ids = [id_ for id_ in self._unneeded if id_ not in self._places]
        for id_ in ids:
            self._word.pop(id_, None)  # forgotten first: if the statement fails, the mark expires by itself
        self._unneeded.clear()
        async with self._pool.connection() as conn:
            await sends.withdraw(conn, ids, self._holder)


def share(waiting: int, *, can_hear: bool) -> int:
    """How many of the ids are looked up in one poll."""
    seconds = ROUND_SECONDS if can_hear else POLLING_ROUND_SECONDS
    return max(FEW, math.ceil(waiting * POLL_SECONDS / seconds))


class _Place(Generic[EndedT]):
    """One caller that waits."""

    __slots__ = ("future", "looked", "overdue")

    def __init__(self, future: asyncio.Future[EndedT | NoEnding]) -> None:
        self.future = future
        self.looked = False
        self.overdue = False

    def tell(self, ending: EndedT | NoEnding) -> None:
        if not self.future.done():
            self.future.set_result(ending)


AnyResult: TypeAlias = models.TaskResult[Any, models.TaskError]


def result_of(task_id: str, ending: Ending, codec: ResultCodec | None) -> AnyResult:
    """What the caller gets."""
    if not isinstance(ending, sends.EndedTask):
        return no_ending("task", task_id, ending)
    if ending.status is None:
        hint = "one that was sent in a transaction is there after its commit"
        return failed(models.RetrievalCode.TASK_NOT_FOUND, f"there is no task {task_id}; {hint}")
    read = None if ending.result is None else read_text(ending.result, codec)
    is_known = ending.status in (TaskStatus.CANCELLED, TaskStatus.EXPIRED)  # the status alone is enough
    if read is None or (is_known and isinstance(read, Err)):
        return _without_text(ending)
    return stored_result(f"result of task {task_id}", read)


def no_ending(kind: str, id_: str, ending: NoEnding) -> AnyResult:
    """What the caller of a wait gets that ended before the task or the workflow."""
    match ending:
        case TimedOut():
            return failed(
                models.RetrievalCode.WAIT_TIMEOUT, f"{kind} {id_} did not end in time; it may still be running"
            )
        case Interrupted():
            why = f"this process stops and no longer waits for {kind} {id_}; the {kind} goes on"
            return failed(models.RetrievalCode.WAIT_INTERRUPTED, why)
        case Unreachable(problem):
            why = f"the database could not be queried: {describe(problem)}"
            return failed(models.OperationalErrorCode.BROKER_ERROR, why)


def stored_result(what: str, read: Result[AnyResult, SerializationError]) -> AnyResult:
    """A stored text that cannot be read is an error result too."""
    if isinstance(read, Ok):
        return read.value
    problem = read.err_value
    return failed(problem.code, f"the stored {what} cannot be read: {problem.message}")


def typed_result_of(
    task_id: str, ending: Ending, codec_of: Callable[[str | None], ResultCodec | None]
) -> broker.BrokerResult[AnyResult]:
    """The same for a caller that needs the type (T-64): a failed query, an unknown type or an unreadable text is an
    `Err`."""
    if isinstance(ending, Unreachable):
        return Err(broker_error(broker.BrokerErrorCode.DB_OPERATION_FAILED, ending.problem))
    if not isinstance(ending, sends.EndedTask) or ending.status is None or ending.result is None:
        return Ok(result_of(task_id, ending, None))
    if (codec := codec_of(ending.task_name)) is None:
        why = f"task {ending.task_name!r} is not registered here, so the type of its result is unknown"
        return Err(broker.BrokerOperationError(broker.BrokerErrorCode.NO_TYPE_AVAILABLE, why))
    result = result_of(task_id, ending, codec)
    if result.err is not None and result.err.error_code is models.OperationalErrorCode.RESULT_DESERIALIZATION_ERROR:
        return Err(broker.BrokerOperationError(broker.BrokerErrorCode.INVALID_JSON_PAYLOAD, result.err.message or ""))
    return Ok(result)


def is_final(ending: Ending) -> bool:
    """Whether a later wait would end in the same way."""
    return isinstance(ending, sends.EndedTask) and ending.status is not None


def read_text(text: str, codec: ResultCodec | None) -> Result[AnyResult, SerializationError]:
    """Read a stored result. A valid result whose value has the wrong type is distinguished from an invalid result."""
    read = task_result_from_json(text, codec)
    if isinstance(read, Err) and codec is not None:
        plain = task_result_from_json(text)
        if isinstance(plain, Ok) and plain.value.is_ok():
            return Err(SerializationError(read.error.message, models.ContractCode.PYDANTIC_HYDRATION_ERROR))
    return read


def _without_text(ended: sends.EndedTask) -> AnyResult:
    match ended.status:
        case TaskStatus.CANCELLED:
            return failed(models.OutcomeCode.TASK_CANCELLED, "the task was cancelled")
        case TaskStatus.EXPIRED:
            return failed(models.OutcomeCode.TASK_EXPIRED, "the task expired before it ran")
        case TaskStatus.FAILED:
            why = ended.failed_reason or "the task failed without a result"
            return failed(models.OperationalErrorCode.WORKER_CRASHED, why)
        case _:
            return failed(models.RetrievalCode.RESULT_NOT_AVAILABLE, "the task completed, but no result is stored")


def failed(code: models.BuiltInTaskCode, message: str, data: Any = None) -> AnyResult:
    return models.TaskResult(err=models.TaskError(error_code=code, message=message, data=data))
