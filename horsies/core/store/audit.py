"""One typed function per statement about the record of what people did (D-59a). What is written is cut and cleaned
here, because ids and details come from requests.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row
from pydantic_core import to_jsonable_python

from horsies.core.codec.serde import sanitize_text
from horsies.core.db import Connection
from horsies.core.models.monitoring.history import AuditEntry, AuditOutcome
from horsies.core.sql import load
from horsies.core.text import json_text

MOST_IDS = 1_000
LONGEST_ID = 255
LONGEST_DETAILS = 16_384  # characters of JSON
DEEPEST_DETAILS = 8


async def record_audit(
    conn: Connection,
    *,
    actor: str,
    action: str,
    target_kind: str,
    target_ids: Sequence[str] = (),
    outcome: AuditOutcome = AuditOutcome.BEGUN,
    details: Mapping[str, Any] | None = None,
) -> int:
    """Write an entry; return its number, by which `complete` completes it."""
    params = {
        "actor": _cut(actor, 255),
        "action": _cut(action, 64),
        "target_kind": _cut(target_kind, 32),
        "target_ids": _ids(target_ids),
        "outcome": outcome.value,
        "details": _json(details or {}),
    }
    [(audit_id,)] = await (await conn.execute(load("audit/begin"), params, prepare=False)).fetchall()
    return int(audit_id)


async def complete(
    conn: Connection,
    audit_id: int,
    outcome: AuditOutcome,
    *,
    target_ids: Sequence[str] | None = None,
    details: Mapping[str, Any] | None = None,
) -> bool:
    """Write what came of it, with the ids that are known now; False if that was written before, or the entry is
    gone."""
    params = {
        "audit_id": audit_id,
        "outcome": outcome.value,
        "target_ids": None if target_ids is None else _ids(target_ids),
        "details": _json(details or {}),
    }
    return bool(await (await conn.execute(load("audit/complete"), params, prepare=False)).fetchall())


async def list_entries(
    conn: Connection,
    *,
    target_id: str | None,
    actor: str | None,
    action: str | None,
    after: int | None,
    limit: int,
    look: int,
) -> list[tuple[AuditEntry, bool]]:
    """Entries, the newest first, and whether each is one that is wanted; the last one that was looked at is among
    them."""
    wanted = {"target_id": target_id, "actor": actor, "action": action, "after": after, "limit": limit, "look": look}
    if target_id is None:
        statement = load("audit/list")
    else:
        statement = load("audit/list", "about")
        await conn.execute("SET LOCAL enable_bitmapscan = on")  # there is no other way to read that index
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, wanted, prepare=False)
        return [(_entry(row), row["is_match"]) for row in await cursor.fetchall()]


def _entry(row: dict[str, Any]) -> AuditEntry:
    details = row["details"]
    return AuditEntry(
        audit_id=row["id"],
        at=row["at"],
        ended_at=row["ended_at"],
        actor=row["actor"],
        action=row["action"],
        target_kind=row["target_kind"],
        target_ids=tuple([one for one in row["target_ids"] if one is not None]),
        outcome=row["outcome"],
        details=details if isinstance(details, dict) else {},
    )


def _cut(text: str, most: int) -> str:
    return sanitize_text(str(text))[:most]


def _ids(ids: Sequence[str]) -> list[str]:
    return [_cut(one, LONGEST_ID) for one in list(ids)[:MOST_IDS]]


def _json(details: Mapping[str, Any]) -> str:
    """As JSON that can be stored; what is too long is left out."""
    try:
        text = json_text(_clean(to_jsonable_python(dict(details), fallback=str), DEEPEST_DETAILS))
    except (ValueError, TypeError, RecursionError):
        return '{"left_out": "cannot be written as JSON"}'
    return text if len(text) <= LONGEST_DETAILS else f'{{"left_out": "{len(text)} characters"}}'


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return sanitize_text(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        return {sanitize_text(str(name)): _clean(one, depth - 1) for name, one in value.items()}
    return [_clean(one, depth - 1) for one in value]
