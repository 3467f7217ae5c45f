"""The parts of `horsies dev` that decide: the project's table, the port, the database, the names and the lines of the
log, and the order in which everything ends (X-31)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horsies.cli import dev
from horsies.core.errors import ConfigurationError, HorsiesError
from horsies.dev import database, lines, ports, project, tree
from horsies.dev.programs import TreeProgram
from horsies.dev.tree import TreePlan
from tests.support import eventually


def table(directory: Path, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(text)
    return directory


def test_x31_the_nearest_table_is_read(tmp_path: Path) -> None:
    table(
        tmp_path,
        '[tool.horsies]\napp = "shop:app"\nrun = ["serve --now"]\nbefore = ["prepare"]\nreload-dirs = ["../x"]\n',
    )
    below = table(tmp_path / "a" / "b", "[tool.other]\n")
    found = project.find(below)
    assert found == project.DevProject(tmp_path, "shop:app", ("prepare",), ("serve --now",), ("../x",))
    assert project.read(below) is None and project.read(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "text, words",
    [
        ('[tool.horsies]\nap = "shop:app"\n', "did you mean app?"),
        ("[tool.horsies]\napp = 1\n", "app is not a text"),
        ('[tool.horsies]\nrun = "serve"\n', "run is not a list of texts"),
        ('[tool.horsies]\nrun = [" "]\n', "run is not a list of texts"),
        ('[tool]\nhorsies = "x"\n', "is not a table"),
        ("[tool.horsies\n", "pyproject.toml"),
    ],
)
def test_x31_a_table_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        project.read(table(tmp_path, text))
    assert words in refused.value.format_rust_style()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_x31_a_wanted_port_that_is_taken_is_refused(taken: int) -> None:
    with dev._port(None) as first, dev._port(None) as second:
        assert ports.port_of(first) != ports.port_of(second), "the first one is held from the moment it was chosen"
    with pytest.raises(HorsiesError, match=f"cannot listen on 127.0.0.1:{taken}"):
        dev._port(taken)


def test_x31_programs_are_called_by_what_they_run() -> None:
    commands = [
        ("uvicorn", "shop:api"),
        ("python", "-m", "http.server"),
        ("/usr/bin/python3", "manage.py", "runserver"),
        ("/opt/bin/uvicorn",),
        ("worker",),
        ("python",),
    ]
    plan = TreePlan("shop:app", (), None, before=tuple(commands[:1]), programs=tuple(commands[1:]))
    ours = ["dev", "worker", "web"]
    assert plan.names() == [*ours, "uvicorn", "http.server", "manage.py", "uvicorn-2", "worker-2", "python"]


def test_x31_a_terminal_obeys_nothing_in_a_line_but_colours() -> None:
    text = "\x1b[32mok\x1b[0m \x1b[2Jgone\x07 \x1b]0;title\x07"
    assert lines.cleaned(text, color=False) == "ok \\u001b[2Jgone\\u0007 \\u001b]0;title\\u0007"
    assert lines.cleaned(text, color=True) == "\x1b[32mok\x1b[0m \\u001b[2Jgone\\u0007 \\u001b]0;title\\u0007\x1b[0m"
    assert lines.cleaned("plain", color=True) == "plain"


def test_x31_lines_have_the_name_of_their_program_in_one_column() -> None:
    said: list[str] = []
    log = lines.Log(said.append, ["dev", "worker"], color=False)
    log.line("dev", "a")
    log.line("worker", "b")
    assert said == ["dev    | a", "worker | b"]
    coloured = lines.Log(said.append, ["dev", "worker"], color=True)
    coloured.line("dev", "a")
    assert said[-1] == "\x1b[36mdev    |\x1b[0m a"


def test_x31_when_nobody_reads_the_log_somebody_is_told() -> None:
    def write(line: str) -> None:
        raise BrokenPipeError

    told: list[str] = []
    log = lines.Log(write, ["dev"], color=False)
    log.line("dev", "nobody has asked to be told")
    log.on_gone = lambda: told.append("gone")
    log.line("dev", "a")
    assert told == ["gone"]


async def test_x31_lines_arrive_whole_however_they_are_written() -> None:
    said: list[str] = []
    log = lines.Log(said.append, ["web"], color=False)
    stream = asyncio.StreamReader()
    copying = asyncio.create_task(log.copy("web", stream))
    for part in (b"a", b"b\nc\r\n", "ü".encode()[:1], "ü".encode()[1:], b"\xff\n", b"x" * 70_000, b"y\nend"):
        stream.feed_data(part)
        await asyncio.sleep(0)
    stream.feed_eof()
    await copying
    assert said[:3] == ["web | ab", "web | c", "web | ü�"]
    assert sum(map(len, said[3:-1])) >= 70_000 and said[-1] == "web | end"


def test_x31_an_address_that_is_given_is_used_by_all(tmp_path: Path) -> None:
    """Nothing is started and the app is not asked: it does not exist."""
    given = {"DATABASE_URL": "postgresql://db/shop", "OTHER": "1"}
    said: list[str] = []
    assert database.environment_with_database("no.such:app", given, said.append) == given
    assert said == ["database: from DATABASE_URL"], "whoever has forgotten that it is set should see it"


def test_x31_an_app_without_an_address_gets_the_embedded_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = "from horsies import AppConfig, Horsies\nimport os\napp = Horsies(AppConfig.for_database_url({}))\n"
    (tmp_path / "lacks.py").write_text(made.format('os.environ["DATABASE_URL"]'))
    (tmp_path / "own.py").write_text(made.format('"postgresql://db/shop"'))
    (tmp_path / "chatty.py").write_text('print("hello")\n' + made.format('"embedded:pg"'))
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    environment = {**os.environ, "DATABASE_URL": ""}
    said: list[str] = []
    assert database.embedded_path_of("own:app", environment, said.append) is None
    assert database.embedded_path_of("chatty:app", environment, said.append) == tmp_path / "pg"
    assert said == []
    for app, why in (("lacks:app", "KeyError"), ("leaves:app", "SystemExit"), ("absent.py", "there is no file")):
        assert database.embedded_path_of(app, environment, said.append) == database.OWN
        assert said[-1].startswith(f"{app} did not load without DATABASE_URL (") and why in said.pop()


# Its helper is forked, so it has every file that the app has.
HELPER = """
import os, time
from horsies import AppConfig, Horsies

