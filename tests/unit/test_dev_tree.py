"""The parts of `horsies dev` that decide: the project's table, the port, the database, the names and the lines of the
log, and the order in which everything ends (X-31)."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from horsies.cli import dev, project
from horsies.core.errors import ConfigurationError, HorsiesError
from horsies.dev import lines, ports, tree, watch
from horsies.dev.program import Program
from tests.support import eventually_sync


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
    assert found == project.Project(tmp_path, "shop:app", ("prepare",), ("serve --now",), ("../x",))
    assert project.read(below) is None and project.read(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "text, words",
    [
        ('[tool.horsies]\nap = "shop:app"\n', "did you mean app?"),
        ("[tool.horsies]\napp = 1\n", "app is not a text"),
        ('[tool.horsies]\nrun = "serve"\n', "run is not a list of texts"),
        ('[tool.horsies]\nrun = [" "]\n', "run is not a list of texts"),
        ('[tool.horsies]\ndatabase = "mine"\n', 'write database = "own"'),
        ('[tool]\nhorsies = "x"\n', "is not a table"),
        ("[tool.horsies\n", "pyproject.toml"),
    ],
)
def test_x31_a_table_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        project.read(table(tmp_path, text))
    assert words in refused.value.format_rust_style()


def test_x31_a_wanted_port_that_is_taken_is_refused() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        taken = listening.getsockname()[1]
        assert ports.free_port(taken) != taken
        with pytest.raises(HorsiesError, match=f"cannot listen on 127.0.0.1:{taken}"):
            dev._port(taken)
    assert dev._port(None) >= ports.FIRST and dev._port(0) > 0


def test_x31_programs_are_called_by_what_they_run() -> None:
    commands = [
        ("uvicorn", "shop:api"),
        ("python", "-m", "http.server"),
        ("/usr/bin/python3", "manage.py", "runserver"),
        ("/opt/bin/uvicorn",),
        ("worker",),
        ("python",),
    ]
    named = lines.names_of(commands, ("dev", "worker", "web"))
    assert named == ["uvicorn", "http.server", "manage.py", "uvicorn-2", "worker-2", "python"]


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


def with_database(table: project.Project, **environment: str) -> tuple[dict[str, str], list[str]]:
    said: list[str] = []
    return dev._with_database(table, environment, said.append), said


def test_x31_an_address_that_is_given_is_used_by_all(tmp_path: Path) -> None:
    given = {"DATABASE_URL": "postgresql://db/shop", "OTHER": "1"}
    environment, said = with_database(project.Project(tmp_path, "shop:app"), **given)
    assert environment == given
    assert said == ["database: from DATABASE_URL"], "whoever has forgotten that it is set should see it"


def test_x31_an_app_with_its_own_database_gets_no_other(tmp_path: Path) -> None:
    table(tmp_path, '[tool.horsies]\napp = "shop:app"\ndatabase = "own"\n')
    found = project.read(tmp_path)
    assert found is not None
    environment, said = with_database(found, OTHER="1", DATABASE_URL=" ")
    assert environment == {"OTHER": "1", "DATABASE_URL": " "} and said == ["database: the app's own"]


SAYS = """
import os, signal, sys, time
from horsies.dev.program import ready_signal
say_ready = ready_signal()
name = sys.argv[1]
signals = []
def heard(*_):
    signals.append(1)
    print(name, "is told", len(signals), flush=True)
    if name != "stubborn" or len(signals) > 1:
        time.sleep(0.1)  # others have their turn
        print(name, "has ended", flush=True)
        sys.exit(0 if name != "stubborn" else 1)
signal.signal(signal.SIGINT, heard)
signal.signal(signal.SIGTERM, heard)
say_ready()
print(name, "runs", flush=True)
while True:
    time.sleep(0.01)
"""


class Running:
    """A tree of real programs, which runs in the test's own thread."""

    def __init__(self, tmp_path: Path, worker: str, *programs: str, before: tuple[str, ...] = ()) -> None:
        self.seen: list[str] = []

        def starts(name: str, *, code: str = SAYS, says_ready: bool = False) -> Callable[[], Program]:
            words = [sys.executable, "-c", code, name]
            return lambda: Program(words, output=self.seen.append, says_ready=says_ready)

        self.tree = tree.Tree(
            starts(worker, says_ready=True),
            watch.Watcher([tmp_path]),
            self.seen.append,
            before=[tree.Part(code, starts(code, code=code)) for code in before],
            programs=[tree.Part(name, starts(name)) for name in programs],
            web=[tree.Part("web", starts("web"))],
        )

    def run(self, *then: tuple[str, Callable[[], None]]) -> int:
        """Until its end; each of the actions when this has been seen."""

        def act() -> None:
            for wanted, action in then:
                eventually_sync(lambda wanted=wanted: wanted in self.seen, 30, what=f"{wanted} in {self.seen}")
                action()

        acting = threading.Thread(target=act)
        acting.start()
        try:
            return self.tree.run()
        finally:
            acting.join()


def test_x31_ctrl_c_ends_the_programs_then_the_worker_then_the_dashboard(tmp_path: Path) -> None:
    """Each is told to end when the one before it has ended."""
    running = Running(tmp_path, "worker", "serve")
    assert running.run(("serve runs", lambda: None), ("web runs", running.tree.stop)) == 0
    told = [line for line in running.seen if "told" in line or "ended" in line]
    assert told == [f"{name} {what}" for name in ("serve", "worker", "web") for what in ("is told 1", "has ended")]


def test_x31_a_second_ctrl_c_tells_the_worker_once_more(tmp_path: Path) -> None:
    running = Running(tmp_path, "stubborn")
    actions = (("web runs", running.tree.stop), ("stubborn is told 1", running.tree.stop))
    assert running.run(*actions) == 1
    assert "stopping immediately" in running.seen
    assert [line for line in running.seen if "told" in line] == [
        "stubborn is told 1",
        "stubborn is told 2",
        "web is told 1",
    ]


def test_x31_a_program_that_cannot_be_started_or_ends_is_named_and_what_comes_before_must_succeed(
    tmp_path: Path,
) -> None:
    running = Running(tmp_path, "worker", before=("print('first')", "raise SystemExit(3)", "print('never')"))
    assert running.run() == 1
    assert running.seen == ["first", "nothing is started, because raise SystemExit(3) ended with exit code 3"]

    waits = "import time; print('first', flush=True); time.sleep(600)"
    running = Running(tmp_path, "worker", "serve", before=(waits,))
    assert running.run(("first", running.tree.stop)) == 0
    assert running.seen == ["first"], "nothing is started after Ctrl-C"

    def absent() -> Program:
        return Program(["no-such-program"])

    said: list[str] = []
    tree.Tree(absent, watch.Watcher([tmp_path]), said.append)._start(tree.Part("absent", absent))
    assert said == ["absent cannot be started: No such file or directory"]
    assert tree.how(-9) == "by SIGKILL" and tree.how(-77) == "by signal 77"
