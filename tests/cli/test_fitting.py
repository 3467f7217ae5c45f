"""Tables and trees on real terminals of different widths: everything that matters is on the screen (M-14)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horsies.core.types.status import TaskStatus
from tests.cli.support import Terminal
from tests.cli.test_streams import Screen
from tests.factories import given_attempt, given_node, given_worker, given_workflow

pytestmark = pytest.mark.e2e

NAME = "shop.invoices.create_and_mail_the_monthly_invoice"
ERROR = "CARD_DECLINED_BY_THE_ISSUING_BANK"
MESSAGE = "the bank said no, and it said so at length: " + "not today, " * 40


def fill(terminal: Terminal) -> str:
    now = datetime.now(UTC)
    task_id = f"{1:036}"
    ended = {"started_at": now - timedelta(seconds=2), "failed_at": now, "retry_count": 2, "max_retries": 3}
    terminal.given(TaskStatus.FAILED, id=task_id, task_name=NAME, error_code=ERROR, **ended)
    terminal.given(TaskStatus.COMPLETED, id=f"{2:036}", task_name="shop.price")
    attempt = {"attempt": 1, "error_code": ERROR, "error_message": MESSAGE, "worker_id": "web-1:4242:9f3a11c0"}
    terminal.doing(lambda db: given_attempt(db, task_id, **attempt))
    for number in range(3):
        worker_id = f"shop-worker-7d9f8b6c5d-x2x4{number}:1:9f3a11c{number}"  # as Kubernetes names them
        terminal.doing(lambda db, worker_id=worker_id: given_worker(db, worker_id, queues=["default", "mail"]))  # type: ignore[misc]
    terminal.doing(given_workflow)
    return task_id


def shown(terminal: Terminal, tmp_path: Path, columns: int, *words: str) -> list[str]:
    with Screen(*words, "--database-url", terminal.url, columns=columns, cwd=tmp_path, NO_COLOR="1") as screen:
        assert screen.end() == 0, screen.plain
    return [line.rstrip() for line in screen.plain.splitlines()]


@pytest.mark.parametrize("columns", [80, 120])
def test_m14_every_table_fits_and_the_error_is_there(terminal: Terminal, tmp_path: Path, columns: int) -> None:
    task_id = fill(terminal)
    for words in (
        ["tasks"],
        ["task", task_id],
        ["workers"],
        ["queues"],
        ["workflow", "list"],
        ["purge", "--older-than=0"],
    ):
        lines = shown(terminal, tmp_path, columns, *words)
        assert max(map(len, lines)) <= columns, words
    lines = shown(terminal, tmp_path, columns, "tasks")
    assert lines[0].split()[:3] == ["task", "status", "name"] and "error" in lines[0].split()
    whole = "".join("".join(line.split()) for line in lines)
    assert f"{1:036}FAILED" in whole and "CARD_DECLINED_" in whole and "BANK" in whole


def test_m14_wide_tables_and_pipes_are_whole(terminal: Terminal, tmp_path: Path) -> None:
    fill(terminal)
    for lines in (shown(terminal, tmp_path, 80, "tasks", "--wide"), terminal.type("tasks").out.splitlines()):
        [row] = [line for line in lines if line.startswith(f"{1:036}")]
        assert NAME in row and ERROR in row and " 2/3 " in row and len(row) > 120
    assert "not shown" not in terminal.type("tasks").err


def test_m14_what_is_left_out_is_said(terminal: Terminal, tmp_path: Path) -> None:
    fill(terminal)
    with Screen("tasks", "--database-url", terminal.url, columns=80, cwd=tmp_path, is_heard=True) as screen:
        assert screen.end() == 0
    said = " ".join(screen.plain.split())
    assert "not shown: queue, sent, ended, took, retries, worker (--wide shows all columns)" in said


def test_m14_a_person_chooses_columns(terminal: Terminal, tmp_path: Path) -> None:
    fill(terminal)
    lines = shown(terminal, tmp_path, 80, "tasks", "--columns", "error,task,priority", "--status", "failed")
    assert lines[0].split() == ["error", "task", "priority"] and lines[2].split() == [ERROR, f"{1:036}", "100"]
    typed = terminal.type("queues", "--columns", "queue,oldest-due").out
    assert typed.split()[:3] == ["queue", "oldest", "due"]
    said = terminal.type("tasks", "--columns", "nme", code=1).err
    assert "there is no column 'nme'" in said and "did you mean name?" in said
    assert "are for the table" in terminal.type("workers", "--json", "--wide", code=1).err


def test_m14_a_tree_has_the_ids_of_tasks_and_breaks_lines_between_remarks(terminal: Terminal, tmp_path: Path) -> None:
    workflow_id = terminal.doing(given_workflow)
    result = '{"err": {"error_code": "BAD_THING", "message": "it broke, and this text says at length why it did"}}'
    terminal.given(TaskStatus.FAILED, id=f"{7:036}", workflow_id=workflow_id)
    node = {"node_id": "charge", "status": "FAILED", "task_id": f"{7:036}", "result": result}
    terminal.doing(lambda db: given_node(db, workflow_id, **node))
    narrow = shown(terminal, tmp_path, 80, "workflow", "show", workflow_id)
    assert max(map(len, narrow)) <= 80
    assert any(line.endswith(f"{7:036}") for line in narrow) and narrow[-1].strip().startswith("BAD_THING: it broke")
    [wide] = [line for line in terminal.type("workflow", "show", workflow_id).out.splitlines() if "charge" in line]
    assert f"{7:036}  BAD_THING: it broke" in wide
