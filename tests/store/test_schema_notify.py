"""Which changes ring which bell, heard by a real LISTEN session, in each of the three modes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from psycopg import AsyncConnection

from horsies.core.schema.install import NOTIFY_MODES, install
from tests.doorbell_support import listening
from tests.store.catalog import snapshot

CHANNELS = (
    "task_new",
    "task_queue_default",
    "task_queue_other",
    "task_done",
    "workflow_done",
    "horsies_task_status",
    "horsies_workflow_status",
    "horsies_worker_state",
)
NEW_DEFAULT = [("task_new", "x"), ("task_queue_default", "x")]
DONE = [("task_done", "x")]
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")
INSERT = "INSERT INTO horsies_tasks (id, task_name) VALUES ('x', 't')"

Heard = list[tuple[str, str]]
Ears = Callable[[], Awaitable[Heard]]


@pytest.fixture
async def ears(database_url: str, db: AsyncConnection) -> AsyncIterator[Ears]:
    """What was heard since the last time; a bell of our own, rung last, tells that all others have arrived."""
    async with await AsyncConnection.connect(database_url, autocommit=True) as listener:
        for channel in (*CHANNELS, "fence"):
            await listener.execute(f"LISTEN {channel}")

        async def heard() -> Heard:
            await db.execute("NOTIFY fence")
            collected: Heard = []
            async for bell in listener.notifies(timeout=10):
                if bell.channel == "fence":
                    return collected
                collected.append((bell.channel, bell.payload))
            raise AssertionError(f"the last bell never rang; heard {collected}")

        yield heard


async def waits(db: AsyncConnection, topic: str, seconds: int = 60) -> None:
    await db.execute(
        "INSERT INTO horsies_waiting VALUES (%s, 'me', clock_timestamp() + make_interval(secs => %s)) "
        "ON CONFLICT (topic, holder) DO UPDATE SET until = EXCLUDED.until",
        [topic, seconds],
    )


async def use(db: AsyncConnection, mode: str) -> None:
    await install(db, notify=mode, change_notify=True)


# What D-60 says, row by row. It calls the same names with another beginning, so that both can be heard side by side.
DOCUMENTED = """
    CREATE FUNCTION documented() RETURNS trigger AS $$
    BEGIN
        IF TG_OP = 'INSERT' AND NEW.status = 'PENDING' THEN
            PERFORM pg_notify('documented_task_new', NEW.id);
            PERFORM pg_notify('documented_task_queue_' || NEW.queue_name, NEW.id);
        ELSIF TG_OP = 'UPDATE' AND OLD.status != NEW.status THEN
            IF NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED', 'EXPIRED') THEN
                PERFORM pg_notify('documented_task_done', NEW.id);
            END IF;
        END IF;
        RETURN NEW;
    END;
    $$ LANGUAGE plpgsql;
    CREATE TRIGGER documented AFTER INSERT OR UPDATE ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION documented();
