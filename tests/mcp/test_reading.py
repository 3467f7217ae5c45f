"""What an agent can read (X-41): every list, one task and workflow, explanations, logs and ends that are followed."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest
from mcp.shared.exceptions import MCPError
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.mcp import tools
from horsies.mcp.acting import ACTING
from horsies.mcp.protocol import ANSWER, described
from horsies.mcp.reading import READING
from horsies.mcp.tailing import TAILING
from horsies.mcp.tools import MOST_AT_ONCE
from tests.factories import given_node, given_task, given_worker, given_workflow
from tests.mcp.support import an_agent
from tests.support import eventually

FAILED = TaskStatus.FAILED
NOW = datetime.now(UTC)


async def test_x41_tasks_are_listed_with_the_filters_of_the_command(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    mail = await given_task(
        db, task_name="mail.send", queue_name="mail", status=FAILED, error_code="X", failed_at="now"
    )
    other = await given_task(db, task_name="shop.price")
    async with an_agent(database_url) as agent:
        page = await agent.ask("list_tasks")
        assert {one["task_id"] for one in page["items"]} == {mail, other}
        for wanted in (
            {"statuses": ["failed"]},
            {"queues": ["mail"]},
            {"task_names": ["mail.send", "nobody"]},
            {"error_codes": ["X"]},
            {"error_categories": ["DOMAIN"]},
            {"id_prefix": mail[:20]},
            {"sort_by": "ended_at"},
        ):
            page = await agent.ask("list_tasks", **wanted)
            assert [one["task_id"] for one in page["items"]] == [mail], wanted
        first = await agent.ask("list_tasks", limit=1)
        second = await agent.ask("list_tasks", limit=1, after=first["next_cursor"])
        assert {first["items"][0]["task_id"], second["items"][0]["task_id"]} == {mail, other}
        counts = await agent.ask("count_tasks", statuses=["FAILED"])
        assert counts == [{"status": "FAILED", "count": 1, "is_exact": True}]


async def test_x41_everything_that_there_is_can_be_listed(database_url: str, db: AsyncConnection[Any]) -> None:
    await given_worker(db, "w1", queues=["default"], hostname="host", pid=42)
    await given_task(db)
    flow = await given_workflow(db, status="RUNNING", started_at="now")
    await db.execute("INSERT INTO horsies_schedule_state (schedule_name, next_run_at) VALUES ('nightly', now())")
    async with an_agent(database_url) as agent:
        [queue] = (await agent.ask("list_queues"))["queues"]
        assert (queue["name"], queue["waiting"]) == ("default", 1)
        assert [one["worker_id"] for one in await agent.ask("list_workers")] == ["w1"]
        assert [one["name"] for one in await agent.ask("list_schedules")] == ["nightly"]
        assert [one["workflow_id"] for one in await agent.ask("list_workflows", status="running")] == [flow]
        assert await agent.ask("list_workflows", name="other") == []
        assert (await agent.ask("list_failures"))["groups"] == []
        assert {one["level"] for one in await agent.ask("list_alerts")} <= {"bad", "warn"}


async def test_x41_one_task_is_shown_with_arguments_result_and_attempts(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(
        db, status=FAILED, kwargs='{"to": "ada"}', result='{"err": {"message": "no"}}', error_code="X", failed_at="now"
    )
    await db.execute(
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at)"
        " VALUES (%s, 1, 'FAILED', false, now(), now())",
        [task],
    )
    async with an_agent(database_url) as agent:
        shown = await agent.ask("inspect_task", task_id=task)
        assert json.loads(shown["kwargs"]) == {"to": "ada"} and json.loads(shown["result"])["err"]
        assert [one["outcome"] for one in shown["attempts"]] == ["FAILED"]
        assert None not in shown.values(), "an agent reads every field"
        assert "NOT_FOUND" in await agent.refused("inspect_task", task_id="nobody")


async def test_x41_a_workflow_is_shown_with_its_nodes_page_by_page(database_url: str, db: AsyncConnection[Any]) -> None:
    flow = await given_workflow(db, status="RUNNING", started_at="now")
    for index in range(5):
        status = "FAILED" if index == 3 else "COMPLETED"
        await given_node(
            db, flow, task_index=index, status=status, dependencies=[index - 1] if index else [], task_kwargs='{"n": 1}'
        )
    async with an_agent(database_url) as agent:
        first = await agent.ask("inspect_workflow", workflow_id=flow, max_nodes=3)
        assert [node["task_index"] for node in first["workflow"]["nodes"]] == [0, 1, 2]
        assert first["workflow"]["edges"] == [{"source": 0, "target": 1}, {"source": 1, "target": 2}]
        assert (first["workflow"]["total_nodes"], first["next_node"]) == (5, 3)
        rest = await agent.ask("inspect_workflow", workflow_id=flow, first_node=3)
        assert [node["task_index"] for node in rest["workflow"]["nodes"]] == [3, 4] and "next_node" not in rest
        failed = await agent.ask("inspect_workflow", workflow_id=flow, node_statuses=["failed"])
        assert [node["task_index"] for node in failed["workflow"]["nodes"]] == [3]
        node = await agent.ask("inspect_node", workflow_id=flow, index=3)
        assert node["node"]["status"] == "FAILED" and json.loads(node["task_kwargs"]) == {"n": 1}


async def test_x41_why_a_task_is_not_running_is_explained_with_remedies(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db)
    async with an_agent(database_url) as agent:
        told = await agent.ask("explain", id=task)
        assert told["why"] == "NO_WORKER" and told["remedies"]
        assert "NOT_FOUND" in await agent.refused("explain", id="nobody")


async def test_x41_a_log_is_followed_with_a_cursor(database_url: str, db: AsyncConnection[Any]) -> None:
    async def logged(claim: int, first: int, *texts: str) -> None:
        lines = json.dumps([[1.0, "INFO", "shop", text] for text in texts])
        await db.execute(
            "INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [task, claim, claim, first, first + len(texts) - 1, lines],
        )

    task = await given_task(db, status=TaskStatus.RUNNING)
    async with an_agent(database_url) as agent:
        empty = await agent.ask("tail_log", task_id=task)
        assert empty["lines"] == [] and "next_cursor" not in empty
        await logged(1, 1, "a", "b", "c")
        await logged(2, 1, "d", "e")
        newest = await agent.ask("tail_log", task_id=task, limit=2)
        assert [one["text"] for one in newest["lines"]] == ["d", "e"]
        first = await agent.ask("tail_log", task_id=task, from_start=True, limit=2)
        assert [one["text"] for one in first["lines"]] == ["a", "b"] and first["has_more"]
        then = await agent.ask("tail_log", task_id=task, after=first["next_cursor"], limit=2)
        assert [one["text"] for one in then["lines"]] == ["c", "d"], "none is passed by, also between two runs"
        await logged(2, 3, "f")
        since = await agent.ask("tail_log", task_id=task, after=newest["next_cursor"])
        assert [one["text"] for one in since["lines"]] == ["f"] and not since["has_more"]
        nothing = await agent.ask("tail_log", task_id=task, after=since["next_cursor"])
        assert nothing["lines"] == [] and nothing["next_cursor"] == since["next_cursor"]
        assert "NOT_FOUND" in await agent.refused("tail_log", task_id="nobody")
        assert "after" in await agent.refused("tail_log", task_id=task, after="x")


async def test_x41_ends_of_tasks_are_told_once_each_also_those_that_were_committed_late(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    async def ended(seconds: float) -> str:
        at = NOW - timedelta(seconds=60 - seconds)
        return await given_task(db, status=FAILED, failed_at=at, error_code="X")

    async with an_agent(database_url) as agent:
        assert (await agent.ask("tail_ended_tasks"))["items"] == []
        old = [await ended(second) for second in (0, 1, 20, 25)]
        first = await agent.ask("tail_ended_tasks", limit=3)
        assert [one["task_id"] for one in first["items"]] == old[1:]
        cursor, told = first["next_cursor"], []
        late = [await ended(second) for second in (24, 26, 40, 41, 42)]  # the first one ended before the last one told
        for _ in range(4):
            more = await agent.ask("tail_ended_tasks", after=cursor, limit=2)
            told += [one["task_id"] for one in more["items"]]
            cursor = more["next_cursor"]
        assert told == late
        assert (await agent.ask("tail_ended_tasks", after=cursor))["items"] == []
        deep = base64.urlsafe_b64encode(b"[" * 40_000).decode()
        for cursor in ("nonsense", "e30=", "WyJhIiwgMV0=", deep):
            assert "INVALID_ARGUMENT" in await agent.refused("tail_ended_tasks", after=cursor)


async def test_x41_many_calls_at_once_are_all_answered(database_url: str, db: AsyncConnection[Any]) -> None:
    ids = [await given_task(db) for _ in range(20)]
    async with an_agent(database_url) as agent, an_agent(database_url) as another:
        asked = [one.ask("inspect_task", task_id=task_id) for task_id in ids for one in (agent, another)]
        answers = await asyncio.gather(*asked)
    assert [one["task_id"] for one in answers] == [task_id for task_id in ids for _ in range(2)]


async def test_x41_only_so_many_calls_are_at_the_database_and_the_others_wait_in_line(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    held_up = b"SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"

    async def calls_held_up() -> int:
        [(count,)] = await (await db.execute(held_up)).fetchall()
        return int(count)

    async def are_as_many_as_may() -> bool:
        return await calls_held_up() == MOST_AT_ONCE

    ids = [await given_task(db) for _ in range(MOST_AT_ONCE * 3)]
    async with an_agent(database_url) as agent, an_agent(database_url) as another:
        async with db.transaction():
            await db.execute("LOCK TABLE horsies_tasks")
            asked = [asyncio.create_task(agent.ask("inspect_task", task_id=task_id)) for task_id in ids]
            await eventually(are_as_many_as_may, what="calls wait for the table")
            for _ in ids:  # time for one more, which would come if it might
                await another.ask("list_schedules")
            assert await calls_held_up() == MOST_AT_ONCE
        answers = await asyncio.gather(*asked)
    assert [one["task_id"] for one in answers] == ids


async def test_x41_a_call_that_takes_too_long_is_refused_and_the_next_one_is_answered(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await given_task(db)
    async with an_agent(database_url) as agent:
        with monkeypatch.context() as patched:
            patched.setattr(tools, "LONGEST_CALL_S", 0.2)
            async with db.transaction():
                await db.execute("LOCK TABLE horsies_tasks")
                words = await agent.refused("inspect_task", task_id=task)
        assert words == "QUERY_TIMEOUT: there was no answer within 0.2 s; try again later"
        assert (await agent.ask("inspect_task", task_id=task))["task_id"] == task


@pytest.mark.parametrize("tool", [*READING, *TAILING, *ACTING], ids=lambda tool: tool.name)
def test_x41_a_tool_tells_what_it_does_and_takes(tool: Any) -> None:
    told = described(tool)
    assert told.annotations is not None and told.description and told.title
    assert told.annotations.read_only_hint is (tool not in ACTING)
    assert told.annotations.destructive_hint is (tool.name in ("cancel_task", "cancel_workflow"))
    assert told.output_schema == ANSWER
    jsonschema.Draft202012Validator.check_schema(told.input_schema)
    assert "$ref" not in json.dumps(told.input_schema), "not every client follows references"
    assert all("description" in about for about in told.input_schema.get("properties", {}).values())
    assert told.input_schema["additionalProperties"] is False


async def test_x41_a_wrong_call_is_an_error_that_names_the_argument(database_url: str) -> None:
    async with an_agent(database_url) as agent:
        for arguments, named in (
            ({"statuses": ["DONE"]}, "statuses"),
            ({"limit": 0}, "limit"),
            ({"limit": 1_000}, "limit"),
            ({"colour": "red"}, "colour"),
            ({"sent_after": "2026-01-01T00:00:00"}, "sent_after"),
            ({"after": "nonsense"}, "after"),
            ({"queues": "mail"}, "queues"),
        ):
            words = await agent.refused("list_tasks", **arguments)
            assert words.startswith("INVALID_ARGUMENT: ") and named in words
        assert "task_id" in await agent.refused("inspect_task")
        with pytest.raises(MCPError, match="did you mean list_tasks"):
            await agent.client.call_tool("list_task", {})


async def test_x41_an_unknown_argument_is_refused_with_those_that_there_are(database_url: str) -> None:
    async with an_agent(database_url) as agent:
        assert await agent.refused("explain", task_id="x") == (
            "INVALID_ARGUMENT: id: must be given (the id of a task, or of a node as WORKFLOW_ID:INDEX); "
            "there is no argument task_id: explain takes id"
        )
        assert await agent.refused("tail_log", id="x", task_id="y", colour="red") == (
            "INVALID_ARGUMENT: there is no argument id, colour: tail_log takes task_id, after, from_start, limit"
        )
        words = await agent.refused("list_queues", **{"x" * 1_000: 1, "\x1b[31m": 1}, **dict.fromkeys("abcdef", 1))
        assert words == (
            f"INVALID_ARGUMENT: there is no argument {'x' * 60}, \\u001b[31m, a, b, c and 3 more: "
            "list_queues takes no arguments"
        )
