"""The database of the property: a clock that stands, gates that hold a statement, rows that can be put back, and the
whole outcome of a run as one value.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

T0 = datetime(2100, 6, 1, tzinfo=UTC)
GATES = 7501  # first half of the advisory keys of the gates
CHANNELS = (
    *("task_new", "task_done", "task_queue_default", "task_queue_other", "horsies_claim_lost"),
    *("horsies_task_status", "horsies_worker_state", "horsies_worker_ping", "horsies_worker_pong", "proof_fence"),
    *("workflow_done", "horsies_workflow_status"),
)
SESSION = {
    "search_path": "proof,pg_catalog,public",
    "TimeZone": "UTC",
    "deadlock_timeout": "50ms",
    "synchronous_commit": "off",
    "proof.now": T0.isoformat().replace(" ", "T"),
    "proof.readings": "0",
    "proof.gate": "0",
}

# Columns with a default read the real clock: whatever is not of our century was written by one.
_REAL_TIME = re.compile(r"^20\d\d-\d\d-\d\dT")

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_CLOCK = """
CREATE SCHEMA proof;
CREATE FUNCTION proof.read_clock() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    readings int := current_setting('proof.readings');
BEGIN
    IF readings > 0 THEN
        PERFORM set_config('proof.readings', (readings - 1)::text, FALSE);
        IF readings = 1 THEN
            PERFORM pg_advisory_xact_lock_shared({gates}, current_setting('proof.gate')::int);
        END IF;
    END IF;
    RETURN current_setting('proof.now')::timestamptz;
END;
$$;
"""
_CLOCK_FUNCTION = """
CREATE FUNCTION proof.{name}() RETURNS timestamptz {volatility} LANGUAGE plpgsql AS
$$ BEGIN RETURN proof.read_clock(); END; $$;
"""
_RESTORE = """
CREATE FUNCTION proof.restore(rows jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    {deletes}
    INSERT INTO horsies_tasks ({columns})
        SELECT {of_each} FROM proof.blank b CROSS JOIN LATERAL jsonb_populate_recordset(b, rows->'tasks') AS r;
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at)
        SELECT r.* FROM jsonb_to_recordset(rows->'attempts') AS r(
            task_id text, attempt int, outcome text, will_retry bool, started_at timestamptz, finished_at timestamptz);
    INSERT INTO horsies_waiting SELECT * FROM jsonb_populate_recordset(NULL::horsies_waiting, rows->'waiting');
    INSERT INTO horsies_heartbeats (task_id, sender_id, role, sent_at)
        SELECT r.task_id, 'somebody', role, r.sent_at
        FROM jsonb_to_recordset(rows->'beats') AS r(task_id text, sent_at timestamptz)
        CROSS JOIN unnest('{{claimer,runner}}'::text[]) AS role;
    INSERT INTO horsies_heartbeats OVERRIDING SYSTEM VALUE SELECT * FROM proof.heartbeats;
    INSERT INTO horsies_worker_states OVERRIDING SYSTEM VALUE SELECT * FROM proof.worker_states;
    INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, completed_at, parent_workflow_id,
                                   parent_task_index, root_workflow_id, depth)
        SELECT r.id, 'w', 'k', r.status, r.open_nodes, r.completed_at, r.parent_workflow_id, r.parent_task_index,
               r.root_workflow_id, r.depth
        FROM jsonb_populate_recordset(NULL::horsies_workflows, rows->'workflows') AS r;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, queue_name, priority,
                                        status, task_id, sub_workflow_id, dependencies, dependents, deps_total,
                                        join_type, result, error_code, completed_at)
        SELECT r.workflow_id, r.task_index, r.node_id, r.node_type, 'plain', 'default', 100, r.status, r.task_id,
               r.sub_workflow_id, r.dependencies, r.dependents, r.deps_total, r.join_type, r.result, r.error_code,
               r.completed_at
        FROM jsonb_populate_recordset(NULL::horsies_workflow_tasks, rows->'nodes') AS r;
    INSERT INTO horsies_schedule_state (schedule_name, next_run_at, config_hash, updated_at)
        VALUES ('hourly', '{before}', 'hash', '{before}');
    INSERT INTO horsies_workers (worker_id, started_at, last_heartbeat_at)
        SELECT r.* FROM jsonb_to_recordset(rows->'workers') AS r(worker_id text, at timestamptz, seen timestamptz);
    INSERT INTO horsies_load (queue_name, number, held, running, used_at)
        SELECT q.name, 1, count(t.id), count(t.id) FILTER (WHERE t.status = 'RUNNING'), '{before}'
        FROM unnest('{{default,other,*}}'::text[]) AS q(name)
        LEFT JOIN horsies_tasks t ON t.claimed AND (q.name = '*' OR t.queue_name = q.name) GROUP BY q.name;
