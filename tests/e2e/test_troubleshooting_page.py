"""The trouble of docs/troubleshooting.md, made on purpose: the commands of the page say what it quotes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli_support import Started, run
from tests.e2e.page_support import ROOT, imported
from tests.support import eventually_sync

pytestmark = [pytest.mark.e2e, pytest.mark.slow("runs the code of a documentation page")]

PAGE = " ".join((ROOT / "docs/troubleshooting.md").read_text().split())
APP = """
import os
import signal
import time
from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))


@app.task("shop.killed")
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task("shop.gone")
def gone() -> None:
    os._exit(3)


@app.task("shop.forgetful")
def forgetful() -> int:
    pass


@app.task("shop.waits")
def waits() -> None:
    time.sleep(600)
"""
NEWER = """

@app.task("shop.new")
def new() -> None:
    pass
"""


@pytest.fixture
def newer(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a newer version, which knows one task more than `shop.py` beside its directory."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    (tmp_path / "shop.py").write_text(APP)
    file = tmp_path / "newer" / "shop.py"
    file.parent.mkdir()
    file.write_text(APP + NEWER)
    return file


def quoted(words: str) -> str:
    assert words in PAGE, f"the page no longer says {words!r}"
    return words


def test_the_commands_say_what_the_page_quotes(newer: Path, database_url: str, tmp_path: Path) -> None:
    def say(command: str, task_id: str) -> str:
        done = run(command, "shop.py", task_id, cwd=tmp_path, DATABASE_URL=database_url)
        return done.stdout + done.stderr

    assert quoted("there is no task") in say("explain", "0198c5de-0001-7000-8000-000000000001")
    with imported(newer) as shop:
        sent = {name: getattr(shop, name).send_or_raise() for name in ("killed", "gone", "forgetful")}
        assert quoted("NO_WORKER") in say("explain", sent["gone"].task_id)
        worker = Started("worker", "shop.py", "--shutdown-grace", "1s", cwd=tmp_path, DATABASE_URL=database_url)
        with worker:
            codes = {name: handle.get(30_000).unwrap_err().code for name, handle in sent.items()}
            assert codes == {
                "killed": quoted("WORKER_CRASHED"),
                "gone": "WORKER_CRASHED",
                "forgetful": quoted("RETURN_TYPE_MISMATCH"),
            }
            waiting = shop.waits.send_or_raise()
            worker.until_it_says("worker ready")
            eventually_sync(lambda: "RUNNING" in say("explain", waiting.task_id), what="the task runs")
            assert worker.stop() == 1, worker.said
        shown = {name: say("task", handle.task_id) for name, handle in {**sent, "waits": waiting}.items()}
    assert quoted("was killed by SIGKILL") in shown["killed"]
    assert quoted("exited with code") in shown["gone"]
    assert quoted("SHUTDOWN: the worker was stopped before the task had ended") in " ".join(shown["waits"].split())
    assert quoted("the answer has no line `retries`") and "\n  retries " not in shown["gone"]


def test_the_check_finds_waiting_tasks_that_the_code_does_not_know(
    newer: Path, database_url: str, tmp_path: Path
) -> None:
    with imported(newer) as shop:
        shop.new.send_or_raise()
    done = run("check", "shop.py", "--live", cwd=tmp_path, DATABASE_URL=database_url)
    assert quoted("`horsies check shop:app --live` finds such tasks beforehand")
    assert done.returncode == 1 and "HRS-300" in done.stderr and "shop.new" in done.stderr
