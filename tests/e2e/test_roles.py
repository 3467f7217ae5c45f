"""Producers, clients, workers, schedulers and monitors as roles of their own, with the rights that `horsies grants`
gives them (O-20): each does its work. What they may not do is in store/test_grants.py."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from horsies import Err, OperationalErrorCode, TaskSendErrorCode
from horsies.core.schema import grants
from horsies.core.schema.grants import ProcessKind
from horsies.core.workflows.handle import WorkflowHandle
from horsies.monitoring import explain_task, get_task_detail, list_tasks, list_workers, take_snapshot
from tests.app_support import an_app, define_add
from tests.e2e.cli_support import Started, run
from tests.e2e.conftest import load
from tests.e2e.workflows.conftest import FLOWS
from tests.role_support import a_role, as_role
from tests.scheduler_support import LOCATOR, Schedules, as_json
from tests.support import eventually
from tests.worker_support import BASIC, ROOT, Rows, WorkerProcess

pytestmark = pytest.mark.e2e

PRODUCER, CLIENT, WORKER = ProcessKind.PRODUCER, ProcessKind.CLIENT, ProcessKind.WORKER
SCHEDULER, MONITOR = ProcessKind.SCHEDULER, ProcessKind.MONITOR


@contextlib.contextmanager
def granted(url: str, *kinds: ProcessKind) -> Iterator[str]:
    """The URL of a new role with these rights, in a database that nobody else may use."""
    with a_role(url, kinds[0]) as role:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            conn.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(conn.info.dbname)))
        words = [word for kind in kinds for word in (f"--{kind}", role)]
        done = run("grants", *words, "--apply", "--database-url", url, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        yield as_role(url, role)


@contextlib.asynccontextmanager
async def app_for(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """The module of an app, with a broker for this URL."""
    monkeypatch.setenv("DATABASE_URL", url)
    module = load(path)
    try:
        yield module
    finally:
        await module.app.get_broker().close_async()
        del sys.modules[module.__name__]


async def test_o20_a_producer_sends_a_worker_runs_and_a_client_reads(
    database_url: str, rows: Rows, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workflows, retries, failures, recovery and retention, in processes of which none may read or change more."""
    with (
        granted(database_url, PRODUCER) as producer_url,
        granted(database_url, WORKER) as worker_url,
        granted(database_url, CLIENT) as client_url,
    ):
        async with (
            app_for(FLOWS, producer_url, monkeypatch) as producer,
            app_for(FLOWS, client_url, monkeypatch) as client,
        ):
            flow = (await producer.chain("c", 3).start_async()).unwrap()
            await producer.fan("f", 3).start_async()
            flaky = (await producer.flaky.send_async("flaky")).unwrap()
            broken = (await producer.broken.send_async()).unwrap()
            options = ("--worker-recovery", "--heartbeat-interval", "1s", "--sweep-interval", "1s")
            with WorkerProcess(worker_url, *options, locator=f"{FLOWS}:app") as worker:
                broker = client.app.get_broker()
                result = await broker.get_result_async(flaky.task_id, 30_000)
                assert result.ok == 5
                assert (await broker.get_result_async(broken.task_id, 30_000)).err.error_code == "BROKEN"
                ended = await WorkflowHandle(flow.workflow_id, broker, client.chain("c", 3)).get_async(30_000)
                assert ended.is_ok(), ended
                waiting = (await client.number.schedule_async(3600, "later", 1)).unwrap()
                (await waiting.cancel_async()).unwrap()
                code, said = worker.stop()
        assert code == 0, said
        assert "permission denied" not in said and "error" not in said.lower().replace("broken", ""), said
        assert len(await rows.attempts(flaky.task_id)) == 2


async def test_o20_a_producer_sees_nothing(database_url: str, rows: Rows) -> None:
    with granted(database_url, PRODUCER) as url, an_app(url) as app, an_app(database_url) as own:
        add, owners = define_add(app), define_add(own)
        foreign = (await owners.with_options(idempotency_key="k").send_async(1, b=2)).unwrap()
        again = (await add.with_options(idempotency_key="k").send_async(1, b=2)).unwrap()
        assert again.task_id == foreign.task_id, "a repeated send is recognised"
        other = await add.with_options(idempotency_key="k").send_async(3, b=4)
        assert isinstance(other, Err) and other.err_value.code is TaskSendErrorCode.PAYLOAD_MISMATCH
        assert "sent with other arguments" in other.err_value.message
        many = (await add.send_many_async([(n, 0) for n in range(3)])).unwrap()
        assert len({handle.task_id for handle in many}) == 3
        read = await foreign.__class__(foreign.task_id, app.get_broker()).get_async(2_000)
        assert read.err is not None and read.err.error_code is OperationalErrorCode.BROKER_ERROR
        assert "permission denied" in (read.err.message or "") and "horsies grants" in (read.err.message or "")


