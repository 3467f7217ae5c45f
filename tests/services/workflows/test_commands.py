"""`horsies workflow show|pause|resume|cancel|retry`, as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies, SubWorkflowNode, TaskNode, WorkflowDefinition, WorkflowStatus
from horsies.cli import main
from tests.e2e.cli_support import run
from tests.services.workflows.hand import Hand, Tasks

Db = AsyncConnection[Any]
Command = Callable[..., tuple[int, str, str]]

APP = """
import os
from horsies import AppConfig, Horsies, TaskError, TaskNode, TaskResult, WorkflowDefinition

app = Horsies(AppConfig.for_database_url(os.environ["SHOP_DATABASE_URL"]))


@app.task("one")
def one() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


class Child(WorkflowDefinition[None]):
    name = "child"
    definition_key = "commands-child"
    inside = TaskNode(one)
"""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], module_url: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A command on the module's database: exit code, standard output, standard error."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("DATABASE_URL", module_url)

    def typed(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(["workflow", *words])
        return code, *capsys.readouterr()

    return typed


@pytest.fixture
def shop(tmp_path: Path, module_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The locator of an app with a child workflow."""
    monkeypatch.setenv("SHOP_DATABASE_URL", module_url)
    (tmp_path / "workflow_shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "workflow_shop:app"


async def test_show_prints_a_tree_or_json(tasks: Tasks, hand: Hand, command: Command) -> None:
    handle = tasks.mapping().start().unwrap()
    await hand.begin(handle, "source")
    await hand.finish(handle, "source", [1, 2])
    await hand.begin(handle, "m[0]")
    await hand.fail(handle, "m[0]")
    code, shown, _ = command("show", handle.workflow_id)
    assert code == 0
    words = [line.split() for line in shown.splitlines()]
    assert words[0][:2] == ["mapping", "RUNNING"] and words[0][-1] == handle.workflow_id
    assert words[1][:3] == ["├─", "source", "COMPLETED"]
    assert words[2][:3] == ["└─", "m", "RUNNING"] and "← source" in shown
    assert words[3][:3] == ["├─", "m[0]", "FAILED"] and words[3][-2:] == ["BAD:", "no"]
    assert words[4][:3] == ["└─", "m[1]", "ENQUEUED"]
    code, told, _ = command("show", handle.workflow_id, "--json")
    tree = json.loads(told)
    assert code == 0 and (tree["id"], tree["status"]) == (handle.workflow_id, "RUNNING")
    assert [element["status"] for element in tree["nodes"][1]["elements"]] == ["FAILED", "ENQUEUED"]


async def test_pause_resume_cancel_tell_what_they_did(tasks: Tasks, hand: Hand, command: Command) -> None:
    handle = tasks.chain().start().unwrap()
    for words, expected, state in [
        (["resume"], 1, "RUNNING"),
        (["pause"], 0, "PAUSED"),
        (["pause"], 1, "PAUSED"),
        (["resume"], 0, "RUNNING"),
        (["cancel"], 0, "CANCELLED"),
        (["cancel"], 1, "CANCELLED"),
    ]:
        code, said, complained = command(*words, handle.workflow_id)
        assert code == expected, words
        assert handle.workflow_id in (complained if expected else said) and state in (said + complained)
        assert handle.status().unwrap() is WorkflowStatus(state)
    code, told, _ = command("pause", handle.workflow_id, "--json")
    assert (code, json.loads(told)) == (
        1,
        {"workflow_id": handle.workflow_id, "changed": False, "status": "CANCELLED"},
    )


async def test_retry_takes_all_or_those_that_are_named(
    tasks: Tasks, hand: Hand, app: Horsies, command: Command
) -> None:
    nodes = [tasks.one.node(node_id=name)() for name in ("x", "y", "z")]
    handle = app.workflow("three", nodes, definition_key="three").start().unwrap()
    for name in ("x", "y", "z"):
        await hand.fail(handle, name)
    assert command("retry", handle.workflow_id, "--node", "nobody")[0] == 1
    assert await hand.states(handle) == "FAILED x:FAILED y:FAILED z:FAILED"
    assert command("retry", handle.workflow_id, "--node", "x", "--node", "y")[0] == 0
    assert await hand.states(handle) == "RUNNING x:ENQUEUED y:ENQUEUED z:FAILED"
    code, told, _ = command("retry", handle.workflow_id, "--json")
    assert code == 0 and json.loads(told)["changed"] is True
    assert await hand.states(handle) == "RUNNING x:ENQUEUED y:ENQUEUED z:ENQUEUED"


async def test_a_workflow_that_is_not_there(command: Command, hand: Hand) -> None:
    for verb in ("show", "pause", "resume", "cancel", "retry"):
        code, said, complained = command(verb, "no-such-workflow")
        assert (code, said) == (1, "") and "there is no workflow no-such-workflow" in complained


async def test_a_command_line_that_cannot_be_meant(command: Command) -> None:
    assert "one workflow at a time" in command("show", "a", "b", "c")[2]
    code, _, complained = command()
    assert code == 1 and "horsies workflow --help" in complained
    code, _, complained = command("show", "no_such_module_at_all:app", "x")
    assert code == 1 and "was read as the app" in complained
    code, _, complained = command("show", "x", "--database-url", "postgresql://u:sesame@127.0.0.1:1/none")
    assert code == 1 and "refused" in complained and "sesame" not in complained


async def test_child_workflows_are_built_by_the_app_only(
    tasks: Tasks, hand: Hand, app: Horsies, command: Command, shop: str, clean_db: Db
) -> None:
    class Stand(WorkflowDefinition[None]):
        name = "stand-in"
        definition_key = "commands-stand-in"
        inside = TaskNode(tasks.one)

    first = TaskNode(tasks.one, node_id="first")
    child = SubWorkflowNode(Stand, waits_for=[first], node_id="child")
    handle = app.workflow("parent", [first, child], definition_key="commands-parent").start().unwrap()
    handle.pause()
    await hand.finish(handle, "first")
    await clean_db.execute(
        "UPDATE horsies_workflow_tasks SET sub_workflow_key = 'commands-child' WHERE node_id = 'child'"
    )
    code, _, complained = command("resume", handle.workflow_id)
    assert code == 1 and "which only the app can build" in complained and "name the app" in complained
    assert handle.status().unwrap() is WorkflowStatus.PAUSED
    assert command("resume", shop, handle.workflow_id)[0] == 0
    assert await hand.states(handle) == "RUNNING first:COMPLETED child:RUNNING"
    shown = command("show", handle.workflow_id)[1]
    assert [line.split()[:3] for line in shown.splitlines()][2:] == [
        ["└─", "child", "RUNNING"],
        ["└─", "inside", "ENQUEUED"],
    ]


async def test_in_a_process_of_its_own(tasks: Tasks, module_url: str, tmp_path: Path) -> None:
    handle = tasks.chain().start().unwrap()
    done = run("workflow", "cancel", handle.workflow_id, "--json", cwd=tmp_path, DATABASE_URL=module_url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"workflow_id": handle.workflow_id, "changed": True, "status": "CANCELLED"}
    assert "database:" in done.stderr
