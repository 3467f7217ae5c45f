"""`send_many` of thousands: written by COPY while the rest is encoded, and otherwise like any other (T-40 to T-57)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import psycopg
import pytest
from psycopg import AsyncConnection
from pydantic import BeforeValidator

from horsies import Horsies, RetryPolicy, TaskError, TaskResult, TaskSendErrorCode
from horsies.core.producer import bulk
from horsies.core.task_decorator import TaskFunction
from tests.app_support import Add, an_app, define_add
from tests.factories import count_tasks
from tests.network_support import network
from tests.services.test_send import fail_inserts, pauses, tries
from tests.support import eventually

__all__ = ["pauses"]  # a fixture

MANY = 2 * bulk.PART + 7
PATIENCE_S = 30.0
# In the middle of a stream, its session has written a part and waits for the next one.
WRITING = "application_name = 'horsies' AND state = 'idle in transaction' AND query LIKE 'COPY horsies_tasks%%'"


@pytest.fixture(autouse=True)
def _without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test may have imported it; with spans nothing is written early."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)


def sessions(url: str, which: str) -> int:
    with psycopg.connect(url, autocommit=True) as conn:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {which}"  # noqa: S608
        row = conn.execute(query.replace("%%", "%").encode()).fetchone()
    assert row is not None
    return int(row[0])


def until_a_part_is_written(url: str) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if sessions(url, WRITING):
            return True
        time.sleep(0.01)
    return False


async def hold_up(db: AsyncConnection, args: str) -> None:
    """Whoever inserts a task with these arguments waits for a lock that this session has."""
    await db.execute("SELECT pg_advisory_lock(4711)")
    await db.execute(
        "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END $$"
    )
    await db.execute(
        f"CREATE TRIGGER hold_up BEFORE INSERT ON horsies_tasks FOR EACH ROW WHEN (NEW.args = '{args}')"
        " EXECUTE FUNCTION hold_up()"
    )


def at_the_last_call(app: Horsies, act: Callable[[], None]) -> TaskFunction[[int], None]:
    """A task whose argument runs code of the caller's: `act`, when the last of many is encoded."""
    last = MANY - 1

    def look(value: int) -> int:
        if value == last:
            act()
        return value

    @app.task("look")
    def task(n: Annotated[int, BeforeValidator(look)]) -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    return task


async def test_t46_parts_are_written_while_the_others_are_encoded(
    app: Horsies, database_url: str, db: AsyncConnection
) -> None:
    seen: list[bool] = []
    task = at_the_last_call(app, lambda: seen.append(until_a_part_is_written(database_url)))
    handles = task.send_many([(n,) for n in range(MANY)]).unwrap()
    assert seen[0]
    assert await count_tasks(db) == len({handle.task_id for handle in handles}) == MANY


async def test_t46_no_transaction_is_open_while_an_iterator_of_the_caller_runs(
    add: Add, database_url: str, db: AsyncConnection
) -> None:
    add.send(0, 0).unwrap()  # the tables are known to be there
    open_ones: list[int] = []

    def calls() -> Iterator[tuple[int, int]]:
        for n in range(MANY):
            yield n, n
        open_ones.append(sessions(database_url, "application_name = 'horsies' AND xact_start IS NOT NULL"))
        add.send(1, 1).unwrap()  # it may send something itself

    assert len(add.send_many(calls()).unwrap()) == MANY
    assert open_ones == [0]
    assert await count_tasks(db) == MANY + 2


async def test_t40_many_by_a_list_are_one_transaction_and_are_taken_in_their_order(
    add: Add, db: AsyncConnection
) -> None:
    handles = (await add.send_many_async([(n, n) for n in range(MANY)])).unwrap()
    found = await db.execute("SELECT id, args, xmin::text FROM horsies_tasks ORDER BY enqueued_at, id")
    rows = await found.fetchall()
    assert [row[0] for row in rows] == [handle.task_id for handle in handles]
    assert [row[1] for row in rows] == [f"[{n},{n}]" for n in range(MANY)]
    assert len({row[2] for row in rows}) == 1


TEXTS = [
    "plain",
    "",
    "\\",
    "\\N",
    "\\.",
    "a\tb\nc\rd\be\fg\vh",
    'say "yes" \\n \\t \\\\',
    "Grüße, 世界 🐎",
    "null",
    "\u2028\u0085",
    "%s %% $1",
]


