"""A real worker beside rows that no code of ours has written, in a database whose constraints were dropped meanwhile
(L-19a): the healthy ones run, are recovered and expire, and the worker stops when it is told to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from tests.factories import given_node, given_task, given_worker, given_workflow
from tests.odd_rows_support import SETTINGS, Planted, constrain, drop_constraints, plant, planted
from tests.support import eventually
from tests.worker_support import Rows, WorkerProcess

pytestmark = pytest.mark.e2e

PENDING, CLAIMED, RUNNING = TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.RUNNING
NOOP: dict[str, Any] = {"task_name": "noop", "args": "[]", "kwargs": "{}"}
GONE: dict[str, Any] = {"claimed_by_worker_id": "gone", "claimed_at": "2020-01-01", "claim_expires_at": "2999-01-01"}


@contextlib.asynccontextmanager
async def without_constraints(url: str) -> AsyncIterator[AsyncConnection[Any]]:
    """Until the end of the block, for rows that only somebody with the right to drop them can have written."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await drop_constraints(db)
        yield db
        await constrain(db)


async def healthy(db: AsyncConnection[Any], count: int) -> dict[str, str]:
    """By id, what has to become of it."""
    found = {await given_task(db, **NOOP): "COMPLETED" for _ in range(count)}
    found |= {await given_task(db, status=CLAIMED, **NOOP, **GONE): "COMPLETED" for _ in range(3)}
    found |= {await given_task(db, status=RUNNING, **NOOP, **GONE, started_at="2020-01-01"): "FAILED" for _ in range(3)}
    return found | {await given_task(db, **NOOP, good_until="2020-01-01"): "EXPIRED" for _ in range(3)}


async def plant_workflows(db: AsyncConnection[Any]) -> None:
    for what in await planted(db, "horsies_workflows"):
        if what.column not in ("parent_workflow_id", "on_error"):
            flow = await given_workflow(db, status="RUNNING", open_nodes=1)
            await given_node(db, flow, status="READY")
            await plant(db, what, "id", flow)
    for what in await planted(db, "horsies_workflow_tasks"):
        if what.column not in ("sub_workflow_id", "join_type"):
            flow = await given_workflow(db, status="RUNNING", open_nodes=1, started_at="now")
            await given_node(db, flow, status="READY", task_kwargs="{}", queue_name="default", priority=1)
            await plant(db, what, "workflow_id", flow)


async def all_end(rows: Rows, expected: dict[str, str]) -> None:
    async def ended() -> bool:
        found = await rows.all("SELECT id, status FROM horsies_tasks WHERE id = ANY(%s)", list(expected))
        return {row["id"]: row["status"] for row in found} == expected

    await eventually(ended, 60, what="the end of the healthy ones")


async def end_of(rows: Rows, task_id: str) -> dict[str, Any]:
    """Not all columns: what is odd in the row cannot be read without our loaders."""
    query = "SELECT status, error_code, failed_reason FROM horsies_tasks WHERE id = %s AND ended_at IS NOT NULL"

    async def ended() -> list[dict[str, Any]]:
        return await rows.all(query, task_id)

    [row] = await eventually(ended, 60, what=f"the end of {task_id}")
    return dict(row)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("enqueued_at", "-infinity"),
        ("claim_seq", 2**31 - 1),
        ("retry_count", 2**31 - 1),
        ("good_until", "-infinity"),
        ("start_failures", 2**31 - 1),
    ],
)
async def test_l19a_one_waiting_row_does_not_stop_its_queue(
    database_url: str, rows: Rows, traces: Path, column: str, value: Any
) -> None:
    async with without_constraints(database_url) as db:
        odd = await given_task(db, **NOOP, priority=1, **{column: value})
        expected = await healthy(db, 5)
    with WorkerProcess(database_url, "--processes", "1", "--concurrency", "4") as worker:
        await all_end(rows, expected)
        row = await end_of(rows, odd)
        code, said = worker.stop()
    assert code == 0, said
    if row["status"] == "FAILED":
        assert row["error_code"] == "ROW_SET_ASIDE" and f"{column} is {value}" in row["failed_reason"]
        assert "task set aside" in said and odd in said


