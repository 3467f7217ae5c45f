"""The questions about workflows and schedules (M-45)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import time
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import AppConfig, DailySchedule, Horsies, ScheduleConfig, TaskSchedule, monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.tasks import MonitoringErrorCode
from horsies.core.monitoring import queries
from horsies.core.types.status import TaskStatus, WorkflowStatus, WorkflowTaskStatus
from tests.conftest import fresh_database
from tests.factories import given_attempt, given_node, given_task, given_workflow

# By id: name, state, and when it was sent and ended.
RUNS = {
    "w1": ("order", "COMPLETED", "2020-01-01T00:00:00Z", "2020-01-01T01:00:00Z"),
    "w2": ("order", "FAILED", "2020-01-01T00:01:00Z", "2020-01-01T00:30:00Z"),
    "w3": ("order", "RUNNING", "2020-01-01T00:02:00Z", None),
    "w4": ("import", "PAUSED", "2020-01-01T00:03:00Z", None),
    "w5": ("import", "CANCELLED", "2020-01-01T00:04:00Z", "2020-01-01T02:00:00Z"),
}


async def fill(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        for workflow_id, (name, status, sent_at, completed_at) in RUNS.items():
            times = {"sent_at": sent_at, "completed_at": completed_at}
            await given_workflow(db, id=workflow_id, name=name, status=status, **times)
        await given_task(db, id="the task", status=TaskStatus.FAILED, error_code="NO", workflow_id="w3")
        await given_attempt(db, "the task", error_code="NO")
        await given_node(db, "w3", task_index=0, status="COMPLETED", dependents=[1, 2])
        await given_node(
            db, "w3", task_index=1, status="FAILED", dependencies=[0], task_id="the task", error_code="NO",
            task_kwargs='{"a": 1}', previous_task_ids=["before"], args_from=Jsonb({"x": 0}), priority=3,
        )  # fmt: skip
        await given_node(
            db, "w3", task_index=2, node_type="SUBWORKFLOW", status="RUNNING", dependencies=[0, 1], sub_workflow_id="w5"
        )
        await db.execute(
            "INSERT INTO horsies_schedule_state (schedule_name, next_run_at, last_task_id, run_count, config_hash)"
            " VALUES ('nightly', now() - interval '1 hour', 'x', 7, 'h'),"
            " ('held', now() - interval '1 hour', NULL, 0, NULL), ('off', now() - interval '1 hour', NULL, 0, NULL),"
            " ('live', now() + interval '1 hour', NULL, 0, NULL)"
        )
        await db.execute(
            "INSERT INTO horsies_schedules (name, definition, paused)"
            " VALUES ('live', '{\"task_name\": \"t\"}', FALSE), ('held', '{}', TRUE), ('new', '{}', FALSE),"
            " ('off', '{\"enabled\": false}', FALSE)"
        )


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        asyncio.run(fill(url))
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


async def test_m45_the_names_of_workflows(broker: PostgresBroker) -> None:
    assert (await monitoring.list_workflow_names(broker)).unwrap() == ("import", "order")


async def test_m45_open_workflows_come_first_then_the_last_ended(broker: PostgresBroker) -> None:
    runs = (await monitoring.list_workflow_runs(broker)).unwrap()
    assert [run.workflow_id for run in runs] == ["w4", "w3", "w5", "w1", "w2"]
    assert (runs[0].name, runs[0].status) == ("import", WorkflowStatus.PAUSED)
    assert [(run.nodes, run.nodes_ended) for run in runs] == [(None, None), (3, 2), *[(None, None)] * 3]
    detail = (await monitoring.get_workflow_run(broker, "w3")).unwrap()
    assert detail is not None and (detail.run.nodes, detail.run.nodes_ended, detail.total_nodes) == (3, 2, 3)


async def test_m45_the_number_of_nodes_is_known_whatever_their_indexes_are(database_url: str) -> None:
    """Only where somebody has dropped the constraint (D-14)."""
    async with await AsyncConnection.connect(database_url, autocommit=True) as db:
        await db.execute("ALTER TABLE horsies_workflow_tasks DROP CONSTRAINT horsies_workflow_tasks_limits_check")
        await given_node(db, await given_workflow(db, status="RUNNING", open_nodes=1), task_index=2**31 - 1)
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    [run] = (await monitoring.list_workflow_runs(broker)).unwrap()
    await broker.close_async()
    assert (run.nodes, run.nodes_ended) == (2**31, 2**31 - 1)


async def test_m45_workflows_by_name_and_state(broker: PostgresBroker) -> None:
    by_name = (await monitoring.list_workflow_runs(broker, name="order")).unwrap()
    assert [run.workflow_id for run in by_name] == ["w3", "w1", "w2"]
    both = (await monitoring.list_workflow_runs(broker, name="order", status=WorkflowStatus.FAILED)).unwrap()
    assert [run.workflow_id for run in both] == ["w2"]
    assert [run.workflow_id for run in (await monitoring.list_workflow_runs(broker, limit=1)).unwrap()] == ["w4"]
    wrongs: list[dict[str, Any]] = [{"status": "DONE"}, {"limit": 501}]
    for wrong in wrongs:
        error = (await monitoring.list_workflow_runs(broker, **wrong)).unwrap_err()
        assert error.code is MonitoringErrorCode.INVALID_ARGUMENT


async def test_m45_a_workflow_has_nodes_edges_and_failed_indexes(broker: PostgresBroker) -> None:
    found = (await monitoring.get_workflow_run(broker, "w3")).unwrap()
    assert found is not None and found.run.workflow_id == "w3"
    assert [(node.task_index, node.status) for node in found.nodes] == [
        (0, WorkflowTaskStatus.COMPLETED),
        (1, WorkflowTaskStatus.FAILED),
        (2, WorkflowTaskStatus.RUNNING),
    ]
    assert [(edge.source, edge.target) for edge in found.edges] == [(0, 1), (0, 2), (1, 2)]
    assert (found.failed_indexes, found.total_nodes, found.total_edges) == ((1,), 3, 3)
    assert json.loads(json.dumps(monitoring.to_jsonable(found)))["nodes"][1]["error_code"] == "NO"


async def test_m45_a_wide_workflow_is_cut_and_says_so(broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_NODES", 2)
    monkeypatch.setattr(queries, "MOST_EDGES", 1)
    found = (await monitoring.get_workflow_run(broker, "w3")).unwrap()
    assert found is not None and (len(found.nodes), found.total_nodes) == (2, 3)
    assert (len(found.edges), found.total_edges) == (1, 3)


async def test_m45_a_node_in_full_with_its_task(broker: PostgresBroker) -> None:
    found = (await monitoring.get_workflow_node(broker, "w3", 1)).unwrap()
    assert found is not None and found.task is not None
    assert (found.node.node_id, found.dependencies, found.previous_task_ids) == ("n1", (0,), ("before",))
    assert (found.task_kwargs, found.args_from, found.priority) == ('{"a": 1}', {"x": 0}, 3)
    assert (found.task.task_id, [attempt.error_code for attempt in found.task.attempts]) == ("the task", ["NO"])
    child = (await monitoring.get_workflow_node(broker, "w3", 2)).unwrap()
    assert child is not None and (child.node.sub_workflow_id, child.task) == ("w5", None)
    assert json.dumps(monitoring.to_jsonable(found))


async def test_m45_workflows_and_nodes_that_do_not_exist_are_none(broker: PostgresBroker) -> None:
    assert (await monitoring.get_workflow_run(broker, "none")).unwrap() is None
    assert (await monitoring.get_workflow_run(broker, "x" * 99)).unwrap() is None
    for workflow_id, index in (("w3", 3), ("w3", -1), ("w3", 2**40), ("none", 0)):
        assert (await monitoring.get_workflow_node(broker, workflow_id, index)).unwrap() is None
    wrong = await monitoring.get_workflow_node(broker, "w3", "1")  # type: ignore[arg-type]
    assert wrong.unwrap_err().code is MonitoringErrorCode.INVALID_ARGUMENT


async def test_m45_schedules_from_code_and_database_with_their_lag(broker: PostgresBroker) -> None:
    found = {each.name: each for each in (await monitoring.list_schedules(broker)).unwrap()}
    assert list(found) == ["held", "live", "new", "nightly", "off"]
    assert [(found[name].source, found[name].paused) for name in found] == [
        ("database", True),
        ("database", False),
        ("database", False),
        ("code", False),
        ("database", False),
    ]
    assert (found["nightly"].run_count, found["nightly"].last_task_id) == (7, "x")
    assert found["nightly"].lag_seconds > 3_599 and found["live"].lag_seconds == 0
    assert [name for name in found if found[name].is_active] == ["live", "new", "nightly"]
    assert found["held"].lag_seconds == 0 == found["off"].lag_seconds, "what is not to fire is not late"
    assert found["live"].definition == {"task_name": "t"} and found["new"].next_run_at is None


@pytest.mark.parametrize("enabled", [True, False])
async def test_m45_a_schedule_that_left_the_code_keeps_its_state_and_is_not_late(
    broker: PostgresBroker, enabled: bool
) -> None:
    """Only an application knows which are in the code; `nightly` is in none of these databases."""
    one = TaskSchedule(name="nightly", task_name="t", pattern=DailySchedule(time=time(3)), enabled=enabled)
    for schedules, is_active in (([one], enabled), ([], False), (None, False)):
        schedule = None if schedules is None else ScheduleConfig(schedules=schedules)
        app = Horsies(AppConfig(broker=broker.config, schedule=schedule))
        try:
            for found in (
                (await monitoring.list_schedules(app.get_broker())).unwrap(),
                (await monitoring.take_snapshot(app.get_broker())).unwrap().schedules,
            ):
                [nightly] = [each for each in found if each.name == "nightly"]
                assert nightly.is_active is is_active and (nightly.lag_seconds > 0) is is_active
        finally:
            app.get_broker().close()
