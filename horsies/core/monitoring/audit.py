"""The record of what people do (M-49b): `audited` does something on behalf of a person and writes down who did what,
and what came of it; `list_audit` reads that.

The entry is written before the action, so that nothing is done that could not be written down. A process that dies in
between leaves an entry that has only begun; an action that nobody waits for any more is completed as failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from horsies.core.db import Connection, as_result, describe
from horsies.core.models.monitoring import history, tasks
from horsies.core.monitoring import filters
from horsies.core.monitoring.queries import ask, no_answer
from horsies.core.store import audit
from horsies.core.types import Err, Ok

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

log = logging.getLogger("horsies.monitoring")

LOOK = 10_000  # entries that one query looks at
MOST_IDS = audit.MOST_IDS
PAUSING = timedelta(minutes=2)  # an action is written down before it is done, and stopped after this time
COMPLETE_S = 5.0  # who waits for an action waits no longer for its entry, which is written nevertheless
INTERRUPTED = "it was interrupted, and a part of it may be done"
DB_CODE = tasks.MonitoringErrorCode.DB_OPERATION_FAILED.value
T = TypeVar("T")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Deed:
    """What a person does: the action in a word or two (`task.cancel`), and on what."""

    actor: str
    action: str
    target_kind: str
    target_ids: Sequence[str] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


async def audited(
    broker: PostgresBroker,
    deed: Deed,
    act: Callable[[], Awaitable[Ok[T] | Err[E]]],
    *,
    ids_of: Callable[[T], Sequence[str]] | None = None,
    details_of: Callable[[T], Mapping[str, Any]] | None = None,
) -> Ok[T] | Err[E] | Err[tasks.MonitoringQueryError]:
    """Do it, and write down what came of it: `done`, `refused` if the answer is an `Err`, or `failed` if that is about
    the database, or if it raises or is cancelled. If it cannot be written down, it is not done. `ids_of` and
    `details_of` say what is known only afterwards."""
    begun = await record_audit(broker, deed)
    if isinstance(begun, Err):
        return begun
    try:
        result = await act()
    except (Exception, asyncio.CancelledError) as problem:
        words = INTERRUPTED if isinstance(problem, asyncio.CancelledError) else _words(broker, problem)
        await _complete(broker, begun.ok_value, history.AuditOutcome.FAILED, {"message": words})
        raise
    if isinstance(result, Ok):
        value = result.ok_value
        ids = None if ids_of is None else ids_of(value)
        details = {} if details_of is None else details_of(value)
        await _complete(broker, begun.ok_value, history.AuditOutcome.DONE, details, ids)
    else:
        error = result.err_value
        outcome = history.AuditOutcome.FAILED if _code(error) == DB_CODE else history.AuditOutcome.REFUSED
        told = {"code": _code(error), "message": str(getattr(error, "message", error))}
        await _complete(broker, begun.ok_value, outcome, told)
    return result


def _not_written(problem: Exception, broker: PostgresBroker, *_: Any, **__: Any) -> tasks.MonitoringQueryError:
    error = no_answer(problem, broker)
    return replace(error, message=f"the action was not written down, and not made: {error.message}")


@as_result(_not_written)
async def record_audit(
    broker: PostgresBroker, deed: Deed, outcome: history.AuditOutcome = history.AuditOutcome.BEGUN
) -> int:
    """Write an entry, also of what was refused before it began; return its number."""

    async def write() -> int:
        async with broker.hub.connection() as conn:
            return await audit.record_audit(
                conn,
                actor=deed.actor,
                action=deed.action,
                target_kind=deed.target_kind,
                target_ids=deed.target_ids,
                outcome=outcome,
                details=deed.details,
            )

    return await broker.bridge.call(write)


def who_paused(entries: Iterable[history.AuditEntry], paused_at: datetime | None) -> str | None:
    """Who paused a workflow at that time, according to the entries about it. Whoever tried in vain did not."""
    for entry in entries:
        is_pause = entry.action == "workflow.pause" and entry.outcome == history.AuditOutcome.DONE
        if is_pause and paused_at is not None and timedelta(0) <= paused_at - entry.at <= PAUSING:
            return entry.actor
    return None


async def list_audit(
    broker: PostgresBroker,
    *,
    target_id: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    limit: int = filters.DEFAULT_LIMIT,
    after: str | None = None,
) -> tasks.MonitoringResult[history.AuditPage]:
    """What people did, the newest first: to one task, worker, workflow or schedule, by one person, or of one kind.
    `after` is the `next_cursor` of the page before."""

    async def find(conn: Connection) -> history.AuditPage:
        texts = {"target_id": target_id, "actor": actor, "action": action}
        wanted = {name: None if text is None else filters.checked_text(name, text) for name, text in texts.items()}
        most = filters.checked_limit(limit)
        found = await audit.list_entries(conn, **wanted, after=_place(after), limit=most + 1, look=LOOK)
        items = [entry for entry, is_match in found if is_match][:most]
        if len(found) > most:
            return history.AuditPage(tuple(items), str(found[most - 1][0].audit_id))
        if found and not found[-1][1]:  # the last one that was looked at
            return history.AuditPage(tuple(items), str(found[-1][0].audit_id), is_partial=True)
        return history.AuditPage(tuple(items))

    return await ask(broker, find)


def _place(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not isinstance(cursor, str) or not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise filters.BadQuestion(f"after must be the next_cursor of a page, not {cursor!r}")
    return int(cursor)


async def _complete(
    broker: PostgresBroker,
    audit_id: int,
    outcome: history.AuditOutcome,
    details: Mapping[str, Any],
    ids: Sequence[str] | None = None,
) -> None:
    """What was done stays done, also if this cannot be written: then the entry has only begun. It is written also if
    the caller is cancelled meanwhile."""

    async def write() -> None:
        async with broker.hub.connection() as conn:
            await audit.complete(conn, audit_id, outcome, target_ids=ids, details=details)

    async def completed() -> None:
        try:
            await broker.bridge.call(write)
        except Exception as problem:
            words = _words(broker, problem)
            log.warning("what came of an action (entry %d, %s) was not written down: %s", audit_id, outcome, words)

    await asyncio.wait([asyncio.create_task(completed())], timeout=COMPLETE_S)


def _code(error: Any) -> str:
    code = getattr(error, "code", "")
    return str(getattr(code, "value", code))


def _words(broker: PostgresBroker, problem: BaseException) -> str:
    return broker.config.redact(describe(problem))
