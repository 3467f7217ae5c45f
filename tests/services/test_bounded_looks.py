"""A look at a large table has an end, and says so (M-46, M-46a): totals, pages, groups. The bound is made small here;
that it also bounds what is read is in `tests/store/test_monitoring_plans.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.tasks import MonitoringErrorCode, TaskListPage
from horsies.core.monitoring import queries, windows
from tests.conftest import fresh_database

LOOK = 20
WAITING, HELD, DONE, FAILED = 60, 12, 70, 30
EVERY = WAITING + HELD + DONE + FAILED

# Every tenth is called `rare`. Five tasks each end at the same moment. The oldest ten of the failures have a code of
# their own. One that runs and one that has ended were sent last, though their ids do not say so.
FILLED = f"""
    INSERT INTO horsies_tasks (id, task_name, queue_name, priority, sent_at, enqueued_at)
    SELECT 'w' || lpad(n::text, 4, '0'), CASE n % 10 WHEN 0 THEN 'rare' ELSE 'often' END, 'q' || n % 3, 1 + n % 4,
           now() - n * interval '1 s', now() - n * interval '1 s' FROM generate_series(1, {WAITING}) AS n;
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, claimed, claimed_by_worker_id, claimed_at, started_at)
    SELECT 'h' || lpad(n::text, 4, '0'), 'often', 'q0', 'RUNNING', TRUE, 'w' || n % 2, now(), now() - n * interval '1 s'
    FROM generate_series(1, {HELD}) AS n;
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, completed_at, failed_at, error_code, sent_at)
    SELECT 'e' || lpad(n::text, 4, '0'), CASE n % 10 WHEN 0 THEN 'rare' ELSE 'often' END, 'q1',
           CASE WHEN n > {DONE} THEN 'FAILED' ELSE 'COMPLETED' END,
           CASE WHEN n <= {DONE} THEN at END, CASE WHEN n > {DONE} THEN at END,
           CASE WHEN n > {DONE + FAILED - 10} THEN 'RARE' WHEN n > {DONE} THEN 'OFTEN' END, at - interval '1 h'
    FROM generate_series(1, {DONE + FAILED}) AS n, LATERAL (SELECT now() - n / 5 * interval '1 min') AS _(at);
    UPDATE horsies_tasks SET sent_at = now() + interval '1 h' WHERE id IN ('e0001', 'h0002');
