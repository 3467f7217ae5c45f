"""Text that would command a terminal or pass for a line of ours, rows full of it, and the look at the bytes that came
out."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

# Conceal and bright magenta are colours that we never use; then a C1 introducer, DEL, a turned direction, a line
# separator, and a line that looks like one of ours.
SHORT = "\x1b[8m\x9b95m\x7f\u202e\u2028\r\nFORGED"
LONG = (
    f"{SHORT}\x1b]0;title\x07\x1b[2J\x85\u2066\u2067\u200f\x08\t\x0b\x0c\n12:00:00 INFO  worker  FORGED müde 疲れた ✓"
)
STORED_ERROR = {
    "err": {
        "error_code": f"E{SHORT}",
        "message": LONG,
        "data": {f"key{SHORT}": LONG},
        "exception": {"type": SHORT, "module": SHORT, "message": LONG, "traceback": f"Traceback:\n  {LONG}"},
    }
}

_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_OUR_COLOURS = {"", "0", "1", "2", "31", "32", "33", "36", "39"}
_UNSEEN = set("\xad\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff")


def obeyed(text: str, allowed: str = "\n") -> set[str]:
    """What a terminal would obey in this text, apart from our own colours."""
    foreign = {f"\x1b[{codes}m" for codes in _SGR.findall(text) if not set(codes.split(";")) <= _OUR_COLOURS}
    rest = _SGR.sub("", text)
    return foreign | {
        char
        for char in set(rest) - set(allowed)
        if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in _UNSEEN
    }


def forged(text: str) -> list[str]:
    """Lines of which a foreign text has made the beginning."""
    lines = _SGR.sub("", text).splitlines()
    return [line for line in lines if "FORGED" in line and not re.search(r"\\n.*FORGED", line)]


def plant(url: str) -> dict[str, list[str]]:
    """Hostile text in every text, array and JSON column of every table, as far as its constraints allow it; what was
    planted: columns by table."""
    with psycopg.connect(url, autocommit=True) as conn:
        _rows(conn)
        planted: dict[str, list[str]] = {}
        for table, column, kind, length in _columns(conn):
            if _is_planted(conn, table, column, _value(kind, length)):
                planted.setdefault(table, []).append(column)
        conn.execute("UPDATE horsies_tasks SET workflow_id = NULL WHERE id = 'plain3'")  # purge leaves the others alone
        return planted


def _rows(conn: psycopg.Connection[Any]) -> None:
    states = ("PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "EXPIRED")
    for task_id, status in [
        (f"{end}{number}", status) for number, status in enumerate(states) for end in ("plain", SHORT)
    ]:
        is_claimed = status in ("CLAIMED", "RUNNING")
        conn.execute(
            "INSERT INTO horsies_tasks (id, task_name, status, claimed, claim_seq, started_at, retry_count)"
            " VALUES (%s, 't', %s, %s, 1, now() - interval '1 h', 1)",
            [task_id, status, is_claimed],
        )
        conn.execute(
            "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)"
            " VALUES (%s, 1, 'FAILED', TRUE, now())",
            [task_id],
        )
        conn.execute(
            "INSERT INTO horsies_task_progress (task_id, claim_seq, attempt, done, first_done) VALUES (%s, 1, 1, 2, 1)",
            [task_id],
        )
        conn.execute(
            "INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)"
            " VALUES (%s, 1, 1, 1, 1, '[]')",
            [task_id],
        )
    _workflow(conn, f"w{SHORT}", None)
    parent = _workflow(conn, "parent", None)
    child = _workflow(conn, "child", parent)
    for index, (kind, status) in enumerate([("TASK", "FAILED"), ("TASK", "PENDING"), ("SUBWORKFLOW", "FAILED")]):
        conn.execute(
            "INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status,"
            " sub_workflow_id) VALUES (%s, %s, %s, %s, 't', %s, %s)",
            [parent, index, f"n{index}{SHORT}", kind, status, child if kind == "SUBWORKFLOW" else None],
        )
    conn.execute(
        "INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status)"
        " VALUES (%s, 0, %s, 'TASK', 't', 'FAILED')",
        [child, SHORT],
    )
    conn.execute("INSERT INTO horsies_workers (worker_id, last_heartbeat_at) VALUES ('w', now() - interval '1 h')")
    conn.execute("INSERT INTO horsies_worker_states (worker_id) VALUES ('w')")
    conn.execute("INSERT INTO horsies_heartbeats (task_id, sender_id, role) VALUES ('t', 's', 'runner')")
    conn.execute("INSERT INTO horsies_schedules (name, definition) VALUES ('s', '{}')")
    conn.execute("INSERT INTO horsies_schedule_state (schedule_name) VALUES ('s')")
    conn.execute("INSERT INTO horsies_waiting (topic, holder, until) VALUES ('t', 'h', now() + interval '1 h')")
    conn.execute("INSERT INTO horsies_audit (actor, action, target_kind) VALUES ('p', 'a', 'task')")
    for span in (60, 600, 3600):
        conn.execute(
            "INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, failed)"
            " VALUES (%s, now(), 'q', 't', 'e', 1)",
            [span],
        )


def _workflow(conn: psycopg.Connection[Any], workflow_id: str, parent: str | None) -> str:
    conn.execute(
        "INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes, parent_workflow_id)"
        " VALUES (%s, 'w', 'w', 'FAILED', 0, %s)",
        [workflow_id, parent],
    )
    return workflow_id


def _columns(conn: psycopg.Connection[Any]) -> list[tuple[str, str, str, int | None]]:
    return conn.execute(
        "SELECT table_name, column_name, data_type, character_maximum_length FROM information_schema.columns"
        " WHERE table_name LIKE 'horsies\\_%' AND table_name <> 'horsies_meta' AND is_generated = 'NEVER'"
        " AND (data_type IN ('text', 'character varying', 'jsonb')"
        "      OR data_type = 'ARRAY' AND udt_name IN ('_text', '_varchar'))"
        " ORDER BY table_name, ordinal_position"
    ).fetchall()


def _value(kind: str, length: int | None) -> Any:
    if kind == "jsonb":
        return Jsonb({f"key{SHORT}": LONG, "flag": True})
    if kind == "ARRAY":
        return [SHORT]
    return LONG if length is None or length >= len(LONG) else SHORT[:length]


def _is_planted(conn: psycopg.Connection[Any], table: str, column: str, value: Any) -> bool:
    """Some ids are hostile already, and the others can be typed. Results are errors with hostile parts."""
    if (table, column) in (("horsies_tasks", "id"), ("horsies_workflows", "id"), ("horsies_workflow_tasks", "node_id")):
        return True
    if column == "result":
        value = json.dumps(STORED_ERROR, ensure_ascii=False)
    elif (table, column) == ("horsies_workflows", "error"):
        value = json.dumps(STORED_ERROR["err"], ensure_ascii=False)
    elif (table, column) == ("horsies_task_logs", "lines"):
        value = json.dumps([[0.0, SHORT, SHORT, LONG]], ensure_ascii=False)
    statement = sql.SQL("UPDATE {} SET {} = %s").format(sql.Identifier(table), sql.Identifier(column))
    try:
        conn.execute(statement, [value])
    except psycopg.errors.IntegrityError:  # a list of names, or a reference to another row
        return False
    return True
