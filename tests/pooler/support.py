"""A real PgBouncer between horsies and the server of the tests.

`HORSIES_TEST_PGBOUNCER` names another binary, such as one of another version. The tests are skipped if there is none.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from horsies import Horsies, WorkflowSpec, from_node
from tests.support import eventually_sync

BINARY = "HORSIES_TEST_PGBOUNCER"
ROOT = Path(__file__).resolve().parents[2]
POOLED_APP = f"{ROOT / 'tests' / 'apps' / 'pooled.py'}:app"

# Of everything that outlives a transaction in a session. The last line is what our own settings would leave.
SESSION_STATE = """
    SELECT 'prepared statement ' || name FROM pg_prepared_statements WHERE from_sql IS NOT NULL AND name <> ''
    UNION ALL SELECT 'listens to ' || channel FROM pg_listening_channels() AS channel
    UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE is_holdable
    UNION ALL SELECT 'advisory lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
    UNION ALL SELECT 'temporary tables' WHERE pg_my_temp_schema() <> 0
    UNION ALL SELECT 'setting ' || name || ' = ' || setting FROM pg_settings
    WHERE source = 'session' AND name NOT IN
        ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings', 'IntervalStyle')
"""


def find_pgbouncer() -> str:
    """The binary; the test is skipped if there is none."""
    wanted = os.environ.get(BINARY, "pgbouncer")
    found = shutil.which(wanted) or shutil.which(wanted, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"there is no {wanted} here: install PgBouncer, or name it in {BINARY}")
    return found


def three_steps(app: Horsies) -> WorkflowSpec[int]:
    """1 + 2, then 10 more, then 100 more."""
    first = app.tasks["add"].node(node_id="first")(a=1, b=2)
    second = app.tasks["more"].node(node_id="second")(a=from_node(first), b=10)
    third = app.tasks["more"].node(node_id="third")(a=from_node(second), b=100)
    return app.workflow("three steps", [first, second, third], output=third, definition_key="pooled.three_steps")


class PgBouncer:
    """One PgBouncer with a configuration of its own, on a free port; `url` leads through it to the same database."""

    def __init__(self, database_url: str, mode: str, **settings: object) -> None:
        self._database_url = database_url
        self._settings: dict[str, object] = {
            "pool_mode": mode,
            "listen_addr": "127.0.0.1",
            "unix_socket_dir": "",
            "auth_type": "any",
            "max_client_conn": 500,
            "default_pool_size": 20,
            **settings,
        }
        self._binary = find_pgbouncer()
        self._directory = Path(tempfile.mkdtemp(prefix="horsies-pgbouncer-"))

    def __enter__(self) -> PgBouncer:
        self.port = _free_port()
        lines = ["[databases]", f"* = {_server(self._database_url)}", "[pgbouncer]", f"listen_port = {self.port}"]
        lines += [f"{name} = {value}" for name, value in self._settings.items()]
        (self._directory / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        self._directory.chmod(0o755)
        self._log = (self._directory / "log").open("a+")
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        if kind is not None:
            self._log.seek(0)
            print(self._log.read())
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def restart(self) -> None:
        """End all its connections at once, and come back."""
        self._process.kill()
        self._process.wait()
        self._start()

    def _start(self) -> None:
        command = [self._binary, str(self._directory / "pgbouncer.ini")]
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **self._account()
        )
        eventually_sync(self._answers, what="a PgBouncer that answers")

    def _account(self) -> dict[str, Any]:
        """PgBouncer refuses to run as root. The socket of an embedded server lets only the server's own user in."""
        if os.geteuid() != 0:
            return {}
        host = str(conninfo_to_dict(self._database_url).get("host") or "")
        if host.startswith("/"):
            owner = os.stat(host)
            return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        return {"user": "nobody", "group": pwd.getpwnam("nobody").pw_gid, "extra_groups": []}

    @property
    def url(self) -> str:
        parts = conninfo_to_dict(self._database_url)
        return f"postgresql://{parts.get('user') or 'postgres'}@127.0.0.1:{self.port}/{parts['dbname']}"

    def show(self, what: str) -> list[dict[str, Any]]:
        """What its console says, such as of `clients` or `servers`."""
        url = urlunsplit(urlsplit(self.url)._replace(path="/pgbouncer"))
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn:
            return list(conn.cursor().execute(f"SHOW {what}".encode()))

    def client_names(self) -> set[str]:
        """Who is connected to it."""
        return {row["application_name"] for row in self.show("clients") if row["database"] != "pgbouncer"}

    async def session_state(self) -> list[str]:
        """What is left in the sessions that it keeps on the server. All are taken at the same time, so none is missed;
        the names that belong to the look itself are not counted."""
        count = sum(1 for row in self.show("servers") if row["database"] != "pgbouncer")
        taken = [await psycopg.AsyncConnection.connect(self.url, prepare_threshold=None) for _ in range(count)]
        try:
            found: list[str] = []
            pids = set()
            for conn in taken:  # each stays in its transaction
                pids.add((await (await conn.execute("SELECT pg_backend_pid()")).fetchone() or (0,))[0])
                found += [row[0] for row in await (await conn.execute(SESSION_STATE)).fetchall()]
            assert len(pids) == count > 0
            return found
        finally:
            await asyncio.gather(*(conn.close() for conn in taken))

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._directory / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _server(url: str) -> str:
    parts = conninfo_to_dict(url)
    wanted = {name: parts.get(name) for name in ("host", "port", "user", "password")}
    return " ".join(f"{name}='{value}'" for name, value in wanted.items() if value)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
