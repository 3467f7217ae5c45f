"""What an agent is not told, or not as it is in the row (X-41): secrets, what a terminal obeys, and megabytes."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import AppConfig, Horsies
from horsies.cli import main
from horsies.core.types.status import TaskStatus
from horsies.mcp import bounds
from horsies.mcp.acting import ACTING
from horsies.mcp.bounds import bounded
from horsies.mcp.reading import READING
from horsies.mcp.tailing import TAILING
from tests.factories import given_task
from tests.hostile_support import obeyed, plant
from tests.mcp.support import Agent, an_agent, text_of
from tests.network_support import network
from tests.role_support import PASSWORD, a_role, as_role

SECRET = "hunter2hunter2"


async def everything(agent: Agent, db: AsyncConnection[Any]) -> list[Any]:
    """What all tools say about all rows, errors included."""
    calls: list[tuple[str, dict[str, Any]]] = [(tool, {}) for tool in LISTS]
    for (task,) in await (await db.execute("SELECT id FROM horsies_tasks")).fetchall():
        calls += [("inspect_task", {"task_id": task}), ("tail_log", {"task_id": task}), ("explain", {"id": task})]
    nodes = await db.execute("SELECT workflow_id, task_index FROM horsies_workflow_tasks")
    for flow, index in await nodes.fetchall():
        calls.append(("inspect_workflow", {"workflow_id": flow}))
        calls.append(("inspect_node", {"workflow_id": flow, "index": index}))
    results = [await agent.client.call_tool(*call) for call in calls]
    assert {call[0] for call, result in zip(calls, results, strict=True) if not result.is_error} == {
        *LISTS, "inspect_task", "tail_log", "explain", "inspect_workflow", "inspect_node"
    }  # fmt: skip
    return [text_of(result) if result.is_error else result.structured_content for result in results]


LISTS = (
    "list_tasks",
    "count_tasks",
    "list_queues",
    "list_workers",
    "list_schedules",
    "list_workflows",
    "list_failures",
    "list_alerts",
    "tail_ended_tasks",
)


def texts_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts_in(one)]
    return [text for one in value for text in texts_in(one)] if isinstance(value, list) else []


async def test_x41_nothing_that_a_terminal_obeys_reaches_the_agent(database_url: str, db: AsyncConnection[Any]) -> None:
    plant(database_url)
    async with an_agent(database_url) as agent:
        said = await everything(agent, db)
    assert any("FORGED" in json.dumps(answer) for answer in said), "the rows are in the answers"
    for answer in said:
        for text in texts_in(answer):
            assert obeyed(text, "\n\t") == set(), text


async def test_x41_neither_does_it_in_a_refusal(database_url: str) -> None:
    async with an_agent(database_url) as agent:
        words = await agent.refused("list_tasks", **{"\x1b[2Jx": 1})
    assert "[2Jx" in words and obeyed(words, "\n\t") == set()


async def test_x41_an_argument_of_megabytes_is_cut_and_it_is_said_how_to_see_more(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    huge = json.dumps({"text": "x" * 5_000_000})
    lists = json.dumps([[index] * 50 for index in range(10_000)])
    task = await given_task(db, kwargs=huge, args=lists)
    async with an_agent(database_url) as agent:
        answer = await agent.whole("inspect_task", task_id=task)
        assert len(json.dumps(answer)) < bounds.LONGEST_ANSWER + 5_000
        assert len(answer["answer"]["kwargs"]) == bounds.LONGEST_TEXT + 1
        [about] = [one for one in answer["left_out"] if one.startswith("kwargs")]
        assert about == f"kwargs: the first 2,000 of {len(huge):,} characters"
        assert "max_chars" in answer["left_out"][-1]
        more = await agent.ask("inspect_task", task_id=task, max_chars=bounds.LONGEST_ASKED)
        assert len(more["kwargs"]) == bounds.LONGEST_ASKED + 1
        assert "max_chars" in await agent.refused("inspect_task", task_id=task, max_chars=bounds.LONGEST_ASKED + 1)


async def test_x41_payloads_are_masked_as_on_the_dashboard(database_url: str, db: AsyncConnection[Any]) -> None:
    result = json.dumps({"err": {"error_code": "X", "message": f"no {SECRET}"}})
    kwargs = json.dumps({"to": "ada", "token": SECRET})
    task = await given_task(db, status=TaskStatus.FAILED, kwargs=kwargs, result=result, error_code="X", failed_at="now")
    await db.execute(
        "INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)"
        " VALUES (%s, 1, 1, 1, 1, %s)",
        [task, json.dumps([[1.0, "INFO", "shop", f"the token is {SECRET}"]])],
    )
    for settings in ({"mask": ("token",)}, {"hide_payloads": True}):
        async with an_agent(database_url, **settings) as agent:  # type: ignore[arg-type]
            said = [await agent.whole(tool, task_id=task) for tool in ("inspect_task", "tail_log")]
            assert SECRET not in json.dumps(said)
            assert ("ada" in json.dumps(said)) is ("mask" in settings)


async def test_x41_arguments_by_position_are_masked_by_their_names(database_url: str, db: AsyncConnection[Any]) -> None:
    app = Horsies(AppConfig.for_database_url(database_url))

    @app.task("shop.price")
    def price(order: int, token: str = "") -> int:
        return order

    task = await given_task(db, task_name="shop.price", args=json.dumps([77, SECRET]))
    async with an_agent(app, mask=("token",)) as agent:
        shown = (await agent.ask("inspect_task", task_id=task))["args"]
    assert SECRET not in shown and "77" in shown


async def test_x41_the_password_of_the_database_is_in_no_answer(database_url: str, db: AsyncConnection[Any]) -> None:
    """Neither in an error of the driver, nor where a task has said it."""
    task = await given_task(db, kwargs=json.dumps({"url": f"postgresql://me:{SECRET}@db/shop"}))
    with_password = database_url.replace("postgres@", f"postgres:{SECRET}@")
    assert with_password != database_url
    async with an_agent(with_password) as agent:
        shown = await agent.whole("inspect_task", task_id=task)
        assert SECRET not in json.dumps(shown) and "@db/shop" in json.dumps(shown)
    async with an_agent(f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/shop") as agent:
        words = await agent.refused("list_tasks")
        assert "DB_OPERATION_FAILED" in words and SECRET not in words


async def test_x41_the_database_may_be_away_for_a_while(database_url: str, db: AsyncConnection[Any]) -> None:
    await given_task(db)
    async with network(database_url) as between, an_agent(between.url, enable_actions=True) as agent:
        assert len((await agent.ask("list_tasks"))["items"]) == 1
        between.cut()
        for tool, arguments in (("list_tasks", {}), ("cancel_task", {"task_id": "t"})):
            assert "DB_OPERATION_FAILED" in await agent.refused(tool, **arguments)
        between.mend()
        assert len((await agent.ask("list_tasks"))["items"]) == 1


async def test_x41_a_database_without_tables_or_with_others_is_said(database_url: str, server_url: str) -> None:
    async with an_agent(server_url) as agent:
        words = await agent.refused("list_alerts")
        assert "SCHEMA_ABSENT" in words and "horsies init-db" in words


async def test_x41_actions_need_tables_of_this_version(database_url: str, db: AsyncConnection[Any]) -> None:
    task = await given_task(db)
    await db.execute("UPDATE horsies_meta SET value = '999' WHERE key = 'schema_version'")
    async with an_agent(database_url, enable_actions=True) as agent:
        assert "SCHEMA_INCOMPATIBLE" in await agent.refused("cancel_task", task_id=task)


@pytest.mark.parametrize(
    "value",
    [
        {"a": ["x" * 1_000] * 1_000},
        [{str(index): "y" * 500 for index in range(1_000)}] * 300,
        {"deep": json.loads("[" * 200 + "]" * 200)},
        {f"k{index}": list(range(1_000)) for index in range(1_000)},
        "z" * 1_000_000,
        functools.reduce(lambda inner, _: {"k" * 200: inner}, range(15), ["w" * 3_000] * 30),
    ],
    ids=["texts", "objects", "deep", "lists", "text", "paths"],
)
def test_x41_whatever_a_row_contains_an_answer_has_a_bound(value: Any) -> None:
    found = bounded(value)
    assert len(json.dumps(found.value)) <= bounds.LONGEST_ANSWER + 2_000
    assert found.left_out and len(found.left_out) <= bounds.MOST_REMARKS + 2
    assert all(len(remark) < bounds.LONGEST_PATH + 100 for remark in found.left_out)


def test_x41_what_is_small_is_told_as_it_is() -> None:
    value = {"a": [1, 2.5, True, None, "ü"], "b": {"c": "line\nline\ttab"}}
    assert bounded(value) == bounds.BoundedAnswer(value)


def test_x41_a_secret_at_the_cut_is_not_half_told() -> None:
    text = "x" * (bounds.LONGEST_TEXT - 3) + SECRET
    shown = bounded(text, redact=lambda one: one.replace(SECRET, "***"))
    assert "hun" not in shown.value


def test_x41_a_password_in_a_key_is_replaced() -> None:
    shown = bounded({SECRET: 1}, redact=lambda one: one.replace(SECRET, "***"))
    assert shown.value == {"***": 1}


def test_x41_the_page_about_it_names_every_tool() -> None:
    page = (Path(__file__).parents[2] / "docs/mcp.md").read_text()
    assert [tool.name for tool in (*READING, *TAILING, *ACTING) if f"`{tool.name}`" not in page] == []


async def test_x41_the_rights_of_a_monitor_are_enough_to_look_and_too_few_to_act(
    database_url: str, db: AsyncConnection[Any], superuser: None
) -> None:
    task = await given_task(db)
    with a_role(database_url, "monitor") as role:
        granted = await asyncio.to_thread(
            main.run, ["grants", "--monitor", role, "--apply", "--database-url", database_url]
        )
        assert granted == 0
        async with an_agent(as_role(database_url, role), enable_actions=True) as agent:
            for tool in LISTS:
                await agent.ask(tool)
            for tool in ("inspect_task", "tail_log"):
                await agent.ask(tool, task_id=task)
            assert (await agent.ask("explain", id=task))["why"] == "NO_WORKER"
            words = await agent.refused("cancel_task", task_id=task)
            assert "permission denied" in words and PASSWORD not in words