async def test_t40_every_statement_writes_the_same_row(app: Horsies, db: AsyncConnection) -> None:
    """In every column that does not tell one send from another: a single send, a few, and so many that they are
    copied."""
    policy = RetryPolicy.fixed([1, 2], auto_retry_for=["WORKER_CRASHED"])

    @app.task("back\\slash", retry_policy=policy, timeout_ms=5000, flags=["slow"])
    def say(text: str, *, more: str = "") -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    soon = datetime.now(UTC) + timedelta(hours=1)
    bound = say.with_options(good_until=soon, flags={"red": False})
    single = [
        *(say.send(text).unwrap().task_id for text in TEXTS),
        *(say.send(text, more=text).unwrap().task_id for text in TEXTS),
        *(bound.send(text, more="x").unwrap().task_id for text in TEXTS),
    ]
    calls: list[Any] = [
        *((text,) for text in TEXTS),
        *({"text": text, "more": text} for text in TEXTS),
        *(bound.prepare(text, more="x") for text in TEXTS),
    ]
    calls[len(TEXTS) : 2 * len(TEXTS)] = [say.prepare(text, more=text) for text in TEXTS]
    many = [handle.task_id for handle in say.send_many([*calls, *[("fill",)] * MANY]).unwrap()][: len(calls)]
    own = "- 'id' - 'enqueue_sha' - 'sent_at' - 'enqueued_at' - 'created_at' - 'updated_at'"
    query = (
        f"SELECT (to_jsonb(t) {own})::text, enqueue_sha, extract(epoch FROM enqueued_at - created_at)::float8"  # noqa: S608
        " FROM unnest(%s::text[]) WITH ORDINALITY AS w(id, place) JOIN horsies_tasks t USING (id) ORDER BY place"
    )
    few = [handle.task_id for handle in say.send_many(calls).unwrap()]
    alone, listed, together = [
        await (await db.execute(query.encode(), [ids])).fetchall() for ids in (single, few, many)
    ]
    assert [row[0] for row in together] == [row[0] for row in listed] == [row[0] for row in alone]
    assert len({row[1] for row in together}) == len(together) == len(calls)
    assert all(len(row[1]) == 64 for row in together)
    assert all(abs(row[2]) < 5 for row in together)  # due when it was sent, by the clock of the database


async def test_t45_a_bad_call_behind_parts_that_are_written_leaves_nothing(
    app: Horsies, add: Add, database_url: str, db: AsyncConnection
) -> None:
    bad: list[Any] = [(n, n) for n in range(MANY)] + ["bad"]
    for sent in (add.send_many(bad), await add.send_many_async(bad)):
        error = sent.unwrap_err()
        assert (error.code, error.position, error.batch) == (TaskSendErrorCode.VALIDATION_FAILED, MANY, ())
    deadline = time.monotonic() + PATIENCE_S
    while sessions(database_url, "application_name = 'horsies' AND xact_start IS NOT NULL"):
        assert time.monotonic() < deadline, "its transaction stays open"
        await asyncio.sleep(0.01)
    assert await count_tasks(db) == 0
    add.send(1, 2).unwrap()


async def test_t45_a_caller_who_is_interrupted_or_cancelled_leaves_nothing(
    app: Horsies, database_url: str, db: AsyncConnection
) -> None:
    def interrupt() -> None:
        assert until_a_part_is_written(database_url)
        raise KeyboardInterrupt

    task = at_the_last_call(app, interrupt)
    with pytest.raises(KeyboardInterrupt):
        task.send_many([(n,) for n in range(MANY)])
    add = define_add(app)
    await hold_up(db, f"[{MANY - 1},0]")
    sending = asyncio.create_task(add.send_many_async([(n, 0) for n in range(MANY)]))
    await eventually(lambda: sessions(database_url, "wait_event = 'advisory'"), what="it comes to the last one")
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    deadline = time.monotonic() + PATIENCE_S
    while sessions(database_url, "application_name = 'horsies' AND xact_start IS NOT NULL"):
        assert time.monotonic() < deadline, "its transaction stays open"
        await asyncio.sleep(0.01)
    assert await count_tasks(db) == 0


