"""Tasks that were sent without Python (X-40) run, are retried, cancelled, shown and sent again like any other, and bad
arguments fail with a message that names the argument."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg import AsyncConnection, sql

from horsies.core.monitoring.explain import explain_task
from tests.e2e.cli_support import run
from tests.psql_support import psql
from tests.support import eventually
from tests.worker_support import ROOT, Rows, WorkerProcess, running_worker

OTHER_NAMES = ("a b", "A.B", "my-app", "a$$b", "a'b", "select")
OTHERS = pytest.mark.slow("more names of the same kind")
pytestmark = pytest.mark.e2e


async def ended(rows: Rows, task_id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        [row] = await rows.all("SELECT * FROM horsies_result(%s)", task_id)
        return row if row["is_terminal"] else None

    found: dict[str, Any] = await eventually(look)
    return found


async def test_x40_plain_psql_a_trigger_and_early_tasks(basic: Any, database_url: str, rows: Rows) -> None:
    """One worker for all of it. The first tasks were sent before it started, when nobody had published anything."""
    early = psql(database_url, 'SELECT horsies_send(\'flaky\', \'{"name": "early", "successes_after": 1}\');')
    unknown = psql(database_url, "SELECT horsies_send('nobody.knows', '{}');")
    gone = psql(database_url, "SELECT horsies_send('add', '[1, 2]');")
    said = (await explain_task(basic.app.get_broker(), early)).unwrap()
    assert said is not None and "no worker that knows a task named 'flaky' has started" in said.message
    async with running_worker(basic.app):
        # What it lacked came from the code: without its policy it would not have been retried.
        assert (await ended(rows, early))["value"] == 2
        assert (await ended(rows, gone))["value"] == 3
        assert (await rows.status(unknown)) == "PENDING"
        said = (await explain_task(basic.app.get_broker(), unknown)).unwrap()
        assert said is not None and "no worker that knows a task named 'nobody.knows' has started" in said.message

        assert any("code has nobody.knows: horsies worker MODULE; or publish it" in remedy for remedy in said.remedies)

        added = psql(database_url, "SELECT horsies_send('add', '{\"a\": 1, \"b\": 2}', idempotency_key => 'k');")
        assert (await ended(rows, added))["value"] == 3
        again = (await basic.add.with_options(idempotency_key="k").send_async(a=1, b=2)).unwrap()
        assert again.task_id == added and (await again.get_async(timeout_ms=20_000)).unwrap() == 3

        psql(
            database_url,
            "CREATE TABLE orders (id int);"
            "CREATE FUNCTION on_order() RETURNS trigger AS $$ BEGIN PERFORM horsies_send('add',"
            " jsonb_build_object('a', NEW.id, 'b', 1)); RETURN NULL; END $$ LANGUAGE plpgsql;"
            "CREATE TRIGGER tell AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION on_order();"
            "INSERT INTO orders SELECT generate_series(101, 110);",
        )
        sent = await rows.all("SELECT id FROM horsies_tasks WHERE kwargs LIKE '%%\"b\": 1%%' ORDER BY enqueued_at")
        assert [(await ended(rows, row["id"]))["value"] for row in sent] == list(range(102, 112))

        later = psql(database_url, "SELECT horsies_send('add', '[1, 2]', delay => interval '1 hour');")
        (await basic.app.get_broker().cancel_task_async(later)).unwrap()
        cancelled = await ended(rows, later)
        assert (cancelled["status"], cancelled["value"]) == ("CANCELLED", None) and cancelled["error_code"]


@pytest.mark.parametrize("name", ["Tenant", 'a"b', *(pytest.param(name, marks=OTHERS) for name in OTHER_NAMES)])
async def test_d01_x40_tables_in_a_schema_whose_name_needs_quotes(empty_database_url: str, name: str) -> None:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        schema = sql.Identifier(name)
        await conn.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        database = sql.Identifier(conn.info.dbname)
        await conn.execute(sql.SQL("ALTER DATABASE {} SET search_path = {}").format(database, schema))
    for _ in range(2):
        done = run("init-db", "--database-url", empty_database_url, cwd=ROOT)
        assert done.returncode == 0, done.stderr
    early = psql(empty_database_url, "SELECT horsies_send('add', '[1, 2]');")
    rows = Rows(empty_database_url)
    with WorkerProcess(empty_database_url) as worker:
        assert (await ended(rows, early))["value"] == 3
        code, output = worker.stop()
        assert code == 0, output


async def test_d59c_a_task_that_is_committed_while_its_name_is_published_does_not_wait_for_a_minute(
    basic: Any, database_url: str, rows: Rows
) -> None:
    """Its sender has looked before the worker published, and commits after the worker has looked."""
    async with await AsyncConnection.connect(database_url) as sender:
        [(task_id,)] = await (await sender.execute("SELECT horsies_send('add', '[1, 2]')")).fetchall()
        async with running_worker(basic.app):
            await eventually(lambda: rows.all("SELECT FROM horsies_task_defaults WHERE task_name = 'add'"))
            # What it adopts now, it has found with the look that follows the publication.
            seen = psql(database_url, "SELECT horsies_send('add', '[2, 2]');")
            assert (await ended(rows, seen))["value"] == 4
            await sender.commit()
            assert (await ended(rows, task_id))["value"] == 3


BAD = [
    ("add", {"a": 1, "b": "two"}, "b"),
    ("add", {"a": 1}, "'b'"),
    ("add", {"a": 1, "b": 2, "c": 3}, "unknown argument 'c'"),
    ("nap", {"second": 1}, "unknown argument 'second'; did you mean 'seconds'?"),
    ("add", {"a": 1, "b": 2, "c" * 200_000: 3}, "unknown argument 'c"),
    ("add", [1, "two"], "b"),
    ("add", [1, 2, 3], "takes 2 positional argument(s), 3 were given"),
    ("add", {"a": 1.5, "b": 2}, "a"),
    ("nap", {"seconds": [[]]}, "seconds"),
]
ODD = [
    ("length", '{"text": "ä\U0001f40e"}', 2),
    ("add", '{"a": 12345678901234567890123456789, "b": 1}', 12345678901234567890123456790),
    ("add", '{"b": 1.0, "a": 2e0}', 3),  # jsonb writes them as 1.0 and 2
]
HOSTILE = [
    '{"a": 1e9999, "b": 1}',  # ten thousand digits: more than Python reads
    '{"a": ' + "[" * 3_000 + "]" * 3_000 + ', "b": 1}',
]


async def test_x40_o32_bad_arguments_fail_and_the_message_names_the_argument(
    basic: Any, database_url: str, rows: Rows
) -> None:
    def send(name: str, arguments: str) -> str:
        return f"SELECT horsies_send('{name}', '{arguments}');"

    script = [send(name, json.dumps(given)) for name, given, _ in BAD]
    script += [send(name, given) for name, given, _ in ODD]
    script += [send("add", given) for given in HOSTILE]
    ids = psql(database_url, "\n".join(script)).splitlines()
    async with running_worker(basic.app):
        for task_id, (name, given, named) in zip(ids, BAD, strict=False):
            row = await ended(rows, task_id)
            assert (row["status"], row["error_code"]) == ("FAILED", "WORKER_SERIALIZATION_ERROR"), (name, given, row)
            assert named in row["error_message"], row
        for task_id, (name, given, value) in zip(ids[len(BAD) :], ODD, strict=False):
            assert (await ended(rows, task_id))["value"] == value, (name, given)
        for task_id in ids[len(BAD) + len(ODD) :]:
            row = await ended(rows, task_id)
            assert (row["status"], row["error_code"]) == ("FAILED", "WORKER_SERIALIZATION_ERROR"), row
            assert "a" in row["error_message"]
