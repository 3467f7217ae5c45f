"""`horsies demo`: a small shop on real workers and a real PostgreSQL, for a few seconds or, with `--web`, until Ctrl-C.
This module chooses the database and prepares it; the package `horsies/demo` has the shop.
"""

import asyncio
import os
import shutil
import signal
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from horsies.cli import database, options, output
from horsies.cli.web import refuse_without_extra
from horsies.core.db import AWAY, connect, describe
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import install


def demo(
    web: Annotated[bool, typer.Option("--web", help="Keep the shop busy, with its dashboard, until Ctrl-C.")] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Run a small shop: thousands of tasks, retries, workflows, a schedule, cancelled tasks, a killed worker.

    It ends by itself in less than half a minute, with a table of what is in the database. The exit code is 1 if a line
    of it does not hold. With --web the shop stays busy, with its dashboard, until Ctrl-C.
    """
    if web:
        refuse_without_extra()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # it ends in order in this case too
    chosen = database.choose(database_url)
    output.write(chosen.opening_sentence())
    try:
        notify = asyncio.run(_prepare(chosen.config))
        # Settings of the app's module, here and in the workers. Anyone can read a command line.
        os.environ.update(HORSIES_DEMO_DATABASE_URL=chosen.url, HORSIES_DEMO_NOTIFY=notify)
        return _keep_busy(chosen) if web else _play(chosen)
    except KeyboardInterrupt:
        output.say("interrupted")
        return 1
    except AWAY as problem:
        raise ConfigurationError(
            "the database cannot be used",
            code=ErrorCode.BROKER_INIT_FAILED,
            notes=[chosen.config.redact(describe(problem))],
        ) from problem


def _play(chosen: database.Database) -> int:
    os.environ["HORSIES_DEMO_RUN"] = run = uuid.uuid4().hex[:8]
    from horsies.demo.run import play  # this builds the app, which reads the environment

    came_out = asyncio.run(play(output.out()))
    output.write(f"The rows are in the queues 'demo-{run}-…' of the table horsies_tasks. {_how_to_look(chosen)}")
    return 0 if came_out else 1


def _keep_busy(chosen: database.Database) -> int:
    from horsies.demo import steady  # the same

    with suppress(KeyboardInterrupt):
        asyncio.run(steady.run(lambda url: output.write(f"dashboard: {url} (Ctrl-C stops it, and the shop)")))
    output.write(f"Everything has stopped. The rows stay. {_how_to_look(chosen)}")
    return 0


def _how_to_look(chosen: database.Database) -> str:
    """The command that shows this database in a browser. The URL that was typed may have a password."""
    path = chosen.config.embedded_path
    given = f" --database-url {'embedded:' + str(path) if path else '…'}" if chosen.said_by == "--database-url" else ""
    called = sys.argv[0]  # the same works again
    name = "horsies" if shutil.which("horsies") == called else called
    ours = name if Path(called).name == "horsies" else "python -m horsies"
    return f"To look at them in a browser: {ours} web{given} (extra web)."


async def _prepare(config: PostgresConfig) -> str:
    """Install the schema, and return the notify mode of the database."""
    conn = await connect(config, session=True, name="horsies demo")
    try:
        return (await install(conn)).notify
    finally:
        await conn.close()
