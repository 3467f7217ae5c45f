"""What an agent can do (X-41): nothing unless it is let, and then everything is written down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.mcp import tools
from horsies.mcp.acting import ACTING
from tests.factories import count_tasks, given_node, given_task, given_workflow, task_row
from tests.mcp.support import an_agent
from tests.support import eventually

FAILED = TaskStatus.FAILED


async def audited(db: AsyncConnection[Any]) -> list[tuple[str, str, list[str], str]]:
    rows = await db.execute("SELECT actor, action, target_ids, outcome FROM horsies_audit ORDER BY id")
    return await rows.fetchall()


async def test_x41_without_the_option_nothing_can_be_changed(database_url: str, db: AsyncConnection[Any]) -> None:
    """The tools do not exist, whatever an agent has heard of them."""
    task = await given_task(db)
    async with an_agent(database_url) as agent:
        assert not {tool.name for tool in ACTING} & set(await agent.tools())
        assert "without --enable-actions" in (agent.client.instructions or "")
        for tool in ACTING:
            with pytest.raises(MCPError, match="--enable-actions"):
                await agent.client.call_tool(tool.name, {"task_id": task, "workflow_id": task})
    assert (await task_row(db, task))["status"] == "PENDING"
    assert await audited(db) == []


async def test_x41_a_task_is_cancelled_sent_again_and_run_now_and_it_is_written_down(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    waiting, failed = await given_task(db), await given_task(db, status=FAILED, error_code="X", failed_at="now")
    later = await given_task(db, enqueued_at="tomorrow")
    async with an_agent(database_url, enable_actions=True) as agent:
        assert {tool.name for tool in ACTING} <= set(await agent.tools())
        assert (await agent.ask("cancel_task", task_id=waiting))["task_id"] == waiting
        assert "TASK_NOT_CANCELLABLE" in await agent.refused("cancel_task", task_id=waiting)
        new = (await agent.ask("rerun_task", task_id=failed))["task_id"]
        assert (await agent.ask("run_task_now", task_id=later))["task_id"] == later
        assert "TASK_NOT_FOUND" in await agent.refused("rerun_task", task_id="nobody")
    assert (await task_row(db, waiting))["status"] == "CANCELLED"
    assert (await task_row(db, new))["status"] == "PENDING"
    assert await audited(db) == [
        ("mcp:ada", "task.cancel", [waiting], "done"),
        ("mcp:ada", "task.cancel", [waiting], "refused"),
        ("mcp:ada", "task.rerun", [failed], "done"),
        ("mcp:ada", "task.run_now", [later], "done"),
        ("mcp:ada", "task.rerun", ["nobody"], "refused"),
    ]


async def test_x41_a_running_task_is_cancelled_only_when_that_is_asked_for(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db, status=TaskStatus.RUNNING)
    async with an_agent(database_url, enable_actions=True) as agent:
        assert "TASK_NOT_CANCELLABLE" in await agent.refused("cancel_task", task_id=task)
        assert (await task_row(db, task))["status"] == "RUNNING"
        done = await agent.ask("cancel_task", task_id=task, include_running=True)
        assert done["previous_status"] == "RUNNING"
    assert (await task_row(db, task))["status"] == "CANCELLED"
    written = await db.execute("SELECT outcome, details -> 'include_running' FROM horsies_audit ORDER BY id")
    assert await written.fetchall() == [("refused", False), ("done", True)]


async def test_x41_a_workflow_is_retried_and_cancelled(database_url: str, db: AsyncConnection[Any]) -> None:
    flow = await given_workflow(db, status="FAILED", started_at="now", completed_at="now")
    for index, node in enumerate("ab"):
        columns = {"status": "FAILED", "completed_at": "now", "queue_name": "default", "priority": 100}
        await given_node(db, flow, task_index=index, node_id=node, **columns)
    async with an_agent(database_url, enable_actions=True) as agent:
        assert "NOTHING_TO_RETRY" in await agent.refused("retry_workflow", workflow_id=flow, node_ids=["c"])
        retried = await agent.ask("retry_workflow", workflow_id=flow, node_ids=["a"])
        assert retried == {"workflow_id": flow, "done": "retry", "status": "RUNNING"}
        cancelled = await agent.ask("cancel_workflow", workflow_id=flow)
        assert cancelled["status"] == "CANCELLED"
        assert "WORKFLOW_HAS_ENDED" in await agent.refused("cancel_workflow", workflow_id=flow)
        assert "WORKFLOW_NOT_FOUND" in await agent.refused("cancel_workflow", workflow_id="nobody")
    outcomes = [(action, outcome) for _, action, _, outcome in await audited(db)]
    assert outcomes == [
        ("workflow.retry", "refused"),
        ("workflow.retry", "done"),
        ("workflow.cancel", "done"),
        ("workflow.cancel", "refused"),
        ("workflow.cancel", "refused"),
    ]


async def test_x41_what_cannot_be_written_down_is_not_done(database_url: str, db: AsyncConnection[Any]) -> None:
    failed = await given_task(db, status=FAILED, error_code="X", failed_at="now")
    await db.execute("ALTER TABLE horsies_audit ADD CONSTRAINT refused CHECK (actor <> 'mcp:ada') NOT VALID")
    async with an_agent(database_url, enable_actions=True) as agent:
        assert "not written down" in await agent.refused("rerun_task", task_id=failed)
    assert await count_tasks(db) == 1


async def test_x41_an_action_that_has_begun_is_finished_though_nobody_waits_for_it(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    """The agent takes its call back, or goes, while the row is locked by somebody else."""
    task = await given_task(db)
    waiting = b"SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"

    async def is_waiting() -> bool:
        return await (await db.execute(waiting)).fetchone() is not None

    async with an_agent(database_url, enable_actions=True) as agent, db.transaction():
        await db.execute("SELECT 1 FROM horsies_tasks WHERE id = %s FOR UPDATE", [task])
        asking = asyncio.create_task(agent.ask("cancel_task", task_id=task))
        await eventually(is_waiting, what="the action waits for the row")
        asking.cancel()
        await asyncio.wait([asking])
    assert (await task_row(db, task))["status"] == "CANCELLED"
    assert await audited(db) == [("mcp:ada", "task.cancel", [task], "done")]


async def test_x41_an_action_that_takes_too_long_is_finished_and_the_agent_is_told_to_look(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "LONGEST_CALL_S", 0.2)
    task = await given_task(db)

    async def is_done() -> bool:
        return [outcome for *_, outcome in await audited(db)] == ["done"]

    async with an_agent(database_url, enable_actions=True) as agent:
        async with db.transaction():
            await db.execute("SELECT 1 FROM horsies_tasks WHERE id = %s FOR UPDATE", [task])
            words = await agent.refused("cancel_task", task_id=task)
            assert words.startswith("QUERY_TIMEOUT: ")
            assert words.endswith("look whether it was done before you try again")
        await eventually(is_done, what="the action has ended")
    assert (await task_row(db, task))["status"] == "CANCELLED"
