"""`horsies recover-workflows` as an operator types it (M-10, M-11, M-13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.e2e.cli_support import APP, run
from tests.services.workflows.flows import end_task_of, node, started, states

pytestmark = pytest.mark.e2e


async def test_m10_m11_m13_r97_what_is_stuck_goes_on(
    db: AsyncConnection[Any], database_url: str, tmp_path: Path
) -> None:
    workflow_id = await started(db, node("a"), node("b", 0))
    await end_task_of(db, workflow_id, 0)
    (tmp_path / "shop.py").write_text(APP)

    done = run("recover-workflows", "shop:app", cwd=tmp_path, SHOP_DATABASE_URL=database_url)
    assert (done.returncode, done.stdout) == (0, "2 steps taken for nodes and workflows that were stuck\n"), done.stderr
    assert await states(db, workflow_id) == ("RUNNING", "CE")

    nothing = run("recover-workflows", "--database-url", database_url, cwd=tmp_path)
    assert (nothing.returncode, nothing.stdout) == (0, "no workflow is stuck\n")

    await end_task_of(db, workflow_id, 1, seconds_ago=5)
    counted = run("recover-workflows", "--json", "--grace-ms", "1000", cwd=tmp_path, DATABASE_URL=database_url)
    assert (counted.returncode, json.loads(counted.stdout)) == (0, {"recovered_count": 2})
    assert await states(db, workflow_id) == ("COMPLETED", "CC")


def test_m11_r97_a_database_that_cannot_be_asked_is_exit_code_1(tmp_path: Path) -> None:
    url = "postgresql://u:sesame@127.0.0.1:1/none?connect_timeout=2"
    ended = run("recover-workflows", "--database-url", url, cwd=tmp_path)
    assert ended.returncode == 1 and "sesame" not in ended.stderr + ended.stdout
    assert run("recover-workflows", "--grace-ms=-1", "--database-url", url, cwd=tmp_path).returncode == 1
