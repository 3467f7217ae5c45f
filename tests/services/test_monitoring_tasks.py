"""The questions about tasks (M-45, M-46, M-47), on one small table that all tests read."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.tasks import MonitoringErrorCode, TaskSummary
from horsies.core.monitoring import queries
from horsies.core.types.status import TaskStatus
from tests.conftest import fresh_database
from tests.factories import given_attempt, given_task
from tests.services.test_pool import refusing_port

P, C, R = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING
DONE, FAILED, EXPIRED, CANCELLED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.EXPIRED, TaskStatus.CANCELLED

# By id: the state and what else is not as always. Ids grow with time, as real ones do.
TASKS: dict[str, tuple[TaskStatus, dict[str, Any]]] = {
    "t01": (P, {"task_name": "mail", "priority": 5, "enqueued_at": "2020-01-01T00:00:02Z"}),
    "t02": (P, {"task_name": "mail", "priority": 5, "enqueued_at": "2020-01-01T00:00:01Z"}),
    "t03": (P, {"task_name": "mail", "priority": 1, "enqueued_at": "2020-01-01T00:00:03Z", "retry_count": 1}),
    "t04": (P, {"task_name": "report", "queue_name": "slow", "priority": 9}),
    "t05": (C, {"task_name": "report", "queue_name": "slow", "claimed_at": "2020-01-01T00:01:00Z"}),
    "t06": (R, {"task_name": "mail", "claimed_by_worker_id": "w2", "started_at": "2020-01-01T00:02:00Z"}),
    "t07": (R, {"task_name": "mail", "claimed_by_worker_id": "w1", "started_at": "2020-01-01T00:00:30Z"}),
    "t08": (DONE, {"task_name": "mail", "completed_at": "2020-01-01T00:03:00Z", "claimed_by_worker_id": "w1"}),
    "t09": (DONE, {"task_name": "report", "queue_name": "slow", "completed_at": "2020-01-01T00:05:00Z"}),
    "t10": (FAILED, {"failed_at": "2020-01-01T00:04:00Z", "error_code": "CARD_DECLINED", "task_name": "pay"}),
    "t11": (FAILED, {"failed_at": "2020-01-01T00:06:00Z", "error_code": "WORKER_CRASHED", "retry_count": 2}),
    "t12": (FAILED, {"failed_at": "2020-01-01T00:07:00Z", "task_name": "pay"}),
    "t13": (EXPIRED, {"updated_at": "2020-01-01T00:08:00Z", "error_code": "TASK_EXPIRED"}),
    "t14": (
        CANCELLED,
        {"updated_at": "2020-01-01T00:09:00Z", "error_code": "TASK_CANCELLED", "sent_at": "2000-01-01T00:00:00Z"},
    ),
}


async def fill(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        for task_id, (status, columns) in TASKS.items():
            await given_task(db, id=task_id, status=status, **columns)
        await given_attempt(db, "t11", attempt=1, outcome="WORKER_FAILURE", will_retry=True)
        await given_attempt(db, "t11", attempt=2, error_code="WORKER_CRASHED")


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        asyncio.run(fill(url))
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


async def ids(broker: PostgresBroker, **question: Any) -> list[str]:
    page = (await monitoring.list_tasks(broker, **question)).unwrap()
    assert page.total == len(page.items), "no page is full here"
    return [task.task_id for task in page.items]


async def test_m45_the_list_of_all_tasks_begins_with_the_last_sent(broker: PostgresBroker) -> None:
    assert await ids(broker) == sorted(TASKS, reverse=True)
    assert await ids(broker, sort_dir="asc") == sorted(TASKS)


async def test_m45_some_tasks_are_read_by_their_ids_in_one_query(broker: PostgresBroker) -> None:
    found = (await monitoring.get_task_summaries(broker, ["t06", "none", "t01", "a\0b", "t06"])).unwrap()
    assert [(task.task_id, task.status) for task in found] == [("t06", R), ("t01", P)]
    assert (await monitoring.get_task_summaries(broker, [])).unwrap() == ()
    for wrong in ("t01", ["t01"] * 501):
        problem = (await monitoring.get_task_summaries(broker, wrong)).unwrap_err()
        assert problem.code is MonitoringErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ({"task_names": ["pay"]}, "t10 t12"),
        ({"task_names": ["pay", "report"]}, "t04 t05 t09 t10 t12"),
        ({"queues": ["slow"]}, "t04 t05 t09"),
        ({"queues": ["slow"], "task_names": ["mail"]}, ""),
        ({"workers": ["w1"]}, "t05 t07 t08"),
        ({"workers": ["w1", "w2"], "statuses": ["RUNNING"]}, "t06 t07"),
        ({"statuses": ["PENDING"]}, "t01 t02 t03 t04"),
        ({"statuses": ["PENDING"], "queues": ["default"]}, "t01 t02 t03"),
        ({"statuses": ["CLAIMED", "RUNNING"]}, "t05 t06 t07"),
        ({"statuses": ["COMPLETED", "PENDING"]}, "t01 t02 t03 t04 t08 t09"),
        ({"error_codes": ["CARD_DECLINED", "TASK_EXPIRED"]}, "t10 t13"),
        ({"error_categories": ["DOMAIN"]}, "t10"),
        ({"error_categories": ["OPERATIONAL"]}, "t11"),
        ({"error_categories": ["OUTCOME", "DOMAIN"]}, "t10 t13 t14"),
        ({"error_categories": ["OUTCOME"], "error_codes": ["CARD_DECLINED"]}, ""),
        ({"error_categories": ["RETRIEVAL", "CONTRACT"]}, ""),
        ({"retried_only": True}, "t03 t11"),
        ({"retried_only": True, "statuses": [TaskStatus.FAILED]}, "t11"),
        ({"task_names": [], "queues": [], "workers": [], "statuses": []}, " ".join(TASKS)),
    ],
    ids=str,
)
async def test_m46_or_within_a_list_and_between_lists_and_empty_is_no_filter(
    broker: PostgresBroker, question: dict[str, Any], found: str
) -> None:
    assert await ids(broker, sort_dir="asc", **question) == found.split()


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ({"sort_by": "claim_order", "statuses": ["PENDING"]}, "t03 t02 t01 t04"),
        ({"sort_by": "started_at", "statuses": ["CLAIMED", "RUNNING"]}, "t07 t05 t06"),
        ({"sort_by": "sent_at", "error_categories": ["DOMAIN", "OUTCOME"]}, "t14 t10 t13"),
        ({"sort_by": "ended_at", "statuses": ["COMPLETED", "FAILED"]}, "t08 t10 t09 t11 t12"),
    ],
    ids=str,
)
async def test_m45_a_list_in_another_order(broker: PostgresBroker, question: dict[str, Any], found: str) -> None:
    assert await ids(broker, sort_dir="asc", **question) == found.split()
    assert await ids(broker, sort_dir="desc", **question) == found.split()[::-1]


async def test_m46_pages_know_the_exact_total(broker: PostgresBroker) -> None:
    pages = [(await monitoring.list_tasks(broker, offset=offset, limit=5)).unwrap() for offset in (0, 5, 10, 15)]
    assert [page.total for page in pages] == [14] * 4
    assert [(page.offset, page.limit, len(page.items)) for page in pages] == [
        (0, 5, 5),
        (5, 5, 5),
        (10, 5, 4),
        (15, 5, 0),
    ]
    assert [task.task_id for page in pages for task in page.items] == sorted(TASKS, reverse=True)


async def test_m46_fifty_tasks_are_a_page_and_500_the_most(broker: PostgresBroker) -> None:
    assert (await monitoring.list_tasks(broker)).unwrap().limit == 50
    assert (await monitoring.list_tasks(broker, limit=500)).is_ok()
    for limit in (0, 501):
        error = (await monitoring.list_tasks(broker, limit=limit)).unwrap_err()
        assert (error.code, error.retryable) == (MonitoringErrorCode.INVALID_ARGUMENT, False)
        assert "1 to 500" in error.message


async def test_m45_a_question_that_is_wrong_is_a_value(broker: PostgresBroker) -> None:
    wrong = [
        await monitoring.list_tasks(broker, statuses=["DONE"]),
        await monitoring.list_tasks(broker, sort_by="ended_at"),
        await monitoring.task_facets(broker, error_categories=["X"]),
        await monitoring.task_breakdown(broker, group_by="colour"),  # type: ignore[arg-type]
        await monitoring.task_stats(broker, queues="default"),
    ]
    assert [answer.unwrap_err().code for answer in wrong] == [MonitoringErrorCode.INVALID_ARGUMENT] * 5


async def test_m45_a_database_that_is_away_is_a_value_and_worth_another_try() -> None:
    broker = PostgresBroker(PostgresConfig(database_url=f"postgresql://u:hush@127.0.0.1:{refusing_port()}/x"))
    try:
        error = (await monitoring.task_stats(broker)).unwrap_err()
        assert (error.code, error.retryable) == (MonitoringErrorCode.DB_OPERATION_FAILED, True)
        assert "hush" not in repr(error)
    finally:
        await broker.close_async()


async def test_m45_a_question_that_takes_too_long_is_given_up(
    broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PATIENCE", timedelta(milliseconds=50))
    answer = await queries.ask(broker, lambda conn: conn.execute("SELECT pg_sleep(20)"))
    assert (answer.unwrap_err().code, answer.unwrap_err().retryable) == (MonitoringErrorCode.QUERY_TIMEOUT, True)
    assert (await monitoring.get_task_detail(broker, "t01")).is_ok()


async def test_m45_questions_cannot_write(broker: PostgresBroker) -> None:
    answer = await queries.ask(broker, lambda conn: conn.execute("DELETE FROM horsies_tasks"))
    assert "read-only" in answer.unwrap_err().message
    assert (await monitoring.list_tasks(broker)).unwrap().total == len(TASKS)


async def test_m45_stats_count_every_state(broker: PostgresBroker) -> None:
    counts = (await monitoring.task_stats(broker)).unwrap()
    assert [count.status for count in counts] == list(TaskStatus)
    assert [count.count for count in counts] == [4, 1, 2, 2, 3, 1, 1]
    narrow = (await monitoring.task_stats(broker, queues=["slow"], task_names=["report"])).unwrap()
    assert {count.status: count.count for count in narrow if count.count} == {P: 1, C: 1, DONE: 1}
    bad = (await monitoring.task_stats(broker, error_categories=["DOMAIN", "OPERATIONAL"])).unwrap()
    assert {count.status: count.count for count in bad if count.count} == {FAILED: 2}
    again = (await monitoring.task_stats(broker, retried_only=True, workers=[])).unwrap()
    assert {count.status: count.count for count in again if count.count} == {P: 1, FAILED: 1}


async def test_m45_facets_are_what_can_be_filtered_by(broker: PostgresBroker) -> None:
    facets = (await monitoring.task_facets(broker)).unwrap()
    assert [(value.value, value.count) for value in facets.queues] == [("default", 11), ("slow", 3)]
    names = [("mail", 6), ("a_task", 3), ("report", 3), ("pay", 2)]
    assert [(value.value, value.count) for value in facets.task_names] == names
    assert [(value.value, value.count) for value in facets.workers] == [("w1", 3), ("w2", 1)]
    assert {(each.code, str(each.category), each.count) for each in facets.error_codes} == {
        ("CARD_DECLINED", "DOMAIN", 1),
        ("WORKER_CRASHED", "OPERATIONAL", 1),
        ("TASK_EXPIRED", "OUTCOME", 1),
        ("TASK_CANCELLED", "OUTCOME", 1),
    }
    failed = (await monitoring.task_facets(broker, statuses=["FAILED"], retried_only=True)).unwrap()
    assert [value.value for value in failed.task_names] == ["a_task"]
    assert [each.code for each in failed.error_codes] == ["WORKER_CRASHED"]
    outcome = (await monitoring.task_facets(broker, error_categories=["OUTCOME"])).unwrap()
    assert sorted(each.code for each in outcome.error_codes) == ["TASK_CANCELLED", "TASK_EXPIRED"]


async def test_m45_a_breakdown_groups_by_worker_name_or_queue(broker: PostgresBroker) -> None:
    by_queue = (await monitoring.task_breakdown(broker, group_by="queue")).unwrap()
    assert (by_queue.group_by, by_queue.groups, by_queue.total) == ("queue", 2, 14)
    assert [(row.value, row.total) for row in by_queue.rows] == [("default", 11), ("slow", 3)]
    assert [(each.status, each.count) for each in by_queue.rows[1].counts] == [(P, 1), (C, 1), (DONE, 1)]
    by_worker = (await monitoring.task_breakdown(broker, group_by="worker", statuses=["RUNNING", "CLAIMED"])).unwrap()
    assert [(row.value, row.total) for row in by_worker.rows] == [("w1", 2), ("w2", 1)]
    names = (await monitoring.task_breakdown(broker, group_by="task_name", queues=["default"], limit=1)).unwrap()
    assert [(row.value, row.total) for row in names.rows] == [("mail", 6)] and (names.groups, names.total) == (3, 11)
    nobody = (await monitoring.task_breakdown(broker, group_by="worker", statuses=["PENDING"])).unwrap()
    assert [(row.value, row.total) for row in nobody.rows] == [(None, 4)]
    nothing = (await monitoring.task_breakdown(broker, group_by="queue", queues=["none"])).unwrap()
    assert (nothing.rows, nothing.groups, nothing.total) == ((), 0, 0)


async def test_m45_the_detail_has_every_column_and_the_attempts(broker: PostgresBroker) -> None:
    detail = (await monitoring.get_task_detail(broker, "t11")).unwrap()
    assert detail is not None and (detail.status, detail.error_code) == (FAILED, "WORKER_CRASHED")
    assert [(attempt.attempt, attempt.outcome) for attempt in detail.attempts] == [(2, "FAILED"), (1, "WORKER_FAILURE")]
    told = {field.name for field in dataclasses.fields(detail)} - {"attempts", "error_category", "progress", "task_id"}
    assert told == await columns_of(broker) - {"id", "is_waiting", "is_held"}


async def columns_of(broker: PostgresBroker) -> set[str]:
    async with await AsyncConnection.connect(broker.config.dsn()) as db:
        cursor = await db.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'horsies_tasks'::regclass AND attnum > 0"
        )
        return {name for (name,) in await cursor.fetchall()}


@pytest.mark.parametrize("absent", ["nothing", "", "x" * 100, "a\0b"])
async def test_m45_what_does_not_exist_is_none(broker: PostgresBroker, absent: str) -> None:
    assert (await monitoring.get_task_detail(broker, absent)).unwrap() is None


async def test_m47_answers_are_frozen_and_become_json(broker: PostgresBroker) -> None:
    page = (await monitoring.list_tasks(broker)).unwrap()
    with pytest.raises(dataclasses.FrozenInstanceError):
        page.items[0].status = P  # type: ignore[misc]
    answers = [
        page,
        (await monitoring.get_task_detail(broker, "t11")).unwrap(),
        (await monitoring.task_stats(broker)).unwrap(),
        (await monitoring.task_facets(broker)).unwrap(),
        (await monitoring.task_breakdown(broker, group_by="queue")).unwrap(),
    ]
    told = json.loads(json.dumps(monitoring.to_jsonable(answers)))
    assert told[0]["total"] == 14 and told[0]["items"][3]["error_category"] == "OPERATIONAL"
    assert datetime.fromisoformat(told[1]["attempts"][0]["finished_at"]).tzinfo is not None
    assert told[2][0] == {"status": "PENDING", "count": 4, "is_exact": True}


M47 = """TaskSummary TaskListPage TaskDetail TaskAttemptInfo StatusCount FacetValue ErrorFacet Facets GroupRow Breakdown
    WorkflowRunSummary WorkflowNodeInfo WorkflowEdge WorkflowRunDetail WorkflowTaskDetail WorkerStateInfo WorkerPingInfo
    LivenessReport ScheduleStateInfo WorkerHistoryPoint ActiveWorkerInfo"""


@pytest.mark.parametrize("name", M47.split())
def test_m47_every_model_is_there_and_frozen(name: str) -> None:
    assert getattr(monitoring, name).__dataclass_params__.frozen


M45 = """task_stats task_facets task_breakdown list_tasks get_task_detail get_task_summaries list_workflow_names
    list_workflow_runs get_workflow_run get_workflow_node list_schedules cancel_task rerun_task explain_task"""


@pytest.mark.parametrize("name", M45.split())
def test_m45_every_function_is_there_and_async(name: str) -> None:
    assert asyncio.iscoroutinefunction(getattr(monitoring, name))


def test_m47_a_summary_leaves_out_what_may_be_large() -> None:
    assert {"args", "kwargs", "result"} & {field.name for field in dataclasses.fields(TaskSummary)} == set()
