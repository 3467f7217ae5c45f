"""`horsies metrics`: the metrics of a database for Prometheus, from one process for all workers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import Annotated

import typer

from horsies.cli import output
from horsies.cli.manual import looking
from horsies.cli.options import DatabaseUrl, OptionalModule
from horsies.core import logs
from horsies.core.app import Horsies
from horsies.core.errors import HorsiesError
from horsies.core.monitoring.endpoints import Encode, Endpoints, encoder
from horsies.core.monitoring.exposition import of_reading
from horsies.core.monitoring.models.snapshots import Snapshot
from horsies.core.monitoring.reading import NoReading, Reader
from horsies.core.monitoring.snapshot import take_snapshot
from horsies.core.types.result import Err


def metrics(
    module: OptionalModule = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Serve /metrics, /healthz and /readyz on this port.")
    ] = 9463,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once and exit.")] = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Serve metrics of the queues for Prometheus: depth, age, tasks by state, workers, schedules, the database server.

    The database is read when somebody scrapes, at most every five seconds. A worker serves its own counters (batches,
    latencies, crashes) with horsies worker --metrics-port.
    """
    encode = encoder()
    with looking(module, database_url, needs_tables=once) as app:
        reader = Reader(lambda: _read(app))
        if once:
            return asyncio.run(_print(reader, encode))
        logs.configure()
        return asyncio.run(_serve(reader, host, port))


async def _print(reader: Reader, encode: Encode) -> int:
    reading = await reader.reading()
    if reading.snapshot is None:
        raise HorsiesError("the database did not answer", notes=[reader.problem or "no answer in time"])
    text, _ = encode(of_reading(reading), "")
    sys.stdout.write(text.decode())
    return 0


async def _serve(reader: Reader, host: str, port: int) -> int:
    stop = asyncio.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)

    async def problems() -> dict[str, str]:
        reading = await reader.reading()
        return {} if reading.snapshot is not None else {"database": reader.problem or "no answer in time"}

    endpoints = Endpoints(host, port, reader, problems)
    await endpoints.open()
    output.say(f"metrics and health: {endpoints.url}/metrics, /healthz, /readyz")
    try:
        await stop.wait()
    finally:
        await endpoints.close()
        with contextlib.suppress(Exception):
            await reader.close()
    return 0


async def _read(app: Horsies) -> Snapshot:
    found = await take_snapshot(app.get_broker())
    if isinstance(found, Err):
        raise NoReading(app.config.broker.redact(found.error.message))
    return found.value
