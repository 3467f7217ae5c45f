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
from horsies.core.store.workers import SWEEP_LOCK
from tests.conftest import with_database
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
    assert title[:8] == ["worker", "state", "queues", "slots", "running", "claimed", "cpu", "memory"]
    assert title[8:] == ["silent", "for", "last", "heartbeat", "started", "host", "pid"]
    assert rows[0][:4] + rows[0][6:] == [ID, "stale", "1", "h", "2020-01-02", "03:04:05Z", "host", "4711"]
    assert rows[1][:2] == ["alive", "live"] and rows[1][3] == "s", "that is all that is known of it"
    told = run("workers", "--json", "--threshold", "2h", "--database-url", dead, cwd=project)
    listed = json.loads(told.stdout)
    assert [(worker["worker_id"], worker["is_stale"]) for worker in listed] == [(ID, False), ("alive", False)]
    names = ["worker_id", "is_stale", "started_at", "last_heartbeat_at", "hostname", "pid"]
    assert list(listed[0])[:6] == names, "R-43"
    assert [worker["state"] for worker in listed] == ["silent", "live"]
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
    assert (swept.returncode, swept.stdout) == (0, "nothing was done: another process is sweeping at the moment\n")


def test_m09_workers_are_unlocked_by_force(project: Path, dead: str) -> None:
    forced = run("force-unlock", "shop", "alive", ID, cwd=project, SHOP_DATABASE_URL=dead)
    assert (forced.returncode, forced.stdout) == (0, "unlocked 2 tasks of 2 workers\n")
    assert {row["status"] for row in tasks(dead).values()} == {"PENDING"}
    again = run("force-unlock", "--database-url", dead, "alive", ID, "--json", cwd=project)
    assert json.loads(again.stdout) == {"unlocked_count": 0, "worker_ids": sorted(["alive", ID])}
    named = run("force-unlock", ID, cwd=project, DATABASE_URL=dead)
    assert (named.returncode, named.stdout) == (1, "")
    listed = run("workers", "--database-url", dead, cwd=project)
    assert listed.stdout == "no worker is registered\n"


def test_m09_a_worker_that_nobody_knows_is_said_to_be_unknown(project: Path, dead: str) -> None:
    """A typing mistake must not look like success. One that only holds tasks is known."""
    other = "host:4711:ffffffff"
    with psycopg.connect(dead, autocommit=True) as conn:
        conn.execute("DELETE FROM horsies_workers WHERE worker_id = %s", [ID])
    forced = run("force-unlock", "shop", other, ID, cwd=project, SHOP_DATABASE_URL=dead)
    assert (forced.returncode, forced.stdout) == (1, "unlocked 2 tasks of 1 worker\n")
    assert f"no worker {other} is known" in forced.stderr and f"no worker {ID}" not in forced.stderr


def test_m09_the_app_is_missed_where_it_should_stand(project: Path) -> None:
    forgotten = run("force-unlock", "web-1", "web-2", cwd=project)
    assert forgotten.returncode == 1
    assert "'web-1', was read as the app" in forgotten.stderr and "force-unlock shop.tasks:app" in forgotten.stderr


def test_r94_a_sweep_says_whom_it_leaves_alone(project: Path, dead: str) -> None:
    """Workers without worker recovery are never swept, by hand neither (R-44)."""
    with psycopg.connect(dead, autocommit=True) as conn:
        conn.execute("UPDATE horsies_workers SET sweeping = FALSE")
        conn.execute("UPDATE horsies_tasks SET recovery_enrolled = FALSE")
        for number in range(11):
            conn.execute(
                "INSERT INTO horsies_workers (worker_id, last_heartbeat_at) VALUES (%s, '2020-01-01')", [f"w{number}"]
            )
    swept = run("sweep-stale-workers", "--database-url", dead, cwd=project)
    assert (swept.returncode, swept.stdout) == (0, "recovered 0 tasks of 0 dead workers\n")
    [line] = [line for line in swept.stderr.splitlines() if "without worker recovery" in line]
    assert "w0, w1, " in line and line.count("w") < 30 and "and 2 more" in line and "alive" not in line
    by_json = run("sweep-stale-workers", "--json", "--database-url", dead, cwd=project)
    assert "without worker recovery" not in by_json.stderr and json.loads(by_json.stdout)["worker_ids"] == []


def test_r63_a_threshold_below_two_heartbeats_is_obeyed_with_a_warning(project: Path, dead: str) -> None:
    with psycopg.connect(dead, autocommit=True) as conn:
        conn.execute(
            "UPDATE horsies_workers SET last_heartbeat_at = now() - interval '20 seconds',"
            ' recovery = \'{"worker_recovery": {"heartbeat_interval": 30000}}\' WHERE worker_id = %s',
            [ID],
        )
        # On a slow machine the one that lives would be silent for too long as well.
        fresh = "UPDATE horsies_workers SET last_heartbeat_at = now() + interval '1 hour' WHERE worker_id <> %s"
        conn.execute(fresh, [ID])
    patient = run("sweep-stale-workers", "--sweep-threshold", "60", "--database-url", dead, cwd=project)
    assert "warning" not in patient.stderr
    hasty = run("sweep-stale-workers", "--sweep-threshold", "10", "--database-url", dead, cwd=project)
    assert hasty.stdout.startswith("recovered 2 tasks of 1 dead worker\n"), "taken as given"
    assert f"10 s is less than two heartbeat intervals of {ID} (every 30 s)" in hasty.stderr


@pytest.mark.parametrize(
    "command", [("workers",), ("stale-tasks",), ("sweep-stale-workers", "--dry-run"), ("force-unlock", ID)]
)
def test_who_only_looks_does_not_create_a_database(command: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "HRS-211" in done.stderr and f"no embedded database in {tmp_path}/.horsies/postgres" in done.stderr
    assert "DATABASE_URL is not set" in done.stderr and "current directory" in done.stderr
    assert not (tmp_path / ".horsies").exists()


def test_a_database_that_does_not_exist_comes_with_advice(project: Path, server_url: str) -> None:
    missing = with_database(server_url, "nowhere")
    for command in (("workers",), ("init-db",)):
        done = run(*command, "--database-url", missing, cwd=project)
        assert done.returncode == 1 and done.stderr.count("createdb nowhere") == 1, done.stderr


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
