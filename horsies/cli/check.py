"""`horsies check`: everything that can be found wrong with an app before anything runs (M-04, M-20)."""

from __future__ import annotations

from typing import Annotated

import typer

from horsies.cli import database, output
from horsies.cli.options import LogLevel, Module
from horsies.core import logs, workflow_checks
from horsies.core.app import Horsies
from horsies.core.worker.locate import load_app


def check(
    module: Module,
    live: Annotated[bool, typer.Option("--live", help="Also ask the database.")] = False,
    loglevel: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="What is logged meanwhile.")
    ] = LogLevel.WARNING,
) -> int:
    """Check an app: its settings, its modules, its tasks and workflows. Exit code 1 if something is wrong."""
    logs.configure(loglevel)
    app = load_app(module)
    if live:
        chosen = database.choose(None, app.config.broker)
        output.say(chosen.sentence())
        database.refuse_missing(chosen)
    errors = app.check(live=live)
    if errors:
        output.show_errors(errors, "the check")
        return 1
    output.out().print(f"ok: {summary(app)}", markup=False)
    return 0


def summary(app: Horsies) -> str:
    """What the app holds (M-22). Schedules are counted when there are such things."""
    counts = {
        "task": len(app.list_tasks()),
        "workflow": len(workflow_checks.definitions_of(app)),
        "builder": len(app.get_workflow_builders()),
        "schedule": 0,
    }
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())