"""
STATEMENTS = {
    "many in one statement": """
        INSERT INTO horsies_tasks (id, task_name, queue_name, status)
        SELECT 'n' || n, 't', (ARRAY['default', 'other'])[n % 2 + 1], (ARRAY['PENDING', 'CLAIMED', 'FAILED'])[n % 3 + 1]
        FROM generate_series(1, 300) AS n""",
    "none": "INSERT INTO horsies_tasks (id, task_name) SELECT 'x', 't' WHERE FALSE",
    "some that are there already": """
        INSERT INTO horsies_tasks (id, task_name) VALUES ('n1', 't'), ('new', 't') ON CONFLICT DO NOTHING""",
    "inserted or changed": """
        INSERT INTO horsies_tasks (id, task_name) VALUES ('n1', 't'), ('n2', 't'), ('newer', 't')
        ON CONFLICT (id) DO UPDATE SET status = 'EXPIRED'""",
    "claimed": "UPDATE horsies_tasks SET status = 'CLAIMED', claimed = TRUE WHERE status = 'PENDING'",
    "only touched": "UPDATE horsies_tasks SET updated_at = now()",
    "ended, and some had ended before": "UPDATE horsies_tasks SET status = 'FAILED' WHERE id < 'n3'",
    "ended, and none had ended before": "UPDATE horsies_tasks SET status = 'COMPLETED' WHERE status = 'CLAIMED'",
    "from one end to another": "UPDATE horsies_tasks SET status = 'CANCELLED' WHERE status = 'FAILED'",
    "two commands in one statement": """
        WITH ended AS (UPDATE horsies_tasks SET status = 'EXPIRED' WHERE id = 'n3' RETURNING id),
             waiting AS (UPDATE horsies_tasks SET status = 'PENDING' WHERE id = 'n4' RETURNING id)
        INSERT INTO horsies_tasks (id, task_name)
        SELECT id || 'a', 't' FROM ended UNION SELECT id || 'b', 't' FROM waiting""",
    "deleted": "DELETE FROM horsies_tasks WHERE id > 'n5'",
}


# Only by hand is a task touched that has ended; these are told in any order.
TOUCHES_ENDED = ("inserted or changed", "ended, and some had ended before", "from one end to another")


async def test_d60_always_sends_what_is_documented_and_in_the_same_order(
    database_url: str, db: AsyncConnection
) -> None:
    await db.execute(DOCUMENTED)
    plain = ("task_new", "task_queue_default", "task_queue_other", "task_done")
    async with listening(database_url, *plain, *(f"documented_{channel}" for channel in plain)) as heard:
        for name, statement in STATEMENTS.items():
            await db.execute(statement)
            bells = await heard()
            told = [(channel.removeprefix("documented_"), what) for channel, what in bells if channel not in plain]
            rung = [bell for bell in bells if bell[0] in plain]
            if name in TOUCHES_ENDED:
                told, rung = sorted(told), sorted(rung)
            assert rung == told, name
            assert bool(rung) == (name not in ("none", "claimed", "only touched", "deleted")), name


async def test_d60_always_sends_for_rows_that_are_copied(database_url: str, db: AsyncConnection) -> None:
    async with listening(database_url, "task_new", "task_queue_default") as heard:
        async with db.cursor().copy("COPY horsies_tasks (id, task_name) FROM STDIN") as copy:
            for task_id in ("a", "b"):
                await copy.write_row((task_id, "t"))
        assert await heard() == [(c, i) for i in ("a", "b") for c in ("task_new", "task_queue_default")]


@pytest.mark.parametrize("mode", NOTIFY_MODES)
async def test_d60_in_every_mode_one_trigger_is_called_once_for_each_statement(db: AsyncConnection, mode: str) -> None:
    await use(db, mode)
    triggers = {str(row[1]): str(row[2]) for row in (await snapshot(db))["triggers"] if row[0] == "horsies_tasks"}
    notifying = {name: text for name, text in triggers.items() if "horsies_notify_task_changes()" in text}
    assert set(notifying) == {"horsies_task_notify_insert", "horsies_task_notify_update"}
    assert all("FOR EACH STATEMENT" in text for text in notifying.values())
    events = [event for text in triggers.values() for event in ("INSERT", "UPDATE") if f"AFTER {event} ON" in text]
    assert sorted(events) == ["INSERT", "INSERT", "UPDATE"], "the other one counts rows that are inserted as claimed"


async def test_d60_always_rings_for_a_new_task_on_both_channels(db: AsyncConnection, ears: Ears) -> None:
    await db.execute(INSERT)
    assert await ears() == NEW_DEFAULT
    await db.execute("INSERT INTO horsies_tasks (id, task_name, queue_name) VALUES ('y', 't', 'other')")
    assert await ears() == [("task_new", "y"), ("task_queue_other", "y")]


@pytest.mark.parametrize("status", TERMINAL)
async def test_d60_always_rings_at_the_end_of_a_task(db: AsyncConnection, ears: Ears, status: str) -> None:
    await db.execute(INSERT)
    await ears()
    await db.execute("UPDATE horsies_tasks SET status = %s", [status])
    assert await ears() == DONE


@pytest.mark.parametrize("mode", NOTIFY_MODES)
async def test_d60_anything_else_is_silent(db: AsyncConnection, ears: Ears, mode: str) -> None:
    await use(db, mode)
    await waits(db, "queue:default")
    await waits(db, "task:x")
    await db.execute("INSERT INTO horsies_tasks (id, task_name, status) VALUES ('x', 't', 'CLAIMED')")
    for status in ("RUNNING", "PENDING", "CLAIMED", "PENDING"):
        await db.execute("UPDATE horsies_tasks SET status = %s", [status])
    await db.execute("UPDATE horsies_tasks SET priority = 1")
    assert await ears() == []
    await db.execute("UPDATE horsies_tasks SET status = 'FAILED'")
    assert await ears() == ([] if mode == "off" else DONE)
    await db.execute("UPDATE horsies_tasks SET result = '{}'")
    await db.execute("DELETE FROM horsies_tasks")
    assert await ears() == []


async def test_d60_a_transaction_that_rolls_back_is_silent(db: AsyncConnection, ears: Ears) -> None:
    async with db.transaction(force_rollback=True):
        await db.execute(INSERT)
    assert await ears() == []


async def test_d60_when_waiting_rings_for_a_queue_only_if_a_worker_sleeps_on_it(
    db: AsyncConnection, ears: Ears
) -> None:
    await use(db, "when_waiting")
    await waits(db, "queue:other")
    await db.execute(INSERT)
    assert await ears() == []
    await waits(db, "queue:default")
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('y', 't')")
    assert await ears() == [("task_new", "y"), ("task_queue_default", "y")]


async def test_d60_when_waiting_rings_for_a_task_only_if_a_client_waits_for_it(db: AsyncConnection, ears: Ears) -> None:
    await use(db, "when_waiting")
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('x', 't'), ('y', 't')")
    await waits(db, "task:x")
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED'")
    assert await ears() == DONE


async def test_d60_when_waiting_forgets_whoever_waited_too_long_ago(db: AsyncConnection, ears: Ears) -> None:
    await use(db, "when_waiting")
    await waits(db, "queue:default", seconds=-1)
    await waits(db, "task:x", seconds=-1)
    await db.execute(INSERT)
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED'")
    assert await ears() == []


async def test_d60_when_waiting_judges_by_the_clock_and_not_by_the_transaction(db: AsyncConnection, ears: Ears) -> None:
    """Someone whose word ends while a long transaction runs no longer waits when the row comes."""
    await use(db, "when_waiting")
    async with db.transaction():
        await db.execute("INSERT INTO horsies_waiting VALUES ('queue:default', 'me', now() + interval '1 microsecond')")
        await db.execute(INSERT)
    assert await ears() == []


async def test_d60_off_never_rings(db: AsyncConnection, ears: Ears) -> None:
    await use(db, "off")
    await waits(db, "queue:default")
    await waits(db, "task:x")
    await db.execute(INSERT)
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED'")
    await db.execute("SELECT horsies_ring('default', 'x', NULL)")
    assert await ears() == []


@pytest.mark.parametrize("mode", NOTIFY_MODES)
@pytest.mark.parametrize("sleeps", [False, True])
async def test_l21_ring_does_what_the_trigger_would(db: AsyncConnection, ears: Ears, mode: str, sleeps: bool) -> None:
    await use(db, mode)
    if sleeps:
        await waits(db, "queue:default")
    await db.execute(INSERT)
    by_trigger = await ears()
    await db.execute("SELECT horsies_ring(queue_name, id, NULL) FROM horsies_tasks")
    assert await ears() == by_trigger
    assert by_trigger == (NEW_DEFAULT if mode == "always" or (mode == "when_waiting" and sleeps) else [])


async def test_d60_the_change_of_mode_takes_effect_in_open_sessions(
    database_url: str, db: AsyncConnection, ears: Ears
) -> None:
    await db.execute(INSERT)
    assert await ears() == NEW_DEFAULT
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await use(other, "off")
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('y', 't')")
    assert await ears() == []


async def workflow(db: AsyncConnection) -> None:
    await db.execute(
        "INSERT INTO horsies_workflows (id, name, definition_key, status, open_nodes) "
        "VALUES ('f', 'n', 'k', 'RUNNING', 1)"
    )


@pytest.mark.parametrize("mode", NOTIFY_MODES)
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED", "PAUSED"])
async def test_d61_the_end_or_pause_of_a_workflow_rings(
    db: AsyncConnection, ears: Ears, status: str, mode: str
) -> None:
    await use(db, mode)
    await workflow(db)
    await db.execute("UPDATE horsies_workflows SET open_nodes = 0")
    assert await ears() == []
    await db.execute("UPDATE horsies_workflows SET status = %s", [status])
    assert await ears() == [("workflow_done", "f")]
    await db.execute("UPDATE horsies_workflows SET status = %s, updated_at = now()", [status])
    await db.execute("UPDATE horsies_workflows SET status = 'RUNNING'")
    assert await ears() == []


async def everything_that_is_watched(db: AsyncConnection) -> None:
    await db.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('x', 't'), ('y', 't')")
    await db.execute("UPDATE horsies_tasks SET status = 'CLAIMED', claimed = TRUE")
    await db.execute("UPDATE horsies_tasks SET claim_expires_at = now()")
    await db.execute("UPDATE horsies_tasks SET status = 'RUNNING' WHERE id = 'x'")
    await workflow(db)
    await db.execute("UPDATE horsies_workflows SET open_nodes = 0")
    await db.execute("UPDATE horsies_workflows SET status = 'PENDING'")
    await db.execute("INSERT INTO horsies_worker_states (worker_id) VALUES ('w')")


@pytest.mark.parametrize("mode", NOTIFY_MODES)
async def test_d61_a_monitor_hears_every_change_of_status_whatever_the_mode(
    db: AsyncConnection, ears: Ears, mode: str
) -> None:
    await use(db, mode)
    await waits(db, "monitor")
    await everything_that_is_watched(db)
    seen = [bell for bell in await ears() if bell[0].startswith("horsies_")]
    assert [sorted(seen[:2]), sorted(seen[2:4]), *seen[4:]] == [
        [("horsies_task_status", "x"), ("horsies_task_status", "y")],
        [("horsies_task_status", "x"), ("horsies_task_status", "y")],
        ("horsies_task_status", "x"),
        ("horsies_workflow_status", "f"),
        ("horsies_workflow_status", "f"),
        ("horsies_worker_state", "w"),
    ]


@pytest.mark.parametrize("left_word", [None, -1])
async def test_d61_without_a_monitor_nothing_of_it_is_sent(
    db: AsyncConnection, ears: Ears, left_word: int | None
) -> None:
    if left_word is not None:
        await waits(db, "monitor", seconds=left_word)
    await everything_that_is_watched(db)
    assert [bell for bell in await ears() if bell[0].startswith("horsies_")] == []
