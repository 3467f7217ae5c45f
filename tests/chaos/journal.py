"""What user code notes about its own runs: each begin in a table, in a transaction of its own that also reads the claim
it runs under, and every sign of life in a file, which is there also while the database is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

TABLE = """
CREATE TABLE chaos_journal (
    run text PRIMARY KEY, key text NOT NULL, pid int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    task_id text, claim_seq int, owner text
)
"""
# The row is found by the process that runs it, as user code does not know its own claim; by then it may be lost.
BEGIN = """
INSERT INTO chaos_journal (run, key, pid, task_id, claim_seq, owner)
SELECT %(run)s, %(key)s, %(pid)s, t.id, t.claim_seq, t.claimed_by_worker_id
FROM (SELECT 1) one LEFT JOIN LATERAL (
    SELECT id, claim_seq, claimed_by_worker_id FROM horsies_tasks
    WHERE claimed AND status = 'RUNNING' AND worker_pid = %(pid)s AND kwargs::jsonb ->> 'key' = %(key)s
) t ON TRUE
"""
TICK_EVERY_S = 0.1


class Journal:
    """One for each process that runs tasks."""

    def __init__(self, file: Path, database_url: str) -> None:
        self._file = file
        self._url = database_url
        self._fd: int | None = None
        self._conn: psycopg.Connection[Any] | None = None

    def begin(self, key: str, task: str) -> str:
        """Note that a run begins; its token."""
        token = secrets.token_hex(6)
        self.note(token, "begin", key=key, task=task, pid=os.getpid())
        self._record(token, key)
        return token

    def note(self, token: str, what: str, **facts: object) -> None:
        """One line, in one write: appended whole, whoever else writes."""
        if self._fd is None:
            self._fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        line = json.dumps({"at": time.time(), "run": token, "what": what, **facts})
        os.write(self._fd, f"{line}\n".encode())

    def _record(self, token: str, key: str) -> None:
        try:
            if self._conn is None or self._conn.closed:
                self._conn = psycopg.connect(self._url, autocommit=True, connect_timeout=2)
            self._conn.execute(BEGIN, {"run": token, "key": key, "pid": os.getpid()})
        except psycopg.Error:
            self._drop()  # the server is away: the file has it
        except BaseException:
            self._drop()  # stopped in the middle
            raise

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()


def read(file: Path) -> Iterator[dict[str, Any]]:
    """All notes, in the order in which they were written."""
    if file.exists():
        for line in file.read_text().splitlines():
            yield json.loads(line)
