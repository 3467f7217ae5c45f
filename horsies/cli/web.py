"""`horsies web`: the options of the dashboard as a program of its own (M-60, M-61, M-93). `web_server.py` runs it."""

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from horsies.cli import options
from horsies.core import distribution, errors

TOKEN_VARIABLE = "HORSIES_WEB_TOKEN"
PACKAGES = ("starlette", "jinja2", "uvicorn")  # the extra `web`


class WebAuth(StrEnum):
    """Who may look: everybody on this machine, who knows the token, or whom a proxy has named."""

    NONE = "none"
    TOKEN = "token"
    TRUSTED_HEADER = "trusted-header"


@dataclass(frozen=True, slots=True)
class WebOptions:
    """What was typed."""

    module: str | None
    database_url: str | None
    host: str
    port: int
    auth: WebAuth
    trusted_header: str
    token_file: Path | None
    enable_actions: bool
    allowed_hosts: tuple[str, ...]
    mask: tuple[str, ...]
    hide_payloads: bool
    session_database_url: str | None
    is_pooled: bool


def web(
    module: options.OptionalModule = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0: any.")] = 8600,
    auth: Annotated[
        WebAuth,
        typer.Option(
            case_sensitive=False,
            help="none: everybody on this machine; token: who knows the token; trusted-header: whom a proxy names.",
        ),
    ] = WebAuth.NONE,
    trusted_header: Annotated[
        str, typer.Option(metavar="NAME", help="With --auth trusted-header: the header that names the user.")
    ] = "X-Forwarded-User",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.absolute,
            show_default=TOKEN_VARIABLE,
            help=f"With --auth token: a file with the token; without it, the environment variable {TOKEN_VARIABLE}.",
        ),
    ] = None,
    enable_actions: Annotated[
        bool, typer.Option("--enable-actions", help="Let those who may look also cancel, rerun, pause and so on.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default="localhost, 127.0.0.1, ::1",
            help="A host name under which the dashboard is called; can be given several times.",
        ),
    ] = None,
    mask: options.Mask = None,
    hide_payloads: Annotated[
        bool, typer.Option("--hide-payloads", help="Show no arguments, results, options and error texts.")
    ] = False,
    session_database_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A direct address for live updates, if the other is a pooler's.")
    ] = None,
    pgbouncer_transaction_mode: Annotated[
        bool, typer.Option("--pgbouncer-transaction-mode", help="The database is behind a transaction pooler.")
    ] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Serve the dashboard: tasks, workflows, workers, queues and schedules in a browser, and as JSON below /api.

    It only looks unless --enable-actions is given, and never changes the tables. Without --auth it listens on this
    machine only. After SIGTERM or Ctrl-C it ends within a second, with 0.
    """
    typed = WebOptions(
        module=module,
        database_url=database_url,
        host=host,
        port=port,
        auth=auth,
        trusted_header=trusted_header,
        token_file=token_file,
        enable_actions=enable_actions,
        allowed_hosts=tuple(allowed_host or ()),
        mask=tuple(mask or ()),
        hide_payloads=hide_payloads,
        session_database_url=session_database_url,
        is_pooled=pgbouncer_transaction_mode,
    )
    refuse_without_extra()
    from horsies.cli import web_server

    return web_server.run(typed)


def refuse_without_extra() -> None:
    for package in PACKAGES:
        if find_spec(package) is None:
            raise errors.ConfigurationError(
                f"the dashboard needs the package {package}, which is not installed",
                code=errors.ErrorCode.CLI_INVALID_ARGS,
                help_text=distribution.pip_install("web"),
            )
