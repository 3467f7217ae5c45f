"""Writing what tasks say while they run (P-50, P-51a): only for the claim that it belongs to, together, and without
harm if the database refuses or is away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.child.wire import Kind
from horsies.core.models.notes import LogPlace
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.recovery.retention import Retention
from horsies.core.store import notes, tasks
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Complete, Fail, Retry
from horsies.core.types import TaskStatus
from horsies.core.worker import notes as worker_notes
from horsies.core.worker.in_hand import HeldTask
from horsies.core.worker.notes import NoteWriter
from tests.factories import given_task

ME = "w1"


class Database:
    """Lends one connection; for as many times as it is told, it is away."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self.conn = conn
        self.away = 0
        self.lent = 0
        self.meanwhile: Callable[[], None] = lambda: None  # while the rest is being written

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        if self.away:
            self.away -= 1
            raise psycopg.OperationalError("the server is gone")
        self.lent += 1
        yield self.conn
        self.meanwhile()


@pytest.fixture
def database(db: AsyncConnection[Any]) -> Database:
    return Database(db)


@pytest.fixture
def writer(database: Database) -> NoteWriter:
    return NoteWriter(database, ME)


async def running(db: AsyncConnection[Any], claim_seq: int = 1, worker: str = ME, **columns: Any) -> HeldTask:
    """A task that this worker runs, as it knows it."""
    task_id = await given_task(
        db,
        status=TaskStatus.RUNNING,
        claimed=True,
        claim_seq=claim_seq,
        claimed_by_worker_id=worker,
        started_at=datetime.now().astimezone(),
        **columns,
    )
    return held(task_id, claim_seq)


def held(task_id: str, claim_seq: int, retry_count: int = 0) -> HeldTask:
    fields = dict.fromkeys(Claimed._fields)
    row = Claimed(**{**fields, "id": task_id, "claim_seq": claim_seq, "retry_count": retry_count})
    return HeldTask(row, False, 1, Claim(task_id, claim_seq))


def say(writer: NoteWriter, task: HeldTask, done: Any, total: Any = None, message: Any = None) -> None:
    writer.hear(task, Kind.PROGRESS, [json.dumps([done, total, message]).encode()])


def log(writer: NoteWriter, task: HeldTask, first: int, *texts: str, after: int = 0, before: int = 0) -> None:
    numbers = [first, first + len(texts) - 1, after, before]
    lines = [[0.5, "INFO", "shop", text] for text in texts]
    writer.hear(task, Kind.LOGGED, [json.dumps(numbers).encode(), json.dumps(lines).encode()])


async def stored(db: AsyncConnection[Any]) -> list[tuple[Any, ...]]:
    query = "SELECT task_id, claim_seq, attempt, done, total, message FROM horsies_task_progress ORDER BY task_id"
    return await (await db.execute(query)).fetchall()


async def logged(db: AsyncConnection[Any], task: HeldTask) -> list[tuple[int, str]]:
    return [(line.number, line.text) for line in (await notes.logs(db, task.id)).lines]


async def test_p50_all_that_waits_is_written_together(db: AsyncConnection, writer: NoteWriter) -> None:
    one, two = await running(db), await running(db, 4)
    for done in range(10):
        say(writer, one, done, 10, "on its way")
    say(writer, two, 0.5)
    await writer.flush()
    assert sorted(await stored(db)) == sorted(
        [(one.id, 1, 1, 9.0, 10.0, "on its way"), (two.id, 4, 1, 0.5, None, None)]
    )
    say(writer, one, 10, 10)
    await writer.flush()
    found = (await notes.progress(db, [one.id]))[one.id]
    assert (found.done, found.total, found.message) == (10, 10, None)
    assert found.rate is not None and found.rate > 0


async def test_p50_a_run_that_lost_its_claim_overwrites_nothing(db: AsyncConnection, writer: NoteWriter) -> None:
    """Another worker has recovered the task and runs it; the first one goes on to say things for a while."""
    old = await running(db)
    say(writer, old, 50, 100)
    await writer.flush()
    await db.execute("UPDATE horsies_tasks SET claim_seq = 2, claimed_by_worker_id = 'w2' WHERE id = %s", [old.id])
    assert await notes.progress(db, [old.id]) == {}  # the new run has not said anything
    say(writer, old, 60, 100)
    await writer.flush()
    other = NoteWriter(Database(db), "w2")
    say(other, held(old.id, 2), 1, 100)
    await other.flush()
    say(writer, old, 70, 100)
    await writer.flush()
    assert await stored(db) == [(old.id, 2, 1, 1.0, 100.0, None)]
    assert (await notes.progress(db, [old.id]))[old.id].done == 1


