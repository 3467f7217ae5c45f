"""Sending (T-40 … T-57): what is written, what is not, and what a failure tells."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.app import Horsies
from horsies.core.models.tasks import RetryPolicy, TaskError, TaskResult, TaskSendError, TaskSendErrorCode
from horsies.core.producer import enqueue as enqueue_module
from horsies.core.producer import many, send
from horsies.core.producer.envelope import enqueue_sha, with_sha
from tests.app_support import Add, an_app, define_add
from tests.factories import count_tasks, task_row
from tests.services.test_pool import refusing_port
from tests.support import eventually


async def fail_inserts(db: AsyncConnection, *, times: int, sqlstate: str = "53100") -> None:
    """The next `times` inserts fail on the server, as with a full disk; each try is counted."""
    await db.execute("CREATE SEQUENCE tries")
    await db.execute(
        f"""
        CREATE FUNCTION out_of_order() RETURNS trigger AS $$
        BEGIN
            IF nextval('tries') <= {times} THEN
                RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NEW;
        END; $$ LANGUAGE plpgsql
        """
    )
    await db.execute(
        "CREATE TRIGGER out_of_order BEFORE INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION out_of_order()"
    )


async def tries(db: AsyncConnection) -> int:
    row = await (await db.execute("SELECT last_value FROM tries")).fetchone()
    assert row is not None
    return int(row[0])


async def seconds_until_due(db: AsyncConnection, task_id: str) -> float:
    """How long after its row was written the task is due, by the database's clock."""
    row = await (
        await db.execute(
            "SELECT extract(epoch FROM enqueued_at - created_at) FROM horsies_tasks WHERE id = %s", [task_id]
        )
    ).fetchone()
    assert row is not None
    return float(row[0])


async def test_t40_send_writes_a_pending_row(add: Add, db: AsyncConnection) -> None:
    handle = add.send(1, b=2).unwrap()
    row = await task_row(db, handle.task_id)
    assert (row["task_name"], row["queue_name"], row["priority"], row["status"]) == ("add", "default", 100, "PENDING")
    assert (json.loads(row["args"]), json.loads(row["kwargs"])) == ([1], {"b": 2})
    assert (row["claimed"], row["retry_count"], row["max_retries"], row["claim_seq"]) == (False, 0, 0, 0)
    assert (row["flags"], row["task_options"], row["good_until"], row["idempotency_key"]) == ({}, None, None, None)


async def test_t40_send_async_writes_the_same(add: Add, db: AsyncConnection) -> None:
    handle = (await add.send_async(1, b=2)).unwrap()
    assert json.loads((await task_row(db, handle.task_id))["args"]) == [1]


async def test_t40_sends_from_many_threads_and_tasks_at_once(add: Add, db: AsyncConnection) -> None:
    with ThreadPoolExecutor(8) as threads:
        blocking = list(threads.map(lambda n: add.send(n).unwrap().task_id, range(40)))
    awaited = [sent.unwrap().task_id for sent in await asyncio.gather(*(add.send_async(n) for n in range(200)))]
    assert len({*blocking, *awaited}) == 240 == await count_tasks(db)


async def test_t40_ids_sort_in_the_order_of_the_sends(add: Add) -> None:
    ids = [add.send(n).unwrap().task_id for n in range(30)]
    assert ids == sorted(ids)


async def test_l04_options_and_flags_are_stored_with_the_row(app: Horsies, db: AsyncConnection) -> None:
    policy = RetryPolicy.fixed([5, 6], auto_retry_for=["BUSY"])

    @app.task("fragile", retry_policy=policy, timeout_ms=2000, flags=["cheap"])
    def fragile() -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    deadline = datetime.now(UTC) + timedelta(hours=1)
    handle = fragile.with_options(good_until=deadline, flags={"urgent": True}).send().unwrap()
    row = await task_row(db, handle.task_id)
    assert row["max_retries"] == 2
    assert json.loads(row["task_options"])["timeout_ms"] == 2000
    assert json.loads(row["task_options"])["retry_policy"]["intervals"] == [5, 6]
    assert row["flags"] == {"cheap": True, "urgent": True}
    assert datetime.fromisoformat(row["good_until"]) == deadline


async def test_t44_a_task_is_due_when_it_was_sent(add: Add, db: AsyncConnection) -> None:
    assert -1 < await seconds_until_due(db, add.send(1).unwrap().task_id) <= 0


