"""A claim that makes tasks RUNNING (L-05a): which of them, what it writes, and when its commit may be lost."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection, IsolationLevel

from horsies.core.sql import texts
from horsies.core.store import holds, tasks
from horsies.core.store.tasks import Seats
from horsies.core.tasks.moves import Claim
from tests.store.test_arrows import ME, OTHER, given_task, order, row_of

Db = AsyncConnection[Any]


def seats(count: int, free: int, *short_names: str) -> Seats:
    places = range(1, count + 1)
    pids, names = [100 + place for place in places], [f"child-{place}" for place in places]
    return Seats(list(places), pids, names, "here", free, texts(short_names))


async def given_line(db: Db, *names: str) -> None:
    """Tasks of these names, in this order; their ids are their places."""
    for place, name in enumerate(names, 1):
        await given_task(db, id=str(place), task_name=name, enqueued_at=datetime(2020, 1, place).astimezone())


async def test_l05a_one_statement_sets_the_columns_of_claim_and_start(db: Db) -> None:
    task_id = await given_task(db)
    [row] = await tasks.claim(db, OTHER, order(), seats=seats(2, 2))
    stored = await row_of(db, task_id)
    assert (row.id, row.claim_seq, row.child) == (task_id, 1, 1)
    assert (stored["status"], stored["claimed"], stored["claimed_by_worker_id"]) == ("RUNNING", True, "other")
    assert stored["recovery_enrolled"] is True and stored["next_retry_at"] is None
    assert stored["claim_expires_at"] - stored["claimed_at"] == timedelta(seconds=60)
    assert stored["started_at"] == stored["claimed_at"] == stored["updated_at"]
    place = (stored["worker_pid"], stored["worker_process_name"], stored["worker_hostname"])
    assert place == (101, "child-1", "here")


@pytest.mark.parametrize(
    ("line", "count", "free", "seated"),
    [
        (["long", "long", "long"], 5, 2, {"1": 1, "2": 2}),
        (["short", "short", "short"], 2, 1, {"1": 1, "2": 2}),
        (["short", "short", "long", "short"], 5, 1, {"1": 1, "2": 2}),
        (["long", "short", "short"], 5, 1, {"1": 1}),
        (["long", "short", "short"], 5, 2, {"1": 1, "2": 2}),
        (["short", "long", "short"], 5, 0, {"1": 1}),
    ],
)
async def test_w21b_w25a_only_short_tasks_behind_short_ones_start_ahead(
    db: Db, line: list[str], count: int, free: int, seated: dict[str, int]
) -> None:
    await given_line(db, *line)
    rows = await tasks.claim(db, ME, order(), seats=seats(count, free, "short"))
    assert [row.id for row in rows] == [str(place) for place in range(1, len(line) + 1)]
    assert {row.id: row.child for row in rows if row.child is not None} == seated
    for row in rows:
        stored = await row_of(db, row.id)
        assert stored["status"] == ("RUNNING" if row.id in seated else "CLAIMED")
        assert stored["worker_pid"] == (100 + seated[row.id] if row.id in seated else None)
        assert (stored["started_at"] is None) == (row.id not in seated)


@pytest.mark.parametrize(
    "columns",
    [{"retry_count": 1}, {"failed_reason": "its worker died"}, {"start_failures": 1}, {"workflow_id": "flow"}],
)
async def test_w21b_r58_r102_a_task_with_a_history_or_a_node_is_only_claimed(db: Db, columns: dict[str, Any]) -> None:
    """Its place stays free, and the one behind it has its own."""
    if "workflow_id" in columns:
        await db.execute(
            "INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes)"
            " VALUES ('flow', 'f', 'f', 'RUNNING', 1)"
        )
    await given_task(db, id="1", enqueued_at="2020-01-01Z", **columns)
    await given_task(db, id="2", enqueued_at="2020-01-02Z")
    rows = await tasks.claim(db, ME, order(), seats=seats(2, 2))
    assert [(row.id, row.child) for row in rows] == [("1", None), ("2", 2)]
    assert [(await row_of(db, name))["status"] for name in ("1", "2")] == ["CLAIMED", "RUNNING"]
    assert await tasks.start(db, "me", "here", [Claim("1", 1)], [9], ["child-9"]) == {"1"}


@pytest.mark.parametrize(("free", "commit"), [(1, "on"), (0, "off")])
async def test_w21b_l09_a_start_waits_for_the_disk_and_a_mere_claim_does_not(db: Db, free: int, commit: str) -> None:
    await given_task(db)
    async with db.transaction():
        await db.execute("SET LOCAL synchronous_commit = on")
        [row] = await tasks.claim(db, ME, order(), seats=seats(1, free))
        assert (row.child is not None) == (free == 1)
        assert await (await db.execute("SHOW synchronous_commit")).fetchone() == (commit,)


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("cap", [{"caps": [2]}, {"cluster_cap": 2}], ids=["queue", "cluster"])
async def test_w21b_w26_a_claim_under_a_cap_starts_no_more_than_it_allows(
    db: Db, cap: dict[str, Any], hard: bool
) -> None:
    await given_line(db, *["one"] * 5)
    limits = order(budget=5, hard=hard, strict=5, **cap)
    rows = await tasks.claim(db, ME, limits, seats=seats(5, 5))
    assert [(row.id, row.child) for row in rows] == [("1", 1), ("2", 2)]
    assert await tasks.claim(db, OTHER, limits, seats=seats(5, 5)) == []
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED', claimed = FALSE WHERE id = '1'")
    assert [row.id for row in await tasks.claim(db, OTHER, limits, seats=seats(5, 5))] == ["3"]


async def test_w21b_two_claims_side_by_side_start_no_task_twice(db: Db, database_url: str) -> None:
    ids = {await given_task(db, id=str(number)) for number in range(40)}
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.set_isolation_level(IsolationLevel.READ_COMMITTED)
        found = await asyncio.gather(
            tasks.claim(db, ME, order(budget=30), seats=seats(20, 20)),
            tasks.claim(other, OTHER, order(budget=30), seats=seats(20, 20)),
        )
    taken = [row.id for rows in found for row in rows]
    assert len(taken) == len(set(taken)) and set(taken) <= ids
    for who, rows in zip((ME, OTHER), found, strict=True):
        assert [(await row_of(db, row.id))["claimed_by_worker_id"] for row in rows] == [who.worker_id] * len(rows)


async def test_w21_l05a_what_was_started_by_a_claim_whose_answer_was_lost_is_unknown(db: Db) -> None:
    await given_line(db, "one", "two", "three")
    await tasks.claim(db, ME, order(), seats=seats(2, 2))
    lost = await holds.unknown_claims(db, "me", [Claim("1", 1), Claim("3", 7)])
    assert set(lost) == {Claim("2", 1), Claim("3", 1)}
