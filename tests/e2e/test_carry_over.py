"""Jobs that wait in Procrastinate are moved in one transaction by the program on its page. The table is made as
Procrastinate makes it, as far as the program looks at it; with PROCRASTINATE_PYTHON, an interpreter that has the
library, Procrastinate itself makes its schema and defers the jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.page_support import blocks

TABLE = """
CREATE TYPE procrastinate_job_status AS ENUM ('todo', 'doing', 'succeeded', 'failed', 'cancelled', 'aborted');
CREATE TABLE procrastinate_jobs (
    id bigserial PRIMARY KEY, queue_name text NOT NULL, task_name text NOT NULL, priority int NOT NULL DEFAULT 0,
    lock text, queueing_lock text, args jsonb NOT NULL DEFAULT '{}',
    status procrastinate_job_status NOT NULL DEFAULT 'todo', scheduled_at timestamptz, attempts int NOT NULL DEFAULT 0
);
INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, scheduled_at) VALUES
    ('default', 'mail', '{"to": "ann"}', 'todo', NULL),
    ('default', 'mail', '{"to": "bob"}', 'todo', now() + interval '1 day'),
    ('default', 'mail', '{"to": "eve"}', 'doing', NULL),
    ('default', 'other', '{}', 'todo', NULL);
"""
BY_ITSELF = """
import sys, procrastinate
url = sys.argv[1]
app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
with app.open():
    app.schema_manager.apply_schema()
    app.configure_task("mail").defer(to="ann")
    app.configure_task("mail", schedule_in={"days": 1}).defer(to="bob")
    app.configure_task("mail").defer(to="eve")
    app.configure_task("other").defer()
    app.connector.execute_query("UPDATE procrastinate_jobs SET status = 'doing' WHERE args->>'to' = 'eve'")
"""
APP = """
import os
from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.task("mail")
def mail(to: str) -> str:
    return to
"""
CALL = """
import json, os
import carry_over
from shop.app import app
with app.testing.on_database(os.environ["DATABASE_URL"]):
    said = []
    for _ in range(3):
        try:
            said.append(carry_over.carry_over(os.environ["DATABASE_URL"], limit=2))
        except Exception as problem:
            said.append(type(problem).__name__)
    print(json.dumps(said))
"""


@pytest.fixture
def jobs(database_url: str) -> str:
    if python := os.environ.get("PROCRASTINATE_PYTHON"):
        subprocess.run([python, "-c", BY_ITSELF, plain(database_url)], check=True)
    else:
        with psycopg.connect(database_url) as conn:
            conn.execute(TABLE)
    return database_url


def plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def carried(url: str, directory: Path) -> list[Any]:
    [code] = [code for title, code in blocks("from-procrastinate") if title == "carry_over.py"]
    (directory / "carry_over.py").write_text(code)
    (directory / "shop").mkdir()
    (directory / "shop/app.py").write_text(APP)
    env = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(directory)}
    done = subprocess.run(
        [sys.executable, "-c", CALL], env=env, cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said: list[Any] = json.loads(done.stdout)
    return said


def left(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute("SELECT task_name, args->>'to' FROM procrastinate_jobs ORDER BY id").fetchall()


def test_jobs_that_wait_are_carried_over(jobs: str, tmp_path: Path) -> None:
    assert carried(jobs, tmp_path) == [2, 0, 0]
    assert left(jobs) == [("mail", "eve"), ("other", None)]
    with psycopg.connect(jobs) as conn:
        rows = conn.execute("SELECT kwargs::jsonb ->> 'to', enqueued_at FROM horsies_tasks ORDER BY 1").fetchall()
    assert [name for name, _ in rows] == ["ann", "bob"]
    assert rows[1][1] > datetime.now(UTC) + timedelta(hours=20)


def test_nothing_is_carried_over_if_one_job_does_not_fit(jobs: str, tmp_path: Path) -> None:
    with psycopg.connect(jobs) as conn:
        conn.execute("""UPDATE procrastinate_jobs SET args = '{"to": 5}' WHERE args->>'to' = 'bob'""")
    before = left(jobs)
    assert carried(jobs, tmp_path) == ["TaskSendFailed"] * 3
    assert left(jobs) == before
    with psycopg.connect(jobs) as conn:
        assert conn.execute("SELECT count(*) FROM horsies_tasks").fetchone() == (0,)