async def test_t44_a_scheduled_task_is_due_after_its_delay(add: Add, db: AsyncConnection) -> None:
    handle = add.schedule(3600, 1).unwrap()
    assert 3599 < await seconds_until_due(db, handle.task_id) <= 3600
    handle = (await add.schedule_async(0, 1)).unwrap()
    assert -1 < await seconds_until_due(db, handle.task_id) <= 0


@pytest.mark.parametrize("wrong_by", [timedelta(hours=5), timedelta(hours=-5)])
async def test_t44_a_wrong_clock_neither_delays_nor_hastens(
    add: Add, db: AsyncConnection, monkeypatch: pytest.MonkeyPatch, wrong_by: timedelta
) -> None:
    class WrongClock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + wrong_by

    monkeypatch.setattr(many, "datetime", WrongClock)
    monkeypatch.setattr(enqueue_module, "datetime", WrongClock)
    handle = add.schedule(60, 1).unwrap()
    assert 59 < await seconds_until_due(db, handle.task_id) <= 60
    sent_at = datetime.fromisoformat((await task_row(db, handle.task_id))["sent_at"])
    assert abs(sent_at - datetime.now(UTC) - wrong_by) < timedelta(minutes=1)


BAD_CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, 2, 3), {}),
    ((1,), {"a": 1}),
    ((1,), {"c": 1}),
    (("text",), {}),
    ((1,), {"good_until": datetime(2030, 1, 1)}),
]


async def test_t45_a_bad_call_writes_nothing(add: Add, db: AsyncConnection) -> None:
    for args, kwargs in BAD_CALLS:
        for sent in (add.send(*args, **kwargs), await add.send_async(*args, **kwargs)):
            error = sent.unwrap_err()
            assert (error.code, error.retryable) == (TaskSendErrorCode.VALIDATION_FAILED, False), f"{args} {kwargs}"
            assert "'add'" in error.message
    assert await count_tasks(db) == 0


@pytest.mark.parametrize("sqlstate", ["53100", "P0001", "23514", "40001"])
async def test_t48_a_failing_insert_is_enqueue_failed_and_can_be_replayed(
    add: Add, db: AsyncConnection, sqlstate: str
) -> None:
    await fail_inserts(db, times=1, sqlstate=sqlstate)
    error = add.send(1).unwrap_err()
    assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, True)
    assert error.task_id is not None and error.payload is not None
    assert "No space left on device" in error.message
    assert error.exception is not None
    assert await count_tasks(db) == 0
    assert add.retry_send(error).unwrap().task_id == error.task_id
    assert await count_tasks(db) == 1


async def test_t48_an_unreachable_database_is_enqueue_failed_with_the_reason() -> None:
    with an_app(f"postgresql://u:sesame@127.0.0.1:{refusing_port()}/x") as app:
        add = define_add(app)
        for sent in (add.send(1), await add.send_async(1)):
            error = sent.unwrap_err()
            assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, True)
            assert "Connection refused" in error.message
            assert error.task_id is not None and error.payload is not None
            assert "sesame" not in f"{error}{error.exception!r}"


async def test_t48_a_text_the_server_cannot_store_is_not_worth_a_retry(add: Add, db: AsyncConnection) -> None:
    await fail_inserts(db, times=9, sqlstate="22021")
    error = add.send(1).unwrap_err()
    assert (error.code, error.retryable) == (TaskSendErrorCode.VALIDATION_FAILED, False)


async def test_t48_nul_characters_in_arguments_arrive(app: Horsies, db: AsyncConnection) -> None:
    @app.task("echo")
    def echo(text: str) -> TaskResult[str, TaskError]:
        return TaskResult(ok=text)

    handle = echo.send("a\0b").unwrap()
    assert json.loads((await task_row(db, handle.task_id))["args"]) == ["a\0b"]
    assert echo.send("\ud800").unwrap_err().code is TaskSendErrorCode.VALIDATION_FAILED


