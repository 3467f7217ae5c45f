"""The snapshot of a large table (M-45a): many waiting tasks are estimated, small queues are counted, the oldest due
task is always found; and what cannot be read is missing, while the rest is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection, errors

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.cluster import PARTS, Snapshot
from horsies.core.monitoring import metrics, snapshot
from horsies.core.store import monitoring as monitoring_store
from horsies.core.store.monitoring import Depth, WaitingCount
from horsies.core.types.status import TaskStatus

LONG, SHORT = 3_000, 7
FILLED = f"""
    INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, enqueued_at)
    SELECT 'l' || n, 'task' || n % 3, 'long', 1 + n % 5, repeat('x', 300),
           now() + CASE WHEN n % 4 = 0 THEN interval '1 day' ELSE n * interval '-1 s' END
    FROM generate_series(1, {LONG}) AS n;
    INSERT INTO horsies_tasks (id, task_name, queue_name)
    SELECT 's' || n, 'small', 'short' FROM generate_series(1, {SHORT}) AS n;
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, claimed, claimed_by_worker_id, started_at)
    SELECT 'r' || n, 'small', 'short', 'RUNNING', TRUE, 'w', now() FROM generate_series(1, 3) AS n;
    INSERT INTO horsies_workers (worker_id, queues) VALUES ('w', '{{short,idle}}');
