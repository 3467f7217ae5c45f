"""`horsies tasks`, `task`, `cancel`, `rerun`, `queues` and `explain`: what they print, and how they end."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg.types.json import Jsonb

from horsies.core.types.status import TaskStatus
from tests.cli.support import Terminal
from tests.e2e.cli_support import APP
from tests.factories import given_attempt, given_worker, given_worker_state, given_workflow

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOWHERE = "postgresql://me:topsecret@127.0.0.1:1/none?connect_timeout=2"
ERROR = '{"err": {"error_code": "REFUSED", "message": "no\\u001b[31m", "data": {"why": 1}}}'


def fill(terminal: Terminal) -> None:
    """One of each kind; the names say what is peculiar about them."""
    terminal.given(id="01-waits", sent_at=NOW, enqueued_at=NOW)
    terminal.given(id="02-mail", queue_name="mail", priority=1, idempotency_key="k1")
    terminal.given(TaskStatus.RUNNING, id="03-runs", claimed_by_worker_id="w:2:3", started_at=NOW)
    ended = {"started_at": NOW, "completed_at": NOW + timedelta(seconds=1.5)}
    terminal.given(TaskStatus.COMPLETED, id="04-done", task_name="named", **ended)
    failed = {"started_at": NOW, "failed_at": NOW + timedelta(minutes=1), "result": ERROR}
    terminal.given(TaskStatus.FAILED, id="05-failed", error_code="REFUSED", retry_count=1, max_retries=3, **failed)
    terminal.given(TaskStatus.FAILED, id="06-crashed", error_code="WORKER_CRASHED", **failed)


def test_m46_every_filter_and_order_reaches_the_list(terminal: Terminal) -> None:
    fill(terminal)
    cases = {
        (): ["06-crashed", "05-failed", "04-done", "03-runs", "02-mail", "01-waits"],
        ("--status", "pending"): ["02-mail", "01-waits"],
        ("-s", "running,Completed"): ["04-done", "03-runs"],
        ("--queue", "mail", "--status", "pending"): ["02-mail"],
        ("--queue", "mail", "-q", "default", "--limit", "2"): ["06-crashed", "05-failed"],
        ("--task", "named"): ["04-done"],
        ("--worker", "w:2:3"): ["03-runs"],
        ("--error-code", "REFUSED"): ["05-failed"],
        ("--id-prefix", "05"): ["05-failed"],
        ("--key", "k1"): ["02-mail"],
        ("--older-than", "24h"): ["01-waits"],
        ("--newer-than", "1h", "--status", "pending"): ["02-mail"],
        ("--error-category", "domain"): ["05-failed"],
        ("--error-category", "operational"): ["06-crashed"],
        ("--retried",): ["05-failed"],
        ("--sort", "claim_order"): ["01-waits", "02-mail"],
        ("--sort", "claim_order", "--order", "desc"): ["02-mail", "01-waits"],
        ("--sort", "sent_at", "--order", "asc", "--limit", "1"): ["01-waits"],
        ("--sort", "started_at"): ["03-runs"],
        ("--sort", "ended_at", "--order", "asc"): ["04-done", "05-failed", "06-crashed"],
        ("--order", "asc", "--offset", "1", "--limit", "2"): ["02-mail", "03-runs"],
    }
    found = {options: terminal.type("tasks", "--ids", *options).out.split() for options in cases}
    assert found == cases


def test_m46_a_page_is_a_table_or_one_document(terminal: Terminal) -> None:
    assert terminal.type("tasks").out == "no task matches\n"
    fill(terminal)
    page = terminal.type("tasks", "--limit", "2")
    assert [row[:4] for row in page.rows[:-1]] == [
        ["06-crashed", "FAILED", "a_task", "default"],
        ["05-failed", "FAILED", "a_task", "default"],
    ]
    assert (
        " 1 min " in page.out and " 1/3 " in page.out and " REFUSED " in page.out and "2026-01-02 03:05:05Z" in page.out
    )
    assert page.out.splitlines()[-1] == "1 to 2 of 6 tasks; --offset 2 shows what follows"
    assert terminal.type("tasks", "--offset", "4").out.splitlines()[-1] == "5 to 6 of 6 tasks"
    document = terminal.type("tasks", "--json", "--limit", "1", "--task", "named").json
    assert (document["total"], document["offset"], document["limit"]) == (1, 0, 1)
    [item] = document["items"]
    assert (item["task_id"], item["status"], item["ended_at"]) == (
        "04-done",
        "COMPLETED",
        "2026-01-02T03:04:06.500000Z",
    )


def test_m13_an_app_or_the_environment_names_the_database(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_of_cli.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SHOP_DATABASE_URL", terminal.url)
    task_id = terminal.given(id=str(uuid.uuid4()))
    assert terminal.type_plain("tasks", "shop_of_cli", "--ids").out == f"{task_id}\n"
    assert terminal.type_plain("task", "shop_of_cli:app", task_id, "--json").json["task_id"] == task_id
    monkeypatch.setenv("DATABASE_URL", terminal.url)
    for command in (("tasks", "--ids"), ("task", task_id), ("explain", task_id), ("queues",), ("cancel", task_id)):
        said = terminal.type_plain(*command)
        assert "(DATABASE_URL)" in said.err
        assert (task_id if command[0] in ("tasks", "task", "cancel") else "default") in said.out


def test_a_task_is_shown_whole(terminal: Terminal) -> None:
    fill(terminal)
    terminal.execute(
        "UPDATE horsies_tasks SET args = '[1, \"zwei\"]', good_until = '2030-01-01Z', flags = '{\"vip\": true}',"
        " failed_reason = E'first\\nsecond' WHERE id = '05-failed'"
    )
    attempt = {"attempt": 2, "error_code": "REFUSED", "error_message": "no\x1b[31m\nnever", "worker_id": "w:b:1"}
    terminal.doing(lambda db: given_attempt(db, "05-failed", **attempt))
    shown = terminal.type("task", "05-failed").out
    for part in (
        "a_task  FAILED",
        "1 of 3",
        "REFUSED (DOMAIN)",
        '[1, "zwei"]',
        "2030-01-01 00:00:00Z",
        '{"vip": true}',
    ):
        assert part in shown
    assert '{"why": 1}' in shown and "    first\n    second\n" in shown and "w:b:1" in shown
    assert "no\\u001b[31m never" in shown and "\x1b" not in shown, "nothing that a terminal would obey"
    document = terminal.type("task", "05-failed", "--json").json
    assert document["args"] == [1, "zwei"] and document["result"]["err"]["data"] == {"why": 1}
    assert [one["error_message"] for one in document["attempts"]] == ["no\x1b[31m\nnever"]
    assert "horsies explain 01-waits says" in terminal.type("task", "01-waits").err
    assert terminal.type("task", "04-done").out.startswith("named  COMPLETED\n")


def test_a_long_result_is_shown_in_part(terminal: Terminal) -> None:
    terminal.given(TaskStatus.COMPLETED, id="long", result=json.dumps({"ok": list(range(50_000))}))
    said = terminal.type("task", "long").out
    assert len(said.splitlines()) < 1_100 and "more characters: --json shows all" in said
    assert len(terminal.type("task", "long", "--json").json["result"]["ok"]) == 50_000


def test_m48_tasks_are_cancelled_one_by_one(terminal: Terminal) -> None:
    fill(terminal)
    workflow_id = terminal.doing(given_workflow)
    terminal.given(id="07-node", workflow_id=workflow_id)
    ids = ("01-waits", "03-runs", "04-done", "07-node", "nobody")
    done = terminal.type("cancel", *ids, code=1)
    assert done.out == "cancelled 01-waits, which was PENDING\n"
    picture = terminal.given(id="a:b:c")
    assert terminal.type("cancel", picture).out == "cancelled a:b:c, which was PENDING\n", ":b: is no emoji"
    assert [line.split("; ")[0] for line in done.err.splitlines()[1:]] == [
        "task 03-runs is RUNNING",
        "task 04-done is COMPLETED",
        f"task 07-node belongs to workflow {workflow_id}",
        "there is no task nobody",
    ]
    document = terminal.type("cancel", "03-runs", "02-mail", "nobody", "--include-running", "--json", code=1).json
    assert document["cancelled"] == [
        {"task_id": "03-runs", "previous_status": "RUNNING", "queue_name": "default", "task_name": "a_task"},
        {"task_id": "02-mail", "previous_status": "PENDING", "queue_name": "mail", "task_name": "a_task"},
    ]
    [refused] = document["refused"]
    assert (refused["task_id"], refused["code"], refused["current_status"]) == ("nobody", "TASK_NOT_FOUND", None)
    rows = terminal.rows()
    assert {id_ for id_, row in rows.items() if row["status"] == "CANCELLED"} == {
        "01-waits",
        "02-mail",
        "03-runs",
        picture,
    }


def test_m49_tasks_are_sent_again(terminal: Terminal) -> None:
    fill(terminal)
    again = terminal.type("rerun", "05-failed")
    [new] = set(terminal.rows()) - {"01-waits", "02-mail", "03-runs", "04-done", "05-failed", "06-crashed"}
    assert again.out == f"sent 05-failed again as {new}\n"
    assert terminal.rows()[new]["status"] == "PENDING" and terminal.rows()["05-failed"]["status"] == "FAILED"
    document = terminal.type("rerun", "06-crashed", "04-done", "01-waits", "--json", code=1).json
    assert [one["rerun_of"] for one in document["rerun"]] == ["06-crashed"]
    assert [one["task_id"] for one in document["refused"]] == ["04-done", "01-waits"]


def test_m49d_tasks_are_run_before_they_are_due(terminal: Terminal) -> None:
    fill(terminal)
    terminal.execute(
        "UPDATE horsies_tasks SET enqueued_at = '2100-01-02T03:04:05Z' WHERE id IN ('01-waits', '02-mail')"
    )
    done = terminal.type("run-now", "01-waits")
    assert done.out.startswith("01-waits is due now, instead of at 2100-01-02 03:04:05")
    document = terminal.type("run-now", "02-mail", "01-waits", "04-done", "--json", code=1).json
    assert [one["task_id"] for one in document["due"]] == ["02-mail"]
    assert [one["code"] for one in document["refused"]] == ["TASK_IS_DUE", "TASK_NOT_WAITING"]


def test_queues_are_counted(terminal: Terminal) -> None:
    assert terminal.type("queues").rows == [["default", *"0000000"]], "the queues of the app are there, empty or not"
    fill(terminal)
    rows = {row[0]: row[1:6] for row in terminal.type("queues").rows}
    assert rows["mail"] == ["1", "1", "0", "0", "0"] and rows["default"] == ["1", "1", "0", "0", "1"]
    assert "none" in terminal.type("queues").rows[0], "tasks wait, and nobody serves the queue"
    terminal.doing(lambda db: given_worker(db, "w:2:3", queues=["mail"]))
    document = terminal.type("queues", "--json").json
    assert set(document) == {"taken_at", "queues", "missing"}
    mail = {queue["name"]: queue for queue in document["queues"]}["mail"]
    assert (mail["waiting"], mail["live_workers"]) == (1, 1) and mail["oldest_due_seconds"] >= 0


def test_a_task_that_does_not_run_is_explained(terminal: Terminal) -> None:
    fill(terminal)
    told = terminal.type("explain", "01-waits").out
    assert told.startswith("NO_WORKER  ") and ["queue", "default"] in [line.split() for line in told.splitlines()]
    document = terminal.type("explain", "01-waits", "--json").json
    assert (document["task_id"], document["why"], document["status"]) == ("01-waits", "NO_WORKER", "PENDING")


@pytest.mark.parametrize("command", ["task", "explain"])
def test_m11_a_task_that_is_not_there_is_an_error(terminal: Terminal, command: str) -> None:
    refused = terminal.type(command, "nobody", code=1)
    assert refused.out == "" and "error: there is no task nobody\n" in refused.err
    assert f"a single word is the id: horsies {command} shop.tasks:app" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks", "--status", "done"], "'--status': 'done' is not one of PENDING, CLAIMED"),
        (["tasks", "--error-category", "bad"], "'bad' is not one of OPERATIONAL"),
        (["tasks", "--limit", "501"], "--limit"),
        (["tasks", "--offset", "-1"], "--offset"),
        (["tasks", "--sort", "name"], "--sort"),
        (["tasks", "--sort", "claim_order", "--status", "failed"], "--sort claim_order is an order of PENDING only"),
        (["tasks", "--watch", "--json"], "--watch can only show a table"),
        (["queues", "--watch", "--json"], "--watch can only show a table"),
        (["tasks", "--watch", "--every", "soon"], "is not a duration"),
        (["task"], "Missing argument"),
        (["task", "one", "two"], "one task at a time: one two"),
        (["cancel"], "Missing argument"),
    ],
)
def test_m11_a_command_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    refused = Terminal(NOWHERE, capsys).type(*words, code=1)
    assert refused.err.startswith("error[HRS-206]: ") and said in refused.err
    assert refused.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["tasks"], ["task", "x"], ["explain", "x"], ["queues"], ["cancel", "x", "y"], ["rerun", "x"],
        ["run-now", "x"],
        ["purge", "--older-than", "1h"], ["purge", "--waiting", "--queue", "q", "--yes"], ["tasks", "--watch"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_m11_a_database_that_is_away_is_said_once_without_its_password(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    refused = Terminal(NOWHERE, capsys).type(*words, code=1)
    assert refused.err.count("connection failed") == 1
    assert "topsecret" not in refused.err and refused.out == ""


def test_m01_the_first_of_several_words_is_the_app(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = terminal.type_plain("cancel", "no_such_module", "some-id", code=1)
    assert refused.err.startswith("error[HRS-206]: ") and "'no_such_module', was read as the app" in refused.err
    monkeypatch.setenv("DATABASE_URL", terminal.url)
    ids = [terminal.given(id=str(uuid.uuid4())) for _ in range(2)]
    assert terminal.type_plain("cancel", *ids, ids[0]).out.count("cancelled") == 2, "ours are recognised; twice is once"


def test_workflows_are_listed(terminal: Terminal) -> None:
    ended = {"status": "FAILED", "error_code": "BAD", "completed_at": NOW}
    for fields in (
        {"id": "open", "status": "RUNNING", "name": "shopping"},
        {"id": "over", "name": "shopping", **ended},
    ):
        terminal.doing(lambda db, fields=fields: given_workflow(db, **fields))
    assert [row[0] for row in terminal.type("workflow", "list").rows] == ["open", "over"]
    assert [row[0] for row in terminal.type("workflow", "list", "--status", "failed").rows] == ["over"]
    document = terminal.type("workflow", "list", "--name", "shopping", "--limit", "1", "--json").json
    assert [one["workflow_id"] for one in document["workflows"]] == ["open"]


def test_m48_the_command_names_its_own_option(terminal: Terminal) -> None:
    fill(terminal)
    for options in ((), ("--json",)):
        said = terminal.type("cancel", "03-runs", *options, code=1)
        assert "task 03-runs is RUNNING; --include-running stops it" in said.err and "include_running" not in said.err
    assert said.json["refused"][0]["message"] == "task 03-runs is RUNNING; --include-running stops it"
    assert terminal.type("cancel", "03-runs", "--include-running").out == "cancelled 03-runs, which was RUNNING\n"


def test_m15_built_in_codes_are_plain_texts(terminal: Terminal) -> None:
    code = {"__builtin_task_code__": "TASK_TIMEOUT"}
    stored = json.dumps({"err": {"error_code": code, "message": "late", "data": [{"nested": code}]}})
    terminal.given(TaskStatus.FAILED, id="late", result=stored, kwargs=json.dumps({"earlier": {"err": code}}))
    document = terminal.type("task", "late", "--json").json
    assert document["result"]["err"]["error_code"] == "TASK_TIMEOUT"
    assert document["result"]["err"]["data"] == [{"nested": "TASK_TIMEOUT"}]
    assert document["kwargs"] == {"earlier": {"err": "TASK_TIMEOUT"}}
    assert "__builtin" not in terminal.type("task", "late").out


def test_m15_numbers_that_json_does_not_know_are_texts(terminal: Terminal) -> None:
    """A row may have them from programs in other languages, or by hand; and 1e400 is JSON that Python reads as one."""
    terminal.given(
        TaskStatus.COMPLETED, id="odd", result='{"ok": [1e400, {"low": -1e400}, 1.5]}', kwargs='{"a": NaN, "b": "NaN"}'
    )
    document = terminal.type("task", "odd", "--json").json
    assert document["result"] == {"ok": ["Infinity", {"low": "-Infinity"}, 1.5]}
    assert document["kwargs"] == {"a": "NaN", "b": "NaN"}


def times_in(value: object) -> list[str]:
    """Every text that begins like a time."""
    if isinstance(value, dict | list):
        return [time for one in (value.values() if isinstance(value, dict) else value) for time in times_in(one)]
    return [value] if isinstance(value, str) and re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]", value) else []


def test_m15_every_command_writes_times_in_one_form(terminal: Terminal) -> None:
    fill(terminal)
    terminal.doing(lambda db: given_worker(db, "w:2:3"))
    workflow_id = terminal.doing(lambda db: given_workflow(db, started_at=NOW))
    terminal.execute("UPDATE horsies_tasks SET started_at = now() - interval '1 day' WHERE id = '03-runs'")
    commands = (
        ("tasks",),
        ("task", "05-failed"),
        ("explain", "01-waits"),
        ("queues",),
        ("workers",),
        ("stale-tasks",),
        ("workflow", "list"),
        ("workflow", "show", workflow_id),
    )
    for command in commands:
        times = times_in(terminal.type(*command, "--json").json)
        assert times, command
        for time in times:
            assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}(\.[0-9]{1,6})?Z", time), (command, time)


def test_m45_an_explanation_is_in_plain_words(terminal: Terminal) -> None:
    terminal.doing(lambda db: given_worker(db, "w:2:3", queues=["default"]))
    for number in range(3):
        terminal.given(id=f"0{number}-waits", enqueued_at=NOW)
    said = terminal.type("explain", "02-waits").out
    assert "IN_LINE" in said and re.search(r"due before it +2\n", said) and "2026-01-02 03:04:05Z" in said
    assert "held" not in said and "_" not in said.replace("IN_LINE", "").replace("a_task", "")
    assert "held" not in terminal.type("explain", "02-waits", "--json").out


def test_m09_workers_are_listed_with_their_state_and_load(terminal: Terminal) -> None:
    silent = {"last_heartbeat_at": datetime.now(UTC) - timedelta(minutes=3)}
    stale = {"last_heartbeat_at": datetime.now(UTC) - timedelta(hours=1)}
    for name, columns in (("busy", {"metadata": Jsonb({"concurrency": 10})}), ("quiet", silent), ("gone", stale)):
        terminal.doing(lambda db, name=name, columns=columns: given_worker(db, name, queues=["mail", "pdf"], **columns))  # type: ignore[misc]
    report = {"processes": 4, "tasks_running": 7, "tasks_claimed": 2, "cpu_percent": 51.4, "memory_usage_mb": 100.0}
    terminal.doing(lambda db: given_worker_state(db, "busy", **report, children_memory_mb=300.0))
    rows = {row[0]: row[1:] for row in terminal.type("workers").rows}
    assert rows["busy"][:9] == ["live", "mail,", "pdf", "4×10", "7", "2", "51%", "400", "MB"]
    assert (rows["quiet"][0], rows["gone"][0]) == ("silent", "stale")
    assert {row[0]: row[1] for row in terminal.type("workers", "--threshold", "1m").rows}["quiet"] == "stale"
    busy = next(one for one in terminal.type("workers", "--json").json if one["worker_id"] == "busy")
    assert (busy["state"], busy["is_stale"], busy["queues"]) == ("live", False, ["mail", "pdf"])
    assert (busy["tasks_running"], busy["processes"], busy["concurrency"]) == (7, 4, 10)
