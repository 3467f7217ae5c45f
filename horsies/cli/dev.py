"""`horsies dev`: its options, the project that it is started in, and the tree of processes that follows from both
(X-31). `horsies/dev` runs it; it is imported only here, because it needs the extra `dev`.
"""

import asyncio
import fcntl
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from horsies.cli import output, reloading
from horsies.cli.options import LogLevel, modules, parse_names
from horsies.core import discovery
from horsies.core.child.wire import MOST_CHILDREN
from horsies.core.logs import wants_color
from horsies.dev import ports
from horsies.dev import project as projects

WEB_PACKAGES = ("starlette", "jinja2", "uvicorn")


def dev(
    module: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE", help="The app; without it, [tool.horsies] of pyproject.toml says.", autocompletion=modules
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
        typer.Option(metavar="DIRECTORY", help="Watch this directory too; can be given several times."),
    ] = None,
    loglevel: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="The log level of the worker and its children.")
    ] = LogLevel.INFO,
) -> int:
    """Run everything that a project needs while it is written: the database, a worker that goes on with the new code
    when a file changes, the scheduler if there are schedules, and the dashboard.

    The database is that of DATABASE_URL, or the app's own, or an embedded server. Ctrl-C ends everything, after the
    running tasks; a second one ends it at once.
    """
    reloading.refuse_without_extra(*(() if no_web else WEB_PACKAGES))
    project = _project(module)
    _refuse_second(project.directory)
    os.chdir(project.directory)
    worker = ["--scheduler-if-any", "--processes", str(processes), "--loglevel", loglevel.value]
    if names := parse_names(queues):
        worker += ["--queues", ",".join(names)]
    given = [*(reload_dir or ()), *map(Path, project.reload_dirs)]
    programs = [_words(text, "--run") for text in [*project.run, *(run or ())]]
    with nullcontext() if no_web else _port(port) as web:
        return _run(project, tuple(worker), web, programs, given)


def _run(
    project: projects.DevProject,
    worker: tuple[str, ...],
    web: socket.socket | None,
    programs: list[tuple[str, ...]],
    directories: list[Path],
) -> int:
    from horsies.dev import database, lines, tree, watch

    assert project.app is not None
    before = tuple(_words(text, "before") for text in project.before)
    plan = tree.TreePlan(project.app, worker, web, before, tuple(programs))
    color = wants_color(sys.stderr)
    log = lines.Log(output.write_log, plan.names(), color=color)
    log.line(tree.DEV, f"{project.app} in {project.directory}; Ctrl-C stops everything")
    environment = database.environment_with_database(
        project.app, _environment(os.environ, color=color), lambda text: log.line(tree.DEV, text)
    )
    watcher = watch.Watcher(reloading.roots(project.app, directories))

    async def serve() -> int:
        everything = tree.Tree(plan, log, watcher, environment)
        return await reloading.until_told(everything.run, everything.stop)

    return asyncio.run(serve())


def _project(module: str | None) -> projects.DevProject:
    """The table of pyproject.toml, and the directory in which everything runs: that of the table if it names the app,
    otherwise the current one."""
    here = Path.cwd()
    if module is not None:
        found = projects.read(here) or projects.DevProject(here)
        return projects.DevProject(here, module, found.before, found.run, found.reload_dirs)
    table = projects.find(here)
    if table is not None and table.app is not None:
        return table
    where = f"[tool.horsies] of {table.directory / projects.FILE}" if table else f"[tool.horsies] of {projects.FILE}"
    if inside := projects.below(here):
        raise output.usage_error("no app is named", f"cd {shlex.quote(inside.directory.name)} && horsies dev")
    example = next(iter(discovery.apps_nearby()), "shop:app")
    error = output.usage_error(
        "no app is named", f'horsies dev {shlex.quote(example)}, or name it in {where}: app = "{example}"'
    )
    raise error.with_note("horsies new shop creates a project")


def _refuse_second(directory: Path) -> None:
    """Two of them would restart each other's work for nothing. The lock is the kernel's: it ends with this process."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise output.usage_error(
            f"horsies dev already runs in {directory}", "stop it first; horsies worker runs any number of workers"
        ) from None


def _port(wanted: int | None) -> socket.socket:
    try:
        return ports.first_free() if wanted is None else ports.held([wanted])
    except OSError as problem:
        raise output.usage_error(
            f"cannot listen on {ports.LOOPBACK}:{wanted or ports.FIRST}: {problem.strerror}",
            "--port names another one, 0: any",
        ) from None


def _words(text: str, where: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as problem:
        raise output.usage_error(f"{where} {text!r}: {problem}") from None
    if not words:
        raise output.usage_error(f"{where}: there is no command")
    return words


def _environment(own: Mapping[str, str], *, color: bool) -> dict[str, str]:
    """What the programs get. Those of this Python's environment are found also if it is not activated, and their lines
    come when they are written."""
    path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", os.defpath)])
    return {**own, "PATH": path, "PYTHONUNBUFFERED": "1", **({"HORSIES_FORCE_COLOR": "1"} if color else {})}
