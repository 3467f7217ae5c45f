"""What can be changed through the API (M-48, M-49, M-63, M-64, M-65), and that every change is recorded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from psycopg import AsyncConnection
from starlette.requests import Request

from horsies import TaskError, TaskResult, from_node
from horsies.core.app import Horsies
from horsies.core.types.status import TaskStatus
from horsies.web import AllowAll, TrustedHeader, app
from tests.app_support import an_app
from tests.factories import count_tasks, given_node, given_task, given_worker, given_workflow, task_row
from tests.support import eventually
from tests.web_support import a_board, refusal


async def workflow_status(db: AsyncConnection[Any], workflow_id: str) -> str:
    row = await (await db.execute("SELECT status FROM horsies_workflows WHERE id = %s", [workflow_id])).fetchone()
    assert row is not None
    return str(row[0])


async def test_m48_a_task_is_cancelled(database_url: str, db: AsyncConnection[Any]) -> None:
    waiting = await given_task(db)
    running = await given_task(db, status=TaskStatus.RUNNING)
    ended = await given_task(db, status=TaskStatus.COMPLETED)
    of_workflow = await given_task(db, workflow_id=await given_workflow(db))
    async with a_board(database_url) as board:
        done = await board.act(f"/api/tasks/{waiting}/cancel")
        assert done.json().items() >= {"task_id": waiting, "previous_status": "PENDING"}.items()
        assert (await task_row(db, waiting))["status"] == "CANCELLED"
        for task_id, code in [
            (waiting, "TASK_NOT_CANCELLABLE"),
            (running, "TASK_NOT_CANCELLABLE"),
            (ended, "TASK_NOT_CANCELLABLE"),
            (of_workflow, "TASK_IS_WORKFLOW_TASK"),
        ]:
            assert refusal(await board.act(f"/api/tasks/{task_id}/cancel")) == (409, code)
        assert (await task_row(db, running))["status"] == "RUNNING"
        done = await board.act(f"/api/tasks/{running}/cancel", {"include_running": True})
        assert done.json()["previous_status"] == "RUNNING"
        assert refusal(await board.act("/api/tasks/nothing/cancel")) == (404, "TASK_NOT_FOUND")


async def test_m49_a_failed_task_is_sent_again(database_url: str, db: AsyncConnection[Any]) -> None:
    failed = await given_task(db, status=TaskStatus.FAILED, args="[7]")
    waiting, ended = await given_task(db), await given_task(db, status=TaskStatus.COMPLETED)
    async with a_board(database_url) as board:
        done = (await board.act(f"/api/tasks/{failed}/rerun")).json()
        assert done["rerun_of"] == failed
        again = await task_row(db, done["task_id"])
        assert (again["status"], again["args"]) == ("PENDING", "[7]")
        assert refusal(await board.act(f"/api/tasks/{waiting}/rerun")) == (409, "TASK_HAS_NOT_ENDED")
        assert refusal(await board.act(f"/api/tasks/{ended}/rerun")) == (409, "TASK_HAS_COMPLETED")


async def test_m49_m49a_one_task_is_sent_again_as_often_as_asked_and_selected_ones_once(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    """Two people at the same moment, from the page of the task and from the list."""
    one, selected = [await given_task(db, status=TaskStatus.FAILED) for _ in range(2)]
    async with a_board(database_url) as board:
        both = await asyncio.gather(*(board.act(f"/api/tasks/{one}/rerun") for _ in range(2)))
        assert len({answer.json()["task_id"] for answer in both}) == 2
        both = await asyncio.gather(*(board.act("/api/bulk/rerun", {"ids": [selected]}) for _ in range(2)))
        assert sorted(answer.json()["changed"] for answer in both) == [0, 1]
    assert await count_tasks(db) == 5


async def test_m63_a_workflow_is_paused_resumed_and_cancelled(database_url: str, db: AsyncConnection[Any]) -> None:
    with an_app(database_url) as shop:
        flow = await started(shop)
        async with a_board(shop) as board:
            for action, status, again in [
                ("pause", "PAUSED", "WORKFLOW_NOT_RUNNING"),
                ("resume", "RUNNING", "WORKFLOW_NOT_PAUSED"),
                ("cancel", "CANCELLED", "WORKFLOW_HAS_ENDED"),
            ]:
                done = await board.act(f"/api/workflows/{flow}/{action}")
                assert done.json() == {"workflow_id": flow, "action": action, "status": status}
                assert await workflow_status(db, flow) == status
                assert refusal(await board.act(f"/api/workflows/{flow}/{action}")) == (409, again)
            assert refusal(await board.act("/api/workflows/nothing/pause")) == (404, "WORKFLOW_NOT_FOUND")


async def test_m63_failed_nodes_of_a_workflow_are_retried(database_url: str, db: AsyncConnection[Any]) -> None:
    flow = await given_workflow(db, status="FAILED", started_at="now", completed_at="now")
    for index, node in enumerate(("a", "b")):
        await given_node(db, flow, task_index=index, node_id=node, status="FAILED", error_code="X")
    async with a_board(database_url) as board:
        assert refusal(await board.act(f"/api/workflows/{flow}/retry", {"node_ids": ["c"]})) == (
            409,
            "NOTHING_TO_RETRY",
        )
        done = await board.act(f"/api/workflows/{flow}/retry", {"node_ids": ["a"]})
        assert done.json() == {"workflow_id": flow, "action": "retry", "status": "RUNNING"}
        rows = await db.execute(
            "SELECT node_id, status FROM horsies_workflow_tasks WHERE workflow_id = %s ORDER BY 1", [flow]
        )
        states: dict[str, str] = dict(await rows.fetchall())
        assert states["a"] in ("READY", "ENQUEUED") and states["b"] == "FAILED"
        assert await workflow_status(db, flow) == "RUNNING"


async def test_m65_without_an_app_a_workflow_is_resumed_and_its_nodes_are_left_to_the_workers(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    with an_app(database_url) as shop:
        flow = await started(shop, passes=True)
        async with a_board(database_url) as board:
            assert not (await board.get("/api/meta")).json()["has_app"]
            assert (await board.act(f"/api/workflows/{flow}/pause")).status_code == 200
            await shop.testing.drain_async()
            assert await workflow_status(db, flow) == "PAUSED"
            assert (await board.act(f"/api/workflows/{flow}/resume")).status_code == 200
        await shop.testing.drain_async()
        assert await workflow_status(db, flow) == "COMPLETED"


async def test_m65_without_an_app_a_child_workflow_is_left_to_the_workers(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    flow = await given_workflow(db, status="PAUSED", started_at="now", paused_at="now", open_nodes=1)
    await given_node(
        db, flow, node_type="SUBWORKFLOW", status="READY", ready_at="now", sub_workflow_key="nobody.knows", deps_total=0
    )
    async with a_board(database_url) as board:
        assert (await board.act(f"/api/workflows/{flow}/resume")).status_code == 200
    row = await (await db.execute("SELECT status FROM horsies_workflow_tasks")).fetchone()
    assert row == ("READY",)


async def test_m63_a_sweep_looks_first_and_then_recovers(database_url: str, db: AsyncConnection[Any]) -> None:
    await given_worker(db, "dead", last_heartbeat_at="2020-01-01", sweeping=True)
    held = await given_task(
        db,
        status=TaskStatus.RUNNING,
        claimed_by_worker_id="dead",
        recovery_enrolled=True,
        claimed_at="2020-01-01",
        started_at="2020-01-01",
    )
    async with a_board(database_url) as board:
        looked = await board.act("/api/recovery/sweep", {"dry_run": True, "sweep_threshold_seconds": 60})
        assert looked.status_code == 200 and looked.json()["dry_run"] is True
        row = await (await db.execute("SELECT count(*) FROM horsies_workers")).fetchone()
        assert row == (1,), "a dry run changes nothing"
        listed = (await board.get("/api/recovery/workers", params={"threshold_seconds": "60"})).json()
        assert [(one["worker_id"], one["is_stale"]) for one in listed] == [("dead", True)]
        swept = await board.act("/api/recovery/sweep", {"sweep_threshold_seconds": 60, "recovery_delay_seconds": 0})
        assert swept.json()["worker_ids"] == looked.json()["worker_ids"] == ["dead"]
        assert swept.json()["recovered_count"] == 1 and (await task_row(db, held))["status"] == "PENDING"


async def recorded(db: AsyncConnection[Any]) -> list[tuple[Any, ...]]:
    found = await db.execute(
        "SELECT actor, action, target_kind, target_ids, outcome, details->>'code' FROM horsies_audit ORDER BY id"
    )
    return await found.fetchall()


async def test_m94_every_action_is_recorded_with_who_and_how_it_ended(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db)
    policy = TrustedHeader("X-User", allow_actions=True)
    async with a_board(database_url, policy) as board:
        for _ in range(2):
            await board.act(f"/api/tasks/{task}/cancel", headers={"X-User": "ada"})
        await board.act(f"/api/tasks/{task}/cancel", headers={"X-User": ""})
    assert await recorded(db) == [
        ("ada", "task.cancel", "task", [task], "done", None),
        ("ada", "task.cancel", "task", [task], "refused", "TASK_NOT_CANCELLABLE"),
    ]


async def test_m63_every_action_is_logged_with_who_what_how_many_and_how_it_ended(
    database_url: str, db: AsyncConnection[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, held = await given_task(db, args='["a secret"]'), await given_task(db)
    failed = [await given_task(db, status=TaskStatus.FAILED, error_code="X", args='["a secret"]') for _ in range(2)]
    await given_worker(db, "dead", last_heartbeat_at="2020-01-01", sweeping=True)
    ada = {"X-User": "ada\nINFO forged"}
    caplog.set_level(logging.INFO, logger="horsies.web")
    async with a_board(database_url, TrustedHeader("X-User", allow_actions=True)) as board:
        for path, body in [
            (f"tasks/{task}/cancel", None),
            (f"tasks/{task}/cancel", None),
            ("bulk/rerun", {"error_codes": ["X"]}),
            ("bulk/rerun", {"ids": failed, "dry_run": True}),
            ("recovery/sweep", {"sweep_threshold_seconds": 60}),
            ("workflows/none/pause", None),
        ]:
            await board.act(f"/api/{path}", body, headers=ada)
        await board.act(f"/api/tasks/{task}/cancel", headers={"X-User": ""})
        monkeypatch.setattr(app, "ACTION_S", 0.3)
        async with db.transaction():
            await db.execute("SELECT FROM horsies_tasks WHERE id = %s FOR UPDATE", [held])
            await board.act(f"/api/tasks/{held}/cancel", headers=ada)
    lines = [record.getMessage() for record in caplog.records if record.name == "horsies.web"]
    assert [line.removeprefix("ada\\nINFO forged: ") for line in lines] == [
        "task.cancel on 1 task: done",
        "task.cancel on 1 task: not done, TASK_NOT_CANCELLABLE",
        "task.rerun on 2 tasks: done",
        "worker.sweep on 1 worker: done",
        "workflow.pause on 1 workflow: not done, WORKFLOW_NOT_FOUND",
        "task.cancel on 1 task: failed",
    ]
    assert {record.levelname for record in caplog.records if record.name == "horsies.web"} == {"INFO"}
    assert "a secret" not in caplog.text


async def nothing_waits_for_a_lock(db: AsyncConnection[Any]) -> bool:
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return (await db.execute(waiting)).rowcount == 0


async def test_m94_an_action_that_takes_too_long_has_failed_and_may_be_done_in_part(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "ACTION_S", 0.3)
    task = await given_task(db)
    async with a_board(database_url) as board:
        assert (await board.get("/api/tasks")).status_code == 200
        async with db.transaction():  # somebody holds the row for longer than we wait
            await db.execute("SELECT FROM horsies_tasks WHERE id = %s FOR UPDATE", [task])
            answer = await board.act(f"/api/tasks/{task}/cancel")
            assert refusal(answer) == (503, "DATABASE_UNAVAILABLE")
            assert "a part of this may be done" in answer.json()["message"]
            await eventually(lambda: nothing_waits_for_a_lock(db), what="the server has given the statement up")
    [entry] = await recorded(db)
    assert entry[1:5] == ("task.cancel", "task", [task], "failed")
    assert (await task_row(db, task))["status"] == "PENDING"


@pytest.mark.parametrize("path", ["bulk/cancel", "bulk/rerun", "bulk/move", "recovery/sweep"])
async def test_m91_m94_a_dry_run_changes_nothing_and_is_not_recorded(
    database_url: str, db: AsyncConnection[Any], path: str
) -> None:
    task = await given_task(db)
    bodies = {"bulk/move": {"queue": "other"}, "recovery/sweep": {}}
    ids = {} if path == "recovery/sweep" else {"ids": [task]}
    async with a_board(database_url) as board:
        answer = await board.act(f"/api/{path}", {**ids, **bodies.get(path, {}), "dry_run": True})
    assert answer.status_code == 200 and answer.json()["dry_run"]
    assert await recorded(db) == []
    row = await task_row(db, task)
    assert (row["status"], row["queue_name"]) == ("PENDING", "default")


async def test_m91_many_tasks_are_cancelled_moved_and_sent_again(database_url: str, db: AsyncConnection[Any]) -> None:
    waiting = [await given_task(db) for _ in range(3)]
    failed = [await given_task(db, status=TaskStatus.FAILED, error_code="X") for _ in range(2)]
    async with a_board(database_url) as board:
        moved = (await board.act("/api/bulk/move", {"ids": waiting, "queue": "other", "priority": 7})).json()
        assert moved["changed"] == 3
        assert {(await task_row(db, one))["queue_name"] for one in waiting} == {"other"}
        cancelled = (await board.act("/api/bulk/cancel", {"ids": [*waiting, failed[0]]})).json()
        assert (cancelled["changed"], cancelled["skipped"]) == (3, {"TASK_NOT_CANCELLABLE": 1})
        again = (await board.act("/api/bulk/rerun", {"error_codes": ["X"]})).json()
        assert again["changed"] == 2 and len(again["new_ids"]) == 2
        both = await board.act("/api/bulk/rerun", {"ids": failed, "error_codes": ["X"]})
        assert refusal(both) == (422, "INVALID_ARGUMENT")
    assert [entry[1] for entry in await recorded(db)] == ["task.move", "task.cancel", "task.rerun"]


async def test_m49a_m64_a_queue_that_cannot_exist_gets_no_tasks(database_url: str, db: AsyncConnection[Any]) -> None:
    task = await given_task(db)
    async with a_board(database_url) as board:
        answer = await board.act("/api/bulk/move", {"ids": [task], "queue": "a/b c\u202e<script>"})
        assert refusal(answer) == (422, "INVALID_ARGUMENT") and "letters" in answer.json()["message"]
    assert (await task_row(db, task))["queue_name"] == "default"


@pytest.mark.parametrize("body", [None, {}, {"ids": []}, {"ids": [], "task_names": [], "error_codes": []}])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_m63_a_rerun_that_names_no_task_and_no_group_is_refused(
    database_url: str, db: AsyncConnection[Any], body: dict[str, Any] | None, dry_run: bool
) -> None:
    """All failed tasks of the database are not meant by saying nothing."""
    for _ in range(3):
        await given_task(db, status=TaskStatus.FAILED, error_code="X")
    async with a_board(database_url) as board:
        answer = await board.act("/api/bulk/rerun", {**(body or {}), "dry_run": True} if dry_run else body)
        assert refusal(answer) == (422, "INVALID_ARGUMENT")
    assert await count_tasks(db) == 3
    assert await recorded(db) == []


async def test_m62_a_policy_that_fails_lets_nobody_in(
    database_url: str, db: AsyncConnection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(AllowAll):
        async def can_act(self, request: Request) -> bool:
            raise RuntimeError("the secret reason")

    task = await given_task(db)
    async with a_board(database_url, Broken()) as board:
        answer = await board.act(f"/api/tasks/{task}/cancel")
        assert refusal(answer) == (500, "INTERNAL_ERROR") and "secret" not in answer.text
    assert (await task_row(db, task))["status"] == "PENDING"
    assert "the secret reason" in caplog.text


async def started(shop: Horsies, *, passes: bool = False) -> str:
    """A workflow of two nodes, the second of which may take the value of the first."""
    if "one" not in shop.tasks:

        @shop.task("one")
        def one() -> TaskResult[int, TaskError]:
            return TaskResult(ok=1)

        @shop.task("two")
        def two(value: TaskResult[int, TaskError] | None = None) -> TaskResult[int, TaskError]:
            return TaskResult(ok=2)

    first = shop.tasks["one"].node()()
    second = shop.tasks["two"].node(waits_for=[first])(**({"value": from_node(first)} if passes else {}))
    spec = shop.workflow("flow", [first, second], definition_key="flow")
    handle = (await spec.start_async()).unwrap()
    return handle.workflow_id
