"""`make soak`: does anything grow? A steady load for a while, in the middle third of it with a REPEATABLE READ
transaction held open, which keeps the server from clearing away what is dead.

    make soak SECONDS=300 RATE=500 PROCESSES=2 NOTIFY=when_waiting

One look a second at throughput, waits, a claim, dead rows and sizes goes to benchmarks/out/soak.csv; at the end it says
whether there is drift, and exits with 1 if so. Finished rows stay in the table, so sizes are told per row too. What a
claim costs is found by explaining the very statement once a second, in a transaction that is rolled back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from datetime import timedelta
from time import monotonic
from typing import Any

from psycopg import AsyncConnection, IsolationLevel
from rich.console import Console
from rich.table import Table

from benchmarks import ROOT, server
from benchmarks import soak_report as report
from benchmarks.processes import settings, worker
from benchmarks.soak_report import Sample
from horsies.core.db.connections import BY_INDEX
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimant, ClaimOrder

OUT = ROOT / "benchmarks" / "out"
# Minutes stand for hours here: vacuum, which by default looks once a minute, gets its turns as often.
SETTINGS = {"autovacuum_naptime": "5s"}
TICK_S = 0.02
STUCK_S = 60.0  # a run that is so late has come to a halt somewhere
console = Console(width=None if sys.stdout.isatty() else 110)

SIZES = """
    SELECT t.n_live_tup, t.n_dead_tup, pg_relation_size('horsies_tasks'), pg_indexes_size('horsies_tasks'),
           pg_relation_size('horsies_tasks_pending_idx'), pg_total_relation_size('horsies_task_attempts'),
           (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'horsies_waiting'::regclass)
    FROM pg_stat_user_tables t WHERE relid = 'horsies_tasks'::regclass
"""
# A second late, so that whatever began in the window has been committed.
FINISHED = """
    SELECT count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY waited),
           percentile_disc(0.99) WITHIN GROUP (ORDER BY waited)
    FROM (SELECT extract(epoch FROM a.started_at - t.enqueued_at)::float8 * 1000 AS waited
          FROM horsies_task_attempts a JOIN horsies_tasks t ON t.id = a.task_id
          WHERE a.finished_at >= to_timestamp(%s - 1) AND a.finished_at < to_timestamp(%s - 1)) w
"""


class Soak:
    """One run on a database that has the schema."""

    def __init__(self, url: str, seconds: float, rate: float) -> None:
        self._url = url
        self._seconds = seconds
        self._rate = rate
        self._sent = 0
        self._sent_before = 0  # at the last look, a second ago, as what is counted as done
        self._done = 0
        self._begun = 0.0
        self.samples: list[Sample] = []

    async def run(self) -> list[Sample]:
        self._begun = monotonic()
        options = f"{BY_INDEX} -c application_name=soak"
        async with (
            await AsyncConnection.connect(self._url, autocommit=True) as eyes,
            await AsyncConnection.connect(self._url, options=options) as probe,
            asyncio.timeout(self._seconds + STUCK_S),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._send())
            group.create_task(self._hold())
            await self._look_again_and_again(eyes, probe)
        return self.samples

    @property
    def _now(self) -> float:
        return monotonic() - self._begun

    async def _send(self) -> None:
        from benchmarks.app import noop

        while self._now < self._seconds:
            due = int(self._now * self._rate) - self._sent
            for sent in await asyncio.gather(*(noop.send_async(n) for n in range(min(due, 500)))):
                sent.unwrap()
                self._sent += 1
            await asyncio.sleep(TICK_S)

    async def _hold(self) -> None:
        """The long transaction: it has looked, so the server keeps for it whatever it could see."""
        await asyncio.sleep(self._seconds / 3)
        async with await AsyncConnection.connect(self._url) as conn:
            await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
            await conn.execute("SELECT FROM horsies_tasks LIMIT 1")
            await asyncio.sleep(2 * self._seconds / 3 - self._now)

    async def _look_again_and_again(self, eyes: AsyncConnection[Any], probe: AsyncConnection[Any]) -> None:
        since = await _clock(eyes)
        while self._now < self._seconds:
            await asyncio.sleep(1 - self._now % 1)
            until = await _clock(eyes)
            await self._look(eyes, probe, since, until)
            since = until

    async def _look(self, eyes: AsyncConnection[Any], probe: AsyncConnection[Any], since: float, until: float) -> None:
        second, sent, self._sent_before = self._now, self._sent_before, self._sent
        count, wait_p50, wait_p99 = await _row(eyes, FINISHED, since, until)
        self._done += count
        probe_ms, pages = await explain_claim(probe)
        live, dead, table, indexes, pending, attempts, waiting_dead = await _row(eyes, SIZES)
        self.samples.append(
            Sample(
                second, sent, self._done, count / (until - since), wait_p50, wait_p99, probe_ms, pages,
                live, dead, table, indexes, pending, attempts, waiting_dead,
            )
        )  # fmt: skip


class Explained:
    """Stands where the store expects a connection: the statement it is given is explained, with all it really does."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn
        self.plan: dict[str, Any] = {}

    async def execute(self, query: str, params: Any = None, **_: Any) -> Explained:
        cursor = await self._conn.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}".encode(), params)
        row = await cursor.fetchone()
        assert row is not None
        self.plan = row[0][0]
        return self

    async def fetchall(self) -> list[Any]:
        return []


