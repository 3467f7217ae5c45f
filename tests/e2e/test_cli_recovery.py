"""The commands by which an operator looks after dead workers, as they are typed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from horsies.cli import main
from horsies.core.store.sweeping import SWEEP_LOCK
from tests.e2e.cli_support import APP, run

pytestmark = pytest.mark.e2e

NOWHERE = "postgresql://me:topsecret@127.0.0.1:1/none"
HOOKED = """
from datetime import timedelta
from horsies import JobRecovery, JobRecoveryResult, WorkerRecoveryConfig

app.config = app.config.model_copy(update={"worker_recovery": WorkerRecoveryConfig(recovery_delay=77)})
app.discover_tasks(["more"])
"""
MORE = """
from horsies import JobRecovery, JobRecoveryResult
from shop import app


@app.hooks.on(JobRecovery)
def policy(ctx):
    return JobRecoveryResult.Skip if ctx.job.task_name == "skip" else JobRecoveryResult.Default
"""
ID = "host:4711:0a1b2c3d"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP + HOOKED)
    (tmp_path / "more.py").write_text(MORE)
    return tmp_path


@pytest.fixture
def dead(database_url: str) -> str:
    """A dead worker with two tasks, and one that is alive."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO horsies_workers (worker_id, sweeping, last_heartbeat_at, started_at, hostname, pid)"
            " VALUES (%s, TRUE, now() - interval '1 hour', '2020-01-02 03:04:05Z', 'host', 4711),"
            "        ('alive', TRUE, now(), now(), NULL, NULL)",
            [ID],
        )
        for name in ("go", "skip"):
            conn.execute(
                "INSERT INTO horsies_tasks (id, task_name, status, claimed, claimed_by_worker_id, claimed_at,"
                " claim_seq, recovery_enrolled) VALUES (%s, %s, 'CLAIMED', TRUE, %s, '2020-01-01', 1, TRUE)",
                [name, name, ID],
            )
    return database_url


def tasks(url: str) -> dict[str, dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as conn:
        return {row["id"]: row for row in conn.execute("SELECT * FROM horsies_tasks")}


def test_m09_workers_are_listed_as_a_table_or_json(project: Path, dead: str) -> None:
    shown = run("workers", "shop", cwd=project, SHOP_DATABASE_URL=dead)
    assert shown.returncode == 0, shown.stderr
    title, *rows = [line.split() for line in shown.stdout.splitlines() if any(c.isalnum() for c in line)]
    assert title == ["worker", "state", "last", "heartbeat", "started", "host", "pid"]
    assert rows[0][:2] + rows[0][4:] == [ID, "stale", "2020-01-02", "03:04:05Z", "host", "4711"]
    assert rows[1][:2] == ["alive", "alive"]
    told = run("workers", "--json", "--threshold", "2h", "--database-url", dead, cwd=project)
    listed = json.loads(told.stdout)
    assert [(worker["worker_id"], worker["is_stale"]) for worker in listed] == [(ID, False), ("alive", False)]
    assert datetime.fromisoformat(listed[0]["started_at"]) == datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_m08_a_sweep_by_hand_asks_the_apps_hooks(project: Path, dead: str) -> None:
    env = {"SHOP_DATABASE_URL": dead}
    dry = run("sweep-stale-workers", "shop", "--dry-run", cwd=project, **env)
    assert (dry.returncode, dry.stdout.split()) == (
        0,
        f"dry run: 1 dead worker; nothing was changed dead worker {'─' * len(ID)} {ID}".split(),
    )
    assert {row["status"] for row in tasks(dead).values()} == {"CLAIMED"}
    swept = run("sweep-stale-workers", "shop", "--json", cwd=project, **env)
    assert swept.returncode == 0, swept.stderr
    assert json.loads(swept.stdout) == {
        "recovered_count": 1,
        "worker_ids": [ID],
        "skipped_count": 1,
        "deferred_count": 0,
        "dry_run": False,
        "lock_acquired": True,
    }
    rows = tasks(dead)
    assert {name: row["status"] for name, row in rows.items()} == {"go": "PENDING", "skip": "CLAIMED"}
    assert (rows["go"]["enqueued_at"] - rows["go"]["updated_at"]).total_seconds() == pytest.approx(77, abs=5)


def test_m08_m13_a_sweep_needs_no_module(project: Path, dead: str) -> None:
    """Then there are no hooks either."""
    options = ("--sweep-threshold", "30m", "--recovery-delay", "0")
    swept = run("sweep-stale-workers", *options, cwd=project, DATABASE_URL=dead)
    assert swept.returncode == 0, swept.stderr
    assert swept.stdout.startswith("recovered 2 tasks of 1 dead worker\n")
    assert ID in swept.stdout
    rows = tasks(dead)
    assert {row["status"] for row in rows.values()} == {"PENDING"}
    assert all(row["enqueued_at"] == row["updated_at"] for row in rows.values())


def test_m08_somebody_else_who_sweeps_is_told(project: Path, dead: str) -> None:
    with psycopg.connect(dead) as conn:
        conn.execute("SELECT pg_advisory_xact_lock(%s)", [SWEEP_LOCK])
        swept = run("sweep-stale-workers", "--database-url", dead, cwd=project)
    assert (swept.returncode, swept.stdout) == (0, "nothing done: somebody else is sweeping at this moment\n")


def test_m09_workers_are_unlocked_by_force(project: Path, dead: str) -> None:
    forced = run("force-unlock", "shop", "alive", ID, cwd=project, SHOP_DATABASE_URL=dead)
    assert (forced.returncode, forced.stdout) == (0, "unlocked 2 tasks of 2 workers\n")
    assert {row["status"] for row in tasks(dead).values()} == {"PENDING"}
    again = run("force-unlock", "--database-url", dead, "alive", ID, "--json", cwd=project)
    assert json.loads(again.stdout) == {"unlocked_count": 0, "worker_ids": sorted(["alive", ID])}
    named = run("force-unlock", ID, cwd=project, DATABASE_URL=dead)
    assert (named.returncode, named.stdout) == (0, "unlocked 0 tasks of 1 worker\n")
    listed = run("workers", "--database-url", dead, cwd=project)
    assert listed.stdout == "no worker is registered\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("force-unlock", "some.module"), "no worker is named"),
        (("force-unlock", "--database-url", NOWHERE), "Missing argument"),
        (("sweep-stale-workers", "--sweep-threshold", "0", "--database-url", NOWHERE), "sweep_threshold"),
        (("workers", "--threshold", "soon", "--database-url", NOWHERE), "is not a duration"),
        (("workers", "--database-url", NOWHERE), "connection failed"),
    ],
)
def test_m11_mistakes_end_with_one_and_say_why(
    command: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*command]) == 1
    said = capsys.readouterr()
    assert "error" in said.err and why in said.err
    assert "Traceback" not in said.err and "topsecret" not in said.err
    assert said.out == ""
