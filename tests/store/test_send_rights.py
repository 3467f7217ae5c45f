"""What a role with nothing but the two functions can do (X-40, O-20), on real connections of such a role."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from horsies.core.schema import grants
from horsies.core.schema.functions import TABLE_READERS
from horsies.core.schema.grants import ProcessKind
from horsies.core.schema.install import install
from tests.role_support import a_role, as_role

SEND = "SELECT horsies_send('mail.send', '{\"to\": \"a@b\"}', idempotency_key => %s)"


def grant(url: str, role: str) -> None:
    async def work() -> None:
        async with await AsyncConnection.connect(url, autocommit=True) as conn:
            await grants.apply(conn, {ProcessKind.SENDER: [role]})

    asyncio.run(work())


@pytest.fixture
def pair(database_url: str) -> Iterator[tuple[str, str]]:
    """Two senders that know nothing of each other."""
    with a_role(database_url, "web") as web, a_role(database_url, "shop") as shop:
        grant(database_url, web)
        grant(database_url, shop)
        yield web, shop


def one(url: str, text: str, *values: object) -> tuple[object, ...] | None:
    with psycopg.connect(url, autocommit=True) as conn:
        return conn.execute(text.encode(), values).fetchone()


def test_x40_a_sender_sends_and_reads_its_own_results_only(database_url: str, pair: tuple[str, str]) -> None:
    web, shop = (as_role(database_url, role) for role in pair)
    sent = one(web, SEND, "k")
    assert sent is not None and one(web, SEND, "k") == sent == one(shop, SEND, "k"), (
        "keys belong to the task, not the role"
    )
    own = one(web, "SELECT task_id, status FROM horsies_result(%s)", sent[0])
    assert own == (sent[0], "PENDING")
    assert one(shop, "SELECT 1 FROM horsies_result(%s)", sent[0]) is None, "and does not say that there is one"
    assert one(database_url, "SELECT sent_by FROM horsies_tasks WHERE id = %s", sent[0]) == (pair[0],)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(pair[0]), sql.Identifier(pair[1])))
    assert one(shop, "SELECT 1 FROM horsies_result(%s)", sent[0]) == (1,), "a member of the role"


def test_x40_a_task_of_python_is_read_only_by_who_may_read_the_table(database_url: str, pair: tuple[str, str]) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('theirs', 'mail.send')")
        assert conn.execute("SELECT 1 FROM horsies_result('theirs')").fetchone() == (1,)
        conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(pair[0])))
        assert conn.execute("SELECT 1 FROM horsies_result('theirs')").fetchone() is None


def test_x40_who_may_read_the_results_in_the_table_may_read_all(database_url: str, pair: tuple[str, str]) -> None:
    """The right to read other columns is not enough."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("INSERT INTO horsies_tasks (id, task_name) VALUES ('theirs', 'mail.send')")
        for columns, role in zip(("id, status", "result"), pair, strict=True):
            right = sql.SQL("GRANT SELECT ({}) ON horsies_tasks TO {}")
            conn.execute(right.format(sql.SQL(columns), sql.Identifier(role)))
    web, shop = (as_role(database_url, role) for role in pair)
    assert one(web, "SELECT 1 FROM horsies_result('theirs')") is None
    assert one(shop, "SELECT 1 FROM horsies_result('theirs')") == (1,)


def test_x40_after_set_role_it_is_that_role_who_sends_and_reads(database_url: str, pair: tuple[str, str]) -> None:
    """As in an application whose connections have one user, and a role for each request."""
    with a_role(database_url, "pool") as pool:
        with psycopg.connect(database_url, autocommit=True) as conn:
            for role in pair:
                conn.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(pool)))
        with psycopg.connect(as_role(database_url, pool), autocommit=True) as conn:
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(pair[0])))
            sent = conn.execute(SEND.encode(), ["k"]).fetchone()
            assert conn.execute("SELECT 1 FROM horsies_result(%s)", sent).fetchone() == (1,)
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(pair[1])))
            assert conn.execute("SELECT 1 FROM horsies_result(%s)", sent).fetchone() is None
    assert one(database_url, "SELECT sent_by FROM horsies_tasks") == (pair[0],)


def test_x40_whoever_is_granted_nothing_cannot_send(database_url: str) -> None:
    with a_role(database_url, "stranger") as stranger:
        for text in ("SELECT horsies_send('mail.send')", "SELECT horsies_result('x')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for function"):
                one(as_role(database_url, stranger), text)