async def explain_claim(conn: AsyncConnection[Any]) -> tuple[float, int]:
    """Milliseconds and pages of a claim of one task, which is not made."""
    order = ClaimOrder(["default"], [1], [None], 1, 1, None, True, [])
    seen = Explained(conn)
    await tasks.claim(seen, Claimant("soak", timedelta(minutes=1), False), order)  # type: ignore[arg-type]
    await conn.rollback()
    top = seen.plan["Plan"]
    return float(seen.plan["Execution Time"]), int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


async def _row(conn: AsyncConnection[Any], query: str, *params: object) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = await (await conn.execute(query.encode(), params)).fetchone()
    assert row is not None
    return row


async def _clock(conn: AsyncConnection[Any]) -> float:
    return float((await _row(conn, "SELECT extract(epoch FROM clock_timestamp())::float8"))[0])


def soak(on: server.Server, seconds: float, rate: float, processes: int, notify: str) -> list[Sample]:
    """The whole run on a database; its samples."""
    mode = settings(notify=notify)
    os.environ.update(mode, DATABASE_URL=on.url)
    from benchmarks.app import app  # here, because the app reads them

    broker = app.get_broker()
    try:
        asyncio.run(broker.ensure_schema_initialized()).unwrap()
        with worker(on, "--processes", str(processes), env=mode):
            return asyncio.run(Soak(on.url, seconds, rate).run())
    finally:
        broker.close()


def show(found: list[report.Line], samples: list[Sample], seconds: float) -> None:
    table = Table(title="medians; `after` is judged against `before`")
    for column in ("what", *report.PHASES, "after : before", ""):
        table.add_column(column, justify="left" if column == "what" else "right")
    for line in found:
        table.add_row(*line.cells())
    console.print(table)
    for rule in report.RULES:
        if rule.worst is not None and (took := report.recovered_after(samples, seconds, rule)) is not None:
            console.print(f"{rule.title}: as before {took:.0f} s after the transaction ended", highlight=False)
    console.print(report.verdict(found), style="bold", highlight=False)


def main() -> int:
    options = parse()
    given = SETTINGS | dict(pair.split("=", 1) for pair in options.pg)
    with server.running(given) as on:
        samples = soak(on, options.seconds, options.rate, options.processes, options.notify)
        facts = f"PostgreSQL {', '.join(f'{name}={value}' for name, value in (on.facts() | given).items())}"
    title = f"{options.seconds:g} s, {options.rate:g} tasks/s, {options.processes} processes; {facts}"
    OUT.mkdir(exist_ok=True)
    (OUT / "soak.csv").write_text(report.as_csv(samples, options.seconds))
    console.print(title, highlight=False)
    found = report.lines(samples, options.seconds)
    show(found, samples, options.seconds)
    return 0 if report.verdict(found).startswith("NO DRIFT") else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Does anything grow?")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (300)")
    parser.add_argument("--rate", type=float, default=500.0, help="tasks sent per second (500)")
    parser.add_argument("--processes", type=int, default=2, help="children of the worker (2)")
    parser.add_argument("--notify", choices=("always", "when_waiting", "off"), default="always", help="mode (always)")
    parser.add_argument("--pg", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
