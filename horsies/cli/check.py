"""`horsies check`: find mistakes in an app before anything runs (M-04, M-20). This module selects and prints the
findings; `core/checks` finds them.
"""

from typing import Annotated

import typer

from horsies.cli import database, options, output
from horsies.core import errors, locate, logs
from horsies.core.app import Horsies
from horsies.core.checks import code


def check(
    module: options.Module,
    live: Annotated[
        bool,
        typer.Option("--live", help="Also check the database, and whether this code can run the tasks waiting there."),
    ] = False,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Leave out warnings with this code, such as HRS-217.")
    ] = None,
    loglevel: Annotated[
        options.LogLevel, typer.Option(case_sensitive=False, help="The log level during the check.")
    ] = options.LogLevel.WARNING,
) -> int:
    """Check an app: its settings, modules, tasks, workflows and schedules. The exit code is 1 if there is any
    finding."""
    logs.configure(loglevel)
    allowed = [_code(text) for text in allow or ()]
    app = locate.load_app(module)
    if live:
        chosen = database.choose(None, app.config.broker)
        output.say(chosen.sentence())
        database.refuse_missing(chosen)
    found = app.check(live=live)  # an error cannot be allowed: it would keep workers from starting in any case
    findings = [error for error in found if not isinstance(error, errors.CheckWarning) or error.code not in allowed]
    if findings:
        output.show_errors(findings, "the check")
        return 1
    output.write(f"ok: {summary(app)}")
    return 0


def summary(app: Horsies) -> str:
    """How many tasks, workflows, builders and schedules the app has (M-22)."""
    counts = {
        "task": len(app.list_tasks()),
        "workflow": len(code.definitions_of(app)),
        "builder": len(app.get_workflow_builders()),
        "schedule": 0 if app.config.schedule is None else len(app.config.schedule.schedules),
    }
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items())


def _code(text: str) -> errors.ErrorCode:
    try:
        return errors.ErrorCode(text.upper())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a code; codes look like HRS-217", param_hint="'--allow'") from None
