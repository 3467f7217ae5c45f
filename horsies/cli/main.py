"""The `horsies` command and its subcommands. A mistake is reported on standard error, with exit code 1 (M-11).

The module of a command is imported when that command runs; the list of commands is shown without any of them.
"""

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from horsies.cli import options, output, project
from horsies.core import distribution, errors, tracing
from horsies.core.logs import clean_last_resort

FLUSH_S = 2.0  # spans that have not been exported yet get this time; nothing else waits for them
INTERRUPTED = 130  # Typer's exit code for Ctrl-C
PROG = "horsies"


class _Commands(Mapping[str, Any]):
    """The commands by name; each is imported when it is looked up."""

    def __init__(self) -> None:
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported[name] = _import_command(name)
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """Lists the commands below the headings of `GROUPS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), short) for name, (_, short) in group.items()])


app = typer.Typer(
    name=PROG,
    cls=_Group,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Typer's boxes cut off the names of long options
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The commands below the headings of the help and in its order: the module and name of each, and its line there.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "dev": ("dev:dev", "Run a project while you write it."),
        "worker": ("worker:worker", "Run a worker."),
        "scheduler": ("worker:scheduler", "Run a scheduler."),
        "demo": ("demo:demo", "Show what horsies does, in less than a minute."),
    },
    "Prepare": {
        "new": ("new:new", "Write a new project."),
        "check": ("check:check", "Find mistakes in an app before anything runs."),
        "init-db": ("database:init_db", "Create the tables, or upgrade them to this version."),
        "grants": ("grants:grants", "Print or grant the rights that roles need."),
        "schema": ("schema:schema", "Describe the tasks of an app for other languages."),
    },
    "Tasks": {
        "send": ("task_actions:send", "Send a task, and optionally wait for its result."),
        "tasks": ("tasks:tasks", "List tasks by state, queue, name, worker or error."),
        "task": ("one_task:task", "Show one task: arguments, result, attempts."),
        "logs": ("notes:logs", "Show what a task has logged."),
        "explain": ("one_task:explain", "Explain why a task is not running."),
        "failures": ("history:failures", "Group failed tasks by name and error."),
        "cancel": ("task_actions:cancel", "Cancel tasks."),
        "rerun": ("task_actions:rerun", "Send ended tasks again."),
        "run-now": ("task_actions:run_now", "Run tasks before they are due."),
        "purge": ("task_actions:purge", "Delete old tasks, or cancel a queue's waiting ones."),
        "audit": ("history:audit", "List what people did through the dashboard."),
    },
    "Workflows and schedules": {
        "workflow": ("workflow:workflow", "List, show, pause, resume, cancel or retry workflows."),
        "schedules": ("schedules:schedules", "List the schedules of an app and their next runs."),
    },
    "Queues and workers": {
        "tui": ("tui:tui", "Show what goes on, live, in the terminal."),
        "queues": ("queues:queues", "Show the length, age and throughput of each queue."),
        "workers": ("workers:workers", "List the workers, their queues and their load."),
        "drain": ("workers:drain", "Ask workers to finish their tasks and leave."),
        "metrics": ("queues:metrics", "Serve metrics of the database for Prometheus."),
        "web": ("web:web", "Serve the dashboard."),
        "mcp": ("mcp:mcp", "Serve a coding agent (Model Context Protocol)."),
    },
    "Recovery by hand": {
        "stale-tasks": ("tasks:stale_tasks", "List running tasks whose heartbeats have stopped."),
        "sweep-stale-workers": ("workers:sweep_stale_workers", "Return the tasks of dead workers to the queue."),
        "force-unlock": ("workers:force_unlock", "Return all tasks of the named workers to the queue."),
        "recover-workflows": ("workflow:recover_workflows", "Repair stuck workflows."),
    },
}
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}


def _import_command(name: str) -> Any:
    place, short_help = COMMANDS[name]
    module, _, attribute = place.partition(":")
    gc.disable()  # collections take a tenth of the time of an import, and find nothing
    try:
        command = getattr(import_module(f"horsies.cli.{module}"), attribute)
    finally:
        gc.enable()
    holder = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name, short_help=short_help)
    else:
        holder.command(name, short_help=short_help, epilog=options.epilog(name))(command)
    return typer.main.get_group(holder).commands[name]


def _print_version(wanted: bool) -> None:
    if wanted:
        output.write(f"horsies {distribution.version()}")
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


def run_and_exit(args: list[str], prog_name: str = PROG, named_app: str | None = None) -> NoReturn:
    """Run one command line and end the process. Another program with the same commands has its own name, and may name
    the app."""
    _open_missing_streams()
    try:
        code = run(args, prog_name, named_app, is_program=prog_name == PROG)
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


def _open_missing_streams() -> None:
    """A program may be started without standard input, output or error. The next file or socket that it opens would get
    that number, and with it what this process and those that it starts write there."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)
            if nothing != number:
                os.close(nothing)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115


def run(args: list[str], prog_name: str = PROG, named_app: str | None = None, *, is_program: bool = False) -> int:
    """Run one command line and return the exit code. `is_program`: this process is the `horsies` command, and has
    loaded nothing else."""
    clean_last_resort()
    try:
        distribution.refuse_other()
        # Who starts this command line again (--reload) needs to know it; that of another program is its own affair.
        called = options.Invocation(tuple(args) if prog_name == PROG else None, is_program)
        with project.naming(named_app):
            code = app(args or ["--help"], prog_name=prog_name, standalone_mode=False, obj=called)
    except errors.HorsiesError as problem:
        output.show_error(problem)
        return 1
    except ImportError:
        if (missing := _without_libpq()) is None:
            raise
        output.show_error(missing)
        return 1
    except typer.Abort:
        code = INTERRUPTED
    except SystemExit as end:  # the shell's completion ends so, and Typer and rich if their reader is gone
        code = end.code
    except Exception as problem:
        # Typer's own errors come from click, either from its package or from the copy inside Typer.
        if (message := getattr(problem, "format_message", None)) is None:
            raise
        said = message().replace(": Value error, ", ": ")  # of a wrong choice, by Typer
        output.show_error(output.usage_error(said, _help_for(problem)))
        return 1
    if code == INTERRUPTED:
        output.say("interrupted")
    return 0 if not code else 1


def _without_libpq() -> errors.HorsiesError | None:
    try:
        import_module("horsies.core.libpq")
    except errors.HorsiesError as problem:
        return problem
    return None


def _help_for(problem: Exception) -> str | None:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None


if __name__ == "__main__":
    main()