def test_x40_tables_and_operators_of_the_caller_are_not_used(database_url: str, pair: tuple[str, str]) -> None:
    """The function runs with the rights of its owner: what a caller puts in its way must not run with them."""
    with psycopg.connect(as_role(database_url, pair[0]), autocommit=True) as conn:
        conn.execute("CREATE TEMP TABLE horsies_task_defaults (task_name text)")
        conn.execute("CREATE TEMP TABLE horsies_tasks (id text)")
        conn.execute("SET search_path = pg_temp, public")
        assert conn.execute("SELECT horsies_send('mail.send')").fetchone() is not None
        assert conn.execute("SELECT count(*) FROM pg_temp.horsies_tasks").fetchone() == (0,)
    assert one(database_url, "SELECT count(*) FROM horsies_tasks") == (1,)


EVIL_FUNCTIONS = (
    "format(text, text, text) RETURNS text",
    "format(text, text) RETURNS text",
    "concat_ws(text, text, text, text, text, text) RETURNS text",
    "to_json(text) RETURNS json",
    "lpad(text, integer, text) RETURNS text",
    "char_length(text) RETURNS integer",
    "jsonb_typeof(jsonb) RETURNS text",
    "pg_notify(text, varchar) RETURNS void",
    "unnest(text[]) RETURNS SETOF text",
    "json_to_recordset(json) RETURNS SETOF record",
    "horsies_wake_workers(varchar, bigint, text, varchar) RETURNS void",
    "horsies_wake_workers(varchar, bigint, text, text) RETURNS void",
    "horsies_wake_workers(text, integer, text, text) RETURNS void",
    "horsies_ring_for_queue(varchar, bigint, varchar, text) RETURNS void",
    "horsies_ring_for_queue(text, integer, text, text) RETURNS void",
    "horsies_ring(text, text, integer) RETURNS void",
    "horsies_same_json(varchar, text, text, text) RETURNS boolean",
    "same(varchar, text) RETURNS boolean",
    "same(varchar, varchar) RETURNS boolean",
    "joined(text, varchar) RETURNS text",
)
EVIL_OPERATORS = (
    "= (LEFTARG = varchar, RIGHTARG = text, FUNCTION = same)",
    "= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = same)",
    "<> (LEFTARG = varchar, RIGHTARG = text, FUNCTION = same)",
    "|| (LEFTARG = text, RIGHTARG = varchar, FUNCTION = joined)",
)
CALLED = "$$ BEGIN RAISE 'called by %', current_user; END $$"
WRITES = (
    "INSERT INTO {0}.horsies_tasks (id, task_name, status, claimed) VALUES ('held', 'n', 'CLAIMED', TRUE)",
    "INSERT INTO {0}.horsies_tasks (id, task_name) VALUES ('a', 'n')",
    "UPDATE {0}.horsies_tasks SET status = 'CANCELLED' WHERE id OPERATOR(pg_catalog.~~) 'a'",
    "UPDATE {0}.horsies_tasks SET claimed = FALSE WHERE id OPERATOR(pg_catalog.~~) 'held'",
    "SELECT {0}.horsies_ring('default', 'a', NULL), {0}.horsies_ring('default', 'a', 'w')",
    """SELECT {0}.horsies_find_sent('[{{"place": 0, "id": "x", "task_name": "mail.send", "idempotency_key": "k"}}]')""",
    "INSERT INTO {0}.horsies_workflows (id, name, definition_key, open_nodes) VALUES ('w', 'n', 'd', 0)",
    "UPDATE {0}.horsies_workflows SET status = 'COMPLETED'",
    "DELETE FROM {0}.horsies_workers",
    "DELETE FROM {0}.horsies_tasks",
)