async def test_p50_the_rate_of_a_run_is_its_own(db: AsyncConnection, writer: NoteWriter) -> None:
    first = await running(db)
    say(writer, first, 90, 100)
    await writer.flush()
    await db.execute("UPDATE horsies_task_progress SET first_at = first_at - interval '1 hour'")
    await db.execute("UPDATE horsies_tasks SET claim_seq = 2 WHERE id = %s", [first.id])
    second = held(first.id, 2)
    say(writer, second, 1, 100)
    await writer.flush()
    assert (await notes.progress(db, [first.id]))[first.id].rate is None


async def test_p50_a_retry_hides_it_and_an_end_keeps_it(db: AsyncConnection, writer: NoteWriter) -> None:
    ended, retried = await running(db), await running(db, max_retries=3)
    for task in (ended, retried):
        say(writer, task, 3, 10)
    await writer.flush()
    assert await tasks.apply(db, ME, [Complete(ended.claim, '{"ok":1}')]) == {ended.id}
    assert await tasks.apply(db, ME, [Retry(retried.claim, 0.0, Fail(retried.claim, "{}", "CODE"))]) == {retried.id}
    assert set(await notes.progress(db, [ended.id, retried.id])) == {ended.id}
    say(writer, ended, 10, 10)  # it came with the report of the end
    say(writer, retried, 10, 10)
    await writer.flush()
    assert [row[3] for row in sorted(await stored(db))] == [
        3.0 if task_id == retried.id else 10.0 for task_id in sorted([ended.id, retried.id])
    ]


async def test_p50_p51a_a_task_that_is_gone_leaves_no_rows(db: AsyncConnection, writer: NoteWriter) -> None:
    gone = await running(db)
    await db.execute("DELETE FROM horsies_tasks")
    say(writer, gone, 1)
    log(writer, gone, 1, "a")
    await writer.flush()
    assert await stored(db) == [] and await logged(db, gone) == []


async def test_p51a_lines_of_all_runs_are_kept_and_what_comes_twice_is_one(
    db: AsyncConnection, writer: NoteWriter
) -> None:
    first = await running(db)
    log(writer, first, 1, "a", "b")
    log(writer, first, 1, "a", "b")
    await db.execute("UPDATE horsies_tasks SET claim_seq = 2, claimed_by_worker_id = 'w2' WHERE id = %s", [first.id])
    log(writer, first, 3, "late")
    await writer.flush()
    log(writer, held(first.id, 2, 1), 1, "again")
    await writer.flush()
    lines = (await notes.logs(db, first.id)).lines
    assert [(line.attempt, line.number, line.text) for line in lines] == [
        (1, 1, "a"), (1, 2, "b"), (1, 3, "late"), (2, 1, "again"),
    ]  # fmt: skip


@pytest.mark.parametrize("at_once", [True, False])
async def test_p51a_lines_that_come_again_with_more_behind_them_are_all_kept(
    db: AsyncConnection, writer: NoteWriter, at_once: bool
) -> None:
    """The io thread has sent the first of them when the task ended, and the end sends all."""
    task = await running(db)
    for last in (2, 4, 1):
        log(writer, task, 1, *(f"line {number}" for number in range(1, last + 1)))
        if not at_once:
            await writer.flush()
    log(writer, task, 3, "line 3", "line 4", "line 5")
    await writer.flush()
    assert [number for number, _ in await logged(db, task)] == [1, 2, 3, 4, 5]


async def test_p51a_the_middle_is_deleted_and_a_log_is_read_in_pages(db: AsyncConnection, writer: NoteWriter) -> None:
    task = await running(db)
    for number in range(1, 11):
        log(writer, task, number, f"line {number}")
        await writer.flush()
    log(writer, task, 11, "line 11", after=3, before=9)
    await writer.flush()
    assert [number for number, _ in await logged(db, task)] == [1, 2, 3, 9, 10, 11]
    place, read = LogPlace(), []
    while True:
        page = await notes.logs(db, task.id, place, 2)
        read += [line.number for line in page.lines]
        place = page.place
        if page.is_last:
            break
    assert read == [1, 2, 3, 9, 10, 11]


