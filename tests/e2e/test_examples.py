"""The examples do what they say, each run as its reader would run it; the first one is the README's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import warm_start
from tests.e2e.cli_support import environment

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def output_of(example: str, database_url: str, cwd: Path) -> str:
    env = environment(DATABASE_URL=database_url)
    done = warm_start.run((), program=str(EXAMPLES / example), cwd=cwd, env=env, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warm_start.COLD_VARIABLE, "1")
    assert output_of("quickstart.py", database_url, tmp_path) == "Hello, world!\n"


def test_async_tasks_run_side_by_side(database_url: str, tmp_path: Path) -> None:
    said = output_of("async_tasks.py", database_url, tmp_path)
    assert said.startswith(f"sum of squares: {sum(n * n for n in range(100))}\n")
    took = re.search(r"took ([\d.]+) s instead of 20 s", said)
    assert took is not None and float(took[1]) < 20


def test_queues_and_limits_hold(database_url: str, tmp_path: Path) -> None:
    assert output_of("queues_and_limits.py", database_url, tmp_path) == (
        "mails: 8 sent, at most 2 at a time\nreports: 3 written, at most 1 at a time\n"
    )


def test_errors_as_values(database_url: str, tmp_path: Path) -> None:
    assert output_of("errors_as_values.py", database_url, tmp_path).splitlines() == [
        "withdraw 30 of 100: ok, 70",
        "withdraw 130 of 100: INSUFFICIENT_FUNDS, not enough money, {'short': 30}",
        "divide 1 by 0: DIVIDED_BY_ZERO, task 'errors.divide' raised ZeroDivisionError: division by zero",
        "explode: an exception nobody expected: task 'errors.explode' raised RuntimeError: boom",
        "unlucky: TRY_AGAIN, still not",
        "unlucky was tried 2 times",
        "not sent: VALIDATION_FAILED",
    ]


def test_sqlalchemy_outbox(database_url: str, tmp_path: Path) -> None:
    assert output_of("sqlalchemy_outbox.py", database_url, tmp_path).splitlines() == [
        "rolled back: not in stock",
        "confirmed order 1: a book",
        "confirmed order 3: a pen",
        "confirmed order 100: a sheet of paper",
        "confirmed order 101: a sheet of paper",
        "confirmed order 102: a sheet of paper",
        "the task of the unicorn: TASK_NOT_FOUND",
        "orders: a book, a pen",
    ]


def test_recovery_hooks(database_url: str, tmp_path: Path) -> None:
    assert output_of("recovery_hooks.py", database_url, tmp_path).splitlines() == [
        "resize: photo.png is smaller now",
        "charge_card: WORKER_CRASHED, not tried again",
        "report: PENDING, due in 24 h",
        "attempts of resize: WORKER_FAILURE, COMPLETED",
        "attempts of charge_card: WORKER_FAILURE",
        "attempts of report: WORKER_FAILURE",
    ]


def test_workflow_fan_out(database_url: str, tmp_path: Path) -> None:
    assert output_of("workflow_fan_out.py", database_url, tmp_path).splitlines() == [
        "bought at mall for 28",
        "  corner: 42",
        "  mall: 28",
        "  warehouse: 63",
    ]


def test_workflow_saga(database_url: str, tmp_path: Path) -> None:
    assert output_of("workflow_saga.py", database_url, tmp_path).splitlines() == [
        "the trip: NOT_ENOUGH_MONEY, 150 too much",
        "  hotel COMPLETED: booking of a room",
        "  flight COMPLETED: booking of a seat",
        "  payment FAILED: –",
        "  no_flight COMPLETED: cancelled the booking of a seat",
        "  no_hotel COMPLETED: cancelled the booking of a room",
    ]


def test_workflow_quorum(database_url: str, tmp_path: Path) -> None:
    assert output_of("workflow_quorum.py", database_url, tmp_path).splitlines() == [
        "stored in: attic, garage",
        "workflow: COMPLETED",
        "cellar: UNDER_WATER",
    ]


def test_workflow_approval(database_url: str, tmp_path: Path) -> None:
    assert output_of("workflow_approval.py", database_url, tmp_path).splitlines() == [
        "get: WORKFLOW_PAUSED",
        "resume: True",
        "published: News: all is well",
        "get: WORKFLOW_PAUSED",
        "cancelled: WORKFLOW_CANCELLED",
    ]


def test_workflow_map(database_url: str, tmp_path: Path) -> None:
    assert output_of("workflow_map.py", database_url, tmp_path).splitlines() == [
        "words: 15",
        "  5",
        "  5",
        "  EMPTY",
        "  5",
        "pages COMPLETED, counts COMPLETED, words COMPLETED, "
        "counts[0] COMPLETED, counts[1] COMPLETED, counts[2] FAILED, counts[3] COMPLETED",
    ]


def test_schedules(database_url: str, tmp_path: Path) -> None:
    assert output_of("schedules.py", database_url, tmp_path).splitlines() == [
        "tick, every second: 28 Mar 12:00:01, 28 Mar 12:00:02, 28 Mar 12:00:03",
        "night-shift, every day at 02:30 (Europe/Berlin): 29 Mar 03:00:00, 30 Mar 02:30:00, 31 Mar 02:30:00",
        "office-hours, 0,30 9-17 * * mon-fri (America/New_York): 30 Mar 09:00:00, 30 Mar 09:30:00, 30 Mar 10:00:00",
        "sent by the clock: tick",
        "sent by hand: a report about the night",
    ]


def test_every_example_is_tested() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "async_tasks.py",
        "errors_as_values.py",
        "queues_and_limits.py",
        "quickstart.py",
        "recovery_hooks.py",
        "schedules.py",
        "shop.py",  # tests/e2e/test_getting_started.py
        "sqlalchemy_outbox.py",
        "workflow_approval.py",
        "workflow_fan_out.py",
        "workflow_map.py",
        "workflow_quorum.py",
        "workflow_saga.py",
    ]
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__") == [
        "crash_tests",  # tests/testing/test_pages.py
        "fastapi_app",  # tests/e2e/test_example_fastapi.py
        "flask_app",  # tests/contrib/test_flask.py
    ]


def test_the_readme_shows_the_examples_as_they_are() -> None:
    part, shown = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert part in (EXAMPLES / "sqlalchemy_outbox.py").read_text()
    assert shown == (EXAMPLES / "quickstart.py").read_text()
    assert len(shown.splitlines()) <= 20


def test_the_home_page_shows_the_first_example_as_it_is() -> None:
    [shown] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL)
    assert shown == (EXAMPLES / "quickstart.py").read_text()
