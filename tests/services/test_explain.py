"""`explain_task` on real rows: the facts are read as they are, and in few statements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.cluster import Explanation, Why
from horsies.core.types.status import TaskStatus
from tests.conftest import fresh_database
from tests.factories import (
    given_heartbeat,
    given_node,
    given_task,
    given_worker,
    given_worker_state,
    given_workflow,
)

P, C, R = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING


async def fill(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        await tasks(db)
        await workflows(db)
        await workers(db)


async def workers(db: AsyncConnection) -> None:
    names = Jsonb({"task_names": ["a_task"], "prefetch_buffer": 0})
    beats = Jsonb({"worker_recovery": {"heartbeat_interval": 30_000}, "runner_heartbeat_interval_ms": 30_000})
    served = ["default", "full", "closed", "line"]
    await given_worker(db, "w1", queues=served, metadata=names, recovery=beats)
    limits = Jsonb({"full": 2, "closed": 0, "default": None, "line": None})
    await given_worker_state(db, "w1", queues=served, queue_max_concurrency=limits)
    await given_worker(db, "gone", queues=["lonely"], recovery=beats)
    await db.execute("UPDATE horsies_workers SET last_heartbeat_at = now() - interval '91 s' WHERE worker_id = 'gone'")


async def tasks(db: AsyncConnection) -> None:
    await given_task(db, id="ended", status=TaskStatus.FAILED, error_code="NO", failed_at="now")
    await given_task(db, id="later", enqueued_at="2999-01-01T00:00:00Z")
    await given_task(db, id="retry", enqueued_at="2999-01-01T00:00:00Z", next_retry_at="2999-01-01T00:00:00Z")
    await given_task(db, id="overdue", good_until="2020-01-01T00:00:00Z")
    await given_task(db, id="lonely", queue_name="lonely")
    await given_task(db, id="unknown", task_name="another_task")
    await given_task(db, id="full", queue_name="full")
    await given_task(db, id="full1", queue_name="full", status=R, started_at="now")
    await given_task(db, id="full2", queue_name="full", status=C, claimed_at="now")
    await given_task(db, id="closed", queue_name="closed")
    for place, priority in (("line1", 1), ("line2", 50), ("line", 50), ("line3", 90)):
        when = "2020-01-02T00:00:00Z" if place == "line" else "2020-01-01T00:00:00Z"
        await given_task(db, id=place, queue_name="line", priority=priority, enqueued_at=when)
    await given_task(db, id="line0", queue_name="line", priority=1, enqueued_at="2999-01-01T00:00:00Z")
    await given_task(db, id="runs", status=R, started_at="now")
    await given_task(db, id="finalizing", status=R, started_at="now", finalizing_at="now")
    await given_task(db, id="silent", status=R, claimed_by_worker_id="gone", started_at="now")
    await given_task(db, id="beats", status=R, started_at="2020-01-01T00:00:00Z")
    await given_heartbeat(db, "beats", "runner")
    await given_task(db, id="stuck", status=R, started_at="2020-01-01T00:00:00Z")
    await given_heartbeat(db, "stuck", "claimer")


async def workflows(db: AsyncConnection) -> None:
    await given_workflow(db, id="flow", status="RUNNING")
    await given_workflow(db, id="paused", status="PAUSED", paused_at="now")
    await given_task(db, id="of paused", workflow_id="paused")
    await given_node(db, "paused", task_index=0, status="ENQUEUED", task_id="of paused")
    await given_node(db, "paused", task_index=1, dependencies=[0], deps_total=1)
    await given_task(db, id="of flow", status=R, started_at="now", workflow_id="flow")
    await given_node(db, "flow", task_index=0, status="RUNNING", task_id="of flow")
    await given_node(db, "flow", task_index=1, status="COMPLETED")
    await given_node(db, "flow", task_index=2, status="PENDING", dependencies=[0, 1], deps_total=2, deps_completed=1)
    await given_node(db, "flow", task_index=3, node_type="MAP", status="RUNNING", deps_total=2, deps_completed=1)
    await given_node(db, "flow", task_index=4, node_type="ELEMENT", status="COMPLETED", map_index=3, map_position=0)
    await given_node(db, "flow", task_index=5, node_type="ELEMENT", status="READY", map_index=3, map_position=1)


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        asyncio.run(fill(url))
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


async def explained(broker: PostgresBroker, subject: str) -> Explanation:
    told = (await monitoring.explain_task(broker, subject)).unwrap()
    assert told is not None and json.dumps(monitoring.to_jsonable(told))
    return told


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("ended", Why.ENDED),
        ("later", Why.NOT_DUE),
        ("retry", Why.RETRY_DUE),
        ("overdue", Why.DEADLINE_PASSED),
        ("lonely", Why.NO_WORKER_SERVES_QUEUE),
        ("unknown", Why.NO_WORKER_KNOWS_TASK),
        ("full", Why.QUEUE_AT_LIMIT),
        ("closed", Why.QUEUE_PAUSED),
        ("line", Why.IN_LINE),
        ("runs", Why.RUNNING),
        ("beats", Why.RUNNING),
        ("finalizing", Why.BEING_FINALIZED),
        ("silent", Why.WORKER_SILENT),
        ("stuck", Why.WORKER_SILENT),
        ("of paused", Why.WORKFLOW_PAUSED),
        ("paused:0", Why.WORKFLOW_PAUSED),
        ("paused:1", Why.WORKFLOW_PAUSED),
        ("of flow", Why.RUNNING),
        ("flow:0", Why.RUNNING),
        ("flow:1", Why.ENDED),
        ("flow:2", Why.WAITING_FOR_NODES),
        ("flow:3", Why.WAITING_FOR_NODES),
        ("flow:5", Why.BEING_ENQUEUED),
    ],
)
async def test_m45_the_reason_is_found(broker: PostgresBroker, subject: str, why: Why) -> None:
    told = await explained(broker, subject)
    assert (told.subject, told.why) == (subject, why)


async def test_m45_the_facts_behind_it(broker: PostgresBroker) -> None:
    full = await explained(broker, "full")
    assert full.tasks == ("full1", "full2") and (full.facts["in_flight"], full.facts["running"]) == (2, 1)
    line = await explained(broker, "line")
    assert line.facts["due_before"] == 2 and not line.facts["is_only_a_part"]
    node = await explained(broker, "flow:2")
    assert node.nodes == ("n0 (0): RUNNING",) and "n0 (0): RUNNING" in node.message
    assert (await explained(broker, "flow:3")).nodes == ("n5 (5): READY",)
    assert ((await explained(broker, "of flow")).node_index, (await explained(broker, "flow:0")).task_id) == (
        0,
        "of flow",
    )
    assert (await explained(broker, "silent")).worker_id == "gone"


@pytest.mark.parametrize("absent", ["nothing", "flow:9", "nothing:0", "flow:", "x" * 99, ""])
async def test_m45_what_is_not_there_cannot_be_explained(broker: PostgresBroker, absent: str) -> None:
    assert (await monitoring.explain_task(broker, absent)).unwrap() is None


async def test_m45_with_nobody_alive_that_is_the_reason(broker: PostgresBroker) -> None:
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as db:
        await db.execute("UPDATE horsies_workers SET last_heartbeat_at = last_heartbeat_at - interval '1 hour'")
        try:
            assert (await explained(broker, "line")).why is Why.NO_WORKER
            assert (await explained(broker, "runs")).why is Why.WORKER_SILENT
        finally:
            await db.execute("UPDATE horsies_workers SET last_heartbeat_at = last_heartbeat_at + interval '1 hour'")


async def test_m45_a_cluster_at_its_cap_names_who_is_in_flight(broker: PostgresBroker) -> None:
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as db:
        in_flight = await (await db.execute("SELECT count(*) FROM horsies_tasks WHERE claimed")).fetchone()
        assert in_flight is not None
        await db.execute("UPDATE horsies_worker_states SET cluster_wide_cap = %s", [in_flight[0]])
        try:
            told = await explained(broker, "line")
            assert told.why is Why.CLUSTER_AT_CAP and len(told.tasks) == in_flight[0]
        finally:
            await db.execute("UPDATE horsies_worker_states SET cluster_wide_cap = NULL")


async def test_m45_what_can_be_done_has_names_and_times(broker: PostgresBroker) -> None:
    full = await explained(broker, "full")
    assert [(one["task_id"], one["status"]) for one in full.facts["holders"]] == [
        ("full1", "RUNNING"),
        ("full2", "CLAIMED"),
    ]
    assert full.remedies[0].startswith("Wait until one of a_task (running for")
    assert "--queues lonely" in (await explained(broker, "lonely")).remedies[0]
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as db:
        await db.execute(
            "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at,"
            " error_code) VALUES ('retry', 1, 'FAILED', TRUE, now(), now(), 'BANK_DOWN')"
        )
    assert "failed with BANK_DOWN at " in (await explained(broker, "retry")).remedies[0]


async def test_m45_who_or_what_paused_a_workflow(broker: PostgresBroker) -> None:
    assert (await explained(broker, "of paused")).remedies[0].startswith("The workflow was paused at ")
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as db:
        await given_node(db, "paused", task_index=2, status="FAILED", error_code="BANK_DOWN", completed_at="now")
        assert "n2" not in (await explained(broker, "of paused")).remedies[0], "it failed, but that paused nothing"
        entry = (
            "INSERT INTO horsies_audit (at, actor, action, target_kind, target_ids, outcome)"
            " SELECT paused_at - %s::interval, %s, 'workflow.pause', 'workflow', '{paused}', %s"
            " FROM horsies_workflows WHERE id = 'paused'"
        )
        await db.execute(entry, ["1 hour", "grace", "done"])
        assert "grace" not in (await explained(broker, "paused:1")).remedies[0], "that was another pause"
        await db.execute(entry, ["1 s", "ada", "done"])
        for between in ("0.5 s", "-1 s"):
            await db.execute(entry, [between, "mallory", "refused"])
        assert (await explained(broker, "paused:1")).remedies[0].startswith("ada paused the workflow at ")
        await db.execute("UPDATE horsies_workflows SET on_error = 'PAUSE' WHERE id = 'paused'")
        await db.execute(
            "UPDATE horsies_workflow_tasks SET completed_at = paused_at FROM horsies_workflows w"
            " WHERE w.id = workflow_id AND workflow_id = 'paused' AND task_index = 2"
        )
        assert "Node n2 failed with BANK_DOWN" in (await explained(broker, "of paused")).remedies[0]


async def test_m45_o31_when_a_task_that_nobody_knows_will_fail(broker: PostgresBroker) -> None:
    """As `fail_unknown` decides: due, unknown, and judged for as long as the worker's grace."""
    assert (await explained(broker, "unknown")).facts["fails_at"] is None, "this worker did not say its grace"
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as db:
        await db.execute(
            "INSERT INTO horsies_known_names (names_hash, names, since, seen_at)"
            " VALUES ('h1', '{a_task}', now() - interval '1 h', now()),"
            " ('h2', '{another_task}', now() - interval '1 h', now() - interval '4 min')"
        )
        await db.execute(
            "UPDATE horsies_workers SET names_hash = 'h1', recovery = recovery || '{\"unknown_task_grace_ms\": 600000}'"
            " WHERE worker_id = 'w1'"
        )
        found = await explained(broker, "unknown")
        due = found.facts["enqueued_at"]
        assert found.facts["fails_at"] == due + timedelta(minutes=10), "it was due after somebody had known it"
        assert any("WORKER_RESOLUTION_ERROR at" in one for one in found.remedies)
        await db.execute(
            "UPDATE horsies_known_names SET seen_at = %s WHERE names_hash = 'h2'", [due + timedelta(minutes=2)]
        )
        assert (await explained(broker, "unknown")).facts["fails_at"] == due + timedelta(minutes=12)