async def test_t50_the_fingerprint_of_the_payload_is_in_the_row(add: Add, db: AsyncConnection) -> None:
    await fail_inserts(db, times=1)
    error = add.send(1).unwrap_err()
    assert error.payload is not None
    add.retry_send(error).unwrap()
    row = await task_row(db, str(error.task_id))
    assert row["enqueue_sha"] == error.payload.enqueue_sha == enqueue_sha(error.payload)
    assert len(row["enqueue_sha"]) == 64


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between resends, which are noted instead of slept."""
    noted: list[float] = []

    async def note(seconds: float) -> None:
        noted.append(seconds)

    monkeypatch.setattr(send, "wait", note)
    return noted


async def test_t51_a_failing_send_is_repeated_with_the_same_id(
    database_url: str, db: AsyncConnection, pauses: list[float]
) -> None:
    await fail_inserts(db, times=2)
    with an_app(database_url, resend_on_transient_err=True) as app:
        handle = define_add(app).send(1).unwrap()
    assert (await tries(db), pauses) == (3, [0.2, 0.4])
    assert await task_row(db, handle.task_id)


async def test_t51_three_further_tries_and_no_more(database_url: str, db: AsyncConnection, pauses: list[float]) -> None:
    await fail_inserts(db, times=99)
    with an_app(database_url, resend_on_transient_err=True) as app:
        error = (await define_add(app).send_async(1)).unwrap_err()
    assert error.code is TaskSendErrorCode.ENQUEUE_FAILED
    assert (await tries(db), pauses) == (4, [0.2, 0.4, 0.8])


async def test_t51_only_what_may_succeed_is_repeated(
    database_url: str, db: AsyncConnection, pauses: list[float]
) -> None:
    await fail_inserts(db, times=99, sqlstate="22021")
    with an_app(database_url, resend_on_transient_err=True) as app:
        assert define_add(app).send(1).is_err()
    assert (await tries(db), pauses) == (1, [])


async def test_t51_off_by_default(add: Add, db: AsyncConnection, pauses: list[float]) -> None:
    await fail_inserts(db, times=1)
    assert add.send(1).is_err()
    assert (await tries(db), pauses) == (1, [])


async def test_t52_only_the_matching_method_replays_an_error(app: Horsies, add: Add, db: AsyncConnection) -> None:
    @app.task("other")
    def other(a: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a)

    await fail_inserts(db, times=2)
    sent, scheduled = add.send(1).unwrap_err(), add.schedule(60, 1).unwrap_err()
    wrong = [
        add.retry_send(scheduled),
        add.retry_schedule(sent),
        await add.retry_send_async(scheduled),
        await add.retry_schedule_async(sent),
        other.retry_send(sent),
        add.retry_send(add.send("bad").unwrap_err()),
        add.retry_send(dataclasses.replace(sent, payload=None)),
        add.retry_send(dataclasses.replace(sent, task_id=None)),
    ]
    assert [result.unwrap_err().code for result in wrong] == [TaskSendErrorCode.VALIDATION_FAILED] * len(wrong)
    assert await count_tasks(db) == 0
    assert (await add.retry_send_async(sent)).unwrap().task_id == sent.task_id
    assert (await add.retry_schedule_async(scheduled)).unwrap().task_id == scheduled.task_id


async def test_t53_a_payload_that_was_changed_is_not_replayed(add: Add, db: AsyncConnection) -> None:
    await fail_inserts(db, times=1)
    error = add.send(1).unwrap_err()
    assert error.payload is not None
    altered = dataclasses.replace(error, payload=dataclasses.replace(error.payload, args_json="[2]"))
    refused = add.retry_send(altered).unwrap_err()
    assert (refused.code, refused.retryable) == (TaskSendErrorCode.PAYLOAD_MISMATCH, False)
    assert await count_tasks(db) == 0


async def lost_answer(add: Add, db: AsyncConnection) -> TaskSendError:
    """The error of a send whose row was written although its answer got lost."""
    await fail_inserts(db, times=1)
    error = add.send(1).unwrap_err()
    add.retry_send(error).unwrap()
    assert await count_tasks(db) == 1
    return error


async def test_t54_a_send_that_had_landed_is_recognised(add: Add, db: AsyncConnection) -> None:
    error = await lost_answer(add, db)
    assert add.retry_send(error).unwrap().task_id == error.task_id
    assert await count_tasks(db) == 1


async def test_t54_an_id_that_belongs_to_another_payload_is_a_mismatch(add: Add, db: AsyncConnection) -> None:
    error = await lost_answer(add, db)
    assert error.payload is not None
    other = dataclasses.replace(error, payload=with_sha(dataclasses.replace(error.payload, args_json="[2]")))
    refused = add.retry_send(other).unwrap_err()
    assert (refused.code, refused.task_id) == (TaskSendErrorCode.PAYLOAD_MISMATCH, error.task_id)
    assert json.loads((await task_row(db, str(error.task_id)))["args"]) == [1]


async def test_t55_a_replayed_schedule_keeps_its_due_time(add: Add, db: AsyncConnection) -> None:
    await fail_inserts(db, times=1)
    error = add.schedule(60, 1).unwrap_err()
    assert error.payload is not None
    long_ago = with_sha(dataclasses.replace(error.payload, sent_at=error.payload.sent_at - timedelta(seconds=45)))
    add.retry_schedule(dataclasses.replace(error, payload=long_ago)).unwrap()
    assert 13 < await seconds_until_due(db, str(error.task_id)) <= 15


async def test_t57_the_same_key_and_request_is_the_same_task(add: Add, db: AsyncConnection) -> None:
    once = add.with_options(idempotency_key="k")
    first = once.send(a=1, b=2).unwrap()
    later = add.with_options(idempotency_key="k", good_until=datetime.now(UTC) + timedelta(hours=1))
    assert once.send(b=2, a=1).unwrap().task_id == first.task_id
    assert later.schedule(60, a=1, b=2).unwrap().task_id == first.task_id
    assert (await once.send_async(a=1, b=2)).unwrap().task_id == first.task_id
    assert await count_tasks(db) == 1


async def test_t57_a_different_request_with_the_key_is_a_mismatch(add: Add, db: AsyncConnection) -> None:
    first = add.with_options(idempotency_key="k").send(1).unwrap()
    other_arguments = add.with_options(idempotency_key="k").send(2).unwrap_err()
    assert other_arguments.code is TaskSendErrorCode.PAYLOAD_MISMATCH
    assert first.task_id in other_arguments.message
    assert "arguments" in other_arguments.message
    other_flags = add.with_options(idempotency_key="k", flags=["urgent"]).send(1).unwrap_err()
    assert "flags" in other_flags.message
    assert await count_tasks(db) == 1


async def test_t57_true_and_one_are_different_arguments(app: Horsies) -> None:
    @app.task("say")
    def say(what: Any) -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    once = say.with_options(idempotency_key="k")
    assert once.send(True).is_ok()
    assert once.send(1).unwrap_err().code is TaskSendErrorCode.PAYLOAD_MISMATCH


async def test_t57_keys_belong_to_a_task_name_and_live_as_long_as_the_row(
    app: Horsies, add: Add, db: AsyncConnection
) -> None:
    @app.task("other")
    def other(a: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a)

    first = add.with_options(idempotency_key="k").send(1).unwrap()
    assert other.with_options(idempotency_key="k").send(1).unwrap().task_id != first.task_id
    await db.execute("UPDATE horsies_tasks SET status = 'COMPLETED' WHERE id = %s", [first.task_id])
    assert add.with_options(idempotency_key="k").send(1).unwrap().task_id == first.task_id
    await db.execute("DELETE FROM horsies_tasks WHERE id = %s", [first.task_id])
    assert add.with_options(idempotency_key="k").send(1).unwrap().task_id != first.task_id


async def somebody_waits_for_a_lock(db: AsyncConnection) -> bool:
    found = await db.execute(
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    return await found.fetchone() is not None


async def test_t57_a_send_waits_for_one_that_is_not_committed_yet(
    add: Add, db: AsyncConnection, database_url: str
) -> None:
    """Another producer has inserted the key in a transaction that is still open: its row cannot be seen, but counts."""
    async with await AsyncConnection.connect(database_url) as other:
        await other.execute(
            "INSERT INTO horsies_tasks (id, task_name, args, idempotency_key) VALUES ('theirs', 'add', '[1]', 'k')"
        )
        second = asyncio.create_task(add.with_options(idempotency_key="k").send_async(1))
        await eventually(lambda: somebody_waits_for_a_lock(db))
        await other.commit()
    assert (await second).unwrap().task_id == "theirs"


async def test_t67_a_broken_bridge_is_enqueue_failed(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_threads(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", no_threads)
        error = add.send(1).unwrap_err()
    assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, True)
    assert add.retry_send(error).unwrap().task_id == error.task_id


async def test_t57_of_many_simultaneous_sends_one_is_written(add: Add, db: AsyncConnection) -> None:
    for key in ("a", "b", "c"):
        once = add.with_options(idempotency_key=key)
        sent = await asyncio.gather(*(once.send_async(1) for _ in range(30)))
        assert len({result.unwrap().task_id for result in sent}) == 1
    assert await count_tasks(db) == 3