END;
$$;
"""
_TABLES = """
SELECT c.relname::text,
       array_agg(a.attname::text) FILTER (WHERE a.attidentity <> '' OR a.attname = 'created_at'
                                             OR pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval%')
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND starts_with(c.relname, 'horsies_')
GROUP BY c.relname ORDER BY c.relname
"""
_DELETE = "DELETE FROM {name};"
_CONTENT = "'{name}', (SELECT coalesce(jsonb_agg(r ORDER BY r::text), '[]') FROM (SELECT {row} AS r FROM {name} t) t)"
_COLUMNS = """
SELECT attname::text FROM pg_attribute
WHERE attrelid = 'public.horsies_tasks'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
# Rows that are there in every example: one thing of each kind to clear away.
_BACKGROUND = """
CREATE TABLE proof.heartbeats (LIKE horsies_heartbeats);
INSERT INTO proof.heartbeats (id, task_id, sender_id, role, sent_at)
VALUES (-1, 'long gone', 'x', 'runner', '{before}');
CREATE TABLE proof.hidden (LIKE horsies_heartbeats);
CREATE TABLE proof.worker_states (LIKE horsies_worker_states);
INSERT INTO proof.worker_states (id, worker_id, snapshot_at) VALUES (-1, 'long gone', '{before}');
"""
# What no operation of the property changes, and every restore would have to bring back.
_CONSTANT = {"horsies_meta"}
_COUNTS = {"horsies_load", "horsies_load_moves"}


def at(seconds: float) -> str:
    """An instant, counted from the start of the property's time."""
    return (T0 + timedelta(seconds=seconds)).isoformat()


async def set_up(conn: AsyncConnection[Any]) -> None:
    """Make the schema `proof` and the rows that stay; `conn` sees the real clock."""
    tables = {name: masked or [] for name, masked in await (await conn.execute(_TABLES)).fetchall()}
    changing = sorted(set(tables) - _CONSTANT)
    script = [_CLOCK.format(gates=GATES)]
    for name, volatility in (("now", "STABLE"), ("statement_timestamp", "STABLE"), ("clock_timestamp", "VOLATILE")):
        script.append(_CLOCK_FUNCTION.format(name=name, volatility=volatility))
    script.append("INSERT INTO horsies_tasks (id, task_name) VALUES ('blank', 'blank');")
    script.append("CREATE TABLE proof.blank AS SELECT * FROM horsies_tasks; DELETE FROM horsies_tasks;")
    columns = [name for (name,) in await (await conn.execute(_COLUMNS)).fetchall()]
    script.append(
        _RESTORE.format(
            deletes=" ".join(_DELETE.format(name=name) for name in changing),
            columns=", ".join(columns),
            of_each=", ".join(f"r.{name}" for name in columns),
            before=at(-100),
        )
    )
    script.append(_outcome_function({name: tables[name] for name in sorted(set(tables) - {"horsies_meta"})}))
    script.append("UPDATE horsies_meta SET value = 'when_waiting' WHERE key = 'notify';")
    script.append(_BACKGROUND.format(before=at(-100)))
    await conn.execute("\n".join(script).encode())


def _outcome_function(tables: dict[str, list[str]]) -> str:
    # Of the counts it matters what they come to, and not in how many rows.
    entries = [
        "'horsies_load', (SELECT jsonb_agg(to_jsonb(f) || jsonb_build_object('queue', q) ORDER BY q)"
        " FROM unnest('{default,other,*}'::text[]) AS q, horsies_in_flight(q) AS f)"
    ]
    for name, masked in tables.items():
        if name in _COUNTS:
            continue
        row = "to_jsonb(t)" + "".join(f" - '{column}'" for column in masked)
        entries.append(_CONTENT.format(name=name, row=row))
    return (
        "CREATE FUNCTION proof.outcome() RETURNS jsonb LANGUAGE sql AS"
        f" $$ SELECT jsonb_build_object({', '.join(entries)}) $$;"
    )


class Stage:
    """The connection that puts rows back, holds the gates, and sees what came of a run."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn
        self._fences = 0
        self._heard: list[tuple[str, str]] = []
        self._made: dict[str, str] = {}
        conn.add_notify_handler(lambda note: self._heard.append((note.channel, note.payload)))

    @classmethod
    async def open(cls, url: str) -> Stage:
        conn = await AsyncConnection.connect(url, autocommit=True)
        await set_up(conn)
        # Rows are put back without triggers; names of the proof's own clock are not seen here.
        await conn.execute("SET session_replication_role = replica")
        await conn.execute("SET TimeZone = 'UTC'")
        for channel in CHANNELS:
            await conn.execute(f"LISTEN {channel}".encode())
        return cls(conn)

    async def close(self) -> None:
        await self._conn.close()

    async def restore(self, rows: str) -> None:
        await self._conn.execute("SELECT proof.restore(%s::jsonb)", [rows])

    async def hold(self, gates: set[int]) -> None:
        await self._conn.execute("SELECT pg_advisory_lock(%s, g) FROM unnest(%s::int[]) g", [GATES, sorted(gates)])

    async def lift(self, gates: set[int]) -> None:
        await self._conn.execute("SELECT pg_advisory_unlock(%s, g) FROM unnest(%s::int[]) g", [GATES, sorted(gates)])

    async def lift_all(self) -> None:
        await self._conn.execute("SELECT pg_advisory_unlock_all()")

    async def cancel(self, pid: int) -> None:
        await self._conn.execute("SELECT pg_cancel_backend(%s)", [pid])

    async def waiting(self, pids: list[int]) -> dict[int, str]:
        """Of these sessions the ones that wait for a lock, and for which kind. Autovacuum, which may hold a table for a
        moment when it gives the end of a file back, is not waited for: it goes by itself."""
        cursor = await self._conn.execute(
            "SELECT pid, wait_event FROM pg_stat_get_activity(NULL) WHERE wait_event_type = 'Lock' AND pid = ANY(%s)"
            " AND NOT EXISTS (SELECT FROM unnest(pg_blocking_pids(pid)) AS b(pid)"
            " JOIN pg_stat_get_activity(NULL) AS a USING (pid) WHERE a.backend_type = 'autovacuum worker')",
            [pids],
        )
        return dict(await cursor.fetchall())

    async def has_ended(self, pid: int) -> bool:
        cursor = await self._conn.execute("SELECT FROM pg_stat_get_activity(%s)", [pid])
        return cursor.rowcount == 0

    async def hide_beats(self) -> None:
        """Put away the heartbeats that were written since the start."""
        await self._conn.execute(
            "WITH hidden AS (DELETE FROM horsies_heartbeats WHERE id > 0 AND sender_id <> 'somebody' RETURNING *)"
            " INSERT INTO proof.hidden SELECT * FROM hidden"
        )

    async def show_beats(self) -> None:
        await self._conn.execute(
            "WITH shown AS (DELETE FROM proof.hidden RETURNING *)"
            " INSERT INTO horsies_heartbeats OVERRIDING SYSTEM VALUE SELECT * FROM shown"
        )

    async def outcome(self) -> dict[str, Any]:
        """Every table, and the notifications since the last call: all up to a fence of our own, as they come in the
        order of the commits."""
        self._fences += 1
        fence = ("proof_fence", str(self._fences))
        cursor = await self._conn.execute("SELECT proof.outcome()::text, pg_notify(%s, %s)", fence)
        row = await cursor.fetchone()
        assert row is not None
        made = self._made = _made_ids(json.loads(row[0]))
        tables = json.loads(_UUID.sub(lambda found: made.get(found[0], found[0]), row[0]))
        for rows in tables.values():
            for columns in rows:
                for name, value in columns.items():
                    if isinstance(value, str) and _REAL_TIME.match(value):
                        columns[name] = "some real time"
        while fence not in self._heard:
            await self._conn.execute("")
        heard, self._heard = self._heard, []
        notes = [(channel, made.get(payload, payload)) for channel, payload in heard if channel != "proof_fence"]
        return {**tables, "notifications": sorted(notes)}

    def renamed(self, answer: Any) -> Any:
        """An answer with the same names as the last outcome."""
        if isinstance(answer, str):
            return self._made.get(answer, answer)
        if isinstance(answer, list | set):
            return type(answer)(map(self.renamed, answer))
        if isinstance(answer, tuple):
            parts = [self.renamed(part) for part in answer]
            return type(answer)(*parts) if hasattr(answer, "_fields") else tuple(parts)
        return answer


def _made_ids(tables: dict[str, Any]) -> dict[str, str]:
    """Ids that were made up while an operation ran, with a name that is the same in every run."""
    return {
        node["task_id"]: f"task of {node['workflow_id']}, {node['node_id']}"
        for node in tables["horsies_workflow_tasks"]
        if node["task_id"] is not None and _UUID.fullmatch(node["task_id"])
    }
