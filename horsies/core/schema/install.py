"""Installs the schema on first use: tables, functions, triggers, and the record of the version. Concurrent processes
queue at an advisory lock; the second one finds the work done. On a database that is up to date, one statement reads
``horsies_meta``. A schema made by newer code is used unchanged, unless it says that this code is too old for it.

``create.py`` makes a fresh schema from the table models, which are the one description of the tables; its triggers are
in ``sql/schema/triggers.sql``. A numbered migration, ``migrations/NNNN_what.sql``, takes the tables and triggers of a
release from version NNNN-1 to NNNN; there is none before the first release. The functions of the current version are
installed after the last step. The keys of all advisory locks are derived here from purpose strings, so that two uses
never collide by accident.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import uniform
from time import monotonic
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from horsies.core.db import pooler
from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.schema.functions import put_functions
from horsies.core.sql import load

FIRST_VERSION = 12  # of the first release; nothing leads on from earlier versions, which were never released
SCHEMA_VERSION = 12  # what this code creates; raised with each migration
BREAKING_VERSION = 1  # the oldest code (by its SCHEMA_VERSION) that can still use what this code creates
OLDEST_SERVER = 13
NOTIFY_MODES = ("always", "when_waiting", "off")

MIGRATIONS = Path(__file__).parent / "migrations"
PATIENCE_S = 120.0  # for a moment in which nobody uses the tables
SCHEMA = "horsies:schema"
CLAIM = "horsies:claim"
SWEEP = "horsies:sweep"
RETENTION = "horsies:retention"
LOAD = "horsies:load"


class SchemaError(HorsiesError):
    """The schema cannot be installed, or cannot be used by this code."""

    def __init__(self, message: str, *, notes: list[str] | None = None, help_text: str | None = None) -> None:
        super().__init__(message, code=ErrorCode.BROKER_INIT_FAILED, notes=notes, help_text=help_text)


class NoTables(SchemaError):
    """There are no tables of horsies in this database."""


class SchemaTooNew(SchemaError):
    """The schema was made by newer code and says that this code must not use it."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version of this code with respect to the schema."""

    version: int = SCHEMA_VERSION
    breaking: int = BREAKING_VERSION
    migrations: Path = MIGRATIONS


THIS_RELEASE = Release()


@dataclass(frozen=True, slots=True)
class InstallReport:
    """What is installed now."""

    version: int
    notify: str
    notify_changed_from: str | None = None
    created: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """The server we are connected to, and what it allows."""

    version: int
    database: str
    user: str
    schema: str | None
    in_recovery: bool
    read_only: bool
    has_meta: bool
    may_create: bool

    @property
    def place(self) -> str:
        return f"database {self.database!r}, schema {self.schema!r}, as user {self.user!r}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What ``horsies_meta`` says."""

    version: int
    breaking: int
    notify: str


async def install(
    conn: psycopg.AsyncConnection[Any],
    *,
    notify: str = "always",
    change_notify: bool = False,
    release: Release = THIS_RELEASE,
    before_change: Callable[[], Awaitable[None]] | None = None,
) -> InstallReport:
    """Create or upgrade the schema; on an existing one, change the notify mode only on request. If anything must be
    changed, `before_change` is awaited first.

    The connection must not be inside a transaction: the work is one separate transaction.
    """
    if notify not in NOTIFY_MODES:
        raise ValueError(f"notify must be one of {', '.join(NOTIFY_MODES)}, not {notify!r}")
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise ValueError("install() needs a connection that is not inside a transaction")
    refuse_other_encodings(conn)
    if (report := await _installed(conn, notify if change_notify else None, release)) is not None:
        return report
    if before_change is not None:
        await before_change()
    async with conn.transaction():
        server = await look_around(conn)
    refuse_unusable(server)
    recorded: Recorded | None = None
    try:
        async with conn.transaction():
            recorded = await read_meta(conn) if server.has_meta else None
        return await _install_locked(conn, server, notify, change_notify, release)
    except psycopg.errors.InsufficientPrivilege as exc:
        if recorded is None:
            raise _not_permitted(server, _words(exc)) from exc
        raise _may_not_change(server, recorded, notify, release) from exc


async def _installed(conn: psycopg.AsyncConnection[Any], notify: str | None, release: Release) -> InstallReport | None:
    """What is installed, with one statement, if this session can use it as it is, with this notify mode or any."""
    # A pooler that cannot carry transactions is to be found now, and not by the first claim.
    is_alone = conn.autocommit and not isinstance(conn, pooler.SharedConnection)
    try:
        async with contextlib.nullcontext() if is_alone else conn.transaction():
            rows = await _rows(conn, "schema/check")
    except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
        return None
    recorded = _recorded(rows[0][0]) if rows else None
    if recorded is None or not is_settled(recorded, notify or recorded.notify, release):
        return None
    return InstallReport(recorded.version, recorded.notify)