"""  # noqa: S608


@pytest.fixture
async def broker(database_url: str, db: AsyncConnection) -> AsyncIterator[PostgresBroker]:
    await db.execute(FILLED.encode())
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    await broker.close_async()


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_COUNTED", 100)
    monkeypatch.setattr(snapshot, "SAMPLED_PAGES", 40)


async def taken(broker: PostgresBroker, *, exact: bool = False) -> Snapshot:
    return (await monitoring.take_snapshot(broker, exact=exact)).unwrap()


def exposed_by(found: Snapshot) -> dict[str, dict[tuple[str, ...], Any]]:
    """The values of each metric by their labels."""
    return {family.metric.name: dict(family.samples) for family in metrics.of_snapshot(found)}


@pytest.mark.usefixtures("small_bounds")
async def test_m45a_a_long_queue_is_estimated_and_a_short_one_counted(broker: PostgresBroker) -> None:
    found = await taken(broker)
    queues = {queue.name: queue for queue in found.queues}
    long, short = queues["long"], queues["short"]
    assert not long.is_exact and LONG / 2 < long.waiting < LONG * 2
    assert long.waiting == long.due + long.scheduled and long.scheduled > 0
    assert (short.is_exact, short.waiting, short.due, short.running) == (True, SHORT, SHORT, 3)
    pending = [one for one in found.task_counts if one.status == TaskStatus.PENDING]
    assert {one.task_name for one in pending if not one.is_exact} == {"task0", "task1", "task2"}
    assert [one.count for one in pending if one.is_exact] == [SHORT] and found.missing == {}
    again = {queue.name: queue for queue in (await taken(broker)).queues}
    assert again["long"].waiting == long.waiting, "an estimate does not jump by itself"


@pytest.mark.usefixtures("small_bounds")
async def test_m45a_the_oldest_due_task_is_found_whatever_its_priority(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    await db.execute("UPDATE horsies_tasks SET priority = 90, enqueued_at = now() - interval '9 h' WHERE id = 'l1'")
    await db.execute("UPDATE horsies_tasks SET enqueued_at = now() + interval '1 day' WHERE queue_name = 'short'")
    queues = {queue.name: queue.oldest_due_seconds for queue in (await taken(broker)).queues}
    assert queues["long"] == pytest.approx(9 * 3_600, abs=60)
    assert queues["short"] is None and queues["idle"] is None


@pytest.mark.usefixtures("small_bounds")
async def test_m45a_who_asks_for_exact_numbers_gets_them(broker: PostgresBroker) -> None:
    [long] = [queue for queue in (await taken(broker, exact=True)).queues if queue.name == "long"]
    assert (long.is_exact, long.waiting, long.scheduled) == (True, LONG, LONG // 4)


async def test_m45a_a_queue_of_middle_length_is_counted_and_its_names_get_their_shares(broker: PostgresBroker) -> None:
    found = await taken(broker)
    [long] = [queue for queue in found.queues if queue.name == "long"]
    assert (long.is_exact, long.waiting, long.scheduled) == (True, LONG, LONG // 4)
    shares = [one for one in found.task_counts if one.queue == "long"]
    assert sum(one.count for one in shares) == LONG and not any(one.is_exact for one in shares)
    assert all(abs(one.count - LONG / 3) < LONG / 20 for one in shares) and len(shares) == 3


def test_m45a_shares_lose_nothing_by_rounding() -> None:
    named = [WaitingCount("a", name, number, due) for name, number, due in (("x", 1, 1), ("y", 1, 0), ("z", 5, 2))]
    for number, due in ((10, 0), (10, 10), (8, 3), (101, 1), (7, 6)):
        shares = snapshot.shared_out(named, [Depth("a", number, due, False)])
        assert (sum(one.number for one in shares), sum(one.due for one in shares)) == (number, due)
        assert all(0 <= one.due <= one.number and one.is_share for one in shares)


async def test_m45a_what_cannot_be_counted_is_estimated(
    broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_slow(*_: object, **__: object) -> list[WaitingCount]:
        raise errors.QueryCanceled("too slow")

    monkeypatch.setattr(monitoring_store, "waiting", too_slow)
    queues = {queue.name: queue for queue in (await taken(broker)).queues}
    assert LONG * 0.5 < queues["long"].waiting < LONG * 2 and not queues["long"].is_exact
    assert not queues["short"].is_exact and not queues["idle"].is_exact, "nobody has counted them"
    monkeypatch.setattr(monitoring_store, "waiting_sample", too_slow)
    found = await taken(broker)
    assert found.missing.keys() == {"waiting", "sample"}
    exposed = exposed_by(found)
    assert ("long", "due") not in exposed["horsies_queue_tasks"], "unknown is not zero"
    assert exposed["horsies_queue_oldest_due_seconds"]["long",] > LONG - 60
    assert exposed["horsies_queue_tasks"]["short", "running"] == 3


def test_m45a_an_estimate_is_not_less_than_what_was_counted() -> None:
    counted = [WaitingCount("a", "x", 100, 90, True), WaitingCount("a", "y", 5, 5), WaitingCount("b", "x", 3, 3)]
    low = snapshot.estimated(counted, [WaitingCount("a", "x", 80, 80, True)])
    assert low == [counted[0], counted[1]._replace(is_cut=True), counted[2]]
    high = [WaitingCount("a", "x", 900, 800, True)]
    assert snapshot.estimated(counted, high) == [counted[2], *high]


async def test_m45a_a_part_that_fails_leaves_the_others(
    broker: PostgresBroker, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await db.execute("ALTER TABLE horsies_workflows RENAME TO elsewhere")
    monkeypatch.setattr(snapshot, "PART_S", 0.3)
    async with db.transaction():
        await db.execute("LOCK TABLE horsies_schedule_state IN ACCESS EXCLUSIVE MODE")
        found = await taken(broker)
    assert found.missing.keys() == {"workflows", "schedules"}
    assert "timeout" in found.missing["schedules"] and "horsies_workflows" in found.missing["workflows"]
    assert [queue.waiting for queue in found.queues if queue.name == "long"] == [LONG]


async def test_m45a_the_numbers_of_a_missing_part_are_absent_and_the_others_are_exposed(
    broker: PostgresBroker, db: AsyncConnection
) -> None:
    await db.execute("ALTER TABLE horsies_worker_states RENAME TO elsewhere")
    exposed = exposed_by(await taken(broker))
    assert "horsies_workers" not in exposed and "horsies_queue_live_workers" not in exposed
    assert exposed["horsies_queue_tasks"]["short", "due"] == SHORT
    assert exposed["horsies_queue_oldest_due_seconds"]["long",] > LONG - 60
    assert exposed["horsies_reading_missing"] == {(part,): float(part == "workers") for part in PARTS}


async def test_m45a_parts_that_come_too_late_are_left_out(
    broker: PostgresBroker, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PARTS_S", -1.0)
    found = await taken(broker)
    assert found.missing.keys() == set(PARTS) - {"depths", "sample"} and found.database.sessions > 0


async def test_m45a_a_lost_connection_is_not_a_missing_part(broker: PostgresBroker, db: AsyncConnection) -> None:
    async with db.transaction():
        await db.execute("LOCK TABLE horsies_schedule_state IN ACCESS EXCLUSIVE MODE")
        asking = asyncio.create_task(monitoring.take_snapshot(broker))
        ended = False
        while not ended and not asking.done():
            await db.execute("SELECT pg_stat_clear_snapshot()")
            cursor = await db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            ended = await cursor.fetchone() is not None
        assert (await asking).unwrap_err().retryable