async def test_p51a_the_middle_is_deleted_if_that_is_said_while_an_older_one_is(
    db: AsyncConnection, database: Database, writer: NoteWriter
) -> None:
    task = await running(db)
    log(writer, task, 1, *map(str, range(1, 11)))
    for number in range(11, 16):
        log(writer, task, number, str(number))
    await writer.flush()
    log(writer, task, 16, "16", after=10, before=13)

    def one_more() -> None:
        database.meanwhile = lambda: None
        log(writer, task, 17, "17", after=10, before=16)

    database.meanwhile = one_more
    await writer.flush()
    assert [number for number, _ in await logged(db, task)][10:] == [16, 17]


async def test_p50_p51a_while_the_database_is_away_it_waits(
    db: AsyncConnection, database: Database, writer: NoteWriter, caplog: pytest.LogCaptureFixture
) -> None:
    task = await running(db)
    database.away = 2
    say(writer, task, 1)
    log(writer, task, 1, "a")
    with caplog.at_level(logging.WARNING, "horsies.worker"):
        await writer.flush()
        say(writer, task, 2)
        log(writer, task, 2, "b")
        await writer.flush()
    assert "is tried again" in caplog.text
    await writer.flush()
    assert [row[3] for row in await stored(db)] == [2.0]
    assert await logged(db, task) == [(1, "a"), (2, "b")]


async def test_p51a_what_waits_is_bounded(
    db: AsyncConnection, database: Database, writer: NoteWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_notes, "MOST_BYTES", 1_000)
    task = await running(db)
    for number in range(1, 101):
        log(writer, task, number, "x" * 80)
    await writer.flush()
    numbers = [number for number, _ in await logged(db, task)]
    assert numbers[-1] == 100 and 5 <= len(numbers) <= 10


@pytest.mark.parametrize(
    "parts",
    [[], [b"["], [b"[1]"], [b'["x", 1, null]'], [b"[NaN, 1, null]"], [b"[1e999, 1, 0, 0]", b"[]"], [b"1", b"2", b"3"]],
)
async def test_p50_p51a_nonsense_is_ignored(db: AsyncConnection, writer: NoteWriter, parts: list[bytes]) -> None:
    task = await running(db)
    for kind in (Kind.PROGRESS, Kind.LOGGED, Kind.BEAT):
        writer.hear(task, kind, parts)
    await writer.flush()
    assert await stored(db) == [] and await logged(db, task) == []


async def test_p50_a_missing_right_harms_nothing(
    db: AsyncConnection, writer: NoteWriter, caplog: pytest.LogCaptureFixture
) -> None:
    task = await running(db)
    await db.execute("ALTER TABLE horsies_task_progress RENAME TO elsewhere")
    with caplog.at_level(logging.WARNING, "horsies.worker"):
        for done in range(3):
            say(writer, task, done)
            await writer.flush()
    assert caplog.text.count("is dropped") == 2  # the first time, the second and the fourth
    assert await notes.progress(db, [task.id]) == {}


async def test_p50_p51a_one_that_is_refused_costs_the_others_nothing(
    db: AsyncConnection, writer: NoteWriter, caplog: pytest.LogCaptureFixture
) -> None:
    """Code of a user can write into the socket of its child, and a trigger or a constraint can refuse anything."""
    tasks_ = [await running(db) for _ in range(20)]
    for number, task in enumerate(tasks_):
        say(writer, task, number, message="odd" if number == 7 else None)
        if number == 11:
            writer.hear(task, Kind.LOGGED, [json.dumps([1, 1, 0, 0]).encode(), b"\0"])
        elif number == 12:
            log(writer, task, 2**40, "out of range")
        else:
            log(writer, task, 1, "a", "b")
    await db.execute("ALTER TABLE horsies_task_progress ADD CONSTRAINT odd CHECK (message <> 'odd')")
    with caplog.at_level(logging.WARNING, "horsies.worker"):
        await writer.flush()
    assert {row[0] for row in await stored(db)} == {task.id for task in tasks_ if task is not tasks_[7]}
    for number, task in enumerate(tasks_):
        assert await logged(db, task) == ([] if number in (11, 12) else [(1, "a"), (2, "b")])
    assert "is dropped" in caplog.text