async def test_l19a_a_task_whose_claims_are_at_their_limit_does_not_stop_its_queue(
    database_url: str, rows: Rows, traces: Path
) -> None:
    """The constraints allow this number, and not the next one, which the claim would write."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        odd = await given_task(db, **NOOP, priority=1, claim_seq=1_000_000_000)
        lapsed: dict[str, Any] = {**GONE, "claim_expires_at": "2020-01-01", "claim_seq": 1_000_000_000}
        also = await given_task(db, status=CLAIMED, **NOOP, **lapsed)
        expected = await healthy(db, 3)
    with WorkerProcess(database_url, "--processes", "1") as worker:
        await all_end(rows, expected)
        found = [await end_of(rows, task_id) for task_id in (odd, also)]
        code, said = worker.stop()
    assert code == 0, said
    for row in found:
        assert row["error_code"] == "ROW_SET_ASIDE" and "claim_seq is 1000000000" in row["failed_reason"]


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("retry_count > 1000000000", "outside the limits: retry_count is 2147483647"),
        ("args LIKE '%secret%'", 'the database refuses its start: new row for relation "horsies_tasks" violates check'),
    ],
)
async def test_l19a_a_refused_start_names_the_column_and_never_shows_the_row(
    database_url: str, rows: Rows, traces: Path, refused: str, reason: str
) -> None:
    """The claim succeeds, and only the start is refused."""
    count = 2**31 - 1 if "retry_count" in refused else 0
    limits = f"ADD CONSTRAINT horsies_tasks_limits_check CHECK (status <> 'RUNNING' OR NOT ({refused}))"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        await db.execute("ALTER TABLE horsies_tasks DROP CONSTRAINT horsies_tasks_limits_check")
        await db.execute(f"ALTER TABLE horsies_tasks {limits}".encode())
        odd = await given_task(db, task_name="noop", args='["secret"]', kwargs="{}", retry_count=count)
        expected = {await given_task(db, **NOOP): "COMPLETED" for _ in range(3)}
    with WorkerProcess(database_url, "--processes", "1", "--concurrency", "4") as worker:
        await all_end(rows, expected)
        row = await end_of(rows, odd)
        code, said = worker.stop()
    assert code == 0 and "secret" not in said, said
    assert row["error_code"] == "ROW_SET_ASIDE" and row["failed_reason"].startswith(reason)
    assert "secret" not in row["failed_reason"] and "Failing row" not in row["failed_reason"]


@pytest.mark.parametrize("column", ["started_at", "claimed_at", "finalizing_at"])
async def test_l19a_one_running_row_does_not_stop_recovery(
    database_url: str, rows: Rows, traces: Path, column: str
) -> None:
    async with without_constraints(database_url) as db:
        odd = await given_task(db, status=RUNNING, **{**NOOP, **GONE, "started_at": "2020-01-01", column: "-infinity"})
        expected = await healthy(db, 1)
    with WorkerProcess(database_url, "--processes", "1") as worker:
        await all_end(rows, expected)
        assert (await end_of(rows, odd))["status"] == "FAILED"
        code, said = worker.stop()
    assert code == 0 and "pass over" not in said, said


async def test_r24_text_where_a_worker_has_a_number_stops_nobody(database_url: str, rows: Rows, traces: Path) -> None:
    async with without_constraints(database_url) as db:
        for sweeping in (True, False):
            await given_worker(db, f"odd {sweeping}", sweeping=sweeping, last_heartbeat_at="-infinity", liveness_key=1)
            await db.execute("UPDATE horsies_workers SET recovery = %s::jsonb", [SETTINGS])
            await given_task(db, status=RUNNING, **{**NOOP, **GONE, "claimed_by_worker_id": f"odd {sweeping}"})
        expected = await healthy(db, 3)
    with WorkerProcess(database_url, "--processes", "1", "--worker-recovery") as worker:
        await all_end(rows, {task: end for task, end in expected.items() if end != "FAILED"})
        code, said = worker.stop()
    assert code == 0 and "failed and will be retried" not in said, said


async def test_l19a_every_value_at_once_in_every_state(database_url: str, rows: Rows, traces: Path) -> None:
    async with without_constraints(database_url) as db:
        states = cycle([PENDING, CLAIMED, RUNNING, PENDING])
        for what in await planted(db, "horsies_tasks"):
            status = next(states)
            given = {**NOOP, **({} if status is PENDING else GONE)}
            await plant(db, what, "id", await given_task(db, status=status, **given, started_at="2020-01-01"))
        for number, what in enumerate(await planted(db, "horsies_workers")):
            await given_worker(db, f"w{number}", sweeping=number % 2 == 0)
            await plant(db, what, "worker_id", f"w{number}")
        await plant_workflows(db)
        expected = await healthy(db, 20)
    with WorkerProcess(database_url, "--processes", "2", "--worker-recovery") as worker:
        await all_end(rows, {task: end for task, end in expected.items() if end != "FAILED"})
        code, said = worker.stop()
    assert code == 0 and "failed and will be retried" not in said and "Traceback" not in said, said


async def test_l34_a_row_that_turned_odd_while_its_code_ran_keeps_its_result(
    database_url: str, rows: Rows, traces: Path
) -> None:
    task = {"task_name": "nap", "args": "[5]", "kwargs": "{}"}
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as db:
        odd = await given_task(db, **task)
        with WorkerProcess(database_url, "--processes", "1") as worker:
            await rows.until(odd, "RUNNING")
            beats = "SELECT id FROM horsies_heartbeats WHERE task_id = %s AND role = 'runner'"
            await eventually(lambda: rows.all(beats, odd), what="a sign of life: else the start would be the last one")
            await drop_constraints(db)
            await plant(db, Planted("horsies_tasks", "retry_count", "2147483647"), "id", odd)
            await plant(db, Planted("horsies_tasks", "started_at", "-infinity"), "id", odd)
            assert (await end_of(rows, odd))["status"] == "COMPLETED"
            code, said = worker.stop()
    assert code == 0, said
    assert len(await rows.attempts(odd)) == 1


async def test_w50_what_cannot_be_written_is_given_up_with_a_line(database_url: str, rows: Rows, traces: Path) -> None:
    """Somebody's trigger refuses every end of this task: the worker says so and stops all the same."""
    async with without_constraints(database_url) as db:
        await db.execute(
            "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE 'not with me' USING ERRCODE = '23514'; END $$"
            " LANGUAGE plpgsql"
        )
        await db.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON horsies_tasks FOR EACH ROW"
            " WHEN (NEW.status NOT IN ('CLAIMED', 'RUNNING') AND NEW.task_name = 'add') EXECUTE FUNCTION refuse()"
        )
        odd = await given_task(db, task_name="add", args="[1, 2]", kwargs="{}")
        other = await given_task(db, **NOOP)
    with WorkerProcess(database_url, "--processes", "1") as worker:
        await rows.until(other, "COMPLETED")
        await rows.until(odd, "RUNNING")
        code, said = worker.stop(timeout=25)
    assert code == 0 and (await rows.task(odd))["status"] == "RUNNING"
    assert "could not be written and is given up" in said and odd in said and "not with me" in said