helper = os.fork()
if helper == 0:
    time.sleep(600)
    os._exit(0)
open("helper", "w").write(str(helper))
app = Horsies(AppConfig.for_database_url("postgresql://db/shop"))
"""


def test_x31_a_process_that_the_app_has_started_does_not_keep_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a server for its models, or a tunnel. It lives on with all that it has inherited."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(HELPER)
    said: list[str] = []
    try:
        assert database.environment_with_database("shop:app", without_address(), said.append) == without_address()
        assert said[-1] == "database: the one that the app names"
    finally:
        os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


def without_address() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}


def test_x31_an_app_whose_import_blocks_is_spoken_of_and_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(database, "LONG_S", 0.2)
    monkeypatch.setattr(database, "ASK_S", 0.4)
    (tmp_path / "blocks.py").write_text("import time\ntime.sleep(600)\n")
    said: list[str] = []
    with pytest.raises(ConfigurationError, match="not known whether blocks:app names a database of its own") as refused:
        database.environment_with_database("blocks:app", without_address(), said.append)
    assert "DATABASE_URL=embedded:.horsies/postgres horsies dev" in refused.value.format_rust_style()
    assert len(said) == 1 and "importing blocks:app is slow" in said[0]
    assert not (tmp_path / ".horsies").exists(), "no other database takes its place"


def test_x31_an_app_that_takes_its_process_with_it_gets_no_database_that_it_may_not_want(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dies.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    with pytest.raises(ConfigurationError, match="the process that imports it ended with exit code -9"):
        database.embedded_path_of("dies:app", without_address(), print)


async def test_x31_a_program_that_two_ask_for_at_once_starts_once(tmp_path: Path) -> None:
    """As the dashboard, if two reloads are ready at the same moment."""
    said: list[str] = []
    log = lines.Log(said.append, ["web"], color=False)
    words = ("sh", "-c", "echo started; exec sleep 600")
    program = TreeProgram("web", words, log=log, environment=os.environ, on_end=print, is_ours=True)
    await asyncio.gather(program.start(), program.start())
    try:
        await eventually(lambda: said)
        await program.stop(5)
    finally:
        program.kill()
    assert said == ["web | started"]


async def test_x31_a_program_that_does_not_end_is_killed() -> None:
    said: list[str] = []
    log = lines.Log(said.append, ["deaf"], color=False)
    deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    program = TreeProgram("deaf", [sys.executable, "-c", deaf], log=log, environment=os.environ, on_end=print)
    await program.start()
    try:
        await eventually(lambda: said)
        async with asyncio.timeout(20):
            await program.stop(0.2)
        assert not program.is_running
    finally:
        program.kill()


async def test_x31_ctrl_c_ends_the_programs_then_the_worker_then_the_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told to end when the one before it has ended."""
    seen: list[str] = []
    has_started = asyncio.Event()

    class Program:
        def __init__(self, name: str, words: Any, **_: Any) -> None:
            self.name = name

        async def start(self) -> None: ...

        async def stop(self, seconds: float) -> None:
            await end(self.name)

        def kill(self) -> None: ...

        async def wait(self) -> int:
            return 0

    class Worker:
        def __init__(self, *_: Any, **__: Any) -> None:
            self._told = asyncio.Event()

        def stop(self) -> None:
            self._told.set()

        async def run(self) -> int:
            has_started.set()
            await self._told.wait()
            await end("worker")
            return 0

    async def end(name: str) -> None:
        seen.append(f"{name} is told")
        await asyncio.sleep(0.05)  # others have their turn
        seen.append(f"{name} has ended")

    monkeypatch.setattr(tree, "TreeProgram", Program)
    monkeypatch.setattr(tree, "Generations", Worker)
    with dev._port(0) as port:
        plan = TreePlan("shop:app", (), port, programs=(("serve",),))
        log = lines.Log(lambda line: None, plan.names(), color=False)
        everything = tree.Tree(plan, log, None, {})  # type: ignore[arg-type]
        running = asyncio.create_task(everything.run())
        await has_started.wait()
        everything.stop()
        assert await running == 0
    assert seen == [f"{name} {what}" for name in ("serve", "worker", "web") for what in ("is told", "has ended")]
