"""Pages of a large table where many tasks ended at the same moment, in batches as workers write them, or at once as a
workflow is cancelled (M-46a).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.tasks import TaskListPage
from horsies.core.monitoring import windows

# Ids in no order, as those of tasks that were sent in another order than they ended.
ENDED = """
    INSERT INTO horsies_tasks (id, task_name, status, completed_at)
    SELECT md5('salt' || n), CASE n %% 2 WHEN 0 THEN 'even' ELSE 'odd' END, 'COMPLETED',
           now() - (n / %s) * interval '1 min'
    FROM generate_series(0, %s) AS n
"""


@pytest.fixture
async def broker(database_url: str) -> AsyncIterator[PostgresBroker]:
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    yield broker
    await broker.close_async()


async def pages(broker: PostgresBroker, **question: Any) -> list[TaskListPage]:
    found: list[TaskListPage] = []
    while not found or found[-1].next_cursor is not None:
        after = found[-1].next_cursor if found else None
        found.append((await monitoring.list_tasks(broker, after=after, **question)).unwrap())
        assert len(found) < 200, "the cursor does not move"
    return found


def ids(found: list[TaskListPage]) -> list[str]:
    return [task.task_id for page in found for task in page.items]


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 4, 5, 9])
async def test_m46a_a_page_that_ends_among_tasks_of_one_moment_loses_none_of_them(
    broker: PostgresBroker, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch, limit: int, direction: str
) -> None:
    monkeypatch.setattr(windows, "LOOK", 25)
    await db.execute(ENDED, [10, 99])
    question: dict[str, Any] = {"task_names": ["even"], "sort_by": "ended_at", "sort_dir": direction}
    whole = await pages(broker, **question, statuses=["COMPLETED"], limit=500, exact=True)
    assert len(ids(whole)) == 50
    assert ids(await pages(broker, **question, statuses=["COMPLETED"], limit=limit)) == ids(whole)


async def test_m46a_more_tasks_of_one_moment_than_a_look_takes_do_not_lead_in_a_circle(
    broker: PostgresBroker, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOK", 20)
    await db.execute(ENDED, [1_000, 99])
    found = await pages(broker, task_names=["even"], statuses=["COMPLETED"], sort_by="ended_at", limit=5)
    assert len(ids(found)) == len(set(ids(found))) > 0 and found[0].next_cursor is not None


@pytest.mark.parametrize(
    ("columns", "question"),
    [
        ("", {"statuses": ["PENDING"], "sort_by": "sent_at"}),
        (
            ", status = 'RUNNING', claimed = TRUE, claimed_by_worker_id = 'w', started_at = now()",
            {"statuses": ["RUNNING"], "sort_by": "started_at"},
        ),
    ],
    ids=["waiting", "in flight"],
)
async def test_m46a_the_last_page_of_a_look_that_was_cut_says_so(
    broker: PostgresBroker,
    db: AsyncConnection[Any],
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
    question: dict[str, Any],
) -> None:
    monkeypatch.setattr(windows, "LOOK", 20)
    await db.execute("INSERT INTO horsies_tasks (id, task_name) SELECT 't' || n, 't' FROM generate_series(1, 50) AS n")
    await db.execute(f"UPDATE horsies_tasks SET task_name = 't'{columns}".encode())  # noqa: S608
    found = await pages(broker, limit=7, **question)
    assert len(ids(found)) == len(set(ids(found))) < 50 and found[-1].is_partial


async def test_m46a_a_page_that_is_just_full_does_not_count_as_the_end(
    broker: PostgresBroker, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOK", 20)
    await db.execute(ENDED, [10, 99])

    async def page_of(limit: int) -> TaskListPage:
        return (await monitoring.list_tasks(broker, sort_by="sent_at", limit=limit)).unwrap()

    most = len((await page_of(500)).items)
    assert 0 < most < 100
    assert [(await page_of(limit)).is_partial for limit in (most + 1, most)] == [True, True]