REFUSE_AND_BREAK = """
    CREATE SEQUENCE breaks;
    GRANT USAGE ON SEQUENCE breaks TO PUBLIC;
    CREATE FUNCTION refuse_and_break() RETURNS trigger AS $$
    BEGIN
        IF NEW.id = 'a refused' THEN
            RAISE 'not with me' USING ERRCODE = '23514';
        ELSIF NEW.id = 'z breaks' AND nextval('breaks') = 1 THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
            PERFORM pg_sleep(1);
        END IF;
        RETURN NEW;
    END $$ LANGUAGE plpgsql;
    CREATE TRIGGER refuse_and_break BEFORE UPDATE ON horsies_tasks
        FOR EACH ROW WHEN (NEW.status = 'RUNNING') EXECUTE FUNCTION refuse_and_break();
"""


async def test_l19a_a_connection_lost_while_a_refused_start_is_divided_keeps_no_part_back(
    database_url: str, rows: Rows, traces: Path
) -> None:
    """The batch is refused for one row; then its first half loses the connection. The second half must not be left in
    the hands of the worker, neither started nor returned."""
    order = ("z breaks", "y healthy", "a refused", "b healthy")  # they are moved by id: the refusal comes first
    async with without_constraints(database_url) as db:
        await db.execute(REFUSE_AND_BREAK)
        for place, task_id in enumerate(order):
            await given_task(db, id=task_id, **NOOP, enqueued_at=f"2020-01-01 00:00:0{place}")
    with WorkerProcess(database_url, "--processes", "4") as worker:
        await all_end(rows, {task_id: "FAILED" if task_id == "a refused" else "COMPLETED" for task_id in order})
        [broken] = await rows.all("SELECT last_value FROM breaks")
        code, said = worker.stop()
    assert code == 0 and broken["last_value"] >= 2, said
    assert (await end_of(rows, "a refused"))["error_code"] == "ROW_SET_ASIDE"