async def test_p51a_the_middle_is_deleted_also_beside_lines_that_are_refused(
    db: AsyncConnection, writer: NoteWriter
) -> None:
    task, odd = await running(db), await running(db)
    for number in range(1, 6):
        log(writer, task, number, str(number))
    await writer.flush()
    log(writer, odd, 2**40, "out of range")
    log(writer, task, 6, "6", after=1, before=5)
    await writer.flush()
    assert [number for number, _ in await logged(db, task)] == [1, 5, 6]


async def test_p50_p51a_a_table_that_is_missing_costs_the_other_nothing(
    db: AsyncConnection, writer: NoteWriter
) -> None:
    task = await running(db)
    await db.execute("ALTER TABLE horsies_task_progress RENAME TO elsewhere")
    say(writer, task, 1)
    log(writer, task, 1, "a")
    await writer.flush()
    assert await logged(db, task) == [(1, "a")]


async def test_p50_if_all_are_refused_they_are_dropped_after_a_few_tries(
    db: AsyncConnection, database: Database, writer: NoteWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_notes, "MOST_REFUSALS", 20)
    for _ in range(200):
        say(writer, await running(db), 1)
    await db.execute("ALTER TABLE horsies_task_progress ADD CONSTRAINT odd CHECK (done <> 1)")
    database.lent = 0
    await writer.flush()
    assert await stored(db) == [] and database.lent <= 25
    await db.execute("ALTER TABLE horsies_task_progress DROP CONSTRAINT odd")
    task = await running(db)
    say(writer, task, 1)
    await writer.flush()
    assert [row[0] for row in await stored(db)] == [task.id]


async def test_p50_p51a_if_the_database_goes_away_between_two_halves_the_rest_waits(
    db: AsyncConnection, database: Database, writer: NoteWriter
) -> None:
    tasks_ = [await running(db) for _ in range(8)]
    for task in tasks_:
        say(writer, task, 1)
        log(writer, task, 1, "a")
    say(writer, tasks_[5], 1, message="odd")
    await db.execute("ALTER TABLE horsies_task_progress ADD CONSTRAINT odd CHECK (message <> 'odd')")

    def go_away() -> None:
        database.away, database.meanwhile = 1, lambda: None

    database.meanwhile = go_away  # after the first part that is written
    await writer.flush()
    assert 0 < len(await stored(db)) < 7
    await writer.flush()
    assert {row[0] for row in await stored(db)} == {task.id for task in tasks_ if task is not tasks_[5]}
    assert all([await logged(db, task) == [(1, "a")] for task in tasks_])


async def test_p50_steps_write_once_a_second_at_most(
    db: AsyncConnection, database: Database, writer: NoteWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await running(db)
    monkeypatch.setattr(worker_notes, "PAUSE_S", 3600.0)
    written = asyncio.Event()
    database.meanwhile = written.set
    say(writer, task, 1)
    step = asyncio.create_task(writer.step())
    try:
        async with asyncio.timeout(10):
            await written.wait()
        say(writer, task, 2)
        await asyncio.sleep(0.05)
        assert not step.done() and [row[3] for row in await stored(db)] == [1.0]
    finally:
        step.cancel()
    await writer.flush()
    assert [row[3] for row in await stored(db)] == [2.0]


async def test_r80_p51a_old_lines_are_deleted(db: AsyncConnection, database: Database, writer: NoteWriter) -> None:
    task = await running(db)
    log(writer, task, 1, "old")
    await writer.flush()
    await db.execute("UPDATE horsies_task_logs SET written_at = now() - interval '80 hours'")
    log(writer, task, 2, "new")
    await writer.flush()
    retention = Retention(database, RecoveryConfig(), WorkerRecoveryConfig())
    assert await retention.prune()
    assert await logged(db, task) == [(2, "new")]
    assert timedelta(hours=72) == timedelta(hours=retention._log_age.total_seconds() / 3600)
