"""Writes sends to the queue, each of them once: a send that is already there is recognised and not written again (T-54,
T-57).

The statements are a series that any connection can run (`steps.py`). Many tasks are written in chunks, so that each
statement stays small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from psycopg.errors import SerializationFailure

from horsies.core.models.tasks import TaskSendPayload
from horsies.core.models.trace import without_trace
from horsies.core.producer.steps import Steps
from horsies.core.store import sends as store
from horsies.core.store.sends import Send, Stored

# A row in the way can be pruned between the insert that met it and the look at it; then the insert is tried again.
TRIES = 3
MAX_ROWS = 500  # in one statement
MAX_CHARS = 4 << 20


@dataclass(frozen=True, slots=True)
class Sent:
    """The row of the send: its own, or one that an equal send wrote before."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A different send has the id or the idempotency key."""

    reason: str


Verdict: TypeAlias = Sent | Mismatch


class MismatchError(Exception):
    """One of many sends is a mismatch, so none of them is written."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def enqueue(sends: Sequence[Send]) -> Steps[list[Verdict]]:
    """Insert the sends in one statement; the verdicts are in the same order."""
    return (yield from _enqueue(sends, datetime.now(UTC)))


def enqueue_all(sends: Sequence[Send]) -> Steps[list[str]]:
    """Insert all sends, or raise `MismatchError`; return the ids of their rows in the same order. The caller provides
    the transaction that makes all of them visible at once or not at all."""
    now = datetime.now(UTC)  # once: the time that passes from chunk to chunk must not count as the age of the call
    ids = [send.task_id for send in sends]
    for places in chunks(sends):
        verdicts = yield from _enqueue([sends[place] for place in places], now)
        for place, verdict in zip(places, verdicts, strict=True):
            if isinstance(verdict, Mismatch):
                raise MismatchError(place, verdict.reason)
            ids[place] = verdict.task_id
    return ids


def chunks(sends: Sequence[Send]) -> Iterator[list[int]]:
    """The positions of the sends, in parts that fit into a statement. Sends with a key are ordered by the key over all
    parts, so that two callers with the same keys wait for each other instead of deadlocking."""
    order: Sequence[int] = range(len(sends))
    if any(send.payload.idempotency_key is not None for send in sends):
        order = sorted(order, key=lambda place: _key(sends[place].payload))
    chunk: list[int] = []
    size = 0
    for place in order:
        chunk.append(place)
        size += length(sends[place])
        if len(chunk) == MAX_ROWS or size >= MAX_CHARS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def length(send: Send) -> int:
    """The length of the arguments as text."""
    return len(send.payload.args_json or "") + len(send.payload.kwargs_json or "")


def _key(payload: TaskSendPayload) -> tuple[bool, str]:
    return payload.idempotency_key is None, payload.idempotency_key or ""


def _enqueue(sends: Sequence[Send], now: datetime) -> Steps[list[Verdict]]:
    verdicts: dict[str, Verdict] = {}
    open_sends = sends
    for _ in range(TRIES):
        rows = yield store.insert(open_sends, now)
        verdicts |= {row[0]: Sent(row[0]) for row in rows}
        open_sends = [send for send in open_sends if send.task_id not in verdicts]
        if not open_sends:
            break
        for row in (yield store.find(open_sends)):
            stored = Stored(*row)
            send = open_sends[stored.place]
            verdicts[send.task_id] = judge(send.payload, stored)
        open_sends = [send for send in open_sends if send.task_id not in verdicts]
        if not open_sends:
            break
    if open_sends:
        raise SerializationFailure(
            "the row with the idempotency key appeared and disappeared during the send; send again"
        )
    return [verdicts[send.task_id] for send in sends]


def judge(payload: TaskSendPayload, stored: Stored) -> Verdict:
    """Whether the stored row is this send."""
    if stored.same_id:
        if stored.enqueue_sha == payload.enqueue_sha:
            return Sent(stored.task_id)
        return Mismatch(f"task {stored.task_id} exists with another payload")
    if differing := differences(payload, stored):
        return Mismatch(
            f"idempotency key {payload.idempotency_key!r} of task {payload.task_name!r} belongs to task "
            f"{stored.task_id}, sent with other {', '.join(differing)}"
        )
    return Sent(stored.task_id)


def differences(payload: TaskSendPayload, stored: Stored) -> list[str]:
    """The parts of the request that differ; deadline, delay and time of the call do not count."""
    pairs = {
        "queue": (payload.queue_name, stored.queue_name),
        "priority": (payload.priority, stored.priority),
        "arguments": (
            (_canonical(payload.args_json, "[]"), _canonical(payload.kwargs_json, "{}")),
            (_canonical(stored.args, "[]"), _canonical(stored.kwargs, "{}")),
        ),
        "options": (_canonical(payload.task_options, "{}"), _canonical(without_trace(stored.task_options), "{}")),
        "flags": (_canonical(payload.flags_json, "{}"), _canonical(stored.flags, "{}")),
    }
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


def _canonical(text: str | None, nothing: str) -> str:
    """JSON in a canonical form: the order of keys, blanks, and empty values do not matter."""
    try:
        return json.dumps(json.loads(text or nothing), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text or nothing
