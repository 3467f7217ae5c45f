"""`horsies demo`: run thousands of tasks on a real worker and a real PostgreSQL, and prove that each ended as expected.
This module chooses the database and prepares it; the package `horsies/demo` is the show.
"""

import asyncio
import os
import signal
import uuid

from horsies.cli import database, options, output
from horsies.core.db import AWAY, connect, describe
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import install


def demo(database_url: options.DatabaseUrl = None) -> int:
    """Show what horsies does: sends, retries, timeouts, cancelled tasks and crashes. This takes less than a minute."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the worker is stopped in this case too
    chosen = database.choose(database_url)
    output.write(chosen.opening_sentence())
    queue = f"demo-{uuid.uuid4().hex[:8]}"
    try:
        notify = asyncio.run(_prepare(chosen.config))
        _tell_the_app(queue, chosen.config, notify)
        from horsies.demo.run import play  # this builds the app, which reads the environment

        came_out = asyncio.run(play(output.out()))
    except KeyboardInterrupt:
        output.say("interrupted")
        return 1
    except AWAY as problem:
        raise ConfigurationError(
            "the database cannot be used",
            code=ErrorCode.BROKER_INIT_FAILED,
            notes=[chosen.config.redact(describe(problem))],
        ) from problem
    output.write(f"The rows are in the queue {queue!r} of table horsies_tasks.")
    return 0 if came_out else 1


async def _prepare(config: PostgresConfig) -> str:
    """Install the schema, and return the notify mode of the database."""
    conn = await connect(config, session=True, name="horsies demo")
    try:
        return (await install(conn)).notify
    finally:
        await conn.close()


def _tell_the_app(queue: str, config: PostgresConfig, notify: str) -> None:
    """Pass the settings to the app's module, here and in the worker, in the environment; everybody could read a command
    line."""
    url = config.database_url.get_secret_value()
    if config.embedded_path is not None:
        url = f"embedded:{config.embedded_path.expanduser().resolve()}"
    os.environ.update(HORSIES_DEMO_QUEUE=queue, HORSIES_DEMO_DATABASE_URL=url, HORSIES_DEMO_NOTIFY=notify)
