"""`horsies stale-tasks` as an operator types it (M-10, M-11, M-13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from tests.e2e.cli_support import APP, run
from tests.factories import given_task, task_row

pytestmark = pytest.mark.e2e


async def given_silent(db: AsyncConnection[Any], minutes: float, **columns: Any) -> str:
    task_id = await given_task(db, status=TaskStatus.RUNNING, **columns)
    await db.execute(
        "UPDATE horsies_tasks SET started_at = now() - %s * interval '1 min' WHERE id = %s", [minutes, task_id]
    )
    return task_id


async def test_m10_m11_m13_stale_tasks_are_listed(db: AsyncConnection[Any], database_url: str, tmp_path: Path) -> None:
    child = {"worker_hostname": "web-1", "worker_pid": 4242, "worker_process_name": "and-so-on-" * 12}
    old = await given_silent(db, 10, task_name="shop.price", **child)
    newer = await given_silent(db, 3, task_name="shop.refuse")
    (tmp_path / "shop.py").write_text(APP)

    listed = run("stale-tasks", "--database-url", database_url, cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert [next((name for name in (old, newer) if name in line), None) for line in lines if "shop." in line] == [
        old,
        newer,
    ]
    assert "web-1" in listed.stdout and "4242" in listed.stdout

    narrow = run("stale-tasks", "--database-url", database_url, cwd=tmp_path, COLUMNS="40")
    assert all(text in narrow.stdout for text in (old, newer, "and-so-on-" * 12)), "what is printed shall be copied"

    by_json = run("stale-tasks", "shop:app", "--minutes", "5", "--json", cwd=tmp_path, SHOP_DATABASE_URL=database_url)
    assert by_json.returncode == 0, by_json.stderr
    [row] = json.loads(by_json.stdout)
    assert (row["id"], row["task_name"], row["worker_pid"], row["last_heartbeat"]) == (old, "shop.price", 4242, None)

    nothing = run("stale-tasks", "--minutes", "20.5", cwd=tmp_path, DATABASE_URL=database_url)
    assert (nothing.returncode, nothing.stdout) == (0, "no running task has been silent for more than 20.5 min\n")
    assert (await task_row(db, old))["status"] == "RUNNING"


def test_m11_a_database_that_cannot_be_asked_is_exit_code_1(tmp_path: Path) -> None:
    url = "postgresql://u:sesame@127.0.0.1:1/none?connect_timeout=2"
    ended = run("stale-tasks", "--database-url", url, cwd=tmp_path)
    assert ended.returncode == 1
    assert "sesame" not in ended.stderr + ended.stdout
    assert run("stale-tasks", "--minutes", "soon", "--database-url", url, cwd=tmp_path).returncode == 1
    assert run("stale-tasks", "--minutes=-1", "--database-url", url, cwd=tmp_path).returncode == 1
