"""`horsies_send` and `horsies_result` (X-40), statement by statement: what a row looks like, what is refused and in
which words, keys that SQL and Python share, and tasks that were sent before any worker had published their name."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.core.models.tasks import RetryPolicy, TaskOptions, TaskSendPayload
from horsies.core.producer import envelope
from horsies.core.producer.enqueue import Mismatch, Sent, enqueue, new_task_id, run_async
from horsies.core.store import defaults, many
from horsies.core.store.sends import Send, Statement
from horsies.core.tasks.catalogue import Catalogue, TaskDefaults
from horsies.core.types import TaskStatus
from tests.factories import given_task
from tests.support import eventually

Db = AsyncConnection[Any]
POLICY = TaskOptions(RetryPolicy.fixed([60, 300], auto_retry_for=["TASK_TIMEOUT"]), 5_000).to_json()
MAIL = TaskDefaults("mail.send", "mail", 7, POLICY, '{"loud":true}', None)
QUEUES = {"mail": 7, "slow": 90}


async def publish(db: Db, *tasks: TaskDefaults) -> int:
    return await defaults.publish(db, Catalogue(tasks or (MAIL,), QUEUES))


async def send(db: Db, name: str = "mail.send", arguments: Any = None, **options: Any) -> str:
    given = {"to": "a@b"} if arguments is None else arguments
    named = "".join(f", {option} => %({option})s" for option in options)
    values = {"name": name, "arguments": json.dumps(given), **options}
    cursor = await db.execute(f"SELECT horsies_send(%(name)s, %(arguments)s::jsonb{named})".encode(), values)
    [(task_id,)] = await cursor.fetchall()
    assert isinstance(task_id, str)
    return task_id


async def send_from_python(db: Db, **changes: Any) -> Sent | Mismatch:
    fields: dict[str, Any] = {
        "task_name": "mail.send", "queue_name": "mail", "priority": 7, "args_json": None,
        "kwargs_json": '{"to":"a@b"}', "sent_at": datetime.now(UTC), "good_until": None, "enqueue_delay_seconds": None,
        "task_options": POLICY, "enqueue_sha": "", "flags_json": '{"loud":true}', "idempotency_key": "k",
    }  # fmt: skip
    payload = envelope.with_sha(TaskSendPayload(**{**fields, **changes}))

    async def execute(statement: Statement) -> Any:
        return await (await db.execute(statement.text.encode(), statement.params)).fetchall()

    [outcome] = await run_async(enqueue([Send(new_task_id(), payload)]), execute)
    return outcome


async def task_row(db: Db, task_id: str) -> dict[str, Any]:
    async with db.cursor(row_factory=dict_row) as cursor:
        await cursor.execute("SELECT * FROM horsies_tasks WHERE id = %s", [task_id])
        [row] = await cursor.fetchall()
    return row


def payload_in(row: dict[str, Any], delay: float | None = None) -> TaskSendPayload:
    """What Python would have sent, to write this row."""
    flags = json.dumps(row["flags"], separators=(",", ":"), sort_keys=True) if row["flags"] else None
    return TaskSendPayload(
        row["task_name"], row["queue_name"], row["priority"], row["args"], row["kwargs"], row["sent_at"],
        row["good_until"], delay, row["task_options"], row["enqueue_sha"], flags, row["idempotency_key"],
    )  # fmt: skip


async def test_x40_the_row_is_like_one_of_python(frozen: Db) -> None:
    await publish(frozen)
    before = datetime.now(UTC)
    row = await task_row(frozen, await send(frozen, arguments={"to": 'ä"\\\n\x7f\U0001f40e', "n": 1}))
    assert (row["queue_name"], row["priority"], row["max_retries"]) == ("mail", 7, 2)
    assert (row["status"], row["task_options"], row["flags"]) == ("PENDING", POLICY, {"loud": True})
    assert json.loads(row["kwargs"]) == {"to": 'ä"\\\n\x7f\U0001f40e', "n": 1} and row["args"] is None
    assert row["enqueued_at"] == row["sent_at"] and abs(row["sent_at"] - before) < timedelta(minutes=5)
    assert envelope.is_intact(payload_in(row)), "the fingerprint is that of Python"


@pytest.mark.parametrize("digits", [1, -15])
@pytest.mark.parametrize(
    "delay", [0, 5, 0.25, 90_061.5, 0.000001, 0.000009, 0.00001, 0.000057, 0.0001, 12_345_678.123456]
)
async def test_x40_a_delay_and_a_deadline_are_part_of_the_fingerprint(frozen: Db, delay: float, digits: int) -> None:
    await publish(frozen)
    await frozen.execute(f"SET extra_float_digits = {digits}".encode())
    deadline = datetime(2150, 1, 2, 3, 4, 5, 678, UTC)
    options = {"delay": timedelta(seconds=delay), "good_until": deadline, "idempotency_key": "k", "priority": 3}
    row = await task_row(frozen, await send(frozen, **options))
    assert row["enqueued_at"] - row["sent_at"] == timedelta(seconds=delay) and row["good_until"] == deadline
    assert row["priority"] == 3 and envelope.is_intact(payload_in(row, delay))


async def test_x40_ids_are_those_of_python_and_sort_in_the_order_of_sending(frozen: Db) -> None:
    await publish(frozen)
    text = "SELECT array_agg(horsies_send('mail.send') ORDER BY n) FROM generate_series(1, 200) n"
    [(ids,)] = await (await frozen.execute(text)).fetchall()
    assert sorted(ids) == ids and len(set(ids)) == 200
    assert all(one[14] == "7" and one[19] in "89ab" and len(one) == 36 for one in ids)
    assert abs(int(ids[0][:13].replace("-", ""), 16) - int(new_task_id()[:13].replace("-", ""), 16)) < 300_000


@pytest.mark.parametrize(
    ("given", "args", "kwargs"), [({}, None, None), ([], None, None), (["a@b", 2], '["a@b", 2]', None)]
)
async def test_x40_an_array_is_arguments_by_position(frozen: Db, given: Any, args: Any, kwargs: Any) -> None:
    row = await task_row(frozen, await send(frozen, arguments=given))
    assert (row["args"], row["kwargs"]) == (args, kwargs)


async def test_x40_an_explicit_queue_has_its_own_priority(frozen: Db) -> None:
    await publish(frozen)
    row = await task_row(frozen, await send(frozen, queue_name="slow"))
    assert (row["queue_name"], row["priority"]) == ("slow", 90)
    row = await task_row(frozen, await send(frozen, queue_name="slow", priority=1))
    assert (row["queue_name"], row["priority"]) == ("slow", 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "task_name must have 1 to 255 printable characters"),
        ({"name": "x" * 256}, "task_name must have 1 to 255 printable characters"),
        ({"name": "a\nb"}, "printable"),
        ({"name": "a\x85b"}, "printable"),
        ({"arguments": "text"}, "the arguments of task 'mail.send' must be a JSON object or array, not string"),
        ({"arguments": 5}, "must be a JSON object or array, not number"),
        ({"priority": 0}, "the priority of task 'mail.send' must be from 1 (served first) to 100, not 0"),
        ({"priority": 101}, "not 101"),
        ({"delay": timedelta(seconds=-1)}, "the delay of task 'mail.send' must be from 0 to 3650 days"),
        ({"delay": timedelta(days=3651)}, "must be from 0 to 3650 days"),
        ({"good_until": "infinity"}, "good_until of task 'mail.send' must be a time before the year 10000"),
        ({"good_until": "-infinity"}, "must be a time before the year 10000"),
        ({"good_until": datetime(2020, 1, 1, tzinfo=UTC)}, "good_until of task 'mail.send' has passed"),
        ({"idempotency_key": ""}, "the idempotency_key of task 'mail.send' must have 1 to 255 characters, not 0"),
        ({"idempotency_key": "k" * 256}, "must have 1 to 255 characters, not 256"),
        ({"queue_name": "nowhere"}, "there is no queue 'nowhere' for task 'mail.send'"),
        ({"queue_name": "a b"}, "there is no queue 'a b'"),
        ({"queue_name": "(early)"}, "there is no queue '(early)'"),
    ],
)
async def test_x40_what_is_wrong_is_refused_at_the_door(frozen: Db, options: dict[str, Any], words: str) -> None:
    await publish(frozen)
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
        await send(frozen, **options)
    assert words in str(caught.value.diag.message_primary)
    assert caught.value.diag.message_detail == "VALIDATION_FAILED"


async def test_x40_a_name_may_have_255_characters(frozen: Db) -> None:
    assert (await task_row(frozen, await send(frozen, name="x" * 255)))["task_name"] == "x" * 255


SETTINGS = (
    "DateStyle = 'German'", "TimeZone = 'Asia/Tokyo'", "IntervalStyle = 'sql_standard'", "extra_float_digits = 0",
    "bytea_output = 'escape'", "standard_conforming_strings = off",
)  # fmt: skip


async def test_x40_settings_of_the_session_change_nothing(frozen: Db) -> None:
    await publish(frozen)
    for setting in SETTINGS:
        await frozen.execute(f"SET LOCAL {setting}".encode())
    deadline = datetime(2150, 1, 2, 3, 4, 5, 678, UTC)
    task_id = await send(frozen, delay=timedelta(seconds=0.25), good_until=deadline)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="printable"):
        async with frozen.transaction():
            await send(frozen, "a\nb")
    await frozen.execute("SET LOCAL DateStyle = 'ISO'")
    row = await task_row(frozen, task_id)
    assert row["good_until"] == deadline and envelope.is_intact(payload_in(row, 0.25))


@pytest.mark.parametrize("given", ["NULL", "NULL::jsonb"])
async def test_x40_null_arguments_are_refused(frozen: Db, given: str) -> None:
    """What `jsonb || NULL` gives is no task without arguments."""
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="not NULL"):
        await frozen.execute(f"SELECT horsies_send('mail.send', {given})".encode())


async def test_x40_large_arguments_are_refused_by_the_policy_of_the_app(frozen: Db) -> None:
    await publish(frozen, TaskDefaults("mail.send", "mail", 7, None, None, 100))
    await send(frozen, arguments={"to": "a" * 80})
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="have 110 bytes, more than the 100") as caught:
        await send(frozen, arguments={"to": "a" * 100})
    assert caught.value.diag.message_detail == "PAYLOAD_TOO_LARGE"


async def test_x40_t57_a_repeated_send_is_the_same_task(frozen: Db) -> None:
    await publish(frozen)
    first = await send(frozen, arguments={"to": "a@b", "n": 1}, idempotency_key="k")
    assert await send(frozen, arguments={"n": 1, "to": "a@b"}, idempotency_key="k") == first
    assert await send(frozen, name="mail.other", idempotency_key="k") != first
    with pytest.raises(psycopg.Error) as caught:
        await send(frozen, arguments={"to": "x@y"}, idempotency_key="k", priority=9)
    assert caught.value.sqlstate == "TQ001" and caught.value.diag.message_detail == "PAYLOAD_MISMATCH"
    assert f"'k' of task 'mail.send' belongs to task {first}, sent with other priority, arguments" in str(caught.value)


async def test_x40_t57_a_deployment_between_two_sends_does_not_make_them_differ(frozen: Db) -> None:
    """The caller has said the same twice; an error would fail his transaction."""
    await publish(frozen)
    first = await send(frozen, idempotency_key="k")
    await publish(frozen, TaskDefaults("mail.send", "slow", 90, None, None, None))
    assert await send(frozen, idempotency_key="k") == first
    assert await send(frozen, idempotency_key="k", queue_name="mail", priority=7) == first
    with pytest.raises(psycopg.Error, match="sent with other queue, priority"):
        await send(frozen, idempotency_key="k", queue_name="slow", priority=90)


async def test_x40_t57_a_repeated_send_after_the_deadline_is_still_the_same(frozen: Db) -> None:
    await publish(frozen)
    first = await send(frozen, idempotency_key="k")
    passed = datetime(2020, 1, 1, tzinfo=UTC)
    assert await send(frozen, idempotency_key="k", good_until=passed) == first


@pytest.mark.parametrize("is_early", [False, True])
async def test_x40_t57_keys_are_shared_with_python(frozen: Db, is_early: bool) -> None:
    if not is_early:
        await publish(frozen)
    first = await send(frozen, idempotency_key="k")
    assert await send_from_python(frozen) == Sent(first)
    assert isinstance(await send_from_python(frozen, kwargs_json='{"to":"x@y"}'), Mismatch)
    other = await send_from_python(frozen, idempotency_key="from Python")
    assert isinstance(other, Sent)
    assert await send(frozen, idempotency_key="from Python") == other.task_id
    with pytest.raises(psycopg.Error, match="sent with other arguments"):
        await send(frozen, arguments={"to": "x@y"}, idempotency_key="from Python")


async def test_d59b_the_last_who_publishes_wins_and_nothing_is_written_twice(frozen: Db) -> None:
    assert await publish(frozen) == 1
    assert await publish(frozen) == 0
    assert await publish(frozen, TaskDefaults("mail.send", "slow", 90, None, None, None)) == 1
    row = await task_row(frozen, await send(frozen))
    assert (row["queue_name"], row["priority"], row["max_retries"], row["task_options"]) == ("slow", 90, 0, None)


async def test_x40_d59c_an_early_task_waits_and_gets_what_it_lacks(frozen: Db) -> None:
    plain = await send(frozen, delay=timedelta(seconds=-0))
    later = await send(frozen, delay=timedelta(hours=1), priority=2)
    elsewhere = await send(frozen, queue_name="slow")
    unknown = await send(frozen, name="mail.unknown")
    cancelled = await send(frozen)
    await frozen.execute("UPDATE horsies_tasks SET status = 'CANCELLED' WHERE id = %s", [cancelled])
    row = await task_row(frozen, plain)
    assert (row["status"], row["queue_name"], row["max_retries"]) == ("PENDING", "(early)", 0)

    await publish(frozen)
    assert await defaults.adopt(frozen, ["mail.send"], 2) == (2, 2)
    assert await defaults.adopt(frozen, ["mail.send"]) == (2, 1)
    assert await defaults.adopt(frozen, ["mail.send", "mail.unknown"]) == (0, 0)

    row = await task_row(frozen, plain)
    assert (row["queue_name"], row["priority"], row["max_retries"]) == ("mail", 7, 2)
    assert (row["task_options"], row["flags"]) == (POLICY, {"loud": True})
    row = await task_row(frozen, later)
    assert (row["queue_name"], row["priority"]) == ("mail", 2)
    assert row["enqueued_at"] - row["sent_at"] == timedelta(hours=1)
    row = await task_row(frozen, elsewhere)
    assert (row["queue_name"], row["priority"]) == ("slow", 90)
    row = await task_row(frozen, cancelled)
    assert (row["status"], row["queue_name"], row["max_retries"]) == ("CANCELLED", "mail", 2), "to be sent again"
    assert (await task_row(frozen, unknown))["queue_name"] == "(early)"
    left = await (await frozen.execute("SELECT task_id FROM horsies_early_tasks")).fetchall()
    assert left == [(unknown,)]


async def test_d59c_the_early_row_goes_with_its_task(frozen: Db) -> None:
    await send(frozen)
    await frozen.execute("DELETE FROM horsies_tasks")
    assert await (await frozen.execute("SELECT task_id FROM horsies_early_tasks")).fetchall() == []


async def test_d59c_m49_sent_again_before_anybody_knows_it_it_waits_as_the_first_did(frozen: Db) -> None:
    """In the default queue it would wait for ever if the app has others, and fail as unknown if it has that one."""
    old = await send(frozen, queue_name="slow")
    await frozen.execute("UPDATE horsies_tasks SET status = 'CANCELLED'")
    assert await many.rerun(frozen, [old], ["new"], once=True) == {old: "new"}
    assert (await task_row(frozen, "new"))["queue_name"] == "(early)"
    await publish(frozen)
    assert await defaults.adopt(frozen, ["mail.send"]) == (2, 1)
    row = await task_row(frozen, "new")
    assert (row["queue_name"], row["priority"], row["max_retries"], row["flags"]) == ("slow", 90, 2, {"loud": True})
    assert json.loads(row["task_options"]) == {**json.loads(POLICY), "rerun_of": old}


@pytest.mark.parametrize("is_adopted", [False, True])
@pytest.mark.parametrize(
    ("named", "gets"), [({}, ("mail", 7)), ({"queue_name": "slow"}, ("slow", 90)), ({"priority": 3}, ("mail", 3))]
)
async def test_d59c_m49_sent_again_when_it_is_known_it_has_what_its_sender_named_and_what_was_published(
    frozen: Db, is_adopted: bool, named: dict[str, Any], gets: tuple[str, int]
) -> None:
    old = await send(frozen, **named)
    await frozen.execute("UPDATE horsies_tasks SET status = 'CANCELLED'")
    await publish(frozen)
    if is_adopted:
        assert await defaults.adopt(frozen, ["mail.send"]) == (1, 0)
    await many.rerun(frozen, [old], ["new"], once=True)
    row = await task_row(frozen, "new")
    assert (row["queue_name"], row["priority"]) == gets
    assert (row["max_retries"], row["flags"]) == (2, {"loud": True})
    assert json.loads(row["task_options"]) == {**json.loads(POLICY), "rerun_of": old}
    assert await (await frozen.execute("SELECT FROM horsies_early_tasks WHERE task_id = 'new'")).fetchall() == []


@pytest.mark.parametrize("delay", ["-10 years 3600 days", "10 years 1 day", "-1 month 30 days", "-1 mon 29 days"])
async def test_x40_a_delay_is_measured_by_the_calendar(frozen: Db, delay: str) -> None:
    """A comparison takes every month for 30 days."""
    with pytest.raises(psycopg.Error, match="must be from 0 to 3650 days"):
        await frozen.execute("SELECT horsies_send('mail.send', delay => %s::interval)", [delay])


async def test_d59c_two_adopt_at_once_and_each_task_once(db: Db, database_url: str) -> None:
    for _ in range(4):
        await send(db)
    await publish(db)
    async with await AsyncConnection.connect(database_url) as other:
        assert await defaults.adopt(other, ["mail.send"], 3) == (3, 3)
        assert await defaults.adopt(db, ["mail.send"]) == (1, 1)
        await other.rollback()
    assert await defaults.adopt(db, ["mail.send"]) == (3, 3), "whoever died has changed nothing"


async def test_d59c_a_task_that_is_cancelled_while_it_is_adopted_stays_cancelled(db: Db, database_url: str) -> None:
    task_id = await send(db)
    await publish(db)
    async with await AsyncConnection.connect(database_url) as other:
        await other.execute("UPDATE horsies_tasks SET status = 'CANCELLED' WHERE id = %s", [task_id])
        adopting = asyncio.create_task(defaults.adopt(db, ["mail.send"]))
        await eventually(lambda: is_blocked(database_url))
        await other.commit()
        assert await adopting == (1, 0)
    row = await task_row(db, task_id)
    assert (row["status"], row["queue_name"]) == ("CANCELLED", "mail")


async def test_x40_t57_two_that_send_under_one_key_at_once_send_one_task(db: Db, database_url: str) -> None:
    await publish(db)
    async with await AsyncConnection.connect(database_url) as other:
        first = await send(other, idempotency_key="k")
        second = asyncio.create_task(send(db, idempotency_key="k"))
        await eventually(lambda: is_blocked(database_url))
        await other.commit()
        assert await second == first


async def is_blocked(url: str) -> bool:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        text = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await (await conn.execute(text)).fetchall())


async def test_x40_the_bell_rings_for_a_send_and_for_an_adoption(db: Db, database_url: str) -> None:
    heard: list[tuple[str, str]] = []
    async with await AsyncConnection.connect(database_url, autocommit=True) as listening:
        await listening.execute('LISTEN task_new; LISTEN "task_queue_mail"; LISTEN "task_queue_(early)"')

        async def hear(count: int) -> None:
            async for note in listening.notifies(timeout=20, stop_after=count):
                heard.append((note.channel, note.payload))

        early = await send(db)
        await hear(2)
        await publish(db)
        await defaults.adopt(db, ["mail.send"])
        await hear(2)
        known = await send(db)
        await hear(2)
    assert heard == [
        ("task_new", early), ("task_queue_(early)", early), ("task_new", early), ("task_queue_mail", early),
        ("task_new", known), ("task_queue_mail", known),
    ]  # fmt: skip


async def result(db: Db, task_id: str) -> dict[str, Any]:
    cursor = await db.execute("SELECT * FROM horsies_result(%s)", [task_id])
    names = [column.name for column in cursor.description or ()]
    [row] = await cursor.fetchall()
    return dict(zip(names, row, strict=True))


async def test_x40_the_result_of_a_task(frozen: Db) -> None:
    assert await (await frozen.execute("SELECT * FROM horsies_result('no such task')")).fetchall() == []
    waiting = await result(frozen, await send(frozen))
    assert (waiting["status"], waiting["is_terminal"], waiting["value"]) == ("PENDING", False, None)
    ok = '{"ok":{"n":12345678901234567890123,"x":1.0}}'
    done = await result(frozen, await given_task(frozen, status=TaskStatus.COMPLETED, result=ok))
    assert (done["status"], done["is_terminal"], done["error_code"]) == ("COMPLETED", True, None)
    assert done["value"] == {"n": 12345678901234567890123, "x": 1.0}
    err = '{"err":{"error_code":"OUT_OF_STOCK","message":"none left","data":null,"exception":null}}'
    failed = await result(
        frozen, await given_task(frozen, status=TaskStatus.FAILED, result=err, error_code="OUT_OF_STOCK")
    )
    assert (failed["is_terminal"], failed["error_code"], failed["error_message"]) == (True, "OUT_OF_STOCK", "none left")
    assert failed["value"] is None


async def test_x40_a_result_tells_of_attempts_the_end_and_a_crash(frozen: Db) -> None:
    waiting = await result(frozen, await send(frozen))
    assert (waiting["attempts"], waiting["ended_at"], waiting["error_code"]) == (0, None, None)
    again = await result(
        frozen, await given_task(frozen, status=TaskStatus.PENDING, retry_count=1, error_code="OUT_OF_STOCK")
    )
    assert (again["attempts"], again["error_code"], again["error_message"]) == (1, None, None), "it is not over yet"
    crash = {"error_code": "WORKER_CRASHED", "failed_reason": "the child died"}
    crashed = await result(frozen, await given_task(frozen, status=TaskStatus.FAILED, **crash))
    assert (crashed["error_code"], crashed["error_message"]) == ("WORKER_CRASHED", "the child died")
    assert crashed["ended_at"] is not None


@pytest.mark.parametrize("text", ['{"ok":"a\\u0000b"}', "not JSON", ""])
async def test_x40_a_result_that_the_server_cannot_read_is_no_error(frozen: Db, text: str) -> None:
    row = await result(frozen, await given_task(frozen, status=TaskStatus.COMPLETED, result=text))
    assert row["status"] == "COMPLETED"
    assert row["value"] is not None or "cannot read" in row["error_message"]


async def test_x40_in_a_trigger_of_the_user(db: Db, database_url: str) -> None:
    """With a plain statement, with COPY, and not if the transaction is rolled back."""
    await publish(db)
    await db.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    await db.execute(
        "CREATE FUNCTION on_order() RETURNS trigger AS $$ BEGIN"
        " PERFORM horsies_send('mail.send', jsonb_build_object('to', NEW.id)); RETURN NULL; END $$ LANGUAGE plpgsql"
    )
    await db.execute("CREATE TRIGGER tell AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION on_order()")
    await db.execute("INSERT INTO orders SELECT generate_series(1, 50)")
    async with db.cursor().copy("COPY orders FROM STDIN") as copy:
        for number in range(51, 61):
            await copy.write_row([number])
    async with db.transaction(force_rollback=True):
        await db.execute("INSERT INTO orders VALUES (61)")
    rows = await (
        await db.execute("SELECT (kwargs::json ->> 'to')::int FROM horsies_tasks ORDER BY enqueued_at, id")
    ).fetchall()
    assert [number for (number,) in rows] == list(range(1, 61))
