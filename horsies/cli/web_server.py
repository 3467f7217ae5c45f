"""The dashboard as `horsies web` runs it: the policy from its options, the app or the database, and the server. It is
imported when that command runs, because it needs the extra `web`.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from horsies.cli import database, output
from horsies.cli.web import TOKEN_VARIABLE, WebAuth, WebOptions
from horsies.core import errors, locate, logs
from horsies.core.app import Horsies
from horsies.core.checks import require_sound
from horsies.core.models.broker import PostgresConfig, driver_url
from horsies.core.text import visible
from horsies.dev.program import ready_signal
from horsies.web import AllowAll, AuthPolicy, Token, TrustedHeader, WebConfig, create_monitoring_app, server
from horsies.web.config import LOOPBACK_NAMES


def run(options: WebOptions) -> int:
    """Serve until a signal comes. Mistakes are found before anything is opened."""
    say_ready = ready_signal()
    given = None if options.listening_on is None else server.inherited(options.listening_on)
    addresses = server.addresses_of(options.host) if given is None else [server.address_of(given)]
    _refuse_open_door(options, is_private=server.are_loopback(addresses))
    policy = _policy(options)
    app = create_monitoring_app(_source(options), auth_policy=policy, config=config_of(options))
    logs.configure()
    sockets = server.listen(options.host, addresses, options.port) if given is None else [given]
    url = server.url_of(options.host, sockets)

    def on_ready() -> None:
        output.say(f"dashboard: {url}")
        say_ready()

    asyncio.run(server.serve(app, sockets, on_ready))
    return 0


def config_of(options: WebOptions) -> WebConfig:
    return WebConfig(
        enable_actions=options.enable_actions,
        allowed_hosts=options.allowed_hosts or LOOPBACK_NAMES,
        mask=options.mask or None,
        hide_payloads=options.hide_payloads,
    )


def _refuse_open_door(options: WebOptions, *, is_private: bool) -> None:
    if options.auth is WebAuth.NONE and not is_private:
        raise output.usage_error(
            visible(f"--host {options.host} can be reached from other machines, and --auth none lets everybody in"),
            "--auth token or --auth trusted-header, or --host 127.0.0.1",
        )


def _policy(options: WebOptions) -> AuthPolicy:
    if options.token_file is not None and options.auth is not WebAuth.TOKEN:
        raise output.usage_error("--token-file is for --auth token", "--auth token")
    match options.auth:
        case WebAuth.NONE:
            return AllowAll()
        case WebAuth.TRUSTED_HEADER:
            return TrustedHeader(options.trusted_header, allow_actions=options.enable_actions)
        case WebAuth.TOKEN:
            return Token(_token(options.token_file), allow_actions=options.enable_actions)


def _token(file: Path | None) -> str:
    token = os.environ.get(TOKEN_VARIABLE, "") if file is None else _content(file)
    if not token.strip():
        raise output.usage_error(
            f"{TOKEN_VARIABLE} is not set" if file is None else visible(f"{file} has no token"),
            f"--auth token takes the token from {TOKEN_VARIABLE} or --token-file; openssl rand -hex 32 makes one",
        )
    return token.strip()


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not a text"
        raise output.usage_error(visible(f"the token cannot be read from {file}: {why}")) from None


def _source(options: WebOptions) -> Horsies | PostgresConfig:
    """The app, which must be sound (M-21), or the configuration of the database."""
    app = None if options.module is None else locate.load_app(options.module)
    chosen = database.choose(options.database_url, None if app is None else app.config.broker)
    chosen = database.Database(_reached(chosen.config, options), chosen.said_by)
    output.say(chosen.sentence())
    database.refuse_missing(chosen)
    if app is None:
        return chosen.config
    database.use(app, chosen)
    require_sound(app)
    return app


def _reached(config: PostgresConfig, options: WebOptions) -> PostgresConfig:
    given: dict[str, Any] = {}
    if options.session_database_url is not None:
        given["session_database_url"] = SecretStr(driver_url(options.session_database_url))
    if options.is_pooled:
        given["pgbouncer_transaction_mode"] = True
    try:
        return PostgresConfig(**{**dict(config), **given}) if given else config
    except errors.HorsiesError as problem:
        problem.location = None  # what was typed has no place in anybody's code
        raise
