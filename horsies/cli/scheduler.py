"""`horsies scheduler`: send the scheduled tasks of an app until it is told to stop (M-03, S-40)."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Annotated

import typer

from horsies.cli import database
from horsies.cli.options import DatabaseUrl, LogFormat, LogLevel, Module
from horsies.cli.worker import complain, fastest_loop
from horsies.core import logs
from horsies.core.app import Horsies
from horsies.core.checks import require_sound
from horsies.core.errors import HorsiesError
from horsies.core.monitoring import endpoints
from horsies.core.scheduler.checks import require_schedule
from horsies.core.scheduler.exposure import exposed
from horsies.core.scheduler.process import SchedulerProcess
from horsies.core.worker.locate import load_app

log = logging.getLogger("horsies.cli")


def scheduler(
    module: Module,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, show_default="off", help="Serve /metrics, /healthz and /readyz on this port."),
    ] = None,
    metrics_host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    loglevel: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="The log level of the scheduler.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(case_sensitive=False, help="text for people, json for programs.")
    ] = LogFormat.TEXT,
    database_url: DatabaseUrl = None,
) -> int:
    """Run a scheduler that sends an app's tasks by the clock.

    One scheduler is enough. Several may run, on one machine or on many; each run is still sent once. After SIGTERM or
    Ctrl-C the scheduler finishes its current check and exits with 0.
    """
    logs.configure(loglevel, log_format)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the scheduler handles it: nothing runs yet
    try:
        if metrics_port is not None:
            endpoints.encoder()  # before anything is loaded: whether there is one
        app = load_app(module)
        chosen = database.choose(database_url, app.config.broker)
        database.use(app, chosen)
        require_schedule(app.config)
        require_sound(app)
        log.info(chosen.opening_sentence())
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            return runner.run(_run(SchedulerProcess(app), app, metrics_host, metrics_port))
    except HorsiesError as problem:
        complain(problem, log_format)
        return 1
    except KeyboardInterrupt:
        log.info("stopped before the scheduler was ready")
        return 0


async def _run(process: SchedulerProcess, app: Horsies, host: str, port: int | None) -> int:
    async with exposed(process, app.config, host, port):
        return await process.run(install_signals=True)
