"""Every command that looks at the queue answers, whatever is in the rows (D-14, R-24, M-45): each odd value has a row
of its own, in a database without the constraints."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.types.status import TaskStatus
from tests.cli.support import Terminal
from tests.factories import (
    given_attempt,
    given_heartbeat,
    given_node,
    given_task,
    given_worker,
    given_worker_state,
    given_workflow,
)
from tests.odd_rows_support import drop_constraints, plant, planted

pytestmark = [pytest.mark.slow("every odd value in every column, for every command"), pytest.mark.timeout(900)]

Db = AsyncConnection[Any]
RUNNING = TaskStatus.RUNNING


async def tasks(db: Db) -> list[str]:
    """In every state by turns."""
    states = cycle([TaskStatus.PENDING, RUNNING, TaskStatus.COMPLETED, TaskStatus.CLAIMED])
    found = []
    for what in await planted(db, "horsies_tasks"):
        found.append(await given_task(db, status=next(states), started_at="now", claimed_at="now"))
        await plant(db, what, "id", found[-1])
    return found


async def attempts_and_heartbeats(db: Db) -> list[str]:
    task_id = await given_task(db, status=RUNNING, started_at="now")
    for number, what in enumerate(await planted(db, "horsies_task_attempts")):
        if what.column != "attempt":
            await given_attempt(db, task_id, attempt=number, worker_id=str(number))
            await plant(db, what, "worker_id", str(number))
    for number, what in enumerate(await planted(db, "horsies_heartbeats")):
        await given_heartbeat(db, task_id, "runner", sender_id=str(number))
        if what.column != "sender_id":
            await plant(db, what, "sender_id", str(number))
    return [task_id]


async def workers(db: Db) -> None:
    for number, what in enumerate(await planted(db, "horsies_workers")):
        await given_worker(db, f"w{number}", sweeping=True)
        await plant(db, what, "worker_id", f"w{number}")
    for number, what in enumerate(await planted(db, "horsies_worker_states")):
        await given_worker(db, f"s{number}")
        await given_worker_state(db, f"s{number}")
        await plant(db, what, "worker_id", f"s{number}")


async def workflows(db: Db) -> list[str]:
    found = []
    for what in await planted(db, "horsies_workflows"):
        if what.column in ("parent_workflow_id", "on_error"):
            continue
        found.append(await given_workflow(db, status="RUNNING", open_nodes=1))
        await given_node(db, found[-1], status="PENDING")
        await plant(db, what, "id", found[-1])
    for what in await planted(db, "horsies_workflow_tasks"):
        if what.column in ("sub_workflow_id", "join_type"):
            continue
        found.append(await given_workflow(db, status="RUNNING", open_nodes=1, started_at="now"))
        await given_node(db, found[-1], status="RUNNING", started_at="now")
        await plant(db, what, "workflow_id", found[-1])
    return found


@pytest.fixture
def terminal(database_url: str, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(database_url, capsys)


def filled(url: str, fill: Callable[[Db], Awaitable[Any]]) -> Any:
    """Not in a loop of the test's: commands have loops of their own."""

    async def act() -> Any:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
            await drop_constraints(db)
            return await fill(db)

    return asyncio.run(act())


def asked(url: str, ask: Callable[..., Awaitable[Any]], ids: list[str]) -> None:
    """What stands behind the commands, for each of them."""

    async def act() -> None:
        broker = PostgresBroker(PostgresConfig(database_url=url))
        try:
            assert [one for one in ids if (await ask(broker, one)).unwrap() is None] == []
        finally:
            await broker.close_async()

    asyncio.run(act())


def test_m45_tasks_are_shown_whatever_is_in_them(terminal: Terminal) -> None:
    ids = filled(terminal.url, tasks)
    listed = terminal.type("tasks", "--limit", "500", "--json").json
    assert {task["task_id"] for task in listed["items"]} >= set(ids)
    for command in (["tasks"], ["queues"], ["queues", "--json"], ["stale-tasks"], ["metrics", "--once"]):
        terminal.type(*command)
    for task_id in ids[::12]:
        terminal.type("task", task_id)
        terminal.type("explain", task_id)
    for ask in (monitoring.get_task_detail, monitoring.explain_task):
        asked(terminal.url, ask, ids)


def test_m45_attempts_and_heartbeats_are_shown_whatever_is_in_them(terminal: Terminal) -> None:
    [task_id] = filled(terminal.url, attempts_and_heartbeats)
    for command in (["task", task_id], ["task", task_id, "--json"], ["explain", task_id], ["stale-tasks"], ["workers"]):
        terminal.type(*command)


def test_r24_workers_are_shown_whatever_they_say_of_themselves(terminal: Terminal) -> None:
    filled(terminal.url, workers)
    assert len(terminal.type("workers", "--json").json) > 30
    for command in (["workers"], ["metrics", "--once"], ["stale-tasks"], ["sweep-stale-workers", "--dry-run"]):
        terminal.type(*command)


def test_m45_workflows_are_shown_whatever_is_in_them(terminal: Terminal) -> None:
    ids = filled(terminal.url, workflows)
    terminal.type("workflow", "list")
    terminal.type("workflow", "list", "--json")
    for workflow_id in ids[::8]:
        terminal.type("workflow", "show", workflow_id)
    asked(terminal.url, monitoring.get_workflow_run, ids)
    terminal.type("recover-workflows")


def test_m45_states_that_nobody_knows_are_shown(terminal: Terminal) -> None:
    """Only where somebody has dropped the constraint (D-13)."""

    async def fill(db: Db) -> tuple[str, str]:
        task_id = await given_task(db, status=RUNNING, started_at="now")
        await given_attempt(db, task_id, outcome="BO\x1b[2JGUS")
        workflow_id = await given_workflow(db, status="BO\x1b[2JGUS", open_nodes=1)
        await given_node(db, workflow_id, status="BO\x1b[2JGUS", node_type="BO\x1b[2JGUS")
        await db.execute("UPDATE horsies_tasks SET status = %s", ["BO\x1b[2JGUS"])
        return task_id, workflow_id

    task_id, workflow_id = filled(terminal.url, fill)
    for command in (
        ["tasks"], ["tasks", "--json"], ["task", task_id], ["task", task_id, "--json"], ["explain", task_id],
        ["queues"], ["workers"], ["stale-tasks"], ["metrics", "--once"], ["workflow", "list"],
        ["workflow", "list", "--json"], ["workflow", "show", workflow_id],
        ["workflow", "show", workflow_id, "--json"], ["recover-workflows"],
        ["workflow", "cancel", workflow_id],
    ):  # fmt: skip
        said = terminal.type(*command)
        assert "\x1b[2J" not in said.out + said.err, command
        assert "GUS" in said.out or command[0] not in ("tasks", "task", "workflow") or command[1] == "cancel", command
