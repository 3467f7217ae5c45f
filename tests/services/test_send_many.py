"""`send_many`: all of the calls are checked, then all are written, or none (T-40, T-44 to T-57)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies, PayloadPolicy, TaskError, TaskResult, TaskSendError, TaskSendErrorCode
from horsies.core.producer.enqueue import MAX_ROWS
from tests.app_support import Add, an_app, define_add
from tests.factories import count_tasks, task_row
from tests.services.test_pool import refusing_port
from tests.services.test_send import fail_inserts, pauses, somebody_waits_for_a_lock, tries
from tests.support import eventually

__all__ = ["pauses"]  # a fixture

SEVERAL_STATEMENTS = 2 * MAX_ROWS + 7


async def rows_in_order(db: AsyncConnection) -> list[tuple[Any, ...]]:
    """As workers would take them: id, arguments, and the transaction that wrote them."""
    found = await db.execute("SELECT id, args, kwargs, xmin::text FROM horsies_tasks ORDER BY enqueued_at, id")
    return await found.fetchall()


async def test_t40_each_call_is_a_task_and_the_handles_come_in_order(add: Add, db: AsyncConnection) -> None:
    handles = add.send_many([(1, 2), {"a": 3}, add.prepare(5, b=6), (7,)]).unwrap()
    rows = [await task_row(db, handle.task_id) for handle in handles]
    assert [(row["args"], row["kwargs"]) for row in rows] == [
        ("[1,2]", None),
        (None, '{"a":3}'),
        ("[5]", '{"b":6}'),
        ("[7]", None),
    ]
    assert {row["status"] for row in rows} == {"PENDING"}
    assert await count_tasks(db) == 4


async def test_t40_many_are_one_transaction_and_are_taken_in_their_order(add: Add, db: AsyncConnection) -> None:
    handles = (await add.send_many_async((n, n) for n in range(SEVERAL_STATEMENTS))).unwrap()
    rows = await rows_in_order(db)
    assert [row[1] for row in rows] == [f"[{n},{n}]" for n in range(SEVERAL_STATEMENTS)]
    assert [row[0] for row in rows] == [handle.task_id for handle in handles]
    assert len({row[3] for row in rows}) == 1


async def test_t40_no_calls_are_no_tasks_and_need_no_database() -> None:
    with an_app(f"postgresql://u:p@127.0.0.1:{refusing_port()}/x") as app:
        add = define_add(app)
        assert add.send_many([]).unwrap() == []
        assert (await add.send_many_async(iter(()))).unwrap() == []


async def test_t40_nobody_sees_half_of_them(add: Add, db: AsyncConnection, database_url: str) -> None:
    await db.execute(
        """
        CREATE FUNCTION wait_at_the_last() RETURNS trigger AS $$
        BEGIN
            IF NEW.args = '[0,1]' THEN PERFORM pg_advisory_xact_lock(42); END IF;
            RETURN NEW;
        END; $$ LANGUAGE plpgsql
        """
    )
    await db.execute(
        "CREATE TRIGGER wait_at_the_last BEFORE INSERT ON horsies_tasks FOR EACH ROW"
        " EXECUTE FUNCTION wait_at_the_last()"
    )
    calls = [(n, 0) for n in range(1, SEVERAL_STATEMENTS)] + [(0, 1)]
    async with await AsyncConnection.connect(database_url) as gate:
        await gate.execute("SELECT pg_advisory_xact_lock(42)")
        sending = asyncio.create_task(add.send_many_async(calls))
        await eventually(lambda: somebody_waits_for_a_lock(db))
        assert await count_tasks(db) == 0
    (await sending).unwrap()
    assert await count_tasks(db) == SEVERAL_STATEMENTS


BAD_CALLS: list[tuple[Any, str]] = [
    ((), "'a'"),
    ((1, 2, 3), "positional"),
    ({"a": 1, "c": 2}, "'c'"),
    (("text",), "integer"),
    ({"a": 1, "good_until": datetime(2030, 1, 1)}, "time zone"),
    ({1: 2}, "names"),
    (5, "tuple of positional arguments"),
    ("ab", "tuple of positional arguments"),
    ([1, 2], "tuple of positional arguments"),
    (None, "tuple of positional arguments"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_CALLS)
async def test_t45_a_bad_call_is_told_with_its_position_and_nothing_is_written(
    add: Add, db: AsyncConnection, bad: Any, why: str
) -> None:
    calls = [(1, 2), (3, 4), bad, (5, 6)]
    for sent in (add.send_many(calls), await add.send_many_async(calls)):
        error = sent.unwrap_err()
        assert (error.code, error.retryable) == (TaskSendErrorCode.VALIDATION_FAILED, False)
        assert (error.position, error.batch) == (2, ())
        assert error.message.startswith("task 'add': calls[2]: ") and why in error.message, error.message
    assert await count_tasks(db) == 0


async def test_t45_what_is_no_list_of_calls_is_refused(add: Add) -> None:
    wrong: list[Any] = [5, None]
    for calls in wrong:
        assert add.send_many(calls).unwrap_err().code is TaskSendErrorCode.VALIDATION_FAILED
    by_mistake: Any = {"a": 1}
    assert add.send_many(by_mistake).unwrap_err().position == 0


async def test_t45_a_call_that_was_prepared_for_another_task_is_refused(app: Horsies, add: Add) -> None:
    @app.task("other")
    def other(a: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a)

    mixed: list[Any] = [add.prepare(1), other.prepare(2)]
    error = add.send_many(mixed).unwrap_err()
    assert (error.code, error.position) == (TaskSendErrorCode.VALIDATION_FAILED, 1)
    assert "'other'" in error.message


async def test_t45_an_exception_of_the_callers_iterator_is_the_callers(add: Add, db: AsyncConnection) -> None:
    def calls() -> Iterator[tuple[int, int]]:
        yield 1, 2
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        add.send_many(calls())
    assert await count_tasks(db) == 0


async def test_t17_a_call_that_is_too_large_is_told_with_its_position(database_url: str, db: AsyncConnection) -> None:
    with an_app(database_url, payload=PayloadPolicy(reject_bytes=20)) as app:

        @app.task("say")
        def say(text: str) -> TaskResult[None, TaskError]:
            return TaskResult(ok=None)

        error = say.send_many([("a",), ("b" * 30,)]).unwrap_err()
    assert (error.code, error.position) == (TaskSendErrorCode.PAYLOAD_TOO_LARGE, 1)
    assert await count_tasks(db) == 0


async def test_t47_suppressed_sends_do_not_even_look_at_the_calls(app: Horsies, add: Add, db: AsyncConnection) -> None:
    calls = iter([(1, 2)])
    app.suppress_sends(True)
    for sent in (add.send_many(calls), await add.send_many_async(calls)):
        assert sent.unwrap_err().code is TaskSendErrorCode.SEND_SUPPRESSED
    app.suppress_sends(False)
    assert len(add.send_many(calls).unwrap()) == 1 == await count_tasks(db)


async def test_t43_options_are_those_of_all_unless_a_call_has_its_own(app: Horsies, db: AsyncConnection) -> None:
    @app.task("paint", flags=["slow"])
    def paint(n: int) -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    soon, later = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(hours=2)
    own = paint.with_options(good_until=later, flags={"red": False, "big": True})
    builder = paint.with_options(good_until=soon, flags=iter(["red"]))
    direct: dict[str, Any] = {"n": 4, "good_until": later}
    handles = builder.send_many([(1,), paint.prepare(2), own.prepare(3), direct]).unwrap()
    rows = [await task_row(db, handle.task_id) for handle in handles]
    assert [datetime.fromisoformat(row["good_until"]) for row in rows] == [soon, soon, later, later]
    common = {"slow": True, "red": True}
    assert [row["flags"] for row in rows] == [common, common, {"slow": True, "red": False, "big": True}, common]


async def test_t48_one_that_the_database_refuses_means_that_none_is_written(add: Add, db: AsyncConnection) -> None:
    await db.execute(f"ALTER TABLE horsies_tasks ADD CONSTRAINT no CHECK (args <> '[{SEVERAL_STATEMENTS - 1},0]')")
    calls = [(n, 0) for n in range(SEVERAL_STATEMENTS)]
    error = add.send_many(calls).unwrap_err()
    assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, True)
    assert (error.task_id, error.payload, error.position) == (None, None, None)
    assert len(error.batch) == SEVERAL_STATEMENTS and "batch" not in repr(error)
    assert error.exception is not None and "violates check constraint" in error.message
    assert await count_tasks(db) == 0
    await db.execute("ALTER TABLE horsies_tasks DROP CONSTRAINT no")
    handle = (await add.retry_send_async(error)).unwrap()
    assert handle.task_id == error.batch[0][0]
    assert [row[0] for row in await rows_in_order(db)] == [task_id for task_id, _ in error.batch]
    assert [row[1] for row in await rows_in_order(db)] == [f"[{n},0]" for n in range(SEVERAL_STATEMENTS)]


async def test_t51_a_failing_send_many_is_repeated_with_the_same_ids(
    database_url: str, db: AsyncConnection, pauses: list[float]
) -> None:
    await fail_inserts(db, times=2)
    with an_app(database_url, resend_on_transient_err=True) as app:
        add = define_add(app)
        assert len(add.send_many([(1, 2), (3, 4)]).unwrap()) == 2
        assert pauses == [0.2, 0.4]
        await db.execute("ALTER SEQUENCE tries RESTART")
        assert len((await add.send_many_async([(5, 6)])).unwrap()) == 1
    assert (await tries(db), pauses) == (3, [0.2, 0.4, 0.2, 0.4])
    assert await count_tasks(db) == 3


async def failed_many(add: Add, db: AsyncConnection) -> TaskSendError:
    await fail_inserts(db, times=1)
    return add.send_many([(1, 2), (3, 4)]).unwrap_err()


async def test_t52_only_the_matching_task_and_method_replay_it(app: Horsies, add: Add, db: AsyncConnection) -> None:
    @app.task("other")
    def other(a: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a)

    error = await failed_many(add, db)
    refusals = [
        add.retry_schedule(error),
        other.retry_send(error),
        add.retry_send(add.send_many([()]).unwrap_err()),
        await add.retry_send_async(dataclasses.replace(error, batch=())),
    ]
    assert [refused.unwrap_err().code for refused in refusals] == [TaskSendErrorCode.VALIDATION_FAILED] * len(refusals)
    assert await count_tasks(db) == 0


async def test_t53_a_batch_that_was_changed_is_not_replayed(add: Add, db: AsyncConnection) -> None:
    error = await failed_many(add, db)
    (first, payload), second = error.batch
    altered = dataclasses.replace(error, batch=((first, dataclasses.replace(payload, args_json="[9]")), second))
    assert add.retry_send(altered).unwrap_err().code is TaskSendErrorCode.PAYLOAD_MISMATCH
    assert await count_tasks(db) == 0


async def test_t54_a_send_many_that_had_landed_is_recognised(add: Add, db: AsyncConnection) -> None:
    error = await failed_many(add, db)
    ids = [task_id for task_id, _ in error.batch]
    assert add.retry_send(error).unwrap().task_id == add.retry_send(error).unwrap().task_id == ids[0]
    assert [row[0] for row in await rows_in_order(db)] == ids


async def test_t57_one_key_for_many_is_refused(add: Add, db: AsyncConnection) -> None:
    error = add.with_options(idempotency_key="k").send_many([(1, 2)]).unwrap_err()
    assert error.code is TaskSendErrorCode.VALIDATION_FAILED
    assert "prepare" in error.message
    assert await count_tasks(db) == 0


async def test_t57_each_prepared_call_may_have_a_key(add: Add, db: AsyncConnection) -> None:
    known = add.with_options(idempotency_key="a").send(1).unwrap()
    keyed = [add.with_options(idempotency_key=key).prepare(1) for key in ("b", "a", "b")]
    handles = add.send_many([(7, 7), *keyed]).unwrap()
    assert handles[2].task_id == known.task_id
    assert handles[1].task_id == handles[3].task_id
    assert await count_tasks(db) == 3


async def test_t57_a_mismatch_of_one_means_that_none_is_written(add: Add, db: AsyncConnection) -> None:
    add.with_options(idempotency_key="k").send(1).unwrap()
    error = add.send_many([(5, 5), add.with_options(idempotency_key="k").prepare(2), (6, 6)]).unwrap_err()
    assert (error.code, error.retryable, error.position) == (TaskSendErrorCode.PAYLOAD_MISMATCH, False, 1)
    assert "calls[1]" in error.message and "arguments" in error.message
    assert await count_tasks(db) == 1


async def test_t57_two_with_the_same_keys_do_not_deadlock(add: Add, db: AsyncConnection) -> None:
    """In opposite orders, over several statements, with names that collations sort differently."""
    keys = [f"{'Kk'[n % 2]}{n:04}" for n in range(SEVERAL_STATEMENTS)]
    there = [add.with_options(idempotency_key=key).prepare(1) for key in keys]
    sent = await asyncio.gather(*(add.send_many_async(calls) for calls in (there, there[::-1], there)))
    first, backwards, again = [[handle.task_id for handle in one.unwrap()] for one in sent]
    assert first == backwards[::-1] == again
    assert await count_tasks(db) == SEVERAL_STATEMENTS


async def test_the_callers_loop_goes_on_while_many_calls_are_encoded(add: Add) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    bad: list[Any] = [(n, n) for n in range(5000)] + ["bad"]  # found last, before anything is written
    assert (await add.send_many_async(bad)).unwrap_err().position == 5000
    turning.cancel()
    assert turns > 10


@pytest.mark.slow("sends a hundred thousand tasks")
def test_a_hundred_thousand_in_one_call_take_little_memory(database_url: str) -> None:
    """What is held is the arguments and what a row needs beside them; never the text of all statements at once."""
    program = """
        import json, resource, sys
        from horsies import AppConfig, Horsies, TaskError, TaskResult

        app = Horsies(AppConfig.for_database_url(sys.argv[1]))

        @app.task("note")
        def note(text: str) -> TaskResult[None, TaskError]:
            return TaskResult(ok=None)

        note.send_many([("warm",)]).unwrap()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        handles = note.send_many(("x" * 100,) for _ in range(100_000)).unwrap()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps([len(handles), len({handle.task_id for handle in handles}), after - before]))
        app.get_broker().close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), database_url], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    sent, different, kilobytes = json.loads(done.stdout)
    assert sent == different == 100_000
    assert kilobytes < 75_000
