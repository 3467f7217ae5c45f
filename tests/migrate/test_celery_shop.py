"""A Celery project of ten tasks with a chain, a group, a chord, routes, retries and a beat schedule is converted by the
command, and runs: `celery_shop/` is the original, and nothing is changed in it by hand."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.e2e.cli_support import Started, environment, run
from tests.support import eventually_sync

HERE = Path(__file__).parent
TASKS = {
    "reports.daily",
    "reports.sum",
    "reports.turnover",
    "shop.tasks.mail.newsletter",
    "shop.tasks.mail.send_mail",
    "shop.tasks.orders.charge",
    "shop.tasks.orders.reserve",
    "shop.tasks.orders.ship",
    "shop.tasks.orders.thank",
    "shop.tasks.reports.heartbeat",
}
LEFT = {"rate_limit=... of newsletter was left out", "expires=... of daily was left out"}
EVERY_TASK_OF_CELERY = """
import json
from shop import celery_app
celery_app.loader.import_default_modules()
import shop.web
entries = {one["task"] for one in celery_app.conf.beat_schedule.values()}
names = {name for name in celery_app.tasks if not name.startswith("celery.")}
celery_app.conf.task_always_eager = celery_app.conf.task_store_eager_result = True
from shop.tasks import reports
print(json.dumps([sorted(names), entries <= names, reports.all_countries(["de", "france"], 2).get()]))
"""


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(HERE / "celery_shop", tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    )


@pytest.mark.skipif(
    importlib.util.find_spec("celery") is None and "CELERY_PYTHON" not in os.environ,
    reason="Celery is in no environment of ours; CELERY_PYTHON names an interpreter that has it",
)
def test_x42_the_original_is_a_project_of_celery(original: Path, tmp_path: Path) -> None:
    python = os.environ.get("CELERY_PYTHON", sys.executable)
    memory = {"CELERY_BROKER_URL": "memory://", "CELERY_RESULT_BACKEND": "cache+memory://"}
    env = environment(PYTHONPATH=str(original), SHOP_DIRECTORY=str(tmp_path), **memory)
    done = subprocess.run([python, "-c", EVERY_TASK_OF_CELERY], env=env, cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(done.stdout) == [sorted(TASKS), True, "all: 16"]


@pytest.mark.e2e
def test_x42_a_project_of_celery_is_converted_and_runs(original: Path, tmp_path: Path, database_url: str) -> None:
    done = run("migrate-from", "celery", "shop", "--write", "--json", cwd=original)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert {one["what"] for one in report["findings"] if one["kind"] == "by hand"} == LEFT
    outside = tmp_path / "outside"
    outside.mkdir()
    env = {"DATABASE_URL": database_url, "SHOP_DIRECTORY": str(outside), "PYTHONPATH": str(original)}
    checked = run("check", "shop.celery:app", cwd=original, **env)
    assert checked.returncode == 0, checked.stderr
    with Started("worker", "shop.celery:app", "--with-scheduler", cwd=original, **env) as worker:
        worker.until_it_says("worker ready")
        driver = [sys.executable, str(HERE / "shop_driver.py")]
        client = subprocess.run(
            driver, env=environment(**env), cwd=original, capture_output=True, text=True, check=False
        )
        assert client.returncode == 0, client.stderr
        assert json.loads(client.stdout) == {
            "chord": "all: 16",
            "group": [6, 18],
            "newsletter": 2,
            "direct": 10,
            "daily": "report about horses",
            "mail": None,
            "receipt": "transfer-1-250 after 2 retries",
            "order": True,
            "celery": [],
        }
        eventually_sync(lambda: len(lines_of(outside / "heartbeats")) > 1, what="the beat schedule")
        eventually_sync(lambda: len(lines_of(outside / "mails")) == 4, what="all letters")
        assert worker.stop() == 0, worker.said
    assert sorted(lines_of(outside / "mails")) == [
        "ann@example.com: shipped: 2 by post",
        "bob@example.com: News",
        "eve@example.com: News",
        "joe@example.com: Hello",
    ]
    assert lines_of(outside / "parcels") == ["post: ['HORSE', 'CART']"]
    every_task_has_run_where_it_belongs(database_url)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def every_task_has_run_where_it_belongs(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        rows = conn.execute("SELECT DISTINCT task_name, queue_name, status FROM horsies_tasks").fetchall()
    assert {name for name, _, _ in rows} == {*TASKS, "shop.tasks.reports.pass_on_elements"}
    assert {status for _, _, status in rows} <= {"COMPLETED", "PENDING"}  # the next beat may wait
    assert {queue for name, queue, _ in rows if name.startswith("shop.tasks.mail.")} == {"mail"}
    assert {queue for name, queue, _ in rows if name == "reports.daily"} == {"reports"}
