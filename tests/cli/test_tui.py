"""`horsies tui` at the command line: the dashboard as text (M-82), and why it cannot be shown (M-80)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from horsies.core.types.status import TaskStatus
from tests.cli.support import Terminal
from tests.factories import given_worker, given_worker_state
from tests.hostile_support import LONG, SHORT, forged, obeyed
from tests.metrics_support import free_port
from tests.tui_support import SCREENS

ROOT = Path(__file__).parents[2]


def test_m82_once_prints_the_dashboard_as_text(terminal: Terminal) -> None:
    for _ in range(3):
        terminal.given(task_name="mail.send", queue_name="mail")
    terminal.given(TaskStatus.RUNNING, claimed_by_worker_id="gone")
    terminal.doing(lambda db: given_worker(db, "host:1:a", queues=["default"]))
    terminal.doing(lambda db: given_worker_state(db, "host:1:a", processes=4, tasks_running=2))
    typed = terminal.type("tui", "--once")
    assert "\x1b" not in typed.out and typed.err.count("\n") == 1, "only the database is said beside it"
    for said in (
        "Workers     1 live, running 2",
        "50% utilization",
        "!! queue mail: 3 tasks due, and no live worker serves it",
        "!! worker gone: not registered, and holds 1 task",
        "PENDING    3",
        "Running tasks, last hour",
    ):
        assert said in typed.out, said
    assert [line for line in typed.out.splitlines() if line != line.rstrip() or len(line) > 100] == []


def test_m82_once_shows_hostile_texts_and_obeys_nothing(terminal: Terminal) -> None:
    terminal.given(queue_name=SHORT, task_name=LONG[:200])
    typed = terminal.type("tui", "--once")
    assert "FORGED" in typed.out and obeyed(typed.out) == set() and forged(typed.out) == []


def test_m82_once_of_an_empty_database(terminal: Terminal) -> None:
    assert "Alerts  none" in terminal.type("tui", "--once").out


def test_m82_once_needs_no_textual(database_url: str) -> None:
    typed = _without_textual("tui", "--once", "--database-url", database_url)
    assert typed.returncode == 0 and "Capacity" in typed.stdout


def test_m80_without_the_extra_it_says_what_to_install(database_url: str) -> None:
    typed = _without_textual("tui", "--database-url", database_url)
    assert typed.returncode == 1 and 'pip install "horsies-pg[tui]"' in typed.stderr and "Traceback" not in typed.stderr


def _without_textual(*words: str) -> subprocess.CompletedProcess[str]:
    hide = "import sys; sys.modules['textual'] = None; from horsies.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", hide, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_m80_a_database_that_does_not_answer_is_an_error(terminal: Terminal) -> None:
    url = f"postgresql://horsies:secret-word@127.0.0.1:{free_port()}/none"
    typed = terminal.type_plain("tui", "--once", "--database-url", url, code=1)
    assert "the database did not answer" in typed.err and "secret-word" not in typed.err + typed.out


def test_m80_without_a_terminal_it_names_the_other_way(terminal: Terminal) -> None:
    typed = terminal.type("tui", code=1)
    assert "needs a terminal" in typed.err and "--once" in typed.err


@pytest.mark.parametrize("words", [("--tick-rate", "0"), ("--frame-rate", "1000"), ("--tick-rate", "often")])
def test_m80_rates_are_checked(terminal: Terminal, words: tuple[str, str]) -> None:
    assert words[0] in terminal.type("tui", *words, code=1).err


def test_m80_importing_horsies_or_its_commands_does_not_import_textual() -> None:
    code = "import sys, horsies, horsies.cli.main; print([name for name in sys.modules if name.startswith('textual')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["dashboard", "workers", "tasks-open", "workflow"])
def test_m80_the_page_shows_the_screens_as_they_are(name: str) -> None:
    page = (ROOT / "docs/tui.md").read_text(encoding="utf-8")
    assert f"```text\n{(SCREENS / f'{name}.txt').read_text(encoding='utf-8')}```\n" in page
