"""The databases of a run of pytest, without a run."""

from __future__ import annotations

import os
import subprocess
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
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    killed, running, other = (
        tmp_path / f"{databases.DIRECTORY}{name}" for name in (f"{ended.pid}-a", f"{os.getpid()}-b", "not-ours")
    )
    for directory in (killed, running, other):
        (directory / "data").mkdir(parents=True)
    databases.remove_killed_runs()
    assert [directory.exists() for directory in (killed, running, other)] == [False, True, True]


def test_x10_a_run_that_could_not_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, home = tmp_path / "shared", tmp_path / "home"
    shared.mkdir()
    home.mkdir()
    monkeypatch.delenv(databases.VARIABLE, raising=False)
    monkeypatch.setattr(databases, "MEMORY", home)

    def fail(directory: Path) -> str:
        assert directory.parent == home
        raise databases.ServerUnusable("no server")

    with monkeypatch.context() as patched, pytest.raises(databases.ServerUnusable):
        patched.setattr(databases, "_embedded_url", fail)
        RunDatabases(shared)
    assert list(home.iterdir()) == [] and not (shared / "horsies.json").exists()


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
