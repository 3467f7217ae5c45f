"""The statements of clients: they write new tasks, find existing ones, send an ended one again, and ask what has come
of them.

Inserts are made here and run elsewhere, because they may go over our own connection or over one of the caller's:
blocking or not, psycopg's or SQLAlchemy's. Several rows are sent as one JSON text, which every kind of connection can
carry.
Thousands of new tasks go over a connection of ours by COPY.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, overload

from pydantic_core import to_json

from horsies.core.db import Connection
from horsies.core.models import sending, tasks
from horsies.core.sql import load, stored
from horsies.core.types import TaskStatus

MAX_CHARS = 4 << 20  # of arguments in one text
_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


class Send(NamedTuple):
    """A payload, the id of its row, and its trace, which is not part of the request."""

    task_id: str
    payload: tasks.TaskSendPayload
    trace: str | None = None


class Drafts(Sequence[Send]):
    """Sends with new ids, as drafts; each becomes a `Send` whenever it is looked at."""

    def __init__(self, ids: list[str], drafts: list[sending.Draft], trace: str | None = None) -> None:
        self.ids = ids
        self.drafts = drafts
        self.trace = trace

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_keys(self) -> bool:
        """Whether one of them has an idempotency key."""
        return any(fields["idempotency_key"] is not None for fields, *_ in self.drafts)

    def part(self, start: int, end: int) -> Drafts:
        """Some of them."""
        return Drafts(self.ids[start:end], self.drafts[start:end], self.trace)

    def traced(self, trace: str | None) -> Drafts:
        """The same with this trace."""
        return self if trace is None else Drafts(self.ids, self.drafts, trace)

    @overload
    def __getitem__(self, place: int) -> Send: ...
    @overload
    def __getitem__(self, place: slice) -> list[Send]: ...
    def __getitem__(self, place: int | slice) -> Send | list[Send]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        return Send(self.ids[place], sending.payload_of(*self.drafts[place]), self.trace)


class ConflictingRow(NamedTuple):
    """The row that conflicts with the send at `place`: it has the same id, and perhaps the same payload, or the same
    idempotency key, and perhaps another request."""

    place: int
    same_id: bool
    task_id: str
    same_payload: bool
    differing: str | None  # parts of the request, with commas; deadline, delay and time of the call do not count


class Statement(NamedTuple):
    """A text and its parameters; without parameters it is a command that returns no rows."""

    text: str
    params: dict[str, Any] | None = None


Rows: TypeAlias = Sequence[Any]


def insert(sends: Iterable[Send], now: datetime, *, as_list: bool = False) -> Statement:
    """Write the tasks; the returned rows have the ids that were written. The other sends conflict with existing rows.
    `now` is the time by the caller's clock, from which the age of each call follows. The parameter of a list is one
    text, whatever the driver thinks of types."""
    rows = [_row(send, now) for send in sends]
    if len(rows) == 1 and not as_list:
        return Statement(load("tasks/insert_one"), rows[0])
    return Statement(load("tasks/insert"), {"rows": to_json(rows).decode()})


async def copy(conn: Connection, batch: Drafts, due: str) -> None:
    """Write the tasks; an id that is there already is an error. `due` is a text of `due_at`."""
    async with conn.cursor().copy(load("tasks/copy")) as copying:
        for text in _lines(batch, due):
            await copying.write(text)


async def due_at(conn: Connection, age_s: float) -> str:
    """When tasks are due that were sent so long ago, by the clock of the database."""
    found = await (await conn.execute(load("tasks/due_at"), {"age": age_s})).fetchone()
    assert found is not None
    due: str = found[0]
    return due


def _lines(batch: Drafts, due: str) -> Iterator[bytes]:
    """The rows in the format of COPY, in texts of limited size."""
    lines: list[str] = []
    size, last, end = 0, None, ""
    for task_id, (fields, args, kwargs, sha) in zip(batch.ids, batch.drafts, strict=True):
        if fields is not last:
            last, end = fields, _shared_columns(fields, due, batch.trace)
        args, kwargs = _word(args), _word(kwargs)
        lines.append(f"{task_id}\t{args}\t{kwargs}\t{sha}\t{end}")
        size += len(args) + len(kwargs)
        if size >= MAX_CHARS:
            yield "".join(lines).encode()
            lines, size = [], 0
    yield "".join(lines).encode()


def _shared_columns(fields: Mapping[str, Any], due: str, trace: str | None) -> str:
    options, until = fields["task_options"], fields["good_until"]
    words = (
        fields["task_name"],
        fields["queue_name"],
        str(fields["priority"]),
        fields["sent_at"].isoformat(),
        due,
        until and until.isoformat(),
        str(tasks.TaskOptions.from_json(options).max_retries),
        sending.with_trace(options, trace),
        fields["flags_json"] or "{}",
    )
    return "\t".join(map(_word, words)) + "\n"


def _word(text: str | None) -> str:
    """A column in the format of COPY."""
    if text is None:
        return "\\N"
    return text.translate(_ESCAPED) if _SPECIAL.search(text) else text


def find(sends: Iterable[Send]) -> Statement:
    """The rows (`ConflictingRow`) that have the id or the idempotency key of these sends."""
    wanted = [_request(place, task_id, payload) for place, (task_id, payload, _) in enumerate(sends)]
    return Statement(load("tasks/find_sent"), {"rows": to_json(wanted).decode()})


def _request(place: int, task_id: str, payload: tasks.TaskSendPayload) -> dict[str, Any]:
    return {
        "place": place,
        "id": task_id,
        "task_name": payload.task_name,
        "idempotency_key": payload.idempotency_key,
        "sent_sha": payload.enqueue_sha,
        "sent_queue": payload.queue_name,
        "sent_priority": payload.priority,
        "sent_args": payload.args_json,
        "sent_kwargs": payload.kwargs_json,
        "sent_options": payload.task_options,
        "sent_flags": payload.flags_json,
        "reuse": payload.reuse_after_failure,
    }


def _row(send: Send, now: datetime) -> dict[str, Any]:
    payload = send.payload
    return {
        "id": send.task_id,
        "task_name": payload.task_name,
        "queue_name": payload.queue_name,
        "priority": payload.priority,
        "args": payload.args_json,
        "kwargs": payload.kwargs_json,
        "sent_at": payload.sent_at.isoformat(),
        "wait": _wait(payload, now),
        "good_until": payload.good_until and payload.good_until.isoformat(),
        "max_retries": tasks.TaskOptions.from_json(payload.task_options).max_retries,
        "task_options": sending.with_trace(payload.task_options, send.trace),
        "enqueue_sha": payload.enqueue_sha,
        "flags": payload.flags_json,
        "idempotency_key": payload.idempotency_key,
        "workflow_id": None,
    }


def _wait(payload: tasks.TaskSendPayload, now: datetime) -> float:
    """Seconds until it is due: its delay minus the age of the call."""
    return float(payload.enqueue_delay_seconds or 0) - max(0.0, (now - payload.sent_at).total_seconds())


# What has come of them


class EndedTask(NamedTuple):
    """A task that ended; a missing task has no status."""

    task_id: str
    task_name: str | None
    status: TaskStatus | None
    result: str | None
    failed_reason: str | None


async def ended(conn: Connection, ids: list[str]) -> list[EndedTask]:
    """Those of the tasks that ended or do not exist."""
    cursor = await conn.execute(load("tasks/results"), {"ids": ids}, prepare=True)
    return [
        EndedTask(task_id, name, stored(TaskStatus, status) if status else None, result, reason)
        for task_id, name, status, result, reason in await cursor.fetchall()
    ]


async def announce(conn: Connection, ids: list[str], holder: str, seconds: float) -> None:
    await conn.execute(load("waiting/announce"), {"ids": ids, "holder": holder, "seconds": seconds})


async def withdraw(conn: Connection, ids: list[str], holder: str) -> None:
    await conn.execute(load("waiting/withdraw"), {"ids": ids, "holder": holder})