"""  # noqa: S608


async def fill(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute(FILLED.encode())


@pytest.fixture(scope="module")
def filled(server_url: str, template: str) -> Iterator[PostgresBroker]:
    with fresh_database(server_url, template) as url:
        asyncio.run(fill(url))
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            yield broker
        finally:
            broker.close()


@pytest.fixture
def broker(filled: PostgresBroker, monkeypatch: pytest.MonkeyPatch) -> PostgresBroker:
    monkeypatch.setattr(windows, "LOOK", LOOK)
    return filled


async def page_of(broker: PostgresBroker, **question: Any) -> TaskListPage:
    return (await monitoring.list_tasks(broker, **question)).unwrap()


async def walk(broker: PostgresBroker, **question: Any) -> list[str]:
    """The ids of all pages, one after the other."""
    found, after, pages = [], None, 0
    while pages == 0 or after is not None:
        page = await page_of(broker, after=after, **question)
        found += [task.task_id for task in page.items]
        after, pages = page.next_cursor, pages + 1
        assert pages < 1_000, "the cursor does not move"
    return found


@pytest.mark.parametrize(
    ("question", "number"),
    [
        ({}, EVERY),
        ({"statuses": ["PENDING"]}, WAITING),
        ({"statuses": ["PENDING"], "sort_by": "claim_order"}, WAITING),
        ({"statuses": ["COMPLETED", "FAILED"], "sort_by": "ended_at"}, DONE + FAILED),
        ({"statuses": ["PENDING", "COMPLETED"]}, WAITING + DONE),
    ],
    ids=str,
)
async def test_m46_a_total_stops_at_the_bound_and_says_so(
    broker: PostgresBroker, question: dict[str, Any], number: int
) -> None:
    bounded = await page_of(broker, **question)
    assert (bounded.total, bounded.total_is_exact) == (LOOK, False)
    exact = await page_of(broker, exact=True, **question)
    assert (exact.total, exact.total_is_exact) == (number, True)


async def test_m46_a_total_below_the_bound_is_exact(broker: PostgresBroker) -> None:
    held = await page_of(broker, statuses=["RUNNING"], sort_by="started_at")
    assert (held.total, held.total_is_exact, len(held.items)) == (HELD, True, HELD)
    rare = await page_of(broker, error_codes=["RARE"])
    assert (rare.total, rare.total_is_exact, rare.is_partial, len(rare.items)) == (10, True, False, 10)


async def test_m46_a_total_of_few_among_many_is_a_lower_bound(broker: PostgresBroker) -> None:
    page = await page_of(broker, statuses=["COMPLETED", "FAILED"], task_names=["rare"], sort_by="ended_at")
    assert page.total < (DONE + FAILED) // 10 and not page.total_is_exact


@pytest.mark.parametrize("limit", [1, 3, 7, LOOK, 100])
@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize(
    ("order", "states", "first"),
    [
        ("id", ["PENDING", "RUNNING", "COMPLETED", "FAILED"], ""),
        ("claim_order", ["PENDING"], "w"),
        ("started_at", ["RUNNING"], "h"),
        ("ended_at", ["COMPLETED", "FAILED"], "e"),
    ],
)
async def test_m46a_cursors_lead_through_every_task_once(
    broker: PostgresBroker, order: str, states: list[str], first: str, direction: str, limit: int
) -> None:
    everything = await page_of(broker, statuses=states, sort_by=order, sort_dir=direction, limit=500, exact=True)
    asked = [task.task_id for task in everything.items]
    assert len(asked) == {"": EVERY, "w": WAITING, "h": HELD, "e": DONE + FAILED}[first]
    assert await walk(broker, statuses=states, sort_by=order, sort_dir=direction, limit=limit) == asked


@pytest.mark.parametrize(
    "question",
    [
        {"task_names": ["rare"]},
        {"task_names": ["rare"], "statuses": ["PENDING"], "sort_by": "claim_order", "sort_dir": "asc"},
        {"task_names": ["rare"], "statuses": ["COMPLETED"], "sort_by": "ended_at"},
        {"statuses": ["FAILED"]},
        {"statuses": ["FAILED"], "sort_by": "ended_at"},
        {"error_codes": ["OFTEN", "RARE"], "statuses": ["FAILED"], "sort_by": "ended_at"},
        {"error_codes": ["OFTEN", "RARE"]},
        {"queues": ["q2"]},
        {"workers": ["w1"]},
        {"retried_only": True},
    ],
    ids=str,
)
async def test_m46a_a_search_that_ends_early_says_so_and_can_be_continued(
    broker: PostgresBroker, question: dict[str, Any]
) -> None:
    everything = await page_of(broker, limit=500, exact=True, **question)
    first = await page_of(broker, **question)
    assert first.is_partial and first.next_cursor is not None and len(first.items) < 50
    assert not everything.is_partial and everything.next_cursor is None
    assert await walk(broker, **question) == [task.task_id for task in everything.items]


async def test_m46a_many_that_ended_at_one_moment_do_not_stop_a_search(
    broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOK", 3)  # five ended at each moment
    found = await walk(broker, statuses=["COMPLETED", "FAILED"], sort_by="ended_at", task_names=["rare"])
    assert len(found) == len(set(found))


async def test_m46a_the_last_sent_are_found_though_their_ids_do_not_say_so(broker: PostgresBroker) -> None:
    page = await page_of(broker, sort_by="sent_at", limit=2)
    assert {task.task_id for task in page.items} == {"e0001", "h0002"}
    assert page.next_cursor is not None and not page.is_partial
    more = await page_of(broker, sort_by="sent_at", limit=3, after=page.next_cursor)
    whole = await page_of(broker, sort_by="sent_at", limit=5)
    assert [task.task_id for task in (*page.items, *more.items)] == [task.task_id for task in whole.items]
    beyond = await page_of(broker, sort_by="sent_at", limit=500)
    assert beyond.is_partial and beyond.next_cursor is None and len(beyond.items) < EVERY
    assert len((await page_of(broker, sort_by="sent_at", limit=500, exact=True)).items) == EVERY


@pytest.mark.parametrize("cursor", ["", "x", "W10", "bnVsbA", "WyJpZCIsImRlc2MiXQ", "é", "WyJpZCIsImRlc2MiLDFd"])
async def test_m46a_a_wrong_cursor_is_refused(broker: PostgresBroker, cursor: str) -> None:
    refused = (await monitoring.list_tasks(broker, after=cursor)).unwrap_err()
    assert refused.code is MonitoringErrorCode.INVALID_ARGUMENT and "next_cursor" in refused.message


async def test_m46a_a_cursor_of_another_order_is_refused(broker: PostgresBroker) -> None:
    cursor = (await page_of(broker, limit=1)).next_cursor
    others: list[dict[str, Any]] = [{"sort_dir": "asc"}, {"sort_by": "sent_at"}]
    for other in others:
        refused = (await monitoring.list_tasks(broker, after=cursor, **other)).unwrap_err()
        assert refused.code is MonitoringErrorCode.INVALID_ARGUMENT and "sorted by 'id', 'desc'" in refused.message


async def test_m46a_an_offset_that_would_read_everything_is_refused(broker: PostgresBroker) -> None:
    refused = (await monitoring.list_tasks(broker, offset=10_001)).unwrap_err()
    assert refused.code is MonitoringErrorCode.INVALID_ARGUMENT and "next_cursor" in refused.message


async def test_m46a_counts_of_states_say_which_are_exact(broker: PostgresBroker) -> None:
    counts = {str(one.status): one for one in (await monitoring.task_stats(broker)).unwrap()}
    assert (counts["PENDING"].count, counts["PENDING"].is_exact) == (LOOK, False)
    assert (counts["RUNNING"].count, counts["RUNNING"].is_exact) == (HELD, True)
    assert counts["COMPLETED"].count + counts["FAILED"].count == LOOK and not counts["FAILED"].is_exact
    exact = {str(one.status): one for one in (await monitoring.task_stats(broker, exact=True)).unwrap()}
    assert [exact[name].count for name in ("PENDING", "RUNNING", "COMPLETED", "FAILED")] == [
        WAITING,
        HELD,
        DONE,
        FAILED,
    ]
    assert all(one.is_exact for one in exact.values())
    coded = (await monitoring.task_stats(broker, error_codes=["RARE"])).unwrap()
    assert [one.count for one in coded if one.count] == [10] and all(one.is_exact for one in coded)


async def test_m46a_facets_and_groups_say_whether_they_are_exact(broker: PostgresBroker) -> None:
    facets = (await monitoring.task_facets(broker)).unwrap()
    assert not facets.is_exact and sum(value.count for value in facets.queues) == 2 * LOOK + HELD
    assert (await monitoring.task_facets(broker, statuses=["RUNNING"])).unwrap().is_exact
    exact = (await monitoring.task_facets(broker, exact=True)).unwrap()
    assert exact.is_exact and sum(value.count for value in exact.queues) == EVERY
    groups = (await monitoring.task_breakdown(broker, group_by="queue")).unwrap()
    assert (groups.is_exact, groups.total) == (False, 2 * LOOK + HELD)
    assert not any(count.is_exact for row in groups.rows for count in row.counts if count.status == "PENDING")
    whole = (await monitoring.task_breakdown(broker, group_by="queue", exact=True)).unwrap()
    assert (whole.is_exact, whole.total) == (True, EVERY)


async def test_m46a_who_waits_too_long_for_exact_numbers_is_told_what_to_do(
    broker: PostgresBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "EXACT_PATIENCE", timedelta(milliseconds=50))
    answer = await queries.ask(broker, lambda conn: conn.execute("SELECT pg_sleep(20)"), exact=True)
    assert answer.unwrap_err().code is MonitoringErrorCode.QUERY_TIMEOUT
    assert "without exact" in answer.unwrap_err().message
