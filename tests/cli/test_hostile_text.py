"""Rows may contain anything, and so may arguments: whatever a command prints, the terminal shows it and does not obey
it, and none of it passes for a line of ours."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psycopg
import pytest

from horsies.cli import main, options, workflow
from tests import hostile_support as hostile
from tests.cli.support import Terminal
from tests.cli.test_streams import Screen
from tests.e2e.cli_support import APP, run
from tests.each import each
from tests.role_support import a_role
from tests.support import eventually_sync

pytestmark = pytest.mark.e2e

TASK, RUNNING, FAILED, WORKFLOW = "plain0", "plain2", "plain4", "parent"
# Each command with its words, and whether it answers with text from the rows. `worker` and `scheduler` write a log,
# which has a test of its own; `demo` reads only what it has sent itself.
COMMANDS: dict[str, list[tuple[list[str], bool]]] = {
    "schedules": [(["schedules", "shop"], True)],
    "check": [(["check", "shop", "--live"], True)],
    "init-db": [(["init-db"], False)],
    "grants": [
        (["grants", "--worker", hostile.SHORT], True),
        (["grants", "--monitor", hostile.SHORT, "--apply"], True),
        (["grants", "--producer", hostile.LONG], True),
        (["grants", "--client", "a\udcff\nFORGED\x1b"], True),
    ],
    "send": [
        (["send", "shop", hostile.SHORT], True),
        (["send", "shop", "shop.price", "--kwargs", hostile.LONG], False),
        (["send", "shop", "shop.refuse", "--kwargs", json.dumps({"reason": hostile.LONG})], False),
    ],
    "tasks": [
        (["tasks", "--limit", "500"], True),
        (["tasks", "--ids"], True),
        (["tasks", "--status", hostile.SHORT], True),
        (["tasks", "--queue", hostile.SHORT], False),
    ],
    "task": [(["task", TASK], True), (["task", FAILED], True), (["task", f"absent{hostile.SHORT}"], True)],
    "logs": [(["logs", TASK], True), (["logs", f"absent{hostile.SHORT}"], True)],
    "explain": [(["explain", TASK], True), (["explain", RUNNING], True), (["explain", f"{WORKFLOW}:1"], True)],
    "cancel": [(["cancel", FAILED], True), (["cancel", f"absent{hostile.SHORT}"], True), (["cancel", TASK], True)],
    "rerun": [(["rerun", FAILED], True), (["rerun", f"absent{hostile.SHORT}"], True)],
    "run-now": [(["run-now", FAILED], False), (["run-now", f"absent{hostile.SHORT}"], True)],
    "queues": [(["queues"], True)],
    "metrics": [(["metrics", "--once"], True)],
    "web": [
        (["web", "--host", hostile.SHORT], True),
        (["web", "--auth", hostile.SHORT], True),
        (["web", "--auth", "token", "--token-file", hostile.SHORT], True),
        (["web", "--auth", "trusted-header", "--trusted-header", hostile.SHORT], True),
    ],
    "new": [(["new", hostile.SHORT], True), (["new", f"x{hostile.SHORT}", "--template", hostile.SHORT], True)],
    "tui": [(["tui", "--once"], True)],
    "purge": [
        (["purge", "--older-than", "0"], True),
        (["purge", "--waiting", "--queue", f"x{hostile.SHORT}"], False),
        (["purge", "--older-than", hostile.SHORT], True),
    ],
    "failures": [(["failures"], True)],
    "audit": [(["audit"], True), (["audit", "--actor", hostile.SHORT], False)],
    "workers": [(["workers"], True)],
    "drain": [(["drain", f"absent{hostile.SHORT}"], True)],
    "stale-tasks": [(["stale-tasks", "--minutes", "0"], True)],
    "sweep-stale-workers": [(["sweep-stale-workers", "--sweep-threshold", "1s", "--dry-run"], True)],
    "force-unlock": [(["force-unlock", f"absent{hostile.SHORT}"], True)],
    "recover-workflows": [(["recover-workflows"], False)],
    "workflow list": [(["workflow", "list"], True)],
    "workflow show": [(["workflow", "show", WORKFLOW], True), (["workflow", "show", f"x{hostile.SHORT}"], True)],
    "workflow pause": [(["workflow", "pause", WORKFLOW], False), (["workflow", "pause", hostile.SHORT], True)],
    "workflow resume": [(["workflow", "resume", WORKFLOW], False), (["workflow", "resume", hostile.SHORT], True)],
    "workflow cancel": [(["workflow", "cancel", WORKFLOW], False), (["workflow", "cancel", hostile.SHORT], True)],
    "workflow retry": [(["workflow", "retry", WORKFLOW, "--node", hostile.SHORT], True)],
}
READERS = ("audit", "check", "explain", "failures", "logs", "metrics", "queues", "schedules", "stale-tasks", "task")
READERS += ("tasks", "tui", "workers", "workflow list", "workflow show")
WITHOUT_JSON = ("check", "init-db", "new", "grants", "send", "metrics", "tui", "web")
LOGGING = ("dev", "worker", "scheduler", "demo")  # they print no rows
ELSEWHERE = ("mcp", "schema")  # tests/mcp/test_hostile_rows.py; it prints no rows
LOOKS = {
    "plain": {},
    "colour": {"HORSIES_FORCE_COLOR": "1"},
    "narrow": {"HORSIES_FORCE_COLOR": "1", "COLUMNS": "30"},
    "no colour": {"NO_COLOR": "1", "COLUMNS": "30"},
}


def open_shop(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app, and the variables that name its database."""
    (tmp_path / "shop.py").write_text(APP)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOP_DATABASE_URL", url)
    monkeypatch.setenv("DATABASE_URL", url)


