"""The `horsies` command: its subcommands, and how a mistake ends: readable on standard error, exit code 1 (M-11)."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from horsies.cli import output
from horsies.cli.check import check
from horsies.cli.demo import demo
from horsies.cli.force_unlock import force_unlock
from horsies.cli.init_db import init_db
from horsies.cli.recover_workflows import recover_workflows
from horsies.cli.send import send
from horsies.cli.stale_tasks import stale_tasks
from horsies.cli.sweep import sweep_stale_workers
from horsies.cli.worker import worker
from horsies.cli.workers import workers
from horsies.cli.workflow import workflow
from horsies.core.errors import HorsiesError

app = typer.Typer(
    name="horsies",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # its boxes cut off the names of long options
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(worker)
app.command()(check)
app.command("init-db")(init_db)
app.command()(send)
app.command("stale-tasks")(stale_tasks)
app.command("recover-workflows")(recover_workflows)
app.command()(demo)
app.command("workers")(workers)
app.command("sweep-stale-workers")(sweep_stale_workers)
app.command("force-unlock")(force_unlock)
app.add_typer(workflow, name="workflow")


def _print_version(wanted: bool) -> None:
    if wanted:
        output.out().print(f"horsies {version('horsies')}", markup=False)
        raise typer.Exit


@app.callback()
def horsies(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A PostgreSQL-backed task queue: fast, typed, and exact about every state."""


def main() -> NoReturn:
    """The console script."""
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # whoever read us is gone
            code = 1
    # Threads that the user's modules have started must not keep the command from ending.
    os._exit(code)


def run(args: list[str]) -> int:
    """Run one command line; the exit code."""
    try:
        code = app(args or ["--help"], prog_name="horsies", standalone_mode=False)
    except HorsiesError as problem:
        output.show_error(problem)
        return 1
    except Exception as problem:
        # Typer's own errors: click's, from the package or from the copy inside of Typer.
        if (message := getattr(problem, "format_message", None)) is None:
            raise
        output.show_error(output.usage_error(message(), _help_for(problem)))
        return 1
    return 0 if not code else 1


def _help_for(problem: Exception) -> str | None:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None


if __name__ == "__main__":
    main()
