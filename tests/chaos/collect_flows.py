"""Reads what has become of the workflows of a round from the database."""

from __future__ import annotations

import json
from typing import Any

from tests.chaos.flow_history import Flow, FlowMove, Node
from tests.chaos.server import Server

FLOWS = """
SELECT id, name, status, open_nodes, error_code, parent_workflow_id, parent_task_index, on_error,
       good_until IS NOT NULL AS has_deadline
FROM horsies_workflows
"""
NODES = """
SELECT n.*, t.status AS task_status, t.result AS task_result, t.kwargs
FROM horsies_workflow_tasks n LEFT JOIN horsies_tasks t ON t.id = n.task_id
"""
MOVES = "SELECT number, workflow_id, index, extract(epoch FROM at)::float8 AS at, was, status FROM chaos_flow_moves"


async def flows(server: Server) -> list[Flow]:
    return [
        Flow(
            row["id"],
            row["name"],
            row["status"],
            row["open_nodes"],
            row["error_code"],
            row["parent_workflow_id"],
            row["parent_task_index"],
            row["on_error"],
            row["has_deadline"],
        )
        for row in await server.rows(FLOWS)
    ]


async def nodes(server: Server) -> list[Node]:
    return [_node(row) for row in await server.rows(NODES)]


async def moves(server: Server) -> list[FlowMove]:
    return [FlowMove(**row) for row in await server.rows(MOVES)]


def _node(row: dict[str, Any]) -> Node:
    return Node(
        workflow_id=row["workflow_id"],
        index=row["task_index"],
        node_id=row["node_id"],
        status=row["status"],
        node_type=row["node_type"],
        task_id=row["task_id"],
        child_id=row["sub_workflow_id"],
        error_code=row["error_code"],
        dependencies=tuple(row["dependencies"]),
        dependents=tuple(row["dependents"]),
        total=row["deps_total"],
        counts=(row["deps_completed"], row["deps_failed"], row["deps_skipped"]),
        join=row["join_type"],
        min_success=row["min_success"],
        allow_failed=row["allow_failed_deps"],
        args_from=row["args_from"],
        map_index=row["map_index"],
        map_position=row["map_position"],
        max_parallel=(row["map_options"] or {}).get("max_parallel"),
        result=_json(row["result"]),
        task_status=row["task_status"],
        task_result=_json(row["task_result"]),
        kwargs=_json(row["kwargs"]),
    )


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
