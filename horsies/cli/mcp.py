"""`horsies mcp`: the options of the server for coding agents (X-41). `horsies/mcp/program.py` runs it."""

from importlib.util import find_spec
from typing import Annotated

import typer

from horsies.cli import database, options, output
from horsies.core import distribution, errors, locate
from horsies.core.app import Horsies
from horsies.core.checks import require_sound
from horsies.core.models.broker import PostgresConfig


def mcp(
    module: options.OptionalModule = None,
    enable_actions: Annotated[
        bool,
        typer.Option("--enable-actions", help="Let the agent also cancel, rerun and retry, which is then audited."),
    ] = False,
    mask: options.Mask = None,
    hide_payloads: Annotated[
        bool, typer.Option("--hide-payloads", help="Show no arguments, results, options, error texts and logs.")
    ] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Serve a coding agent: a Model Context Protocol server on standard input and output.

    The agent starts it. It only looks unless --enable-actions is given, and never changes the tables. Everything else
    that is printed goes to standard error. It ends when standard input closes, and after SIGTERM or Ctrl-C, with 0.
    """
    refuse_without_extra()
    from horsies.mcp.program import run

    return run(
        lambda: _source(module, database_url),
        enable_actions=enable_actions,
        mask=tuple(mask or ()),
        hide_payloads=hide_payloads,
    )


def refuse_without_extra() -> None:
    if find_spec("mcp") is None:
        raise errors.ConfigurationError(
            "the server for coding agents needs the package mcp, which is not installed",
            code=errors.ErrorCode.CLI_INVALID_ARGS,
            help_text=distribution.pip_install("mcp"),
        )


def _source(module: str | None, database_url: str | None) -> Horsies | PostgresConfig:
    """The app, which must be sound (M-21), or the configuration of the database."""
    app = None if module is None else locate.load_app(module)
    chosen = database.choose(database_url, None if app is None else app.config.broker)
    output.say(chosen.sentence())
    database.refuse_missing(chosen)
    if app is None:
        return chosen.config
    database.use(app, chosen)
    require_sound(app)
    return app