async def look(conn: psycopg.AsyncConnection[Any]) -> InstallReport:
    """What is installed, for programs that only read: nothing is created or migrated, and neither a standby nor a newer
    schema is refused."""
    async with conn.transaction():
        server = await look_around(conn)
    if not server.has_meta:
        raise NoTables(
            "there are no horsies tables in this database",
            notes=[server.place],
            help_text="is it the right one? `horsies init-db`, with the same app or --database-url, creates them",
        )
    try:
        async with conn.transaction():
            recorded = await read_meta(conn)
    except psycopg.errors.InsufficientPrivilege as exc:
        raise _not_permitted(server, _words(exc)) from exc
    if recorded is None:  # an installation that was not completed
        return InstallReport(0, "always")
    return InstallReport(recorded.version, recorded.notify)


async def refuse_unfit(conn: psycopg.AsyncConnection[Any]) -> None:
    """Raise if a process with this code could not use this database. Nothing is created or changed."""
    refuse_other_encodings(conn)
    server = await look_around(conn)
    refuse_unusable(server)
    if not server.has_meta:
        if not server.may_create:
            raise _not_permitted(server, "the tables do not exist yet, and this role may not create them")
        return
    try:
        recorded = await read_meta(conn)
    except psycopg.errors.InsufficientPrivilege as exc:
        raise _not_permitted(server, _words(exc)) from exc
    if recorded is not None:
        is_settled(recorded, recorded.notify)


def refuse_other_encodings(conn: psycopg.AsyncConnection[Any]) -> None:
    """Arguments and results are JSON in any language; a database in another encoding would fail for single tasks."""
    encoding = conn.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):
        raise SchemaError(
            f"the database {conn.info.dbname!r} has the encoding {encoding}, horsies needs UTF8",
            help_text="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )


def refuse_unusable(server: Server) -> None:
    """Raise if no schema can be installed or used on this server, and say why."""
    refuse_old(server)
    if server.in_recovery or server.read_only:
        raise SchemaError(
            "the database server is read-only",
            notes=[
                server.place,
                "it is a standby" if server.in_recovery else "transactions there are read-only by default",
            ],
            help_text="connect to the primary server (with several hosts: target_session_attrs=read-write)",
        )
    if server.schema is None:
        raise SchemaError(
            f"no schema of the search path exists, or may be used, in database {server.database!r}",
            notes=[server.place],
            help_text="create the schema and grant USAGE on it, or set search_path to another",
        )


def refuse_old(server: Server) -> None:
    """Raise if this server does not know the statements that are run on it (O-30)."""
    if server.version < OLDEST_SERVER * 10_000:
        raise SchemaError(
            f"PostgreSQL {server.version // 10_000} is too old",
            notes=[server.place],
            help_text=f"horsies needs PostgreSQL {OLDEST_SERVER} or newer",
        )


def is_settled(recorded: Recorded, notify: str, release: Release = THIS_RELEASE) -> bool:
    """Whether there is nothing to write; raises if the release must not use this schema."""
    if recorded.breaking > release.version:
        raise SchemaTooNew(
            f"the database's horsies schema (version {recorded.version}) is too new for this code",
            notes=[
                f"code of schema version {recorded.breaking} or later can use it; this is version {release.version}"
            ],
            help_text="upgrade the horsies package here to the version that upgraded the schema",
        )
    if recorded.version < FIRST_VERSION:
        raise SchemaError(
            f"the horsies tables here are of version {recorded.version}, from before the first release",
            notes=[f"this code uses tables of version {FIRST_VERSION} or later, and has changed nothing"],
            help_text="let the tasks there end with the code that made the tables; then use an empty database or "
            "schema (search_path), or drop these tables",
        )
    if recorded.version > release.version:
        return True  # the schema is newer and compatible: its functions must not be replaced
    return recorded.version == release.version and recorded.notify == notify


async def look_around(conn: psycopg.AsyncConnection[Any]) -> Server:
    """Ask the server for its properties, with one round trip and without a lock."""
    [row] = await _rows(conn, "schema/look_around")
    return Server(*row)


async def read_meta(conn: psycopg.AsyncConnection[Any]) -> Recorded | None:
    """What is recorded, or None if no installation has been completed."""
    return _recorded(dict(await _rows(conn, "schema/read_meta")))


def _recorded(values: dict[str, str]) -> Recorded | None:
    if "schema_version" not in values:
        return None
    try:
        version = int(values["schema_version"])
        return Recorded(version, int(values.get("breaking_version", version)), values.get("notify", "always"))
    except ValueError:
        raise SchemaError(
            "the versions that this database records in horsies_meta are not numbers",
            help_text="somebody has changed schema_version or breaking_version there; restore these two rows",
        ) from None


async def _install_locked(
    conn: psycopg.AsyncConnection[Any], server: Server, notify: str, change_notify: bool, release: Release
) -> InstallReport:
    """Whoever writes meanwhile waits for a moment at most: if the tables are not free by then, it is tried again."""
    patience = monotonic() + PATIENCE_S
    while True:
        try:
            return await _install_once(conn, server, notify, change_notify, release)
        except psycopg.errors.LockNotAvailable:
            if monotonic() > patience:
                raise
            await asyncio.sleep(uniform(0.5, 1.5))


async def _install_once(
    conn: psycopg.AsyncConnection[Any], server: Server, notify: str, change_notify: bool, release: Release
) -> InstallReport:
    assert server.schema is not None
    async with conn.transaction():
        # At a stricter isolation level the snapshot would be older than the lock, and would not show the work of
        # others.
        await conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await conn.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(SCHEMA)])
        recorded = await read_meta(conn) if (await look_around(conn)).has_meta else None
        mode = notify if recorded is None or change_notify else recorded.notify
        if recorded is not None and is_settled(recorded, mode, release):
            return InstallReport(recorded.version, recorded.notify)
        if recorded is None:
            await _create(conn, server)
        elif recorded.version < release.version:
            await conn.execute(load("schema/lock").encode())
            await migrate(conn, recorded.version, release.migrations)
        await put_functions(conn, server.schema, mode)
        if recorded is None:
            await conn.execute(load("schema/triggers").encode())
        await _record(conn, mode, release)
    changed_from = recorded.notify if recorded is not None and recorded.notify != mode else None
    return InstallReport(release.version, mode, changed_from, created=recorded is None)


