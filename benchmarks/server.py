"""The PostgreSQL that is measured: a private embedded one in a temporary directory, and what is put into its tables.

It runs with the settings that every embedded server has (fsync on), plus those given; `facts` says which. Rows are
copies of ones that a real `send` wrote, so they are as wide as real ones; they are put in silently (no trigger), so
that it is the benchmark that says when a worker sees them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from horsies.core import embedded

SHOWN = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
    "jit",
)
CLEARED = "horsies_tasks, horsies_workflows, horsies_task_attempts, horsies_heartbeats, horsies_worker_states"


class Server:
    """A running server, reached by `url`."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url
        self._conn = psycopg.connect(url, autocommit=True)

    def postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.home / "pg" / "data" / "postmaster.pid").read_text().split()[0]))

    def row(self, query: str, *params: object) -> tuple[Any, ...]:
        """The first row of the answer."""
        found: tuple[Any, ...] | None = self._conn.execute(query.encode(), params).fetchone()
        assert found is not None
        return found

    def facts(self) -> dict[str, str]:
        """The version, and the settings that matter for speed."""
        found = {"version": self.row("SHOW server_version")[0].split()[0]}
        return found | {name: self.row(f"SHOW {name}")[0] for name in SHOWN}

    def keep_samples(self) -> None:
        """Turn the rows that were just sent into the patterns of `fill`."""
        self._conn.execute("DROP TABLE IF EXISTS bench_samples")
        self._conn.execute("CREATE TABLE bench_samples AS SELECT * FROM horsies_tasks")
        self.clear()

    def fill(self, task: str, count: int, **instead: str) -> None:
        """`count` tasks like the sample of this name; `instead` gives SQL expressions for other columns."""
        given = {"id": "uuidv7()::text", "sent_at": "now()", "enqueued_at": "now()", "created_at": "now()"} | instead
        with self.silently() as conn:
            names = [row[0] for row in conn.execute(_COLUMNS)]
            values = [sql.SQL(given[name]) if name in given else sql.Identifier("s", name) for name in names]
            command = sql.SQL(
                "INSERT INTO horsies_tasks ({names}) SELECT {values}"
                " FROM bench_samples s, generate_series(1, %s) AS nth WHERE s.task_name = %s"
            ).format(names=sql.SQL(", ").join(map(sql.Identifier, names)), values=sql.SQL(", ").join(values))
            conn.execute(command, [count, task])

    def fill_finished(self, count: int, ended_at: str = "now() - nth * interval '0.6 seconds'", **instead: str) -> None:
        """`count` tasks that have ended, of the last week unless another time is given, each with its attempt."""
        self.fill("noop", count, **dict.fromkeys(TIMES, ended_at) | ENDED | instead)
        with self.silently() as conn:
            conn.execute(_ATTEMPTS)

    def put_off(self, seconds: float) -> float:
        """All tasks that are there fall due together, so many seconds from now; when, in seconds since the epoch."""
        (due,) = self.row("SELECT extract(epoch FROM now() + make_interval(secs => %s))::float8", seconds)
        with self.silently() as conn:
            conn.execute("UPDATE horsies_tasks SET enqueued_at = to_timestamp(%s)", [due])
        return float(due)

    def forget_workflows(self, name: str) -> None:
        """Away with all workflows of this name and their tasks."""
        tasks = "DELETE FROM horsies_tasks WHERE workflow_id IN (SELECT id FROM horsies_workflows WHERE name = %s)"
        for command in (tasks, "DELETE FROM horsies_workflows WHERE name = %s"):
            self._conn.execute(command.encode(), [name])

    @contextmanager
    def silently(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection whose writes fire no trigger and check no foreign key."""
        with psycopg.connect(self.url, autocommit=True, options="-c session_replication_role=replica") as conn:
            yield conn

    def settle(self) -> None:
        """As if the rows had been there for a while: visible, known to the planner, and on the disk."""
        self._conn.execute(
            "VACUUM ANALYZE horsies_tasks, horsies_task_attempts, horsies_workflows, horsies_workflow_tasks"
        )
        self._conn.execute("CHECKPOINT")

    def clear(self) -> None:
        self._conn.execute(f"TRUNCATE {CLEARED} RESTART IDENTITY CASCADE".encode())

    def ring(self) -> None:
        """What the trigger would have said."""
        self._conn.execute("SELECT horsies_ring('default', '', NULL)")

    def do(self, command: str) -> None:
        self._conn.execute(command.encode())

    def wal_bytes(self) -> int:
        """How much has ever been written to the write-ahead log."""
        return int(self.row("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0])

    def close(self) -> None:
        self._conn.close()


TIMES = ("sent_at", "enqueued_at", "created_at", "updated_at", "claimed_at", "started_at", "completed_at")
ENDED = {
    "status": "'COMPLETED'",
    "claim_seq": "1",
    "claimed_by_worker_id": "'a-worker-of-last-week'",
    "worker_pid": "4711",
    "worker_hostname": "'some-host'",
    "worker_process_name": "'child-1'",
    "result": "'{\"ok\":null}'",
}
FAILED = {"status": "'FAILED'", "completed_at": "NULL", "failed_at": "now() - nth * interval '0.6 seconds'"}
LATER = {"enqueued_at": "now() + interval '1 day' + nth * interval '1 second'"}
_ATTEMPTS = """
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at, error_code,
                                       worker_id, worker_hostname, worker_process_name, worker_pid)
    SELECT id, 1, status, FALSE, started_at, coalesce(completed_at, failed_at), error_code,
           claimed_by_worker_id, worker_hostname, worker_process_name, worker_pid
    FROM horsies_tasks t WHERE status IN ('COMPLETED', 'FAILED') AND workflow_id IS NULL
      AND NOT EXISTS (SELECT FROM horsies_task_attempts a WHERE a.task_id = t.id)
"""
_COLUMNS = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = 'horsies_tasks'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY attnum
"""


@contextmanager
def running(settings: Mapping[str, str]) -> Iterator[Server]:
    """A server with our schema, for as long as the block lasts; every process below finds it in DATABASE_URL."""
    home = Path(tempfile.mkdtemp(prefix="horsies-bench-"))
    home.chmod(0o711)  # the server runs as another user if we are root
    directory = home / "pg"
    try:
        url = embedded.ensure_running(directory, settings=settings)
        os.environ["DATABASE_URL"] = url
        _install()
        server = Server(home, url)
        server.keep_samples()
        yield server
        server.close()
        _leave()
    finally:
        embedded.stop(directory)
        shutil.rmtree(home, ignore_errors=True)


def _install() -> None:
    from benchmarks.app import app, clock, hang, nap, noop

    broker = app.get_broker()
    asyncio.run(broker.ensure_schema_initialized()).unwrap()
    for task in (noop, nap, clock, hang):
        task.send(1).unwrap()


def _leave() -> None:
    from benchmarks.app import app

    asyncio.run(app.get_broker().close_async())
