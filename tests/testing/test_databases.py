"""The databases of a run of pytest, without a run."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import psycopg
import pytest

from horsies.testing import databases
from horsies.testing.databases import RunDatabases


def test_x10_the_directory_of_a_killed_run_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def directory(name: str, age_s: float) -> Path:
        lock = tmp_path / f"{databases.DIRECTORY}{name}" / "users.lock"
        lock.parent.mkdir()
        lock.touch()
        then = lock.stat().st_mtime - age_s
        os.utime(lock, (then, then))
        return lock

    killed, young, used = directory("killed", 7200), directory("young", 0), directory("used", 7200)
    with used.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        databases._clear_away_killed_runs()
    assert [lock.exists() for lock in (killed, young, used)] == [False, True, True]


def test_x10_the_last_process_of_a_run_clears_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    monkeypatch.setenv(databases.VARIABLE, server_url)

    def left() -> list[str]:
        with psycopg.connect(server_url) as conn:
            query = "SELECT datname FROM pg_database WHERE datname ~ %s"
            return [name for (name,) in conn.execute(query, [f"^{databases.PREFIX}{first._run}_"])]

    first = RunDatabases(tmp_path)
    second = RunDatabases(tmp_path)  # as another process: it opens its own files
    with second.fresh() as url, psycopg.connect(url) as conn:
        conn.execute("SELECT count(*) FROM horsies_tasks")
        first.close()
        assert len(left()) == 2, "the template and this database"
    second.close()
    assert left() == [] and not (tmp_path / "horsies.json").exists()
