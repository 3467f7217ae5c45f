"""Which database a command works on, and the one line that says so. `horsies init-db` creates or upgrades the tables
there (M-07). The first of these that is given decides:

--database-url  →  the app's own, if a module is given  →  DATABASE_URL  →  the embedded server in .horsies/postgres

The variable does not win over an app: producers and workers of one app must meet in one place, and a variable that
happens to be set must not send a worker elsewhere. An app that wants the variable reads it itself.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from horsies.cli import options, output
from horsies.core import errors, locate
from horsies.core.app import Horsies
from horsies.core.db import AWAY, connect, describe, hint_for
from horsies.core.models.broker import PostgresConfig, driver_url
from horsies.core.schema.install import InstallReport, install

VARIABLE = "DATABASE_URL"
EMBEDDED = Path(".horsies/postgres")


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a command, and what chose it."""

    config: PostgresConfig
    said_by: str

    @property
    def url(self) -> str:
        """The URL with its password; it must never be shown."""
        return self.config.database_url.get_secret_value()

    def sentence(self) -> str:
        """The line that tells the person which database is used, without the password."""
        if (path := self.config.embedded_path) is not None:
            return f"database: embedded PostgreSQL in {path.expanduser().resolve()} ({self.said_by})"
        shown = self.config.display_url().replace("postgresql+psycopg://", "postgresql://", 1)  # as psql takes it too
        return f"database: {shown} ({self.said_by})"

    def opening_sentence(self) -> str:
        """The same line for a command that creates a missing embedded database: the first time takes seconds."""
        if self.is_missing():
            return f"{self.sentence()}; creating it there, which takes a few seconds the first time"
        return self.sentence()

    def is_missing(self) -> bool:
        """Whether it is an embedded database that nobody has created yet."""
        path = self.config.embedded_path
        return path is not None and not (path.expanduser() / "data").exists()


def choose(
    option: str | None, own: PostgresConfig | None = None, environment: Mapping[str, str] | None = None
) -> Database:
    """Choose the database for a command; `own` is the configuration of its app, if there is one."""
    given = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if option is not None:
        return Database(replaced(own, option) if own is not None else at(option), "--database-url")
    if own is not None:
        return Database(
            own, "the app's own" + (f"; {VARIABLE} names another" if given and not _same(own, given) else "")
        )
    if given:
        return Database(at(given), VARIABLE)
    return Database(PostgresConfig.embedded(EMBEDDED), f"{VARIABLE} is not set")


def refuse_missing(chosen: Database) -> None:
    """Refuse to create a new, empty database for a command that inspects or repairs an existing one."""
    path = chosen.config.embedded_path
    if path is None or not chosen.is_missing():
        return
    raise errors.ConfigurationError(
        f"there is no embedded database in {path.expanduser().resolve()}",
        code=errors.ErrorCode.BROKER_INIT_FAILED,
        notes=[f"chosen by: {chosen.said_by}", "a relative path counts from the current directory"],
        help_text="run this in the worker's directory, name the app or the database (--database-url, DATABASE_URL), "
        "or create one with horsies init-db",
    )


def use(app: Horsies, chosen: Database) -> None:
    """Let the app send to the chosen database. Call this before its first send, because its connections are open
    afterwards."""
    app.config = app.config.model_copy(update={"broker": chosen.config})


def at(url: str) -> PostgresConfig:
    """The default configuration for a URL, with or without the driver's name."""
    with _without_place():
        return PostgresConfig(database_url=SecretStr(driver_url(url)))


def replaced(config: PostgresConfig, url: str) -> PostgresConfig:
    """The same settings for another database. Session URL and pooler settings belong to the old database and are
    dropped."""
    fields = {**dict(config), "session_database_url": None, "pgbouncer_transaction_mode": False}
    with _without_place():
        return PostgresConfig(**{**fields, "database_url": SecretStr(driver_url(url))})


def init_db(module: options.OptionalModule = None, database_url: options.DatabaseUrl = None) -> int:
    """Create the tables, or upgrade them to this version. It is safe to repeat this, also while workers run."""
    own = locate.load_app(module).config.broker if module is not None else None
    chosen = choose(database_url, own)
    output.say(chosen.opening_sentence())
    try:
        report = asyncio.run(_install(chosen.config, is_configured=own is not None))
    except AWAY as problem:
        raise errors.ConfigurationError(
            "the schema could not be created",
            code=errors.ErrorCode.BROKER_INIT_FAILED,
            notes=[chosen.config.redact(describe(problem))],
            help_text=hint_for(describe(problem)),
        ) from problem
    output.write(_sentence(report))
    return 0


@contextmanager
def _without_place() -> Iterator[None]:
    """Errors about a URL that was typed have no place in anybody's code."""
    try:
        yield
    except errors.HorsiesError as problem:
        problem.location = None
        raise


def _same(own: PostgresConfig, url: str) -> bool:
    try:
        return _place(at(url)) == _place(at(own.database_url.get_secret_value()))
    except errors.HorsiesError:
        return False


def _place(config: PostgresConfig) -> object:
    """Where a database is, however it is written: frameworks write the address of an app in their own way."""
    if config.is_embedded:
        return config.embedded_path
    said = conninfo_to_dict(config.dsn())
    names = ("host", "hostaddr", "port", "dbname", "user", "service")
    return {"port": "5432"} | {name: str(said[name]) for name in names if said.get(name)}


async def _install(config: PostgresConfig, *, is_configured: bool) -> InstallReport:
    conn = await connect(config, session=True, name="horsies init-db")
    try:
        # Only an app says which notify mode is wanted. Without one, the mode of the database stays.
        return await install(conn, notify=config.notify, change_notify=is_configured)
    finally:
        await conn.close()


def _sentence(report: InstallReport) -> str:
    state = "created" if report.created else "is in place"
    changed = f", changed from {report.notify_changed_from}" if report.notify_changed_from else ""
    return f"schema version {report.version} {state} (notify: {report.notify}{changed})"
