"""What is in flight in queues with a cap: counted move by move, right in every snapshot, and cheap (W-23, D-56)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db import as_one
from horsies.core.db.connections import BY_INDEX, connect
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import lock_key
from horsies.core.sql import load
from horsies.core.store import caps, tasks
from horsies.core.tasks.moves import Claim, Complete, Fail, Move, Requeue, Retry
from tests.store.test_arrows import ERR, ME, OK, OTHER, Db, given_task, order
from tests.support import eventually

UNCLAIMED = "UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE"
EMPTIED = "TRUNCATE horsies_tasks CASCADE"
MANY = (0, 3_200, 32_000)
PAGES_APART = 12  # a claim reads at most so many for each transaction that was open at the moment of the sum


async def in_flight(db: Db, queue: str) -> tuple[int, int]:
    """What is counted; the count is compared with the rows."""
    row = await (await db.execute("SELECT * FROM horsies_in_flight(%s)", [queue])).fetchone()
    where = "claimed" if queue == caps.ALL else "claimed AND queue_name = %(queue)s"
    rows = await db.execute(
        f"SELECT count(*), count(*) FILTER (WHERE status = 'RUNNING') FROM horsies_tasks WHERE {where}".encode(),  # noqa: S608
        {"queue": queue},
    )
    assert row == await rows.fetchone(), "what is counted is what is there"
    assert row is not None
    return row[0], row[1]


async def moves_left(db: Db) -> int:
    row = await (await db.execute("SELECT count(*) FROM horsies_load_moves")).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Db]:
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        yield conn


async def claimed(db: Db, count: int, *queues: str, **more: Any) -> list[Claim]:
    names = queues or ("default",)
    for name in names:
        for _ in range(count):
            await given_task(db, queue_name=name)
    rows = await tasks.claim(db, ME, order(*names, **{"budget": count * len(names), **more}))
    return [Claim(row.id, row.claim_seq) for row in rows]


async def test_d56_nothing_is_noted_while_no_queue_has_a_cap(db: Db) -> None:
    await claimed(db, 3)
    assert await moves_left(db) == 0


async def test_d56_every_way_into_flight_and_out_of_it_is_counted(db: Db) -> None:
    before = await claimed(db, 1)  # before anything is counted
    one, two, three, four, five, six, seven = await claimed(db, 7, caps=[50], cluster_cap=90)
    assert await in_flight(db, "default") == await in_flight(db, caps.ALL) == (8, 0)
    started = [*before, one, two, three, four, five]
    await tasks.start(db, "me", "host", started, [1] * 6, ["c"] * 6)
    assert await in_flight(db, "default") == (8, 6)
    bad = Fail(three, ERR, "BAD", "m")
    ends: list[Move] = [
        Complete(one, OK),
        Fail(two, ERR, "BAD", "m"),
        Retry(three, 5.0, bad),
        Requeue(four),
        Requeue(six),
    ]
    await tasks.apply(db, "me", ends)
    assert await in_flight(db, "default") == (3, 2)
    await db.execute("UPDATE horsies_tasks SET queue_name = 'elsewhere' WHERE id = %s", [five.task_id])
    assert (await in_flight(db, "default"), await in_flight(db, caps.ALL)) == ((2, 1), (3, 2))
    await db.execute("DELETE FROM horsies_tasks WHERE id = %s", [seven.task_id])
    assert await in_flight(db, "default") == (1, 1)
    await given_task(db, status="CLAIMED", claimed=True)
    assert await in_flight(db, "default") == (2, 1)
    await db.execute("DELETE FROM horsies_tasks")
    assert await in_flight(db, "default") == await in_flight(db, caps.ALL) == (0, 0)


async def test_d56_folding_keeps_the_count_while_others_are_at_work(db: Db, other: Db) -> None:
    """Open transactions have noted moves that a fold cannot see, and commit or fail later."""
    held = await claimed(db, 4, caps=[50])
    async with await AsyncConnection.connect(other.info.dsn, password=other.info.password) as third:
        async with other.transaction():
            await tasks.apply(other, "me", [Requeue(held[0])])
            await tasks.apply(third, "me", [Requeue(held[1])])
            await claimed(db, 1, caps=[50])  # a transaction that begins later, and is over before the fold
            await caps.fold(db, ["default"], [])
            assert await in_flight(db, "default") == (5, 0)
            assert await moves_left(db) == 0
        assert await in_flight(db, "default") == (4, 0)
        await caps.fold(db, ["default"], [])
        await third.rollback()
    assert await in_flight(db, "default") == (4, 0)
    await tasks.apply(db, "me", [Requeue(held[2])])
    await caps.fold(db, None, [])
    assert (await in_flight(db, "default"), await moves_left(db)) == ((3, 0), 0)


async def test_d56_two_folds_at_once_do_not_wait_and_do_not_add_twice(db: Db, other: Db) -> None:
    await claimed(db, 3, caps=[50])
    async with other.transaction():
        await caps.fold(other, ["default"], [])
        await db.execute("SET lock_timeout = '1s'")
        await caps.fold(db, ["default"], [])
        assert await in_flight(db, "default") == (3, 0)
    assert await in_flight(db, "default") == (3, 0)


async def test_d56_a_count_from_another_server_is_read_without_its_bounds(db: Db) -> None:
    """A dump brings the numbers of transactions along, and the new server begins with lower ones."""
    held = await claimed(db, 3, caps=[50])
    await caps.fold(db, ["default"], [])
    await db.execute("UPDATE horsies_load SET after_xid = after_xid + 1000000, open_xids = '{7}'")
    await tasks.apply(db, "me", [Requeue(held[0])])
    assert await in_flight(db, "default") == (2, 0)
    await caps.fold(db, ["default"], [])
    assert (await in_flight(db, "default"), await moves_left(db)) == ((2, 0), 0)


async def silently(db: Db, harm: str) -> None:
    """As somebody does who has switched the triggers off."""
    await db.execute("ALTER TABLE horsies_tasks DISABLE TRIGGER USER")
    await db.execute(harm.encode())
    await db.execute("ALTER TABLE horsies_tasks ENABLE TRIGGER USER")


@pytest.mark.parametrize("harm", [EMPTIED, UNCLAIMED])
async def test_d56_a_wrong_count_is_corrected(db: Db, harm: str) -> None:
    await claimed(db, 3, caps=[50], cluster_cap=50)
    await silently(db, harm)
    assert sorted(await caps.compare(db)) == [("*", -3, 0), ("default", -3, 0)]
    assert await caps.compare(db) == []
    assert await in_flight(db, "default") == await in_flight(db, caps.ALL) == (0, 0)


async def test_d56_one_corrects_at_a_time(db: Db, other: Db) -> None:
    await claimed(db, 1, caps=[50])
    await silently(db, EMPTIED)
    async with other.transaction():
        assert len(await caps.compare(other)) == 1
        assert await caps.compare(db) == []
    assert await in_flight(db, "default") == (0, 0)


async def test_d56_a_truncated_table_is_counted_anew(db: Db) -> None:
    await claimed(db, 3, caps=[3])
    await db.execute(EMPTIED.encode())
    assert len(await claimed(db, 3, caps=[3])) == 3
    assert await in_flight(db, "default") == (3, 0)


async def test_d56_a_queue_that_nobody_caps_is_not_counted_for_ever(db: Db) -> None:
    await claimed(db, 2, "old", "new", caps=[50, 50], budget=4)
    await db.execute("UPDATE horsies_load SET used_at = now() - interval '30 hours'")
    await caps.fold(db, None, ["new"])
    assert await caps.stop_counting(db, timedelta(days=1)) == ["old"]
    await claimed(db, 1, "old")
    nothing = await db.execute("SELECT * FROM horsies_in_flight('old')")
    assert await nothing.fetchone() == (None, None)
    assert len(await claimed(db, 2, "old", caps=[4])) == 1, "who has a cap again counts anew"
    assert (await in_flight(db, "old"), await in_flight(db, "new")) == ((4, 0), (2, 0))


async def test_d56_counting_begins_when_nobody_is_changing_tasks(db: Db, other: Db) -> None:
    await given_task(db)
    async with other.transaction():
        await claimed(other, 1, "elsewhere")
        assert await tasks.claim(db, ME, order(caps=[1])) == []
    assert len(await tasks.claim(db, ME, order(caps=[1]))) == 1


async def test_w23_queues_with_caps_do_not_wait_for_each_other(db: Db, other: Db) -> None:
    await claimed(db, 1, "one", "two", caps=[9, 9], budget=2)
    await given_task(db, queue_name="one")
    await given_task(db, queue_name="two")
    await db.execute("SET lock_timeout = '200ms'")
    async with other.transaction():
        assert len(await tasks.claim(other, OTHER, order("one", caps=[9]))) == 1
        assert len(await tasks.claim(db, ME, order("two", caps=[9]))) == 1
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await tasks.claim(db, ME, order("one", caps=[9]))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await tasks.claim(db, ME, order("two", cluster_cap=9))


async def test_w23_a_worker_that_counts_rows_under_the_lock_of_all_is_kept_apart(db: Db, other: Db) -> None:
    """As those of before did, whatever the cap."""
    await given_task(db)
    await caps.start_counting(db, ["default"])
    await other.execute("SET lock_timeout = '200ms'")
    async with db.transaction():
        assert len(await tasks.claim(db, ME, order(caps=[1]))) == 1
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key("horsies:claim")])


@pytest.mark.parametrize(
    ("held", "strict", "taken"),
    [(0, 2, 20), (0, 25, 25), (9, 0, 15), (30, 9, 9), (38, 0, 1), (39, 0, 0), (39, 9, 1), (40, 9, 0)],
)
@pytest.mark.parametrize("limit", [{"caps": [40]}, {"cluster_cap": 40}])
async def test_w25a_beyond_the_slots_a_claim_leaves_half_of_the_free_part_of_the_cap(
    db: Db, limit: dict[str, Any], held: int, strict: int, taken: int
) -> None:
    await claimed(db, held) if held else None
    for _ in range(30):
        await given_task(db)
    assert len(await tasks.claim(db, ME, order(budget=30, strict=strict, **limit))) == taken


async def test_w25a_a_queue_near_its_cap_gets_no_slot_that_another_one_has_filled(db: Db) -> None:
    for queue in ("free", "tight", "tighter"):
        await given_task(db, queue_name=queue)
    near = order("free", "tight", "tighter", caps=[None, 2, 2], budget=30, strict=2)
    await caps.start_counting(db, ["tight", "tighter"])
    assert [row.queue_name for row in await tasks.claim(db, ME, near)] == ["free", "tight"]


async def test_w23_a_worker_that_is_paused_while_it_claims_does_not_keep_the_locks(db: Db, other: Db) -> None:
    """It has sent the statement that takes them, and not yet the one that claims."""
    if db.info.server_version < 170_000:
        pytest.skip("a server before PostgreSQL 17 has no limit for such a transaction")
    async with AsyncExitStack() as stack:
        stack.enter_context(pytest.raises(psycopg.OperationalError))
        await stack.enter_async_context(as_one(other))
        await caps.lock(other, ["default"])

        async def is_locked() -> bool:
            held = await db.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", [pid])
            return await held.fetchone() is not None

        pid = other.info.backend_pid
        await eventually(is_locked, 30, what="the locks are taken")
        await eventually(is_free(is_locked), 30, what="they are free again")


def is_free(is_locked: Callable[[], Awaitable[bool]]) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        return not await is_locked()

    return ask


async def test_w26_caps_hold_behind_a_transaction_pooler(database_url: str, db: Db) -> None:
    """Its connections make a transaction of each statement, unless they are told otherwise."""
    config = PostgresConfig(database_url=database_url, pgbouncer_transaction_mode=True)
    async with AsyncExitStack() as stack:
        shared = []
        for _ in range(6):
            conn = await connect(config, options=f"{BY_INDEX} -c lock_timeout=20000")
            shared.append(await stack.enter_async_context(conn))
        for cap in ({"caps": [3]}, {"cluster_cap": 3}):
            for _ in range(3):
                await db.execute("DELETE FROM horsies_tasks")
                for _ in range(12):
                    await given_task(db)
                found = await asyncio.gather(*(tasks.claim(conn, ME, order(budget=3, **cap)) for conn in shared))
                assert sum(map(len, found)) == 3


async def test_d56_who_cannot_count_yet_tries_again_later_and_claims_elsewhere(db: Db, other: Db) -> None:
    """Somebody has sent a task in a transaction that stays open."""
    now = [0.0]
    counting = caps.Counting(clock=lambda: now[0])
    for queue in ("free", "free", "tight"):
        await given_task(db, queue_name=queue)
    near = order("free", "tight", caps=[None, 5], budget=1)
    async with other.transaction():
        await given_task(other, queue_name="elsewhere")
        for _ in range(2):
            assert [row.queue_name for row in await tasks.claim(db, ME, near, counting=counting)] == ["free"]
        assert await tasks.claim(db, ME, near, counting=counting) == []
    assert await tasks.claim(db, ME, near, counting=counting) == []
    now[0] = caps.FIRST_PAUSE_S  # a second try, which would have locked the table again, would have made it longer
    assert [row.queue_name for row in await tasks.claim(db, ME, near, counting=counting)] == ["tight"]
    assert await in_flight(db, "tight") == (1, 0)


async def test_d56_a_count_that_nobody_has_used_for_days_is_neither_kept_up_nor_believed(db: Db) -> None:
    """As after a return to older code, which never sums it up."""
    first, _ = await claimed(db, 2, caps=[2], cluster_cap=9)
    await caps.fold(db, None, [])
    await db.execute("UPDATE horsies_load SET used_at = now() - interval '3 days'")
    await tasks.apply(db, "me", [Requeue(first)])
    assert await moves_left(db) == 0
    row = await (await db.execute("SELECT * FROM horsies_in_flight('default')")).fetchone()
    assert row == (None, None)
    await caps.fold(db, None, ["default", caps.ALL])  # a tick of a worker that has the cap
    assert len(await tasks.claim(db, ME, order(caps=[2], cluster_cap=9, budget=5))) == 1
    assert await in_flight(db, "default") == await in_flight(db, caps.ALL) == (2, 0)


async def test_w24_a_look_for_tasks_under_a_full_cap_passes_over_those_that_are_not_due(db: Db) -> None:
    async def is_due(*queues: str) -> bool:
        return (await tasks.look_ahead(db, queues)).is_due

    await given_task(db, enqueued_at="2100-01-01Z")
    assert not await is_due("default", "other")
    await given_task(db, priority=3)
    assert await is_due("other", "default")
    assert not await is_due("other")


async def pages(db: Db, how: dict[str, Any]) -> int:
    """How many pages a claim of one task under this cap touches."""
    it = order(budget=1, strict=1, **how)
    params = {**ME._asdict(), **it._asdict(), "alone": True}
    async with db.transaction(force_rollback=True):
        claim = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {load('tasks/claim', 'counted')}"
        cursor = await db.execute(claim.encode(), params)
        [(found,)] = await cursor.fetchall()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def open_at_fold(db: Db) -> int:
    """How many transactions others had open on the server at the moment of the sum: none, if that comes soon."""
    for _ in range(100):
        await caps.fold(db, None, [])
        sums = await db.execute(
            "SELECT DISTINCT ON (queue_name) cardinality(open_xids) FROM horsies_load ORDER BY queue_name, number DESC"
        )
        if (found := max(apart for (apart,) in await sums.fetchall())) == 0:
            break
        await asyncio.sleep(0.02)
    return found


async def touched(database_url: str, limits: Sequence[dict[str, Any]]) -> list[list[int]]:
    """The pages of a claim with none, some and many in flight, without those that open transactions may cost it."""
    found: list[list[int]] = [[] for _ in limits]
    async with await AsyncConnection.connect(database_url, autocommit=True, options=BY_INDEX) as db:
        for _ in range(20):
            await given_task(db)
        await caps.start_counting(db, ["default", caps.ALL])
        done = 0
        for count in MANY:
            await db.execute(
                "INSERT INTO horsies_tasks (id, task_name, args, status, claimed, claimed_by_worker_id)"
                " SELECT 'held' || n, 't', '[]', 'RUNNING', TRUE, 'w' || n %% 40 FROM generate_series(%s::int, %s) n",
                [done + 1, count],
            )
            done = count
            apart = await open_at_fold(db)
            await db.execute("VACUUM ANALYZE horsies_tasks, horsies_load_moves")
            for how, pages_of in zip(limits, found, strict=True):
                await pages(db, how)
                pages_of.append(await pages(db, how) - (PAGES_APART * apart if count else 0))
    return found


@pytest.mark.slow("fills a table with 32,000 running tasks, move by move")
async def test_w23_a_claim_costs_the_same_however_much_is_in_flight(database_url: str) -> None:
    for none, some, many in await touched(database_url, [{"caps": [100_000]}, {"cluster_cap": 100_000}]):
        assert some <= none + 10 and many <= none + 10, (none, some, many)


@pytest.mark.slow("1,500 moves beside a long transaction")
async def test_d56_moves_that_cannot_be_cleared_away_cost_a_claim_nothing(database_url: str, other: Db) -> None:
    """While somebody reads for long, a backup for example, everything that is deleted stays in the tables."""
    async with await AsyncConnection.connect(database_url, autocommit=True, options=BY_INDEX) as db:
        held = await claimed(db, 2, caps=[9])
        await given_task(db)
        await caps.fold(db, None, [])
        before = [await pages(db, {"caps": [9]}) for _ in range(3)][-1]
        async with other.transaction():
            await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await other.execute("SELECT FROM horsies_load")
            for _ in range(1_500):
                await db.execute("UPDATE horsies_tasks SET claimed = NOT claimed WHERE id = %s", [held[0].task_id])
                await caps.fold(db, ["default"], [])
            # What others have open on the server at the moment of the sum is looked at apart, a few pages for each.
            looks = []
            for _ in range(20):
                await caps.fold(db, ["default"], [])
                sums = await db.execute("SELECT cardinality(open_xids) FROM horsies_load ORDER BY number DESC LIMIT 1")
                [(apart,)] = await sums.fetchall()
                looks.append(await pages(db, {"caps": [9]}) - PAGES_APART * apart)
        assert min(looks[2:]) <= before + 25, (before, looks)
        assert await in_flight(db, "default") == (2, 0)
