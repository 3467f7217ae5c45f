"""Which statements a role can run with the rights of its kind: all that its work needs, and no other (O-20). The server
checks the rights when a statement is explained, so that nothing has to be run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from horsies.core.errors import ConfigurationError
from horsies.core.schema import grants
from horsies.core.schema.grants import TABLES, ProcessKind
from horsies.core.schema.install import SchemaError, install
from tests.architecture.source import ROOT, forms, is_copy, prepared, statements
from tests.role_support import a_role

WRITES = re.compile(r"\b(INSERT INTO|DELETE FROM|UPDATE|COPY)\s+horsies_|\bFOR (NO KEY )?UPDATE\b")
# What changes schedules at run time also writes the table that says which version is installed: only for the owner.
OF_THE_OWNER = {"schedules/bump", "schedules/pause", "schedules/put", "schedules/remove"}
STATEMENTS = {name: forms(name)[-1] for name in statements() if not name.startswith(("schema/", "demo/", "testing/"))}


@pytest.fixture(scope="module")
def roles(module_url: str) -> Iterator[dict[ProcessKind, str]]:
    """A role of each kind, with its rights."""

    async def grant(role: str, kind: ProcessKind) -> None:
        async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
            await grants.apply(conn, {kind: [role]})

    with (
        a_role(module_url, "producer") as producer,
        a_role(module_url, "client") as client,
        a_role(module_url, "worker") as worker,
        a_role(module_url, "scheduler") as scheduler,
        a_role(module_url, "monitor") as monitor,
        a_role(module_url, "operator") as operator,
        a_role(module_url, "sender") as sender,
    ):
        made = dict(zip(ProcessKind, (producer, client, worker, scheduler, monitor, operator, sender), strict=True))
        for kind, role in made.items():
            asyncio.run(grant(role, kind))
        yield made


def permitted(url: str, role: str, texts: Mapping[str, str] = STATEMENTS) -> set[str]:
    """The statements for which this role has every right."""
    found = set()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET plan_cache_mode = force_generic_plan")
        conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        for name, text in texts.items():
            if is_copy(text):
                with suppress(psycopg.errors.InsufficientPrivilege), conn.cursor().copy(text.encode()):
                    found.add(name)
                continue
            prepare, parameters = prepared(text)
            conn.execute(prepare.encode())
            nothing = f"({', '.join('NULL' for _ in parameters)})" if parameters else ""
            try:
                conn.execute(f"EXPLAIN EXECUTE checked{nothing}".encode())
                found.add(name)
            except psycopg.errors.InsufficientPrivilege:
                pass
            conn.execute("DEALLOCATE checked")
    return found


# What the rows of the table in docs/security.md mean: a role may run all of these statements, or none. A name is that
# of a file of ours.
MEANS: dict[str, tuple[str, ...]] = {
    "send tasks": ("tasks/insert", "tasks/insert_one", "tasks/copy"),
    "start workflows": ("workflows/insert", "workflows/insert_nodes"),
    "call `horsies_send` and `horsies_result`": ("SELECT horsies_send('t')", "SELECT FROM horsies_result('x')"),
    "read arguments, results and logs": (
        "SELECT args, kwargs FROM horsies_tasks",
        "SELECT result FROM horsies_tasks",
        "SELECT task_kwargs, result FROM horsies_workflow_tasks",
        "SELECT lines FROM horsies_task_logs",
    ),
    "read workers and statistics": ("TABLE horsies_workers", "TABLE horsies_worker_states", "TABLE horsies_rollup"),
    "read schedules": ("TABLE horsies_schedules", "TABLE horsies_schedule_state"),
    "read who did what": ("TABLE horsies_audit",),
    "cancel tasks, send them again": ("tasks/cancel", "monitoring/rerun"),
    "pause, resume, cancel and retry workflows": ("workflows/move", "workflows/move_nodes", "workflows/hold"),
    "move waiting tasks to another queue, run them now": ("tasks/change_queue", "tasks/run_now"),
    "ask workers to drain": ("workers/drain",),
    "write down who did what": ("audit/begin", "audit/complete"),
    "change who did what": ("UPDATE horsies_audit SET actor = 'x'", "DELETE FROM horsies_audit"),
    "claim, start and end tasks": ("tasks/claim", "tasks/start", "tasks/complete", "tasks/fail", "tasks/retry"),
    "write a result that no worker has written": (
        "INSERT INTO horsies_tasks (id, task_name, status, result) VALUES ('x', 't', 'COMPLETED', '{}')",
        "UPDATE horsies_tasks SET completed_at = now()",
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)"
        " VALUES ('x', 1, 'COMPLETED', FALSE, now())",
    ),
    "delete tasks and workflows": ("DELETE FROM horsies_tasks", "DELETE FROM horsies_workflows"),
    "keep the state of schedules": (
        "INSERT INTO horsies_schedule_state (schedule_name) VALUES ('s')",
        "UPDATE horsies_schedule_state SET next_run_at = now()",
    ),
    "add, pause and remove schedules at run time": (
        "INSERT INTO horsies_schedules (name, definition) VALUES ('s', '{}')",
        "UPDATE horsies_schedules SET paused = TRUE",
        "DELETE FROM horsies_schedules",
    ),
    "change the recorded version of the schema": ("UPDATE horsies_meta SET value = '1'", "DELETE FROM horsies_meta"),
}


def documented() -> dict[str, dict[ProcessKind, bool]]:
    """The table of docs/security.md."""
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page[page.index("| | producer |") :].partition("\n\n")[0].splitlines()
    )
    kinds = [ProcessKind(name) for name in head[1:]]
    assert {cell for row in rows for cell in row[1:]} == {"yes", "–"}
    return {row[0]: {kind: cell == "yes" for kind, cell in zip(kinds, row[1:], strict=True)} for row in rows}


def test_o20_the_table_of_the_security_page_is_about_every_kind() -> None:
    assert documented().keys() == MEANS.keys()
    assert all(row.keys() == set(ProcessKind) for row in documented().values())


@pytest.mark.parametrize("kind", ProcessKind)
@pytest.mark.parametrize("what", MEANS)
def test_o20_each_cell_of_the_table_of_the_security_page(
    module_url: str, roles: dict[ProcessKind, str], what: str, kind: ProcessKind
) -> None:
    texts = {text: STATEMENTS.get(text, text) for text in MEANS[what]}
    assert permitted(module_url, roles[kind], texts) == (texts.keys() if documented()[what][kind] else set())


@pytest.fixture(scope="module")
def open_to_all(module_url: str) -> set[str]:
    """What a role without any right can do: signals, locks that are only numbers, and settings of the server."""
    with a_role(module_url, "stranger") as stranger:
        return permitted(module_url, stranger)


async def rights_of(conn: AsyncConnection, role: str) -> list[str]:
    """The tables on which it was granted something."""
    query = "SELECT DISTINCT table_name::text FROM information_schema.role_table_grants WHERE grantee = %s"
    return [name for (name,) in await (await conn.execute(query, [role])).fetchall()]


def read_only() -> set[str]:
    return {name for name, text in STATEMENTS.items() if not WRITES.search(text)}


def test_o20_a_stranger_reads_and_writes_no_table(open_to_all: set[str]) -> None:
    """The functions that everybody may call read a waiting list to know whether to notify, or check their caller."""
    named = {name: set(re.findall(r"\bhorsies_\w+", STATEMENTS[name])) for name in open_to_all}
    assert not [name for name, found in named.items() if found & set(TABLES)]


def test_o20_a_producer_only_inserts(module_url: str, roles: dict[ProcessKind, str], open_to_all: set[str]) -> None:
    assert permitted(module_url, roles[ProcessKind.PRODUCER]) - open_to_all == {
        "tasks/insert",
        "tasks/insert_one",
        "tasks/copy",
        "workflows/insert",
        "workflows/insert_nodes",
        "handles/definition_key",  # of a workflow whose id is taken
        "schedules/look",  # a number in horsies_meta, which says which version is installed
        "monitoring/database",  # the settings in the same table, and sizes
    }


def test_o20_x40_a_sender_has_no_right_to_any_table(
    module_url: str, roles: dict[ProcessKind, str], open_to_all: set[str]
) -> None:
    assert permitted(module_url, roles[ProcessKind.SENDER]) - open_to_all == set()


def test_o20_a_client_reads_all_and_steers_but_does_not_run_tasks(
    module_url: str, roles: dict[ProcessKind, str]
) -> None:
    found = permitted(module_url, roles[ProcessKind.CLIENT])
    assert read_only() <= found
    assert {name for name in found - read_only() if not name.startswith("workflows/")} == {
        "tasks/insert",
        "tasks/insert_one",
        "tasks/copy",
        "tasks/cancel",
        "tasks/expire",  # they write nothing that a cancellation does not write
        "tasks/expire_waiting",
        "tasks/renew",
        "tasks/lock",
        "tasks/lock_claims",
        "tasks/lock_stale",
        "monitoring/rerun",
        "rollup/add",
        "rollup/gauges",
        "waiting/announce",
        "waiting/announce_monitor",
        "waiting/withdraw",
        "waiting/withdraw_monitor",
        "workers/announce_idle",
        "workers/forget_sleepers",
        "workers/withdraw_idle",
    }
    assert "workflows/prune" not in found


def test_o20_an_operator_does_what_a_client_does_and_writes_it_down(
    module_url: str, roles: dict[ProcessKind, str]
) -> None:
    found, client = (permitted(module_url, roles[kind]) for kind in (ProcessKind.OPERATOR, ProcessKind.CLIENT))
    assert (
        found - client == {"audit/begin", "audit/complete", "tasks/change_queue", "tasks/run_now", "workers/drain"}
        and client <= found
    )


def test_o20_a_worker_does_everything_but_schedule(module_url: str, roles: dict[ProcessKind, str]) -> None:
    found = permitted(module_url, roles[ProcessKind.WORKER])
    assert {name for name in STATEMENTS if name not in found} == {
        name for name in STATEMENTS if name.startswith("schedules/") and name not in read_only()
    }


async def test_o20_a_worker_needs_no_function_that_it_is_not_granted(database_url: str) -> None:
    """An owner may have closed functions to everybody; then only those that are granted can be called."""
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        await conn.execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
        with a_role(database_url, "worker") as worker:
            await grants.apply(conn, {ProcessKind.WORKER: [worker]})
            found = permitted(database_url, worker)
    assert {name for name in STATEMENTS if name not in found} == {
        name for name in STATEMENTS if name.startswith("schedules/") and name not in read_only()
    }


def test_o20_a_scheduler_sends_and_moves_its_schedules(
    module_url: str, roles: dict[ProcessKind, str], open_to_all: set[str]
) -> None:
    found = permitted(module_url, roles[ProcessKind.SCHEDULER]) - open_to_all
    of_schedules = {name for name in STATEMENTS if name.startswith("schedules/")} - open_to_all
    assert found == (of_schedules - OF_THE_OWNER) | {
        "tasks/insert",
        "tasks/insert_one",
        "tasks/copy",
        "monitoring/schedules",
        "monitoring/database",
    }


def test_o20_a_monitor_reads_all_and_changes_nothing(module_url: str, roles: dict[ProcessKind, str]) -> None:
    assert permitted(module_url, roles[ProcessKind.MONITOR]) == read_only()
    written = ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
    with psycopg.connect(module_url) as conn:
        query = "SELECT has_table_privilege(%s, %s, %s) OR has_any_column_privilege(%s, %s, %s)"
        role = roles[ProcessKind.MONITOR]
        for table in TABLES:
            for right in written:
                column_right = right if right in ("INSERT", "UPDATE", "REFERENCES") else "UPDATE"
                assert conn.execute(query, [role, table, right, role, table, column_right]).fetchone() == (False,)


@pytest.mark.parametrize("kind", ProcessKind)
def test_o20_nobody_may_create_or_own_anything(
    module_url: str, roles: dict[ProcessKind, str], kind: ProcessKind
) -> None:
    query = """SELECT (SELECT count(*) FROM pg_class WHERE relowner = (
                          SELECT oid FROM pg_roles WHERE rolname = %(role)s)),
                      has_schema_privilege(%(role)s, 'public', 'CREATE WITH GRANT OPTION'),
                      has_database_privilege(%(role)s, current_database(), 'CREATE')"""
    with psycopg.connect(module_url) as conn:
        assert conn.execute(query, {"role": roles[kind]}).fetchone() == (0, False, False)


def test_o20_every_table_is_known(module_url: str) -> None:
    with psycopg.connect(module_url) as conn:
        query = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND starts_with(relname, 'horsies_')"
        assert {row[0] for row in conn.execute(query)} == set(TABLES)


@pytest.mark.parametrize("name", ["public", "PUBLIC", "", " ", "a\0b", "a\udcff", "ä" * 32])
async def test_o20_names_that_mean_another_role_or_none_are_refused(module_url: str, name: str) -> None:
    async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
        with pytest.raises(ConfigurationError):
            await grants.script(conn, {ProcessKind.MONITOR: [name]})


async def test_o20_who_may_not_grant_is_told_so_and_changes_nothing(module_url: str) -> None:
    with a_role(module_url, "monitor") as role, a_role(module_url, "stranger") as stranger:
        async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
            await grants.apply(conn, {ProcessKind.MONITOR: [stranger]})
            await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(stranger)))
            with pytest.raises(SchemaError, match="could not be granted") as caught:
                await grants.apply(conn, {ProcessKind.MONITOR: [role]})
            assert any("no privileges were granted" in note for note in caught.value.notes)
            await conn.execute("RESET ROLE")
            assert await rights_of(conn, role) == []


async def test_o20_the_owner_of_the_tables_alone_can_grant_what_is_open_already(empty_database_url: str) -> None:
    """The database and the schema may belong to somebody else, as with a hosted server."""
    with a_role(empty_database_url, "owner") as owner, a_role(empty_database_url, "monitor") as role:
        async with await AsyncConnection.connect(empty_database_url, autocommit=True) as conn:
            await conn.execute(sql.SQL("GRANT USAGE, CREATE ON SCHEMA public TO {}").format(sql.Identifier(owner)))
            await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
            await install(conn)
            await grants.apply(conn, {ProcessKind.MONITOR: [role]})
            assert len(await rights_of(conn, role)) == len(TABLES)
            await conn.execute("RESET ROLE")
            await conn.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
            await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
            with pytest.raises(SchemaError, match="could not be granted"):
                await grants.apply(conn, {ProcessKind.MONITOR: [role]})


async def test_o20_a_repeated_send_is_recognised_only_for_those_who_may_send(
    module_url: str, roles: dict[ProcessKind, str]
) -> None:
    """The function reads for its caller, who may not; so it asks who the caller is, also after SET ROLE."""
    call = "SELECT * FROM horsies_find_sent('[]')"
    async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
        for kind, role in roles.items():
            await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            if kind in (ProcessKind.MONITOR, ProcessKind.SENDER):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await conn.execute(call)
            else:
                await conn.execute(call)
            await conn.execute("RESET ROLE")


def test_o20_no_role_can_use_the_functions_of_our_triggers_for_a_table_of_its_own(
    module_url: str, roles: dict[ProcessKind, str]
) -> None:
    """They act on our tables with the rights of the owner, on what the table of the trigger says."""
    ours = "SELECT proname::text FROM pg_proc WHERE prorettype = 'trigger'::regtype AND proname LIKE 'horsies%'"
    with psycopg.connect(module_url, autocommit=True) as conn:
        functions = sorted(row[0] for row in conn.execute(ours))
        assert "horsies_follow_deleted_tasks" in functions and "horsies_notify_task_changes" in functions
        for role in roles.values():
            conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            conn.execute("CREATE TEMP TABLE mine (id text)")
            for function in functions:
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"function {function}"):
                    conn.execute(
                        "CREATE TRIGGER t AFTER DELETE ON mine REFERENCING OLD TABLE AS old_rows"
                        f" FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                    )
            conn.execute("DROP TABLE mine")
            conn.execute("RESET ROLE")
