"""`horsies check` as a user types it before a deployment, and that nothing starts that it finds wrong."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from horsies.cli import main
from tests.e2e.cli_support import APP, Started, run
from tests.e2e.test_cli_worker import READY
from tests.unit.checks.examples import forgetting_modules

NIGHTLY = """
from datetime import time
from horsies import DailySchedule, ScheduleConfig, TaskSchedule

nightly = TaskSchedule(
    name="nightly", task_name="shop.refuse", pattern=DailySchedule(time=time(3)), kwargs={"reason": REASON}
)
app.config = app.config.model_copy(update={"schedule": ScheduleConfig(schedules=[nightly])})
"""
DOUBTFUL = """
from horsies import RetryPolicy

@app.task("shop.doubt", retry_policy=RetryPolicy.fixed([1], auto_retry_for=["TASK_EXPIRED"]))
def doubt() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "sound.py").write_text(APP + NIGHTLY.replace("REASON", '"no"'))
    (tmp_path / "wrong.py").write_text(APP + NIGHTLY.replace("REASON", "7"))
    (tmp_path / "doubtful.py").write_text(APP + NIGHTLY.replace("REASON", '"no"') + DOUBTFUL)
    return tmp_path


def test_m04_m20_m22_live_looks_at_what_waits(
    project: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_DATABASE_URL", database_url)
    monkeypatch.chdir(project)

    def check(*options: str) -> tuple[int, str, str]:
        with forgetting_modules():
            code = main.run(["check", "sound", *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    ok = "ok: 2 tasks, 0 workflows, 0 builders, 1 schedule\n"
    assert check("--live")[:2] == (0, ok)
    with psycopg.connect(database_url) as conn:
        conn.execute(
            "INSERT INTO horsies_tasks (id, task_name, kwargs) VALUES ('a', 'shop.prise', '{}'), "
            """('b', 'shop.price', '{"order": {"id": "one"}}'), ('c', 'shop.refuse', '{"reason": "x"}')"""
        )
    code, out, err = check("--live", "--loglevel", "ERROR")
    assert (code, out) == (1, "")
    assert "error[HRS-300]: no module defines the task 'shop.prise', but 1 of that name" in err
    assert "error[HRS-218]: task 'shop.price' cannot read the arguments of 1 of the 1 waiting tasks\n" in err
    assert "= note: for example b: order.id: " in err
    assert '@app.task("shop.price")\n' in err
    assert err.endswith("\n\nerror: 2 problems in the check\n")
    assert check() == (0, ok, "")


@pytest.mark.parametrize("command", ["worker", "scheduler"])
def test_m21_s04_a_schedule_that_cannot_work_keeps_everything_from_starting(
    project: Path, database_url: str, command: str
) -> None:
    refused = run(command, "wrong", cwd=project, SHOP_DATABASE_URL=database_url)
    assert refused.returncode == 1
    assert "error[HRS-205]: schedule 'nightly': task 'shop.refuse': reason: " in refused.stderr
    assert "nightly = TaskSchedule(\n" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_m21_m11_doubts_keep_nothing_from_starting(project: Path, database_url: str) -> None:
    checked = run("check", "doubtful", cwd=project)
    assert checked.returncode == 1 and checked.stderr.startswith("warning[HRS-217]: task 'shop.doubt': ")
    with Started("worker", "doubtful", cwd=project, SHOP_DATABASE_URL=database_url) as worker:
        worker.until_it_says(READY)
        assert worker.stop() == 0
    assert "HRS-217" not in worker.said
