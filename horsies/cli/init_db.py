"""`horsies init-db`: install or upgrade the schema and exit (M-07)."""

from __future__ import annotations

import asyncio

from horsies.cli import database, output
from horsies.cli.options import DatabaseUrl, OptionalModule
from horsies.core.brokers.connections import connect
from horsies.core.brokers.results import AWAY, describe, hint_for
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import InstallReport, install
from horsies.core.worker.locate import load_app


def init_db(module: OptionalModule = None, database_url: DatabaseUrl = None) -> int:
    """Create the tables, or upgrade them to this version. It is safe to repeat this, also while workers run."""
    own = load_app(module).config.broker if module is not None else None
    chosen = database.choose(database_url, own)
    output.say(chosen.opening_sentence())
    try:
        report = asyncio.run(_install(chosen.config, is_configured=own is not None))
    except AWAY as problem:
        raise ConfigurationError(
            "the schema could not be created",
            code=ErrorCode.BROKER_INIT_FAILED,
            notes=[chosen.config.redact(describe(problem))],
            help_text=hint_for(describe(problem)),
        ) from problem
    output.out().print(_sentence(report), markup=False)
    return 0


async def _install(config: PostgresConfig, *, is_configured: bool) -> InstallReport:
    conn = await connect(config, session=True, name="horsies init-db")
    try:
        # Without an app nobody has said which notify mode is wanted: one that is in use stays.
        return await install(conn, notify=config.notify, change_notify=is_configured)
    finally:
        await conn.close()


def _sentence(report: InstallReport) -> str:
    state = "created" if report.created else "is in place"
    changed = f", changed from {report.notify_changed_from}" if report.notify_changed_from else ""
    return f"schema version {report.version} {state} (notify: {report.notify}{changed})"