async def test_o20_a_send_without_the_right_is_not_retryable_and_says_what_to_do(database_url: str) -> None:
    with (
        granted(database_url, MONITOR) as url,
        an_app(url, resend_on_transient_err=True) as app,
        psycopg.connect(url) as conn,
    ):
        add = define_add(app)
        calls = [
            await add.send_async(1),
            await add.send_many_async([(1, 0), (2, 0)]),
            await asyncio.to_thread(add.with_options(connection=conn).send, 1),
        ]
        for sent in calls:
            assert isinstance(sent, Err)
            error = sent.err_value
            assert (error.code, error.retryable) == (TaskSendErrorCode.ENQUEUE_FAILED, False)
            assert "permission denied" in error.message and "horsies grants" in error.message
        assert calls[0].err_value.payload is not None, "it can be sent again when the right is there"


@pytest.mark.parametrize("revoked", ["SELECT ON TABLE horsies_meta", "INSERT ON TABLE horsies_workers"])
async def test_o20_a_worker_that_may_not_register_ends_and_says_what_it_lacks(
    database_url: str, basic: Any, rows: Rows, revoked: str
) -> None:
    task = (await basic.add.send_async(1, 2)).unwrap()
    with a_role(database_url, "worker") as role:
        await grant_by_hand(database_url, role)
        await change(database_url, f"REVOKE {revoked} FROM", role)
        with WorkerProcess(as_role(database_url, role)) as worker:
            code, said = worker.wait()
        assert code == 1 and "worker ready" not in said, said
        assert f"permission denied for table {revoked.split()[-1]}" in said and "horsies grants" in said, said
        assert await rows.status(task.task_id) == "PENDING"
        await change(database_url, f"GRANT {revoked} TO", role)
        with WorkerProcess(as_role(database_url, role)) as worker:
            await rows.until(task.task_id, "COMPLETED")
            assert worker.stop()[0] == 0


@pytest.mark.parametrize(
    "revoked", ["USAGE ON SEQUENCE horsies_task_attempts_id_seq", "INSERT ON TABLE horsies_task_attempts"]
)
async def test_o20_an_end_that_may_not_be_written_waits_for_the_right_and_nothing_runs_twice(
    database_url: str, basic: Any, rows: Rows, traces: Path, revoked: str
) -> None:
    with a_role(database_url, "worker") as role:
        await grant_by_hand(database_url, role)
        await change(database_url, f"REVOKE {revoked} FROM", role)
        with Started("worker", BASIC, cwd=ROOT, DATABASE_URL=as_role(database_url, role), NO_COLOR="1") as worker:
            task = (await basic.nap.send_async(0, "once")).unwrap()
            await asyncio.to_thread(
                worker.until_it_says, f"permission denied for {revoked.split()[-2].lower()} .*horsies grants"
            )
            assert await rows.status(task.task_id) == "RUNNING"
            await change(database_url, f"GRANT {revoked} TO", role)
            await rows.until(task.task_id, "COMPLETED")
            assert await asyncio.to_thread(worker.stop) == 0
    assert (traces / "once").read_text().count("end") == len(await rows.attempts(task.task_id)) == 1


async def test_o20_a_role_without_ddl_uses_current_tables_and_says_if_they_are_old(
    database_url: str, rows: Rows, traces: Path
) -> None:
    old = "UPDATE horsies_meta SET value = (value::int - 1)::text WHERE key = 'schema_version' RETURNING value"
    with granted(database_url, WORKER) as url:
        [row] = await rows.all(old)
        with WorkerProcess(url) as worker:
            code, said = worker.wait()
    assert code == 1 and f"the horsies tables here are of version {row['value']}" in said, said


def scheduler(url: str, *options: str) -> Started:
    every_second = as_json({"name": "s", "pattern": {"type": "interval", "seconds": 1}})
    return Started("scheduler", LOCATOR, *options, cwd=ROOT, DATABASE_URL=url, SCHEDULES=every_second, NO_COLOR="1")