async def test_t48_one_that_the_database_refuses_is_told_as_by_a_single_statement(
    add: Add, db: AsyncConnection
) -> None:
    await db.execute(f"ALTER TABLE horsies_tasks ADD CONSTRAINT no CHECK (args <> '[{MANY - 1},0]')")
    calls = [(n, 0) for n in range(MANY)]
    for error in (add.send_many(calls).unwrap_err(), (await add.send_many_async(calls)).unwrap_err()):
        assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, True)
        assert len(error.batch) == MANY and "violates check constraint" in error.message
    assert await count_tasks(db) == 0


async def test_t48_where_copy_is_refused_the_ordinary_statement_writes(add: Add, db: AsyncConnection) -> None:
    """As with row security, or behind something that does not know COPY."""
    await db.execute(
        """
        CREATE FUNCTION no_copy() RETURNS trigger AS $$
        BEGIN
            IF current_query() LIKE 'COPY%' THEN RAISE feature_not_supported USING MESSAGE = 'no COPY here'; END IF;
            RETURN NEW;
        END; $$ LANGUAGE plpgsql
        """
    )
    await db.execute("CREATE TRIGGER no_copy BEFORE INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION no_copy()")
    handles = add.send_many([(n, n) for n in range(MANY)]).unwrap()
    assert await count_tasks(db) == len({handle.task_id for handle in handles}) == MANY


async def test_t51_a_full_disk_is_one_try_and_the_next_writes_the_same_ids(
    database_url: str, db: AsyncConnection, pauses: list[float]
) -> None:
    await fail_inserts(db, times=2)
    with an_app(database_url, resend_on_transient_err=True) as app:
        assert len(define_add(app).send_many([(n, n) for n in range(MANY)]).unwrap()) == MANY
    assert (await tries(db), pauses) == (MANY + 2, [0.2, 0.4])
    assert await count_tasks(db) == MANY


@pytest.mark.parametrize("is_heard", [True, False], ids=["written", "not written"])
async def test_t54_an_answer_that_is_lost_costs_no_task_and_doubles_none(
    database_url: str, db: AsyncConnection, is_heard: bool
) -> None:
    async with network(database_url) as between:
        with an_app(between.url) as app:
            add = define_add(app)
            (await add.send_async(0, 0)).unwrap()
            cut = between.cut_at("COMMIT", is_heard=is_heard)
            error = (await add.send_many_async([(n, n) for n in range(MANY)])).unwrap_err()
            assert cut.is_set() and (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, True)
            assert await count_tasks(db) == 1 + MANY * is_heard
            between.mend()
            handle = (await add.retry_send_async(error)).unwrap()
            assert handle.task_id == error.batch[0][0] and len(error.batch) == MANY
            assert await count_tasks(db) == 1 + MANY
            await app.get_broker().close_async()


async def test_t57_keys_among_thousands_are_judged_as_ever(add: Add, db: AsyncConnection) -> None:
    known = add.with_options(idempotency_key="a").send(1).unwrap()
    calls: list[Any] = [(n, n) for n in range(MANY)]
    calls[MANY // 2] = add.with_options(idempotency_key="a").prepare(1)
    handles = add.send_many(calls).unwrap()
    assert handles[MANY // 2].task_id == known.task_id
    assert await count_tasks(db) == MANY


async def test_t10_echo_logs_the_copy_and_none_of_its_rows(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with an_app(database_url, postgres={"echo": True}) as app, caplog.at_level("INFO", logger="horsies.sql"):
        define_add(app).send_many([(n, 987654321) for n in range(MANY)]).unwrap()
    assert sum("COPY horsies_tasks" in message for message in caplog.messages) == 3
    assert not [message for message in caplog.messages if "987654321" in message]


async def test_d60_each_of_thousands_is_notified_of_on_both_channels(add: Add, db: AsyncConnection) -> None:
    add.send(0, 0).unwrap()
    await db.execute("LISTEN task_new")
    await db.execute("LISTEN task_queue_default")
    ids = [handle.task_id for handle in add.send_many([(n, n) for n in range(MANY)]).unwrap()]
    heard: dict[str, list[str]] = {"task_new": [], "task_queue_default": []}
    async for notification in db.notifies(timeout=PATIENCE_S, stop_after=2 * MANY):
        heard[notification.channel].append(notification.payload)
    assert heard == {"task_new": ids, "task_queue_default": ids}
    assert [n async for n in db.notifies(timeout=0.2)] == []