async def _record(conn: psycopg.AsyncConnection[Any], mode: str, release: Release) -> None:
    values = {"schema_version": str(release.version), "breaking_version": str(release.breaking), "notify": mode}
    await conn.execute(load("schema/record").encode(), {"keys": list(values), "values": list(values.values())})


async def _create(conn: psycopg.AsyncConnection[Any], server: Server) -> None:
    """Create all missing tables. Our tables without a record were made by ``create_all`` alone; other tables are in the
    way."""
    from horsies.core.schema.create import METADATA, create_tables

    columns: dict[str, list[str]] = dict(await _rows(conn, "schema/columns"))
    for table in METADATA.sorted_tables:
        missing = {column.name for column in table.columns} - set(columns.get(table.name, ()))
        if table.name in columns and missing:
            raise SchemaError(
                f"a table {table.name!r} that was not created by horsies is in the way",
                notes=[server.place, f"it lacks the columns {', '.join(sorted(missing))}"],
                help_text="use another database or a separate schema (search_path), or rename the table",
            )
    await create_tables(conn, frozenset(columns))


async def _rows(conn: psycopg.AsyncConnection[Any], statement: str) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(load(statement).encode())
        return await cursor.fetchall()


def _not_permitted(server: Server, why: str) -> SchemaError:
    schema, user = (name.replace('"', '""') for name in (server.schema or "public", server.user))
    hint = "let its owner run `horsies init-db`, and `horsies grants`, which prints the rights that a role needs"
    if not server.has_meta:
        hint += f'; or let this role create it: GRANT USAGE, CREATE ON SCHEMA "{schema}" TO "{user}"'
    return SchemaError(
        "no permission to create or read the horsies schema",
        notes=[server.place, why],
        help_text=hint,
    )


def _words(exc: psycopg.Error) -> str:
    return f"the server said: {exc.diag.message_primary}"


def _may_not_change(server: Server, recorded: Recorded, notify: str, release: Release) -> SchemaError:
    """The tables exist, but not as this code wants them, and this role does not own them."""
    if recorded.version < release.version:
        what = f"the horsies tables are of version {recorded.version}, this code needs version {release.version}"
        hint = "let their owner run `horsies init-db` of this version of horsies, and then `horsies grants` again"
    else:
        what = f"the notify mode of the database is {recorded.notify!r}, the app wants {notify!r}"
        hint = "let the owner of the tables run `horsies init-db` with the app, or use the mode of the database"
    return SchemaError(f"{what}, and this role may not change that", notes=[server.place], help_text=hint)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: the version it leads to, and its SQL."""

    version: int
    name: str
    sql: str


def migrations(directory: Path = MIGRATIONS) -> list[Migration]:
    """All steps in order; a gap or a duplicate number is our mistake and raises."""
    found = [
        Migration(int(path.stem.partition("_")[0]), path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    ]
    first = FIRST_VERSION + 1
    if [step.version for step in found] != list(range(first, first + len(found))):
        raise ValueError(f"migrations must be numbered from {first}: {', '.join(step.name for step in found)}")
    return found


async def migrate(conn: psycopg.AsyncConnection, current: int, directory: Path = MIGRATIONS) -> None:
    """Run the steps after `current` inside the caller's transaction."""
    for step in migrations(directory):
        if step.version > current:
            await conn.execute(step.sql.encode())


def lock_key(purpose: str) -> int:
    """The first eight bytes of the purpose's SHA-256 as PostgreSQL's signed bigint."""
    return int.from_bytes(sha256(purpose.encode()).digest()[:8], "big", signed=True)


def claim_purpose(queue: str) -> str:
    """Claiming from one queue with a cap."""
    return f"{CLAIM}:{queue}"


def schedule_purpose(name: str) -> str:
    """Firing one schedule."""
    return f"horsies:schedule:{name}"


def worker_purpose(worker_id: str) -> str:
    """Liveness of one worker, held shared by its LISTEN session."""
    return f"horsies:worker:{worker_id}"
