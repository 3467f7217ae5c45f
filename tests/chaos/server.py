"""The PostgreSQL server of a round: started, stopped in all ways, and watched. A trigger writes down every change of a
task's state with its time, so that the history of a task can be read afterwards.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from horsies.core import embedded
from horsies.core.schema.install import install
from tests.chaos import journal
from tests.embedded_support import is_gone
from tests.support import eventually

SETTINGS = {
    "fsync": "off",  # the machine does not crash, only the server: what it has written down is kept
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "deadlock_timeout": "200ms",  # well before anybody gives up waiting for a lock
    "wal_writer_delay": "2s",  # so that a crash loses what was committed asynchronously
    "wal_writer_flush_after": "64MB",
    "log_min_error_statement": "error",
}
WATCH = """
CREATE TABLE chaos_moves (
    number bigserial PRIMARY KEY, task_id text NOT NULL, at timestamptz NOT NULL, stamp timestamptz NOT NULL,
    was text, status text, claim_seq int, owner text, pid int, retry_count int,
    was_seq int, was_owner text, was_pid int, was_retry_count int, was_enrolled boolean, session text
);
CREATE FUNCTION chaos_note_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_moves (task_id, at, stamp, was, status, claim_seq, owner, pid, retry_count,
                             was_seq, was_owner, was_pid, was_retry_count, was_enrolled, session)
    VALUES (NEW.id, clock_timestamp(), CASE NEW.status WHEN 'RUNNING' THEN NEW.started_at ELSE now() END,
            OLD.status, NEW.status, NEW.claim_seq, NEW.claimed_by_worker_id,
            NEW.worker_pid, NEW.retry_count, COALESCE(OLD.claim_seq, 0), OLD.claimed_by_worker_id, OLD.worker_pid,
            COALESCE(OLD.retry_count, 0), COALESCE(OLD.recovery_enrolled, FALSE), current_setting('application_name'));
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note_insert AFTER INSERT ON horsies_tasks FOR EACH ROW EXECUTE FUNCTION chaos_note_move();
CREATE TRIGGER chaos_note_update AFTER UPDATE ON horsies_tasks FOR EACH ROW
    WHEN ((OLD.status, OLD.claim_seq, OLD.claimed_by_worker_id, OLD.retry_count)
          IS DISTINCT FROM (NEW.status, NEW.claim_seq, NEW.claimed_by_worker_id, NEW.retry_count))
    EXECUTE FUNCTION chaos_note_move();

CREATE TABLE chaos_flow_moves (
    number bigserial PRIMARY KEY, workflow_id text NOT NULL, index int, at timestamptz NOT NULL, was text, status text
);
CREATE FUNCTION chaos_note_flow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_flow_moves (workflow_id, at, was, status)
    VALUES (NEW.id, clock_timestamp(), OLD.status, NEW.status);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos_note_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_flow_moves (workflow_id, index, at, was, status)
    VALUES (NEW.workflow_id, NEW.task_index, clock_timestamp(), OLD.status, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_note_insert AFTER INSERT ON horsies_workflows FOR EACH ROW EXECUTE FUNCTION chaos_note_flow();
CREATE TRIGGER chaos_note_update AFTER UPDATE ON horsies_workflows FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION chaos_note_flow();
CREATE TRIGGER chaos_note_insert AFTER INSERT ON horsies_workflow_tasks FOR EACH ROW EXECUTE FUNCTION chaos_note_node();
CREATE TRIGGER chaos_note_update AFTER UPDATE ON horsies_workflow_tasks FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION chaos_note_node();
"""
CUT = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND application_name LIKE 'horsies%%' AND random() < %s
"""
# Errors that somebody meets when connections and servers end under him.
EXPECTED = re.compile(
    r"terminating connection|canceling statement due to (user request|lock timeout)|the database system is"
    r"|could not receive data|unexpected EOF|connection to client lost|terminating background worker"
    r'|database "horsies" does not exist|relation "horsies_meta" does not exist'  # before they are created
    r"|pre-existing shared memory block"  # sessions of a killed server end after it; the start is tried again
)
BAD = re.compile(r"\b(ERROR|PANIC|FATAL): ")


class Server:
    """One embedded server in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = ""

    async def start(self) -> None:
        self.url = await asyncio.to_thread(embedded.ensure_running, self.directory, settings=SETTINGS)
        async with await psycopg.AsyncConnection.connect(self.url) as conn:
            await install(conn)
            await conn.execute(WATCH)
            await conn.execute(journal.TABLE)

    @property
    def socket(self) -> Path:
        """Where its socket is, for those who come between."""
        return Path(psycopg.conninfo.conninfo_to_dict(self.url)["host"]) / ".s.PGSQL.5432"  # type: ignore[arg-type]

    async def restart(self, how: str, down_s: float) -> None:
        """fast: asked to stop, away for a while; immediate and crash: as `pg_ctl -m immediate` and the kernel do it."""
        if how == "fast":
            await asyncio.to_thread(embedded.stop, self.directory)
            await asyncio.sleep(down_s)
        else:
            pid = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGQUIT if how == "immediate" else signal.SIGKILL)
            await eventually(lambda: is_gone(pid), what="the end of the server")
        await self.ensure_running()

    async def ensure_running(self) -> None:
        await asyncio.to_thread(embedded.ensure_running, self.directory)

    async def stop(self) -> None:
        await asyncio.to_thread(embedded.stop, self.directory)

    async def rows(self, query: str, *params: Any) -> list[dict[str, Any]]:
        async with await psycopg.AsyncConnection.connect(
            self.url, autocommit=True, connect_timeout=10, row_factory=dict_row
        ) as conn:
            return await (await conn.execute(query.encode(), params)).fetchall()

    async def cut_sessions(self, share: float) -> int:
        [row] = await self.rows(CUT, share)
        return int(row["count"])

    def complaints(self) -> Iterator[str]:
        """Lines of the log that no fault explains: deadlocks first of all."""
        for name in ("server.log.1", "server.log"):
            file = self.directory / name
            if not file.exists():
                continue
            for line in file.read_text(errors="replace").splitlines():
                if BAD.search(line) and not EXPECTED.search(line):
                    yield f"{name}: {line}"
