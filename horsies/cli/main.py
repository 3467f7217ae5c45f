"""The `horsies` command and its subcommands. A mistake is reported on standard error, with exit code 1 (M-11)."""

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any, NoReturn, TypeAlias

import typer
from typer.core import TyperGroup

from horsies.cli import database, options, output
from horsies.cli.check import check
from horsies.cli.demo import demo
from horsies.cli.dev import dev
from horsies.cli.grants import grants
from horsies.cli.history import audit, failures
from horsies.cli.mcp import mcp
from horsies.cli.migrate import migrate_from
from horsies.cli.new import new
from horsies.cli.notes import logs
from horsies.cli.one_task import explain, task
from horsies.cli.queues import metrics, queues
from horsies.cli.schedules import schedules
from horsies.cli.schema import schema
from horsies.cli.task_actions import cancel, purge, rerun, run_now, send
from horsies.cli.tasks import stale_tasks, tasks
from horsies.cli.tui import tui
from horsies.cli.web import web
from horsies.cli.worker import scheduler, worker
from horsies.cli.workers import drain, force_unlock, sweep_stale_workers, workers
from horsies.cli.workflow import recover_workflows, workflow
from horsies.core import errors, tracing
from horsies.core.logs import clean_last_resort

FLUSH_S = 2.0  # spans that have not been exported yet get this time; nothing else waits for them
INTERRUPTED = 130  # Typer's exit code for Ctrl-C
Command: TypeAlias = Callable[..., Any]


class _Group(TyperGroup):
    """Lists the commands below the headings of `GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for heading, names in HEADINGS.items():
            rows = [(name.ljust(width), self.commands[name].short_help) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


app = typer.Typer(
    name="horsies",
    cls=_Group,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Typer's boxes cut off the names of long options
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The commands below the headings of the help and in its order, each with its line there.
GROUPS: dict[str, dict[str, tuple[Callable[..., int] | typer.Typer, str]]] = {
    "Run": {
        "dev": (dev, "Run a project while you write it."),
        "worker": (worker, "Run a worker."),
        "scheduler": (scheduler, "Run a scheduler."),
        "demo": (demo, "Show what horsies does, in less than a minute."),
    },
    "Prepare": {
        "new": (new, "Write a new project."),
        "check": (check, "Find mistakes in an app before anything runs."),
        "init-db": (database.init_db, "Create the tables, or upgrade them to this version."),
        "grants": (grants, "Print or grant the rights that roles need."),
        "schema": (schema, "Describe the tasks of an app for other languages."),
        "migrate-from": (migrate_from, "Convert a project that uses another queue."),
    },
    "Tasks": {
        "send": (send, "Send a task, and optionally wait for its result."),
        "tasks": (tasks, "List tasks by state, queue, name, worker or error."),
        "task": (task, "Show one task: arguments, result, attempts."),
        "logs": (logs, "Show what a task has logged."),
        "explain": (explain, "Explain why a task is not running."),
        "failures": (failures, "Group failed tasks by name and error."),
        "cancel": (cancel, "Cancel tasks."),
        "rerun": (rerun, "Send ended tasks again."),
        "run-now": (run_now, "Run tasks before they are due."),
        "purge": (purge, "Delete old tasks, or cancel a queue's waiting ones."),
        "audit": (audit, "List what people did through the dashboard."),
    },
    "Workflows and schedules": {
        "workflow": (workflow, "List, show, pause, resume, cancel or retry workflows."),
        "schedules": (schedules, "List the schedules of an app and their next runs."),
    },
    "Queues and workers": {
        "tui": (tui, "Show what goes on, live, in the terminal."),
        "queues": (queues, "Show the length, age and throughput of each queue."),
        "workers": (workers, "List the workers, their queues and their load."),
        "drain": (drain, "Ask workers to finish their tasks and leave."),
        "metrics": (metrics, "Serve metrics of the database for Prometheus."),
        "web": (web, "Serve the dashboard."),
        "mcp": (mcp, "Serve a coding agent (Model Context Protocol)."),
    },
    "Recovery by hand": {
        "stale-tasks": (stale_tasks, "List running tasks whose heartbeats have stopped."),
        "sweep-stale-workers": (sweep_stale_workers, "Return the tasks of dead workers to the queue."),
        "force-unlock": (force_unlock, "Return all tasks of the named workers to the queue."),
        "recover-workflows": (recover_workflows, "Repair stuck workflows."),
    },
}
HEADINGS = {heading: tuple(group) for heading, group in GROUPS.items()}
COMMANDS: dict[str, Callable[..., int]] = {}
for _group in GROUPS.values():
    for _name, (_command, _short) in _group.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, short_help=_short)
        else:
            app.command(_name, short_help=_short, epilog=options.epilog(_name))(_command)
            COMMANDS[_name] = _command


def _print_version(wanted: bool) -> None:
    if wanted:
        output.write(f"horsies {version('horsies')}")
        raise typer.Exit


@app.callback()
def horsies(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A task queue and workflow engine on PostgreSQL."""


def main() -> NoReturn:
    """The console script."""
    run_and_exit(sys.argv[1:])


def run_and_exit(args: list[str], command: Command | None = None, prog_name: str = "horsies") -> NoReturn:
    """Run one command line and end the process. `command` is another program of the same commands."""
    try:
        code = run(args, command, prog_name)
    except BaseException as problem:  # a mistake of ours, or something strange in a module of the user
        output.show_crash(problem)
        code = 1
    tracing.flush(FLUSH_S)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader of our output is gone
            code = 1
    # Threads that the user's modules have started must not keep the command from ending.
    os._exit(code)


def run(args: list[str], command: Command | None = None, prog_name: str = "horsies") -> int:
    """Run one command line and return the exit code."""
    clean_last_resort()
    try:
        # Who starts this command line again (--reload) needs to know it; that of another program is its own affair.
        again = tuple(args) if command is None else None
        code = (command or app)(args or ["--help"], prog_name=prog_name, standalone_mode=False, obj=again)
    except errors.HorsiesError as problem:
        output.show_error(problem)
        return 1
    except typer.Abort:
        code = INTERRUPTED
    except SystemExit as end:  # the shell's completion ends so, and Typer and rich if their reader is gone
        code = end.code
    except Exception as problem:
        # Typer's own errors come from click, either from its package or from the copy inside Typer.
        if (message := getattr(problem, "format_message", None)) is None:
            raise
        output.show_error(output.usage_error(message(), _help_for(problem)))
        return 1
    if code == INTERRUPTED:
        output.say("interrupted")
    return 0 if not code else 1


def _help_for(problem: Exception) -> str | None:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None


if __name__ == "__main__":
    main()