REFUSE_EVERYTHING = """
    CREATE SEQUENCE marks;
    GRANT USAGE ON SEQUENCE marks TO PUBLIC;
    CREATE FUNCTION refuse_everything() RETURNS trigger AS $$
    BEGIN
        IF NEW.status = 'RUNNING' AND NEW.finalizing_at IS NOT NULL THEN
            PERFORM nextval('marks');
        END IF;
        RAISE 'not with me' USING ERRCODE = '23514';
    END $$ LANGUAGE plpgsql;
    CREATE TRIGGER refuse_everything BEFORE UPDATE ON horsies_tasks FOR EACH ROW
        WHEN (OLD.status = 'RUNNING' AND OLD.task_name = 'add') EXECUTE FUNCTION refuse_everything();
"""


async def test_l19a_a_task_of_which_not_even_the_wait_can_be_marked_does_not_stop_its_worker(
    database_url: str, rows: Rows, traces: Path
) -> None:
    """Neither the end of this task can be written, nor that it waits for that (L-30). The heartbeats have not failed:
    the database answers, and the worker goes on."""
    async with without_constraints(database_url) as db:
        await db.execute(REFUSE_EVERYTHING)
        odd = await given_task(db, task_name="add", args="[1, 2]", kwargs="{}")
        with WorkerProcess(database_url, "--processes", "1") as worker:
            await rows.until(odd, "RUNNING")
            marked = "SELECT 1 FROM marks WHERE is_called"
            await eventually(lambda: rows.all(marked), 30, what="the mark that is refused")
            expected = {await given_task(db, **NOOP): "COMPLETED" for _ in range(3)}
            await all_end(rows, expected)
            code, said = worker.stop(timeout=30)
    assert code == 0 and "heartbeats: database error" not in said, said


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("horsies_workflow_tasks", "started_at", "infinity"),
        ("horsies_workflow_tasks", "deps_skipped", "-5"),
        ("horsies_workflows", "paused_at", "-infinity"),
        ("horsies_workflows", "open_nodes", "2147483647"),
    ],
)
async def test_l19a_a_workflow_with_a_row_outside_the_limits_runs_to_its_end(
    database_url: str, rows: Rows, traces: Path, table: str, column: str, value: str
) -> None:
    """A node is mended before its task starts, a workflow when it is advanced; and nobody waits for reconciliation."""
    async with without_constraints(database_url) as db:
        flow = await given_workflow(db, status="RUNNING", open_nodes=2, started_at="now")
        task = await given_task(db, workflow_id=flow, **NOOP)
        common: dict[str, Any] = {"task_name": "noop", "task_kwargs": "{}", "queue_name": "default", "priority": 1}
        await given_node(db, flow, status="ENQUEUED", task_id=task, dependents=[1], **common)
        await given_node(db, flow, task_index=1, dependencies=[0], deps_total=1, **common)
        await plant(db, Planted(table, column, value), "id" if table == "horsies_workflows" else "workflow_id", flow,
                    rows=1 if table == "horsies_workflows" else 2)  # fmt: skip
    with WorkerProcess(database_url, "--processes", "1") as worker:

        async def ended() -> bool:
            [row] = await rows.all("SELECT status FROM horsies_workflows WHERE id = %s", flow)
            return bool(row["status"] == "COMPLETED")

        await eventually(ended, 60, what="the end of the workflow")
        code, said = worker.stop()
    assert code == 0 and "will be retried" not in said and "nobody had" not in said, said
    assert "a workflow was mended" in said and f"{column} is {value}" in said
    assert {row["status"] for row in await rows.all("SELECT status FROM horsies_tasks")} == {"COMPLETED"}
