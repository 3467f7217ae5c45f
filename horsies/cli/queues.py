"""Two views of the whole database: `horsies queues` prints the length, age, throughput and limit of each queue, and
`horsies metrics` serves the metrics of the database for Prometheus, from one process for all workers.
"""

import asyncio
import contextlib
import signal
from typing import Annotated, Any

import typer

from horsies.cli import options, output, session, tables
from horsies.cli.tables import Column
from horsies.core import errors, logs
from horsies.core.app import Horsies
from horsies.core.models.monitoring import cluster
from horsies.core.models.monitoring import tasks as models
from horsies.core.monitoring.http import Encode, Endpoints, encoder
from horsies.core.monitoring.metrics import of_reading
from horsies.core.monitoring.snapshot import NoReading, Reader, take_snapshot
from horsies.core.types import Err

_NEEDED = {"workers", "queues", "oldest_due", "waiting", "in_flight", "ended"}


def queues(
    module: options.OptionalModule = None,
    watch: options.Watch = False,
    every: options.Every = "2s",  # type: ignore[assignment]  # read by the parser, like what is typed
    exact: options.Exact = False,
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Show for each queue: the waiting tasks (due now, or later), the claimed and running tasks, the concurrency limit,
    how long the oldest task has been due, how many tasks ended in the last minute, and how many live workers serve it.

    If very many tasks wait in a queue, their number is estimated, and marked with ~.
    """
    output.refuse_watching(watch, as_json)
    table = tables.chosen(_COLUMNS, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:

        def snapshot() -> cluster.Snapshot:
            found = session.answer_of(asyncio.run(take_snapshot(app.get_broker(), exact=exact)), app)
            if _NEEDED & found.missing.keys():
                raise session.parts_missing(found.missing, app)
            return found

        if watch:
            return output.watch_until_interrupted(lambda: output.table_of(table, snapshot().queues)[0], every)
        found = snapshot()
    if as_json:
        told = {"taken_at": found.taken_at, "queues": found.queues, "missing": found.missing}
        output.print_json(models.to_jsonable(told))
    else:
        output.print_rows(table, found.queues)
    return 0


def _number(number: int, is_exact: bool) -> int | str:
    return number if is_exact else f"~{round(number, 2 - len(str(number))):,}"


def _workers(queue: cluster.QueueInfo) -> Any:
    is_stranded = queue.waiting > 0 and queue.live_workers == 0
    return output.styled(("none", "bold red")) if is_stranded else queue.live_workers


_COLUMNS = (
    Column("queue", lambda queue: queue.name),
    Column("waiting", lambda queue: _number(queue.waiting, queue.is_exact)),
    Column("due", lambda queue: _number(queue.due, queue.is_exact), leaves=3),
    Column("later", lambda queue: _number(queue.scheduled, queue.is_exact), leaves=4),
    Column("claimed", lambda queue: queue.claimed, leaves=2),
    Column("running", lambda queue: queue.running),
    Column("limit", lambda queue: queue.max_concurrency, leaves=5),
    Column(
        "oldest due",
        lambda queue: None if queue.oldest_due_seconds is None else output.duration(queue.oldest_due_seconds),
    ),
    Column("ended/min", lambda queue: queue.ended_last_minute, leaves=1),
    Column("workers", _workers),
    Column("priority", lambda queue: queue.priority, extra=True),
)


def metrics(
    module: options.OptionalModule = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Serve /metrics, /healthz and /readyz on this port.")
    ] = 9463,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once and exit.")] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Serve metrics of the queues for Prometheus: depth, age, tasks by state, workers, schedules, the database server.

    The database is read when somebody scrapes, at most every five seconds. A worker serves its own counters (batches,
    latencies, crashes) with horsies worker --metrics-port.
    """
    encode = encoder()
    with session.open_read_only(module, database_url, needs_tables=once) as app:
        reader = Reader(lambda: _read(app))
        if once:
            return asyncio.run(_print(reader, encode))
        logs.configure()
        return asyncio.run(_serve(reader, host, port))


async def _print(reader: Reader, encode: Encode) -> int:
    reading = await reader.reading()
    if reading.snapshot is None:
        raise errors.HorsiesError("the database did not answer", notes=[reader.problem or "no answer in time"])
    text, _ = encode(of_reading(reading), "")
    output.write_text(text.decode())
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


async def _read(app: Horsies) -> cluster.Snapshot:
    found = await take_snapshot(app.get_broker())
    if isinstance(found, Err):
        raise NoReading(app.config.broker.redact(found.error.message))
    return found.value
