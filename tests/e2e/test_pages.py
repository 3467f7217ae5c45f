"""The code of the documentation runs: every Python block of every page, against a real worker where tasks are run."""

from __future__ import annotations

import ast
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.page_support import ROOT, blocks, defines, imported, ours, run, served

pytestmark = [pytest.mark.e2e, pytest.mark.slow("runs the code of a documentation page")]

PAGES = sorted(path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/*.md"))
# Served by one worker each: the second has queues of its own.
TOGETHER = [("tasks", "index", "from-celery", "faq"), ("from-procrastinate",)]
SERVED = tuple(page for pages in TOGETHER for page in pages)
UNSERVED = ("operations", "workers")
# Run elsewhere, each as it needs.
ELSEWHERE = {
    "checks": "tests/unit/checks/test_examples.py",
    "dashboard": "tests/services/web/test_dashboard_page.py",
    "django": "tests/django/test_django_page.py",
    "deploys": "tests/unit/test_older.py",
    "cookbook": "tests/e2e/test_cookbook.py",
    "fastapi": "tests/contrib/test_guides.py",
    "flask": "tests/contrib/test_guides.py",
    "logging": "tests/e2e/test_logging_page.py",
    "recovery": "tests/services/test_recovery_page.py",
    "workflows": "tests/e2e/test_workflows_page.py",
    "getting-started": "tests/e2e/test_getting_started.py",
    "progress-and-logs": "tests/e2e/test_progress.py",
    "metrics": "tests/services/test_metrics_page.py",
    "notebooks": "tests/e2e/test_guides.py",
    "paas": "tests/e2e/test_guides.py",
    "serverless": "tests/e2e/test_guides.py",
    "monitoring": "tests/services/test_monitoring_page.py",
    "scheduling": "tests/e2e/test_scheduling_page.py",
    "testing": "tests/testing/test_pages.py",
    "other-languages": "tests/e2e/test_other_languages_page.py",
}

# What the page speaks of without showing it.
MORE = {
    "tasks": """
import psycopg


@app.task("orders.ship")
def ship(order_id: int) -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)
"""
}


def around(page: str, database_url: str) -> dict[str, Any]:
    if page != "tasks":
        return {"database_url": database_url}
    with psycopg.connect(database_url) as conn:
        conn.execute("CREATE TABLE orders (id int, item text)")
    soon = datetime.now(UTC) + timedelta(hours=1)
    return {"log": logging.getLogger("page"), "images": ["a.png", "b.png"], "tonight": soon, "url": database_url}


@pytest.mark.parametrize("pages", TOGETHER, ids="+".join)
async def test_the_pages_do_what_they_say(
    pages: tuple[str, ...], database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several pages are served by one worker, as one app: its start is most of what this takes."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    parts = [code + MORE.get(page, "") for page in pages for code in ours(page) if defines(code)]
    source = "\n\n".join([parts[0], *map(without_app, parts[1:])])
    with served("pages", source, database_url, tmp_path) as module:
        assert module.app.check() == []
        for page in pages:
            used = [code for code in ours(page) if not defines(code)]
            await run(page, vars(module) | around(page, database_url), used)
        if "faq" in pages:
            await send_by_sql(module.app, database_url)


def without_app(code: str) -> str:
    """The block without its own app: that of the page before is used."""
    lines = code.splitlines()
    for node in ast.parse(code).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "app":
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
    return "\n".join(lines)


async def send_by_sql(app: Any, database_url: str) -> None:
    [statement] = sql_of("faq")
    with psycopg.connect(database_url) as conn:
        row = conn.execute(statement.encode()).fetchone()
    assert row is not None
    assert (await app.get_result_async(row[0], timeout_ms=20_000)).unwrap().unwrap() == 42


def sql_of(page: str) -> list[str]:
    return re.findall(r"^```sql\n(.*?)^```$", (ROOT / f"docs/{page}.md").read_text(), re.DOTALL | re.MULTILINE)


async def test_the_worker_of_the_workers_page_runs(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    file = tmp_path / "page_workers.py"
    file.write_text(ours("faq")[0].replace("for_database_url(database_url)", f"for_database_url({database_url!r})"))
    with imported(file) as module:
        handle = (await module.double.send_async(4)).unwrap()
        names = vars(module) | {"__name__": "page_workers"}
        await run("workers", names, ours("workers"))
        assert names["code"] == 0
        assert (await handle.get_async(timeout_ms=1000)).unwrap() == 8


async def test_the_settings_of_the_operations_page_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLER_URL", "postgresql://a:b@localhost:6432/c")
    monkeypatch.setenv("DIRECT_URL", "postgresql://a:b@localhost:5432/c")
    names: dict[str, Any] = {}
    await run("operations", names, ours("operations"))
    assert names["app"].config.broker.pgbouncer_transaction_mode is True


def test_every_page_with_code_is_run() -> None:
    with_code = {page for page in PAGES if blocks(page)}
    assert with_code == {*SERVED, *UNSERVED, *ELSEWHERE} & with_code
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())