@pytest.mark.parametrize(
    ("home", "mode"), [("public", "always"), ("public", "when_waiting"), ("te\"n'ant $$ --\n", "always")]
)
async def test_x40_what_somebody_puts_beside_our_functions_is_never_run_by_them(
    empty_database_url: str, home: str, mode: str
) -> None:
    """On servers before 15, and wherever it was granted, every role may create functions and operators beside ours.
    Those of triggers and senders run with the rights of the owner of the tables."""
    schema = sql.Identifier(home)
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        await conn.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        await conn.execute(sql.SQL("SET search_path = {}").format(schema))
        await install(conn, notify=mode)
        with a_role(empty_database_url, "evil") as role:
            await grants.apply(conn, {ProcessKind.SENDER: [role]})
            await conn.execute(sql.SQL("GRANT CREATE ON SCHEMA {} TO {}").format(schema, sql.Identifier(role)))
            await conn.execute(
                "INSERT INTO horsies_load (queue_name, number, held, running) VALUES ('default', 1, 0, 0)"
            )
            for topic, queues in (("monitor", None), ("worker", ["default"]), ("queue:default", None)):
                await conn.execute(
                    "INSERT INTO horsies_waiting (topic, holder, until, queues, wake_key)"
                    " VALUES (%s, 'h', '2100-01-01Z', %s, 1)",
                    (topic, queues),
                )
            with psycopg.connect(as_role(empty_database_url, role), autocommit=True) as evil:
                evil.execute(sql.SQL("SET search_path = {}").format(schema))
                for declared in EVIL_FUNCTIONS:
                    evil.execute(f"CREATE FUNCTION {declared} LANGUAGE plpgsql AS {CALLED}".encode())
                for declared in EVIL_OPERATORS:
                    evil.execute(f"CREATE OPERATOR {declared}".encode())
                sent = evil.execute(SEND.encode(), ["k"]).fetchone()
                assert sent is not None and evil.execute(SEND.encode(), ["k"]).fetchone() == sent
                found = evil.execute("SELECT status FROM horsies_result(%s)", sent).fetchone()
                assert found == ("PENDING",)
                for call in (
                    "'mail.send', '5'",
                    "'mail.send', priority => 0",
                    "'mail.send', '[1]', idempotency_key => 'k'",
                ):
                    with pytest.raises(psycopg.Error) as caught:
                        evil.execute(f"SELECT horsies_send({call})".encode())
                    assert "called" not in str(caught.value) and caught.value.sqlstate in ("22023", "TQ001")
            await conn.execute("SET search_path = pg_catalog")
            for text in WRITES:
                await conn.execute(sql.SQL(text).format(schema))


async def test_x40_functions_with_the_rights_of_their_owner_find_nothing_but_the_server(
    empty_database_url: str,
) -> None:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        await install(conn)
        rows = await (
            await conn.execute("SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND proname LIKE 'horsies%'")
        ).fetchall()
    assert len(rows) == len(TABLE_READERS)
    assert [name for name, config in rows if "search_path=pg_catalog, pg_temp" not in config] == []


def test_x40_hostile_text_stays_text(database_url: str, pair: tuple[str, str]) -> None:
    url = as_role(database_url, pair[0])
    evil = "'; DROP TABLE horsies_tasks; -- %s \\ \" */ `${x}`"
    sent = one(
        url, "SELECT horsies_send(%s, jsonb_build_object(%s::text, %s::text), idempotency_key => %s)", *[evil] * 4
    )
    assert sent is not None
    row = one(
        database_url,
        "SELECT task_name, idempotency_key, kwargs::json ->> %s FROM horsies_tasks WHERE id = %s",
        evil,
        sent[0],
    )
    assert row == (evil, evil, evil)


async def test_x40_in_a_schema_of_its_own_whatever_the_path_of_the_caller(empty_database_url: str) -> None:
    async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
        await conn.execute("CREATE SCHEMA tenant")
        await conn.execute("SET search_path = tenant")
        await install(conn)
        await conn.execute("SET search_path = public")
        row = await (await conn.execute("SELECT tenant.horsies_send('mail.send')")).fetchone()
        assert row is not None
        found = await (await conn.execute("SELECT status FROM tenant.horsies_result(%s)", row)).fetchone()
        assert found == ("PENDING",)


SCANS = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'horsies_tasks'"


def test_x40_the_collation_of_the_caller_decides_nothing(database_url: str) -> None:
    """A column has a collation, and so has what is read from it: an index of ours cannot be used in another."""
    with psycopg.connect(database_url) as conn:
        conn.execute("SELECT horsies_send('mail.send')")
        before = conn.execute(SCANS).fetchone()
        conn.execute("SELECT horsies_result('x' COLLATE \"C\")")
        assert conn.execute(SCANS).fetchone() == before


def test_x40_a_collation_in_which_all_roles_are_equal_opens_nothing(database_url: str, pair: tuple[str, str]) -> None:
    """Every role that may create temporary objects can make one, where the server was built with ICU."""
    shop = as_role(database_url, pair[1])
    with psycopg.connect(database_url, autocommit=True) as conn:
        sent = conn.execute(SEND.encode(), ["k"]).fetchone()
        conn.execute("UPDATE horsies_tasks SET sent_by = upper(%s)", [pair[1]])
    with psycopg.connect(shop, autocommit=True) as conn:
        conn.execute("CREATE TEMP TABLE something ()")
        try:
            conn.execute(
                "CREATE COLLATION pg_temp.any (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
            )
        except psycopg.errors.FeatureNotSupported:
            pytest.skip("this server was built without ICU")
        assert conn.execute("SELECT FROM horsies_result(%s COLLATE pg_temp.any)", sent).fetchone() is None
