"""Charts and failures out of the statistics (M-45b, M-45c)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.monitoring import rollups
from horsies.core.store import rollup
from horsies.core.tasks.tally import EndKind, OutcomeTally, bucket_of
from horsies.core.types.status import TaskStatus
from horsies.monitoring import list_failures, read_rollup
from tests.conftest import fresh_database
from tests.factories import given_rollup, given_task
from tests.unit.test_outcome_tally import note

Db = AsyncConnection[Any]
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# In UTC these are of the years 0 and 10000.
EARLIEST = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
LATEST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))


@pytest.fixture(scope="module")
def broker(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


@pytest.fixture
async def db(broker: PostgresBroker) -> AsyncIterator[Db]:
    async with await AsyncConnection.connect(broker.config.dsn(), autocommit=True) as conn:
        await conn.execute("TRUNCATE horsies_tasks, horsies_task_attempts, horsies_workflow_tasks, horsies_rollup")
        yield conn


def histogram(*seconds: float) -> list[int]:
    counts = [0] * (max(map(bucket_of, seconds)) + 1)
    for one in seconds:
        counts[bucket_of(one)] += 1
    return counts


async def counted(db: Db, at: datetime, span: int = 60, **columns: Any) -> None:
    row = {"queue_name": "mail", "task_name": "send", "error_code": ""} | columns
    await given_rollup(db, span=span, start_at=at, **row)


async def series(broker: PostgresBroker, **wanted: Any) -> monitoring.RollupSeries:
    asked = {"since": NOON, "until": NOON + 5 * MINUTE} | wanted
    return (await read_rollup(broker, **asked)).unwrap()


async def test_m45b_points_are_the_sums_of_their_rows(broker: PostgresBroker, db: Db) -> None:
    await counted(db, NOON, completed=3, run_counts=histogram(0.1, 0.1, 0.1), wait_counts=histogram(1, 1, 8))
    await counted(db, NOON, completed=1, task_name="other", queue_name="slow", run_counts=histogram(30))
    await counted(db, NOON + MINUTE, failed=2, retried=1, error_code="BAD")
    await counted(db, NOON + 4 * MINUTE, expired=4, cancelled=5)
    await counted(db, NOON + 5 * MINUTE, completed=99)
    await counted(db, NOON - MINUTE, completed=99)
    found = await series(broker)
    assert [point.at for point in found.points] == [NOON + number * MINUTE for number in range(5)]
    assert [point.completed for point in found.points] == [4, 0, 0, 0, 0]
    assert [(point.failed, point.retried) for point in found.points][:2] == [(0, 0), (2, 1)]
    assert (found.points[4].expired, found.points[4].cancelled) == (4, 5)
    first = found.points[0]
    assert first.run_p50 == pytest.approx(0.1, rel=0.5) and first.run_p95 == pytest.approx(30, rel=0.5)
    assert first.wait_p50 == pytest.approx(1, rel=0.5) and first.wait_p95 == pytest.approx(8, rel=0.5)
    assert found.points[2].run_p50 is None and found.points[2].waiting is None
    assert (found.since, found.until, found.step_seconds, found.is_complete) == (NOON, NOON + 5 * MINUTE, 60, True)


async def test_m45b_queues_and_names_can_be_chosen(broker: PostgresBroker, db: Db) -> None:
    for queue in ("mail", "slow"):
        for name in ("send", "sort"):
            await counted(db, NOON, queue_name=queue, task_name=name, completed=1, run_counts=histogram(1))
    for wanted, number in (({}, 4), ({"queues": ["mail"]}, 2), ({"queues": ["mail"], "task_names": ["sort"]}, 1)):
        assert (await series(broker, **wanted)).points[0].completed == number
    assert (await series(broker, task_names=["none"])).points[0].completed == 0
    assert (await series(broker, queues=["mail", "slow"])).points[0].completed == 4


async def test_m45b_gauges_are_of_all_queues_or_of_those_that_are_chosen(broker: PostgresBroker, db: Db) -> None:
    async def gauge(at: datetime, queue: str, waiting: int, oldest: float | None = None) -> None:
        row = {"queue_name": queue, "waiting": waiting, "running": 1, "oldest_due_seconds": oldest}
        await given_rollup(db, start_at=at, **row)

    await gauge(NOON, "*", 9, 50.0)
    await gauge(NOON, "mail", 7, 50.0)
    await gauge(NOON, "slow", 2, 5.0)
    await gauge(NOON + MINUTE, "*", 0)
    found = await series(broker)
    assert [(point.waiting, point.oldest_due_seconds) for point in found.points[:3]] == [
        (9, 50.0),
        (0, None),
        (None, None),
    ]
    found = await series(broker, queues=["mail", "slow"])
    assert [(point.waiting, point.running) for point in found.points[:3]] == [(9, 2), (0, 0), (None, None)]
    assert (await series(broker, queues=["none"])).points[0].waiting == 0
    found = await series(broker, queues=["mail"], step=5 * MINUTE)
    assert (found.points[0].waiting, found.points[0].oldest_due_seconds) == (7, 50.0), "the most that was seen"


@pytest.mark.parametrize(
    ("step", "span"),
    [
        (MINUTE, 60),
        (5 * MINUTE, 60),
        (15 * MINUTE, 60),
        (10 * MINUTE, 600),
        (30 * MINUTE, 600),
        (HOUR, 3600),
        (6 * HOUR, 3600),
    ],
)
async def test_m45b_a_long_step_reads_rows_of_longer_spans(
    broker: PostgresBroker, db: Db, step: timedelta, span: int
) -> None:
    for one in rollup.SPANS:
        await counted(db, NOON, span=one, completed=one)
    found = await series(broker, step=step, until=NOON + 12 * HOUR if step >= HOUR else NOON + 2 * HOUR)
    assert found.points[0].completed == span


async def test_m45b_points_begin_with_whole_steps(broker: PostgresBroker, db: Db) -> None:
    await counted(db, NOON, completed=1)
    found = await series(broker, since=NOON + timedelta(seconds=70), until=NOON + 14 * MINUTE, step=5 * MINUTE)
    assert [point.at for point in found.points] == [NOON, NOON + 5 * MINUTE, NOON + 10 * MINUTE]
    assert found.points[0].completed == 1 and found.until == NOON + 15 * MINUTE


async def test_m45b_without_an_end_the_series_ends_now(broker: PostgresBroker, db: Db) -> None:
    tally = OutcomeTally()
    note(tally, "mail", "send", EndKind.COMPLETED, wait_s=1.0, run_s=2.0)
    await rollup.add(db, tally.take(), 0.0)
    found = (await read_rollup(broker, since=datetime.now(UTC) - 3 * MINUTE)).unwrap()
    assert sum(point.completed for point in found.points) == 1 and 3 <= len(found.points) <= 5


async def test_m45b_more_rows_than_are_looked_at_cut_the_beginning_off(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MOST_ROWS", 5)
    for minute in range(4):
        for name in ("a", "b"):
            await counted(db, NOON + minute * MINUTE, task_name=name, completed=1)
    found = await series(broker)
    assert not found.is_complete and found.since == NOON + 2 * MINUTE
    assert [point.completed for point in found.points] == [2, 2, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": NOON.replace(tzinfo=None)},
        {"since": "yesterday"},
        {"until": NOON},
        {"step": timedelta(seconds=30)},
        {"step": timedelta(seconds=90)},
        {"step": 60},
        {"until": NOON + 401 * MINUTE},
        {"since": EARLIEST, "until": NOON, "step": 100_000 * DAY},
        {"since": EARLIEST.replace(tzinfo=UTC), "until": NOON, "step": 100_000 * DAY},
        {"until": LATEST, "step": 100_000 * DAY},
        {"queues": "mail"},
        {"task_names": ["a\0"]},
    ],
)
async def test_m45b_a_wrong_question_is_refused(broker: PostgresBroker, wrong: dict[str, Any]) -> None:
    asked = {"since": NOON, "until": NOON + 5 * MINUTE} | wrong
    problem = (await read_rollup(broker, **asked)).unwrap_err()
    assert problem.code is monitoring.MonitoringErrorCode.INVALID_ARGUMENT


async def test_m45b_odd_rows_are_read(broker: PostgresBroker, db: Db) -> None:
    odd = [0, 3] + [0] * 200 + [7]  # nobody knows what the last of them means
    await counted(db, NOON, completed=-5, wait_counts=odd, run_counts=[-1, 0], wait_seconds=float("nan"))
    found = await series(broker)
    assert found.points[0].wait_p50 is not None


async def failed(db: Db, ago: timedelta, number: int = 1, **columns: Any) -> datetime:
    """In the rows of all spans, as a worker writes it."""
    moment = datetime.now(UTC) - ago
    for span in rollup.SPANS:
        at = datetime.fromtimestamp(moment.timestamp() // span * span, UTC)
        await counted(db, at, span, failed=number, **({"error_code": "BAD"} | columns))
    return moment


async def test_m45c_failures_are_grouped_by_name_and_code(broker: PostgresBroker, db: Db) -> None:
    example = await given_task(db, status=TaskStatus.FAILED, failed_at="now")
    first = await failed(db, 20 * HOUR, 2, queue_name="slow")
    await failed(db, 2 * HOUR, 3, example_id=example)
    await failed(db, HOUR, 1, error_code="WORKER_CRASHED", example_id="gone")
    await failed(db, 30 * HOUR, 50)
    await counted(db, datetime.now(UTC).replace(second=0, microsecond=0), 600, completed=7, task_name="fine")
    report = (await list_failures(broker)).unwrap()
    bad, crashed = report.groups
    assert (bad.task_name, bad.error_code, bad.count, bad.example_task_id) == ("send", "BAD", 5, example)
    assert bad.error_category is monitoring.ErrorCategory.DOMAIN
    assert abs(bad.first_seen - first) <= 10 * MINUTE and bad.last_seen > datetime.now(UTC) - HOUR
    assert sum(bad.trend) == 5 and len([number for number in bad.trend if number]) == 2
    assert report.step_seconds * len(bad.trend) >= DAY.total_seconds() and len(bad.trend) <= 25
    assert (crashed.count, crashed.example_task_id) == (1, None), "the task was deleted"
    assert crashed.error_category is monitoring.ErrorCategory.OPERATIONAL


@pytest.mark.parametrize("since", [10 * MINUTE, 3 * HOUR, DAY, 3 * DAY, 30 * DAY])
async def test_m45c_any_time_can_be_asked_for(broker: PostgresBroker, db: Db, since: timedelta) -> None:
    await failed(db, timedelta(seconds=5), 4)
    await failed(db, since * 2, queue_name="before that")
    report = (await list_failures(broker, since=datetime.now(UTC) - since)).unwrap()
    [group] = report.groups
    assert group.count == sum(group.trend) == 4 and group.trend[-1] in (0, 4) and len(group.trend) <= 25


async def test_m45c_the_most_frequent_come_first_and_so_many_are_shown(broker: PostgresBroker, db: Db) -> None:
    for number in range(1, 6):
        await failed(db, HOUR, number, task_name=f"t{number}")
    report = (await list_failures(broker, limit=2)).unwrap()
    assert [(group.task_name, group.count) for group in report.groups] == [("t5", 5), ("t4", 4)]


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"since": datetime.now(UTC) + HOUR}, {"since": datetime(2026, 1, 1)}, {"since": EARLIEST}],
)
async def test_m45c_a_wrong_question_is_refused(broker: PostgresBroker, wrong: dict[str, Any]) -> None:
    problem = (await list_failures(broker, **wrong)).unwrap_err()
    assert problem.code is monitoring.MonitoringErrorCode.INVALID_ARGUMENT


async def test_m45c_tasks_without_a_code_are_a_group_too(broker: PostgresBroker, db: Db) -> None:
    await failed(db, HOUR, error_code="")
    [group] = (await list_failures(broker)).unwrap().groups
    assert (group.error_code, group.error_category) == ("", None)


async def test_m45c_tasks_say_when_and_which_as_far_as_they_are_known(broker: PostgresBroker, db: Db) -> None:
    moments = [datetime.now(UTC) - minutes * MINUTE for minutes in (50, 30, 10)]
    ids = [
        await given_task(db, task_name="send", status=TaskStatus.FAILED, error_code="BAD", failed_at=at)
        for at in moments
    ]
    await given_task(db, task_name="send", idempotency_key=f"rerun of {ids[2]}")
    await failed(db, HOUR, 3)
    [group] = (await list_failures(broker, since=datetime.now(UTC) - 2 * HOUR)).unwrap().groups
    assert (group.first_seen, group.last_seen) == (moments[0], moments[2])
    assert (group.first_is_exact, group.last_is_exact, group.rerun) == (True, True, 1)
    assert group.example_task_id == ids[1], "the last one that was not sent again"
    await failed(db, HOUR, 1, queue_name="another")  # a task that was deleted
    [group] = (await list_failures(broker, since=datetime.now(UTC) - 2 * HOUR)).unwrap().groups
    assert (group.first_is_exact, group.last_is_exact) == (False, True) and group.first_seen < moments[0]