@pytest.fixture
def shop(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A database full of hostile text, and an app beside it."""
    hostile.plant(terminal.url)
    open_shop(terminal.url, tmp_path, monkeypatch)
    return terminal


@pytest.fixture(scope="module")
def planted_url(module_url: str) -> str:
    """For commands that only read: the same database for all."""
    hostile.plant(module_url)
    return module_url


@pytest.fixture
def open_for_readers(planted_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "HORSIES_FORCE_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    open_shop(planted_url, tmp_path, monkeypatch)


def test_m12_every_command_is_looked_at() -> None:
    subcommands = {
        f"workflow {command.name or command.callback.__name__}" for command in workflow.workflow.registered_commands
    }  # type: ignore[union-attr]
    assert set(COMMANDS) | set(LOGGING) | set(ELSEWHERE) == set(main.COMMANDS) - {"workflow"} | subcommands


def test_m12_hostile_text_is_in_every_table(terminal: Terminal) -> None:
    planted = hostile.plant(terminal.url)
    with psycopg.connect(terminal.url) as conn:
        query = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'horsies\\_%'"
        tables = {name for (name,) in conn.execute(query)}
    assert set(planted) == tables - {"horsies_meta"}
    assert {"task_name", "queue_name", "error_code", "failed_reason", "flags"} <= set(planted["horsies_tasks"])


@each("command", READERS)
def test_m12_nothing_that_a_command_reads_is_obeyed(
    open_for_readers: None, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_is_obeyed(command, monkeypatch, capsys)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in READERS])
def test_m12_nothing_in_a_row_or_an_argument_is_obeyed(
    shop: Terminal, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_is_obeyed(command, monkeypatch, capsys)


def nothing_is_obeyed(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for look, env in LOOKS.items():
        for name in ("HORSIES_FORCE_COLOR", "NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        for words, is_shown in COMMANDS[command]:
            said = typed(words, capsys)
            assert "Traceback (most" not in said
            assert hostile.obeyed(said) == set(), f"{look}: {words}: {said!r}"
            if command not in ("task", "logs"):  # which show texts of several lines, indented
                assert hostile.forged(said) == [], f"{look}: {words}: {said}"
            assert not [line for line in said.splitlines() if line.startswith(("FORGED", "12:00:00"))]
            shown = ("\\u001b" in said or "\\x1b" in said) and "FORGED" in said
            assert shown or not is_shown, f"{words} shows nothing: {said}"


@each("command", [command for command in READERS if command not in WITHOUT_JSON])
def test_m12_json_of_what_is_read_is_plain_ascii(
    open_for_readers: None, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    json_is_plain_ascii(command, capsys)


@pytest.mark.parametrize("command", [one for one in COMMANDS if one not in (*WITHOUT_JSON, *READERS)])
def test_m12_json_is_plain_ascii(shop: Terminal, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    json_is_plain_ascii(command, capsys)


def json_is_plain_ascii(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, _ in COMMANDS[command]:
        if "--ids" in words:
            continue
        capsys.readouterr()
        main.run([*words, "--json"])
        said = capsys.readouterr()
        assert hostile.obeyed(said.err) == set()
        if said.out:
            assert hostile.obeyed(said.out) == set() and said.out.isascii()
            json.loads(said.out)


def test_m12_a_role_that_a_terminal_would_obey_gets_its_rights_but_no_script(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a terminal shows instead of the name would be the name of another role."""
    with a_role(terminal.url, hostile.SHORT) as role:
        words = ["grants", "--producer", "plain", "--monitor", role, "--database-url", terminal.url]
        capsys.readouterr()
        assert main.run(words) == 1
        said = capsys.readouterr()
        assert said.out == "" and "--apply" in said.err
        assert hostile.obeyed(said.err) == set() and hostile.forged(said.err) == []
        assert main.run(["grants", "--monitor", role, "--apply", "--database-url", terminal.url]) == 0
        said = capsys.readouterr()
        assert hostile.obeyed(said.out + said.err) == set()
        with psycopg.connect(terminal.url) as conn:
            query = "SELECT has_table_privilege(%s, 'horsies_tasks', 'SELECT')"
            assert conn.execute(query, [role]).fetchone() == (True,)


@pytest.mark.parametrize("key", ["notify", "schema_version", "breaking_version", "other"])
def test_m12_settings_of_the_database_are_not_obeyed(
    terminal: Terminal, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.execute(
        "INSERT INTO horsies_meta (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [key, hostile.LONG],
    )
    for words in (["init-db"], ["tasks"], ["cancel", "x"], ["queues"]):
        said = typed([*words, "--database-url", terminal.url], capsys)
        assert hostile.obeyed(said) == set() and hostile.forged(said) == []


@pytest.mark.parametrize(
    "words", [("tasks", "--watch", "--every", "0.1"), ("workflow", "show", WORKFLOW), ("workers",)]
)
def test_m12_a_narrow_terminal_obeys_only_us(shop: Terminal, tmp_path: Path, words: tuple[str, ...]) -> None:
    with Screen(*words, "--database-url", shop.url, columns=30, cwd=tmp_path) as screen:
        if "--watch" in words:
            eventually_sync(lambda: screen.shows("of 14 tasks"), 30)
            screen.end(signal.SIGINT)
        else:
            screen.end()
        screen.shows("")
    assert "\x1b[" in screen.written and "u001b" in screen.written
    for part in ("\x1b[8m", "\x1b]", "\x9b", "\x85", "\x7f", "\x07", "\x08", "\u202e", "\u2028", "\u2066"):
        assert part not in screen.written
    assert not [line for line in screen.plain.splitlines() if line.lstrip().startswith("FORGED")]


def test_m12_a_crash_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    text = f"class Odd(BaseException):\n    pass\n\n\nraise Odd({hostile.LONG!r})\n"
    (tmp_path / "odd.py").write_text(text)
    crashed = run("check", "odd", cwd=tmp_path)
    assert crashed.returncode == 1 and "Traceback (most recent call last)" in crashed.stderr
    assert "Odd: \\u001b[8m" in crashed.stderr and hostile.obeyed(crashed.stderr, allowed="\n\t") == set()


def test_m12_names_of_files_are_not_offered_if_a_terminal_would_obey_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    for name in ("mail.py", "\x1b[2J.py", "a\nb.py"):
        (tmp_path / "jobs" / name).write_text("")
    assert options.modules("jobs/") == ["jobs/mail.py"]


def typed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Everything that the command wrote, on both streams."""
    capsys.readouterr()
    main.run(words)
    said = capsys.readouterr()
    return said.out + said.err
