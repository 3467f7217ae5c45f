"""The trail that every change of status leaves, and what may not be found in it.

A trigger writes it down. Whoever changes nodes holds the row of their workflow, so the changes of one workflow are in
the order in which they happened; those of one transaction count as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from tests.proof_workflows.rules import NODE_ARROWS, WORKFLOW_ARROWS, verdict

SET_UP = """
    CREATE TABLE trail (at bigserial, transaction bigint, workflow_id text, node int, was text, now text, task_id text);
    CREATE FUNCTION leave_trail() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_TABLE_NAME = 'horsies_workflows' THEN
            INSERT INTO trail (transaction, workflow_id, was, now)
            VALUES (txid_current(), NEW.id, CASE TG_OP WHEN 'UPDATE' THEN OLD.status END, NEW.status);
        ELSE
            INSERT INTO trail (transaction, workflow_id, node, was, now, task_id)
            VALUES (txid_current(), NEW.workflow_id, NEW.task_index, CASE TG_OP WHEN 'UPDATE' THEN OLD.status END,
                    NEW.status, NEW.task_id);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER trail_new AFTER INSERT ON horsies_workflows FOR EACH ROW EXECUTE FUNCTION leave_trail();
    CREATE TRIGGER trail_change AFTER UPDATE ON horsies_workflows FOR EACH ROW
        WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION leave_trail();
    CREATE TRIGGER trail_new AFTER INSERT ON horsies_workflow_tasks FOR EACH ROW EXECUTE FUNCTION leave_trail();
    CREATE TRIGGER trail_change AFTER UPDATE ON horsies_workflow_tasks FOR EACH ROW
        WHEN (OLD.status <> NEW.status OR OLD.task_id IS DISTINCT FROM NEW.task_id) EXECUTE FUNCTION leave_trail();
"""
_TRAIL = """
    SELECT workflow_id, node, was, now, task_id, transaction FROM trail
    ORDER BY min(at) OVER (PARTITION BY workflow_id, transaction), at
"""
_GRAPH = """
    SELECT workflow_id, task_index, dependencies, CASE node_type WHEN 'MAP' THEN 'all' ELSE join_type END,
           min_success, allow_failed_deps, node_type, cardinality(previous_task_ids)
    FROM horsies_workflow_tasks
"""
_TASKS = "SELECT workflow_id, count(*) FROM horsies_tasks WHERE workflow_id IS NOT NULL GROUP BY workflow_id"


class Change(NamedTuple):
    workflow_id: str
    node: int | None  # None: the workflow itself
    was: str | None
    now: str
    task_id: str | None
    transaction: int


class Place(NamedTuple):
    dependencies: list[int]
    join: str
    min_success: int | None
    allow_failed: bool
    node_type: str
    retries: int


async def check(conn: AsyncConnection[Any]) -> list[Change]:
    """Raises an AssertionError with whatever the rules do not know; the changes, for further questions."""
    changes = [Change(*row) for row in await (await conn.execute(_TRAIL)).fetchall()]
    graph = {(row[0], row[1]): Place(*row[2:]) for row in await (await conn.execute(_GRAPH)).fetchall()}
    tasks = dict(await (await conn.execute(_TASKS)).fetchall())
    wrong = [*_arrows(changes), *_runs(changes, graph, tasks)]
    by_workflow: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_workflow[change.workflow_id].append(change)
    for workflow_id, own in by_workflow.items():
        wrong += [f"{workflow_id}: {problem}" for problem in _joins(workflow_id, own, graph)]
    assert not wrong, "\n".join(wrong[:40])
    return changes


def _arrows(changes: list[Change]) -> Iterator[str]:
    """F-20, F-21."""
    for change in changes:
        known = WORKFLOW_ARROWS if change.node is None else NODE_ARROWS
        if change.was is not None and change.was != change.now and (change.was, change.now) not in known:
            yield f"{change} is no arrow"


def _runs(changes: list[Change], graph: dict[tuple[str, int], Place], tasks: dict[str, int]) -> Iterator[str]:
    """F-71, F-72: each node had one task, and one more for each retry; and there are no others."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    for change in changes:
        if change.node is not None and change.task_id is not None:
            seen[change.workflow_id, change.node].add(change.task_id)
    for place, ids in seen.items():
        if len(ids) > 1 + graph[place].retries:
            yield f"{place} had the tasks {ids}"
    counted: dict[str, int] = defaultdict(int)
    for (workflow_id, _), ids in seen.items():
        counted[workflow_id] += len(ids)
    for workflow_id in counted.keys() | tasks.keys():
        if counted[workflow_id] != tasks.get(workflow_id, 0):
            yield f"{workflow_id} has {tasks.get(workflow_id, 0)} tasks, its nodes had {counted[workflow_id]}"


def _joins(workflow_id: str, changes: list[Change], graph: dict[tuple[str, int], Place]) -> Iterator[str]:
    """F-30, F-50, F-53: a node leaves PENDING as its join says, while the workflow runs, or because that ends."""
    nodes: dict[int, str] = {}
    status, at = "", 0
    while at < len(changes):
        here: list[Change] = []
        before = status
        while at < len(changes) and (not here or changes[at].transaction == here[0].transaction):
            here.append(changes[at])
            at += 1
        for change in here:
            if change.node is None:
                status = change.now
            else:
                nodes[change.node] = change.now
        for change in here:
            if change.node is None or change.was not in (None, "PENDING") or change.now == "PENDING":
                continue
            place = graph[workflow_id, change.node]
            if place.node_type == "ELEMENT" or (before == "" and not place.dependencies):
                continue
            found = verdict(place.join, place.min_success, place.allow_failed, [nodes[i] for i in place.dependencies])
            is_skip = change.now == "SKIPPED"
            if not is_skip and (found != "READY" or (before == "PAUSED" and status == "PAUSED")):
                yield f"{change} with {[nodes[i] for i in place.dependencies]} for {place}, {before} → {status}"
            if is_skip and status == "RUNNING" and found != "SKIPPED":
                yield f"{change} with {[nodes[i] for i in place.dependencies]} for {place}"
