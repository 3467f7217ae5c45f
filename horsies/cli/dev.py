"""`horsies dev`: its options, the project that it is started in, and the tree of processes that follows from both
(X-31). `horsies/dev` runs it; it is imported only here, because it needs the extra `dev`.
"""

import fcntl
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from horsies.cli import output, project, reloading
from horsies.cli.options import LogLevel, modules, parse_names
from horsies.core.child.wire import MOST_CHILDREN
from horsies.core.logs import wants_color
from horsies.dev import ports
from horsies.dev.program import Program

WEB_PACKAGES = ("starlette", "jinja2", "uvicorn")
HORSIES = (sys.executable, "-m", "horsies")
DEV, WORKER, WEB = "dev", "worker", "web"
DATABASE, EMBEDDED = "DATABASE_URL", "embedded:"


def dev(
    module: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE",
            help="The app.",
            show_default="HORSIES_APP, or app of [tool.horsies]",
            autocompletion=modules,
        ),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="COMMAND", help="Also run this program of the project; can be given several times."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=MOST_CHILDREN, help="Child processes that run tasks.")] = 2,
    queues: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Serve only these queues, separated by commas.")
    ] = None,
    no_web: Annotated[bool, typer.Option("--no-web", help="Without the dashboard.")] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            show_default=f"the first free one from {ports.FIRST} on",
            help="The port of the dashboard; 0: any.",
        ),
    ] = None,
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIRECTORY", resolve_path=True, help="Watch this directory too; can be given several times."
        ),
    ] = None,
    loglevel: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="The log level of the worker and its children.")
    ] = LogLevel.INFO,
) -> int:
    """Run everything that a project needs while it is written: the database, a worker that goes on with the new code
    when a file changes, the scheduler if there are schedules, and the dashboard.

    The database is that of DATABASE_URL, or an embedded server, whose address is in DATABASE_URL then. Ctrl-C ends
    everything, after the running tasks; a second one stops it immediately.
    """
    reloading.refuse_without_extra(*(() if no_web else WEB_PACKAGES))
    table = _table(module)
    _refuse_second(table.directory)
    os.chdir(table.directory)
    worker = ["--scheduler-if-any", "--processes", str(processes), "--loglevel", loglevel.value]
    if names := parse_names(queues):
        worker += ["--queues", ",".join(names)]
    given = [*(reload_dir or ()), *map(Path, table.reload_dirs)]
    programs = [_words(text, "--run") for text in [*table.run, *(run or ())]]
    return _run(table, worker, None if no_web else _port(port), programs, given)


def _run(
    table: project.Project,
    worker: Sequence[str],
    port: int | None,
    programs: Sequence[tuple[str, ...]],
    directories: Sequence[Path],
) -> int:
    from horsies.dev import lines, tree, watch

    before = [_words(text, "before") for text in table.before]
    names = lines.names_of([*before, *programs], (DEV, WORKER, WEB))
    color = wants_color(sys.stderr)
    log = lines.Log(output.write_log, [DEV, WORKER, WEB, *names], color=color)
    say = partial(log.line, DEV)
    say(f"{table.app} in {table.directory}; Ctrl-C stops everything")
    watcher = watch.Watcher(reloading.roots(directories))
    # The programs of this Python's environment are found even if it is not activated, and no line waits in a buffer.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    own = {"PATH": path, "PYTHONUNBUFFERED": "1", project.VARIABLE: str(table.app)}
    coloured = {"HORSIES_FORCE_COLOR": "1"} if color else {}
    environment = _with_database(table, {**os.environ, **own, **coloured}, say)

    def starts(name: str, words: Sequence[str], *, says_ready: bool = False) -> Callable[[], Program]:
        return lambda: Program(words, output=partial(log.line, name), env=environment, says_ready=says_ready)

    parts = [tree.Part(name, starts(name, words)) for name, words in zip(names, [*before, *programs], strict=True)]
    web = (*HORSIES, "web", "--port", str(port), "--enable-actions")
    everything = tree.Tree(
        starts(WORKER, (*HORSIES, "worker", *worker), says_ready=True),
        watcher,
        say,
        before=parts[: len(before)],
        programs=parts[len(before) :],
        web=[] if port is None else [tree.Part(WEB, starts(WEB, web))],
    )
    log.on_gone = everything.stop
    return everything.run()


def _table(module: str | None) -> project.Project:
    """The table of pyproject.toml, and the directory in which everything runs: that of the table if it names the app,
    otherwise the current one."""
    here = Path.cwd()
    if named := module or os.environ.get(project.VARIABLE, "").strip():
        return replace(project.read(here) or project.Project(here), app=named)
    table = project.find(here)
    if table is None or table.app is None:
        raise project.no_app()
    return table


def _refuse_second(directory: Path) -> None:
    """Two of them would restart each other's work for nothing. The lock is the kernel's: it ends with this process."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise output.usage_error(
            f"horsies dev already runs in {directory}", "stop it first; horsies worker runs any number of workers"
        ) from None


def _port(wanted: int | None) -> int:
    """The port of the dashboard, which nobody uses now."""
    found = ports.free_port(ports.FIRST if wanted is None else wanted)
    if wanted and found != wanted:
        raise output.usage_error(
            f"cannot listen on {ports.LOOPBACK}:{wanted}: another process uses it", "--port names another one, 0: any"
        )
    return found


def _with_database(table: project.Project, environment: dict[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """The environment of the programs. DATABASE_URL has the real address of an embedded server, which this process
    keeps running: frameworks know nothing of horsies."""
    given = environment.get(DATABASE, "").strip()
    if given and not given.startswith(EMBEDDED):
        say(f"database: from {DATABASE}")
        return environment
    if not given and table.has_own_database:
        say("database: the app's own")
        return environment
    from horsies.cli import database  # it loads what talks to a database, and the programs have addresses of their own

    chosen = database.choose(None, environment=environment)
    say(chosen.opening_sentence())
    return {**environment, DATABASE: chosen.config.dsn()}


def _words(text: str, where: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as problem:
        raise output.usage_error(f"{where} {text!r}: {problem}") from None
    if not words:
        raise output.usage_error(f"{where}: there is no command")
    return words
