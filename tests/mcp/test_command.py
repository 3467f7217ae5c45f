"""`horsies mcp` as a coding agent starts it (X-41): a real process, with the protocol's own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse
from psycopg import AsyncConnection

from horsies.cli import main
from horsies.mcp import stdio
from tests import warm_start
from tests.factories import given_task
from tests.mcp.support import ROOT, SHOP, a_started_agent
from tests.support import eventually, eventually_sync

pytestmark = pytest.mark.e2e


async def test_x41_agents_of_every_generation_are_served_at_once_and_only_with_the_protocol(
    tmp_path: Path, database_url: str, db: AsyncConnection[Any]
) -> None:
    """What the module of the user prints goes to standard error, also what its programs print."""
    ids = [await given_task(db, task_name="shop.price", args='[1, "tok-12345"]') for _ in range(10)]
    log = tmp_path / "log"
    with log.open("w") as errlog:
        async with (
            a_started_agent(tmp_path, database_url, "--mask", "token", errlog=errlog) as modern,
            a_started_agent(tmp_path, database_url, "--enable-actions", errlog=errlog, mode="legacy") as older,
        ):
            asked = [one.ask("inspect_task", task_id=task) for task in ids for one in (modern, older)]
            answers = await asyncio.gather(*asked)
            assert [one["task_id"] for one in answers] == [task for task in ids for _ in range(2)]
            assert {json.loads(one["args"])[1] for one in answers[::2]} == {"***"}, "the app knows the names"
            assert (await older.ask("cancel_task", task_id=ids[0]))["task_id"] == ids[0]
            assert "cancel_task" not in await modern.tools()
    said = log.read_text()
    assert said.count("PRINTED BY THE MODULE") == 2 and said.count("PRINTED BY A PROGRAM") == 2
    assert "Traceback" not in said and "mcp:" in said, said


async def test_x41_actions_of_the_command_are_those_of_the_agent_of_its_user(
    tmp_path: Path, database_url: str, db: AsyncConnection[Any]
) -> None:
    task = await given_task(db, task_name="shop.price")
    async with a_started_agent(tmp_path, database_url, "--enable-actions") as agent:
        await agent.ask("cancel_task", task_id=task)
    written = await db.execute("SELECT actor, action, target_ids, outcome FROM horsies_audit")
    assert await written.fetchall() == [("mcp:grace", "task.cancel", [task], "done")]


async def test_x41_the_command_hides_payloads(tmp_path: Path, database_url: str, db: AsyncConnection[Any]) -> None:
    task = await given_task(db, task_name="shop.price", kwargs='{"order": "hunter2hunter2"}')
    async with a_started_agent(tmp_path, database_url, "--hide-payloads") as agent:
        assert "hunter2" not in json.dumps(await agent.whole("inspect_task", task_id=task))


@pytest.fixture
def started(tmp_path: Path, database_url: str) -> Any:
    (tmp_path / "shop.py").write_text(SHOP)
    process = warm_start.start(
        ("mcp", "shop"),
        cwd=tmp_path,
        env={**os.environ, "SHOP_DATABASE_URL": database_url},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    _say(process, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    answer = json.loads(process.stdout.readline())
    assert answer["result"]["serverInfo"]["name"] == "horsies"
    yield process
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(BrokenPipeError):  # what it did not read
            stream.close()


def _say(process: Any, message: dict[str, Any]) -> None:
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


UNREADABLE = [
    ("this is no message", None, -32700),
    ('{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": 5}', 7, -32600),
    # Half of an emoji, as programs in JavaScript write it.
    (
        r'{"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": {"name": "count_tasks", "x": "\ud83d"}}',
        "s",
        -32600,
    ),
    ('{"jsonrpc": "2.0", "id": 8, "method": "x", "params": {"n": ' + "1" * 5_000 + "}}", None, -32700),
    ("[" * 100_000, None, -32700),
    ('{"jsonrpc": "2.0", "id": true, "method": 1}', None, -32600),
    ("[]", None, -32600),
]


def test_x41_a_line_that_is_no_message_is_answered_and_survived(started: Any) -> None:
    for line, asked, code in UNREADABLE:
        started.stdin.write(f"{line}\n")
        started.stdin.flush()
        answer = json.loads(started.stdout.readline())
        assert (answer["id"], answer["error"]["code"]) == (asked, code), line[:80]
        assert answer["error"]["message"].startswith("this line is no message of JSON-RPC 2.0")
    _say(started, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    _say(started, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "count_tasks"}})
    assert json.loads(started.stdout.readline())["id"] == 2


@pytest.mark.parametrize("how", ["stdin", "SIGTERM", "SIGINT", "nobody reads"])
def test_x41_it_ends_with_its_agent_or_by_a_signal_and_leaves_nothing(started: Any, how: str) -> None:
    _say(started, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    call = {"name": "list_tasks", "arguments": {}}
    _say(started, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    assert json.loads(started.stdout.readline())["id"] == 2
    family = psutil.Process(started.pid).children(recursive=True)
    if how == "nobody reads":
        started.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # it may have ended after the first
            for number in range(3, 6):
                _say(started, {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call})
            started.stdin.close()
    elif how == "stdin":
        started.stdin.close()
    else:
        started.send_signal(getattr(signal, how))
    assert started.wait(20) == 0, started.stderr.read()
    eventually_sync(lambda: not any(one.is_running() for one in family), what="nothing is left")


ASKED = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_tasks"}}
HELD_UP = b"SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"


async def _ask_and_end_input(started: Any, db: AsyncConnection[Any]) -> None:
    """A call that waits for a table, after which nothing more can be asked."""

    async def is_held_up() -> bool:
        [(count,)] = await (await db.execute(HELD_UP)).fetchall()
        return bool(count)

    await db.execute("LOCK TABLE horsies_tasks")
    _say(started, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    _say(started, ASKED)
    await eventually(is_held_up, what="the call waits for the table")
    for asked in (3, 3, "four"):
        _say(started, {"jsonrpc": "2.0", "id": asked, "method": "tools/list"})
    started.stdin.write("this is no message")
    started.stdin.close()


async def test_x41_what_was_asked_before_the_end_of_input_is_answered(started: Any, db: AsyncConnection[Any]) -> None:
    """Also what is asked twice with the same id, as by hand, and a last line that has no end."""
    async with db.transaction():
        await _ask_and_end_input(started, db)
        with pytest.raises(subprocess.TimeoutExpired):
            await asyncio.to_thread(started.wait, 1)
    answers = [json.loads(line) for line in await asyncio.to_thread(started.stdout.readlines)]
    assert sorted(str(one["id"]) for one in answers) == ["2", "3", "3", "None", "four"]
    assert all("result" in one for one in answers if one["id"] is not None), answers
    assert started.wait(20) == 0, started.stderr.read()


@pytest.mark.parametrize("how", ["nobody reads", "SIGTERM", "SIGINT"])
async def test_x41_after_the_end_of_input_nothing_is_waited_for_if_nobody_reads_or_a_signal_comes(
    started: Any, db: AsyncConnection[Any], how: str
) -> None:
    async with db.transaction():
        await _ask_and_end_input(started, db)
        if how == "nobody reads":
            started.stdout.close()
        else:
            started.send_signal(getattr(signal, how))
        assert await asyncio.to_thread(started.wait, 20) == 0, started.stderr.read()


async def test_x41_a_call_that_was_cancelled_does_not_hold_up_the_end(started: Any, db: AsyncConnection[Any]) -> None:
    async with db.transaction():
        await db.execute("LOCK TABLE horsies_tasks")
        _say(started, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        _say(started, ASKED)
        _say(started, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}})
        started.stdin.close()
        assert await asyncio.to_thread(started.wait, 20) == 0, started.stderr.read()
    assert started.stdout.read() == ""


@pytest.mark.parametrize("answer", [None, "a longer one than the pipe takes " * 10_000])
async def test_x41_answers_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch, answer: str | None) -> None:
    """Neither one that does not come, nor one that the agent does not read."""
    monkeypatch.setattr(stdio, "LAST_ANSWERS_S", 0.2)
    (asks, hears), (reads, answers) = os.pipe(), os.pipe()
    os.write(hears, json.dumps(ASKED).encode())
    os.close(hears)
    reader, writer = os.fdopen(asks, "rb"), os.fdopen(answers, "wb")
    try:
        streams = stdio.Wire(reader, writer).streams()
        async with asyncio.timeout(20), streams as (incoming, outgoing), incoming, outgoing:
            assert (await incoming.receive()).message.id == 2
            if answer is not None:
                said = JSONRPCResponse(jsonrpc="2.0", id=2, result={"answer": answer})
                await outgoing.send(SessionMessage(said))
            with pytest.raises(anyio.EndOfStream):
                await incoming.receive()
    finally:
        os.close(reads)  # ends the thread that writes
        reader.close()
        with contextlib.suppress(BrokenPipeError):
            writer.close()


@pytest.mark.slow("runs the code of a documentation page")
def test_x41_the_page_shows_how_to_try_it_by_hand(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    [command] = re.findall(r"```sh\n(printf .*?)```", (ROOT / "docs/mcp.md").read_text(), re.DOTALL)
    here = command.replace("horsies mcp shop.tasks:app", f"{sys.executable} -m horsies mcp shop:app")
    assert here != command and "sleep" not in command
    env = {**os.environ, "SHOP_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", here], capture_output=True, text=True, cwd=tmp_path, env=env, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["id"] for one in answers] == [1, 2], done.stderr
    assert "list_tasks" in [tool["name"] for tool in answers[1]["result"]["tools"]]


def test_x41_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # what `import` does when it is not installed
    assert main.run(["mcp", "shop"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and 'pip install "horsies-pg[mcp]"' in said.err


def test_x41_an_app_that_is_not_there_is_an_error_on_standard_error(tmp_path: Path) -> None:
    done = warm_start.run(("mcp", "nowhere"), cwd=tmp_path, env=os.environ, timeout=60)
    assert done.returncode == 1 and done.stdout == "" and "HRS-206" in done.stderr, done.stderr


def test_x41_nothing_of_it_is_imported_unless_it_is_used() -> None:
    code = (
        "import sys, horsies, horsies.cli.main as m; m.run(['--help']); m.run(['mcp', '--help']); "
        "print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types', 'anyio', 'starlette')"
        " or name.startswith('horsies.mcp')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