async def test_o20_a_scheduler_sends_or_says_what_it_lacks(database_url: str) -> None:
    rows = Schedules(database_url)
    await rows.away_from_the_hour()
    with granted(database_url, SCHEDULER) as url:
        with scheduler(url) as process:

            async def is_sending() -> bool:
                return len(await rows.sent()) >= 2

            await eventually(is_sending, 30)
            assert process.stop() == 0
        assert "permission denied" not in process.said
    with a_role(database_url, "half") as role:
        await change(database_url, "GRANT USAGE ON SCHEMA public TO", role)
        await change(database_url, "GRANT SELECT ON horsies_meta TO", role)
        connect = sql.SQL("GRANT CONNECT ON DATABASE {} TO").format(
            sql.Identifier(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
        )
        await change(database_url, connect.as_string(None), role)
        with scheduler(as_role(database_url, role)) as process:
            assert process.wait() == 1
        assert "permission denied for table horsies_" in process.said, process.said
        assert "horsies grants" in process.said, process.said


async def test_o20_a_monitor_sees_everything_and_changes_nothing(database_url: str, rows: Rows, basic: Any) -> None:
    waiting = (await basic.add.send_async(1, 2)).unwrap()
    before = await everything(rows)
    with granted(database_url, MONITOR) as url, an_app(url) as app:
        broker = app.get_broker()
        for looked in (
            await list_tasks(broker),
            await get_task_detail(broker, waiting.task_id),
            await explain_task(broker, waiting.task_id),
            await list_workers(broker),
            await take_snapshot(broker),
            await broker.get_task_info_async(waiting.task_id, include_result=True, include_attempts=True),
        ):
            assert not isinstance(looked, Err), looked
        for words in ("tasks", f"task {waiting.task_id}", "queues", "workers", "metrics --once", "workflow list"):
            done = run(*words.split(), "--database-url", url, cwd=ROOT)
            assert done.returncode == 0, done.stderr
        for words in (f"cancel {waiting.task_id}", "purge --waiting --queue default --yes"):
            done = run(*words.split(), "--database-url", url, cwd=ROOT)
            assert done.returncode == 1 and "permission denied" in done.stderr and "horsies grants" in done.stderr
        assert isinstance(await define_add(app).send_async(1), Err)
        assert isinstance(await broker.cancel_task_async(waiting.task_id), Err)
    assert await everything(rows) == before


async def everything(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    return {table: await rows.all(f"TABLE {table}") for table in grants.TABLES}


async def grant_by_hand(url: str, role: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await grants.apply(conn, {WORKER: [role]})


async def change(url: str, statement: str, role: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute(sql.SQL(statement + " {}").format(sql.Identifier(role)))


def test_o20_the_printed_script_is_for_roles_to_be_created(database_url: str) -> None:
    printed = run(
        "grants", "--producer", 'odd "; DROP TABLE x', "--monitor", "é", "--database-url", database_url, cwd=ROOT
    )
    assert printed.returncode == 0, printed.stderr
    assert '"odd ""; DROP TABLE x"' in printed.stdout
    assert "every role may connect: REVOKE CONNECT ON DATABASE" in " ".join(printed.stderr.split())
    with a_role(database_url, 'odd "; DROP TABLE') as role, psycopg.connect(database_url, autocommit=True) as conn:
        printed = run("grants", "--producer", role, "--worker", role, "--database-url", database_url, cwd=ROOT)
        conn.execute(printed.stdout.encode())
        row = conn.execute("SELECT has_table_privilege(%s, 'horsies_heartbeats', 'INSERT')", [role]).fetchone()
        assert row == (True,)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "no role is named"),
        (["--worker", "no such role", "--apply"], "there is no role 'no such role'"),
        (["--producer", "public", "--apply"], "PUBLIC is every role"),
    ],
)
def test_o20_mistakes_of_the_command_are_named(database_url: str, words: list[str], complaint: str) -> None:
    done = run("grants", *words, "--database-url", database_url, cwd=ROOT)
    assert done.returncode == 1 and complaint in done.stderr, done.stderr


def test_o20_without_tables_there_is_nothing_to_grant(empty_database_url: str) -> None:
    done = run("grants", "--worker", "w", "--database-url", empty_database_url, cwd=ROOT)
    assert done.returncode == 1 and "horsies init-db" in done.stderr
