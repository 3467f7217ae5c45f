"""Searching for tasks by the time of sending, by the beginning of their id, and by their key (M-46b)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.monitoring import windows
from horsies.core.monitoring.filters import TaskFilter
from horsies.core.producer import enqueue
from horsies.core.types.status import TaskStatus
from horsies.monitoring import list_tasks
from tests.conftest import fresh_database
from tests.factories import given_task

Db = AsyncConnection[Any]
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC)


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
        await conn.execute("DELETE FROM horsies_tasks")
        yield conn


def id_at(moment: datetime) -> str:
    """As a send at that time makes it."""
    return enqueue._id(int(moment.timestamp() * 1000) << 12, uuid.uuid4().int >> 64)


async def sent(db: Db, hours_ago: float, **columns: Any) -> str:
    moment = NOW - hours_ago * HOUR
    return await given_task(db, **({"id": id_at(moment), "sent_at": moment} | columns))


async def found(broker: PostgresBroker, **wanted: Any) -> list[str]:
    page = (await list_tasks(broker, **wanted)).unwrap()
    assert page.total == len(page.items) or wanted.get("limit")
    return [task.task_id for task in page.items]


@pytest.mark.parametrize("few", [True, False], ids=["few tasks", "many tasks"])
@pytest.mark.parametrize("sort_by", ["id", "sent_at"])
async def test_m46b_tasks_are_found_by_the_time_of_sending(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch, few: bool, sort_by: Any
) -> None:
    five, three, one = [await sent(db, hours) for hours in (5, 3, 1)]
    own = await sent(db, 3, id=str(uuid.uuid5(uuid.NAMESPACE_OID, "own")))
    if not few:
        monkeypatch.setattr(windows, "LOOK", 3)
    between = {"sent_after": NOW - 4 * HOUR, "sent_before": NOW - 2 * HOUR, "sort_by": sort_by}
    page = (await list_tasks(broker, **between)).unwrap()
    assert {task.task_id for task in page.items} == ({three, own} if few else {three})
    after = {
        task.task_id for task in (await list_tasks(broker, sent_after=NOW - 2 * HOUR, sort_by=sort_by)).unwrap().items
    }
    assert after == {one}
    before = {
        task.task_id for task in (await list_tasks(broker, sent_before=NOW - 4 * HOUR, sort_by=sort_by)).unwrap().items
    }
    assert before == {five}


async def test_m46b_a_list_of_a_time_can_be_continued(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOK", 4)
    ids = [await sent(db, hours) for hours in range(12, 0, -1)]
    await given_task(db, sent_at=NOW - 30 * HOUR)  # an id of its own
    listed: list[str] = []
    after = None
    while True:
        page = (
            await list_tasks(broker, sent_after=NOW - 9.5 * HOUR, sent_before=NOW - 2.5 * HOUR, limit=2, after=after)
        ).unwrap()
        listed += [task.task_id for task in page.items]
        after = page.next_cursor
        if after is None:
            break
    assert listed == list(reversed(ids[3:10]))


async def test_m46b_other_orders_look_at_the_time_of_each_task(broker: PostgresBroker, db: Db) -> None:
    old = await sent(db, 5, status=TaskStatus.FAILED, failed_at="now")
    new = await sent(db, 1, status=TaskStatus.FAILED, failed_at="now")
    wanted = {"statuses": ["FAILED"], "sort_by": "ended_at"}
    assert await found(broker, sent_after=NOW - 2 * HOUR, **wanted) == [new]
    assert await found(broker, sent_before=NOW - 2 * HOUR, **wanted) == [old]
    waiting = await sent(db, 1)
    assert await found(broker, sent_after=NOW - 2 * HOUR, statuses=["PENDING"], sort_by="claim_order") == [waiting]


@pytest.mark.parametrize("few", [True, False], ids=["few tasks", "many tasks"])
async def test_m46b_tasks_are_found_by_the_beginning_of_their_id(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    ids = ["0198c5de-0001-7000-8000-000000000001", "0198c5de-0001-7000-8000-00000000000f"]
    ids += ["0198c5df-0001-7000-8000-000000000001", "ffffffff-ffff-7fff-8fff-ffffffffffff", "order-17", "order-18"]
    for task_id in ids:
        await given_task(db, id=task_id)
    if not few:
        monkeypatch.setattr(windows, "LOOK", 4)
    for prefix, expected in (
        ("0198c5de", ids[:2]),
        ("0198c5de-0001-7000-8000-00000000000f", ids[1:2]),
        ("0198c5d", ids[:3]),
        ("f", ids[3:4]),
        ("0198c5de-0001-8", []),
    ):
        page = (await list_tasks(broker, id_prefix=prefix)).unwrap()
        assert sorted(task.task_id for task in page.items) == expected, prefix
    assert await found(broker, id_prefix="order-1") == ["order-18", "order-17"]
    assert len((await list_tasks(broker, id_prefix="")).unwrap().items) == (len(ids) if few else 4), (
        "it filters nothing"
    )
    assert (await list_tasks(broker, id_prefix="0198c5de%")).unwrap().items == (), "no sign has a meaning of its own"


async def test_m46b_tasks_are_found_by_their_key(broker: PostgresBroker, db: Db) -> None:
    ids = {name: await given_task(db, task_name=name, idempotency_key="k1") for name in ("a", "b", "c")}
    other = await given_task(db, task_name="a", idempotency_key="k2")
    await given_task(db, task_name="z")
    assert set(await found(broker, idempotency_key="k1")) == set(ids.values())
    assert await found(broker, idempotency_key="k1", task_names=["b", "z"]) == [ids["b"]]
    assert await found(broker, idempotency_key="k2") == [other]
    assert await found(broker, idempotency_key="none") == []
    assert await found(broker, idempotency_key="k1", statuses=["FAILED"]) == []
    first = (await list_tasks(broker, idempotency_key="k1", limit=2)).unwrap()
    rest = (await list_tasks(broker, idempotency_key="k1", limit=2, after=first.next_cursor)).unwrap()
    assert {task.task_id for task in (*first.items, *rest.items)} == set(ids.values())
    assert (first.total, first.total_is_exact) == (3, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sent_after": datetime(2026, 1, 1)},
        {"sent_before": "now"},
        {"id_prefix": "a\0"},
        {"id_prefix": 7},
        {"idempotency_key": "a\0"},
    ],
)
async def test_m46b_a_wrong_question_is_refused(broker: PostgresBroker, wrong: dict[str, Any]) -> None:
    problem = (await list_tasks(broker, **wrong)).unwrap_err()
    assert problem.code is monitoring.MonitoringErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("moment", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
async def test_m46b_every_time_can_be_asked_for(broker: PostgresBroker, db: Db, moment: datetime) -> None:
    task_id = await sent(db, 1)
    expected = [task_id] if moment.year > 2000 else []
    assert await found(broker, sent_before=moment) == expected
    assert await found(broker, sent_after=moment) == [task_id][len(expected) :]


def test_m46b_ids_of_a_time_are_between_the_bounds() -> None:
    bounds = TaskFilter(sent_after=NOW - HOUR, sent_before=NOW).params()
    assert bounds["id_from"] < id_at(NOW - HOUR) < id_at(NOW) < bounds["id_to"]
    assert not bounds["id_from"] < id_at(NOW - 2 * HOUR) and not id_at(NOW + HOUR) < bounds["id_to"]
