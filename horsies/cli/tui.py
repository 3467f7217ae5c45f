"""`horsies tui`: a dashboard in the terminal, read-only (M-80). `--once` prints its first tab (M-82). This module opens
the database and starts what is in `horsies/tui`; the application needs the extra `tui`, `--once` does not.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from horsies.cli import options, output, session
from horsies.core.app import Horsies
from horsies.core.distribution import pip_install
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.logs import wants_color

WIDTH = 100  # of what is printed elsewhere than on a terminal
STYLES = {
    "": "default",
    "dim": "dim",
    "bold": "bold",
    "head": "bold",
    "good": "green",
    "warn": "yellow",
    "bad": "bold red",
    "busy": "cyan",
}


def tui(
    module: options.OptionalModule = None,
    tick_rate: Annotated[
        float,
        typer.Option(min=0.1, max=60, help="How often in a second it looks whether something must be asked again."),
    ] = 4.0,
    frame_rate: Annotated[
        float, typer.Option(min=0.5, max=60, help="How often in a second new values are drawn at most.")
    ] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Print the dashboard as text and exit.")] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Show what goes on, live: queues, workers, tasks by worker, workflows, dead workers. It only reads.

    Keys: 1 to 5 choose a tab, ? shows all keys, q quits. What is on the screen is asked again every few seconds, less
    often if answers take long; nothing else is asked.
    """
    application = None if once else _application()
    if application is not None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise output.usage_error("this needs a terminal", "horsies tui --once prints the dashboard as text")
    with session.open_read_only(module, database_url) as app:
        if application is None:
            return _print(app)
        rates = {"tick_rate": tick_rate, "frame_rate": frame_rate}
        # Without the mouse, so that the terminal's own selection works.
        application(app.get_broker(), has_colour=_has_colour(), **rates).run(mouse=False)
    return 0


def _application() -> Callable[..., Any]:
    """The application; without the extra, an error that says what to install."""
    try:
        from horsies.tui.app import for_broker
    except ImportError:
        raise ConfigurationError(
            "the terminal dashboard needs the package textual, which is not installed",
            code=ErrorCode.CLI_INVALID_ARGS,
            help_text=f"{pip_install('tui')} (horsies tui --once works without it)",
        ) from None
    return for_broker


def _has_colour() -> bool:
    """By M-12. Textual reads NO_COLOR itself."""
    if wants_color(sys.stdout):
        os.environ.pop("NO_COLOR", None)
        return True
    os.environ["NO_COLOR"] = "1"
    return False


def _print(app: Horsies) -> int:
    from horsies.tui.source import dashboard_of

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    found = session.answer_of(asyncio.run(dashboard_of(app.get_broker(), width)), app)
    lines = [output.styled(*((span.text, STYLES[span.tone]) for span in line)) for line in found]
    for line in lines:
        line.rstrip()
    output.write_styled(*lines)
    return 0
