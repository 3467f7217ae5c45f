"""What a test must not leave behind: a session on its database (and with it an advisory lock), or a process. Processes
that were started as commands are recognised by a variable in their environment, even when their parent is gone.
"""

from __future__ import annotations

import os
import time
from types import TracebackType

import psutil
import psycopg
import pytest
from psycopg.rows import dict_row

from tests import warm_start

VARIABLE = "HORSIES_TEST_DATABASE"
PATIENCE = 3.0
SESSIONS = """
    SELECT a.pid, a.application_name, a.state, left(a.query, 200) AS query,
           (SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory') AS advisory_locks
    FROM pg_stat_activity a
    WHERE a.datname = %s AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
"""


class Watch:
    """Around a test: fail it if something is left shortly after its end, and clear that away for the next one."""

    def __init__(self, conn: psycopg.Connection, database: str) -> None:
        self._conn = conn
        self._database = database

    def __enter__(self) -> None:
        self._before = set(psutil.pids())
        self._outer = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self._database

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore_environment()
        deadline = time.monotonic() + PATIENCE
        while (left := self._sessions() + self._processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left:
            for process in self._running():
                process.kill()
            pytest.fail("left behind by the test:\n  " + "\n  ".join(left), pytrace=False)

    def _restore_environment(self) -> None:
        if self._outer is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._outer

    def _sessions(self) -> list[str]:
        with self._conn.cursor(row_factory=dict_row) as cursor:
            return [f"connection {row}" for row in cursor.execute(SESSIONS, (self._database,))]

    def _processes(self) -> list[str]:
        return [f"process {process.pid} {_command(process)}" for process in self._running()]

    def _running(self) -> list[psutil.Process]:
        """Only processes that are new are looked at: to read the environment of each one on the machine takes longer
        than many a test."""
        new = map(_process, set(psutil.pids()) - self._before)
        mine = [process for process in new if process is not None and self._belongs_to_the_test(process)]
        return [process for process in mine if _is_running(process) and not _is_tracker(process)]

    def _belongs_to_the_test(self, process: psutil.Process) -> bool:
        return _environment(process).get(VARIABLE) == self._database or _descends_from_here(process)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _descends_from_here(process: psutil.Process) -> bool:
    try:
        return any(ancestor.pid == os.getpid() for ancestor in process.parents())
    except psutil.Error:
        return False


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid()
    except psutil.Error:
        return False


def _is_tracker(process: psutil.Process) -> bool:
    """multiprocessing keeps one for the life of the interpreter, and so does the warm start of commands."""
    return process.pid == warm_start.server_pid() or "multiprocessing.resource_tracker" in _command(process)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or f"({process.status()})"
    except psutil.Error:
        return "(gone)"
