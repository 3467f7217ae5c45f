"""The statements of schedules go by their keys, however many schedules there are (D-12, D-35, D-36)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.sql import load

MANY = 20_000
FILL = """
INSERT INTO horsies_schedule_state (schedule_name, next_run_at, config_hash)
SELECT 's' || n, now() + n * interval '1 second', repeat('x', 64) FROM generate_series(1, %(many)s) n;
INSERT INTO horsies_schedules (name, definition)
SELECT 's' || n, jsonb_build_object('name', 's' || n) FROM generate_series(1, %(many)s) n;
ANALYZE horsies_schedule_state, horsies_schedules
"""
NAMES = "{" + ",".join(f"s{n}" for n in range(1, 101)) + "}"
ROWS = json.dumps([{"name": f"s{n}", "runs": 1, "config_hash": "y"} for n in range(1, 101)])
STATEMENTS: dict[str, dict[str, Any]] = {
    "look": {},
    "states": {"names": NAMES},
    "lock_states": {"names": NAMES},
    "advance": {"rows": ROWS},
    "marks_of": {"names": NAMES},
    "definitions": {"names": NAMES},
    "pause": {"name": "s7", "paused": True},
    "remove": {"name": "s7"},
    "restart": {"name": "s7"},
    "triggered": {"name": "s7", "task_id": "t"},
}


async def test_d12_d35_d36_no_statement_reads_all_schedules(database_url: str) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True, options=BY_INDEX) as conn:
        for statement in FILL.split(";"):
            await conn.execute(statement.encode(), {"many": MANY})
        for name, params in STATEMENTS.items():
            text = f"EXPLAIN (ANALYZE, FORMAT JSON) {load(f'schedules/{name}')}"
            async with conn.transaction(force_rollback=True):
                row = await (await conn.execute(text.encode(), params)).fetchone()
            assert row is not None
            nodes = list(_nodes(row[0][0]["Plan"]))
            reading = [node for node in nodes if node.get("Relation Name", "").startswith("horsies_schedule")]
            assert reading or name == "look", name
            for node in reading:
                if node["Node Type"] != "ModifyTable":
                    read = node["Actual Rows"] * node["Actual Loops"]
                    assert "Index" in node["Node Type"] and read <= 200, f"{name}: {node}"


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
