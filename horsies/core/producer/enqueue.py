"""Writes sends to the queue, each of them once: what is already there is recognised, not written again (T-54, T-57)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg.errors import SerializationFailure

from horsies.core.models.tasks import TaskSendPayload
from horsies.core.store import sends as store
from horsies.core.store.sends import Send, Stored

# A row in the way can be pruned between the insert that met it and the look at it; then the insert is tried again.
TRIES = 3


@dataclass(frozen=True, slots=True)
class Sent:
    """The row of the send: its own, or the one an equal send wrote before."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A different send has the id or the idempotency key."""

    reason: str


Verdict: TypeAlias = Sent | Mismatch


async def enqueue(conn: AsyncConnection[Any], sends: Sequence[Send]) -> list[Verdict]:
    """Insert the sends in one statement; the verdicts come in their order."""
    verdicts: dict[str, Verdict] = {}
    open_sends = list(sends)
    for _ in range(TRIES):
        written = await store.insert(conn, open_sends)
        verdicts |= {task_id: Sent(task_id) for task_id in written}
        open_sends = [send for send in open_sends if send.task_id not in written]
        if not open_sends:
            break
        for stored in await store.find(conn, open_sends):
            send = open_sends[stored.place]
            verdicts[send.task_id] = judge(send.payload, stored)
        open_sends = [send for send in open_sends if send.task_id not in verdicts]
        if not open_sends:
            break
    if open_sends:
        raise SerializationFailure("the row that holds the idempotency key came and went; send again")
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
    """What of the request differs; deadline, delay and time of the call do not count."""
    pairs = {
        "queue": (payload.queue_name, stored.queue_name),
        "priority": (payload.priority, stored.priority),
        "arguments": (
            (_canonical(payload.args_json, "[]"), _canonical(payload.kwargs_json, "{}")),
            (_canonical(stored.args, "[]"), _canonical(stored.kwargs, "{}")),
        ),
        "options": (_canonical(payload.task_options, "{}"), _canonical(stored.task_options, "{}")),
        "flags": (_canonical(payload.flags_json, "{}"), _canonical(stored.flags, "{}")),
    }
    return [name for name, (ours, theirs) in pairs.items() if ours != theirs]


def _canonical(text: str | None, nothing: str) -> str:
    """JSON without its accidents: the order of keys, blanks, and whether nothing was written as nothing."""
    try:
        return json.dumps(json.loads(text or nothing), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text or nothing
