"""How fast tasks are sent, beside the raw insert.

The raw insert is what a program would do that has psycopg and nothing else: the single row that our `send` writes
(every column, a new id each time) by a prepared `INSERT … VALUES`, one after the other, each a transaction of its own
that is durable when it returns, into the same table with the same triggers; as many connections as there are senders,
in one process, driven in the same way (asyncio or threads). It binds no arguments, checks nothing, makes no fingerprint
and would not notice a row that is there already. Our sends and the raw ones take turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import psycopg
from psycopg import AsyncConnection

from benchmarks.bench import Bench
from benchmarks.processes import Failed
from benchmarks.report import Bar, ratios
from benchmarks.server import Server
from horsies.core.producer.enqueue import new_task_id

SENDERS = 16
SENT_BY_ONE, SENT_BY_MANY = 600, 3_200
MANY = 50_000
WRITTEN = (
    "id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, max_retries, task_options,"
    " enqueue_sha, flags, idempotency_key"
)
RAW = f"INSERT INTO horsies_tasks ({WRITTEN}) VALUES ({', '.join(['%s'] * 12)}, %s::jsonb, %s)".encode()  # noqa: S608
WARM_UP = 20
Rate = Callable[[Server, int, int], float]  # tasks per second, of so many tasks by so many senders


def send(bench: Bench) -> None:
    """Ours and the raw insert, turn by turn, and whoever came second comes first the next time."""
    _pairs(bench, "send_1", "`send_async`, one producer", 1, with_asyncio, raw_with_asyncio)
    _pairs(bench, f"send_{SENDERS}", f"`send_async`, {SENDERS} producers", SENDERS, with_asyncio, raw_with_asyncio)
    _pairs(bench, f"send_{SENDERS}_threads", f"`send`, {SENDERS} threads", SENDERS, with_threads, raw_with_threads)


def many(bench: Bench) -> None:
    rates = [all_at_once(bench.server, MANY) for _ in bench.times("send_many")]
    bench.report.add("send_many", f"`send_many` of {MANY:,}", "tasks/s", rates, Bar(55_000))


def _pairs(bench: Bench, key: str, what: str, senders: int, ours: Rate, raw: Rate) -> None:
    count = SENT_BY_ONE if senders == 1 else SENT_BY_MANY
    rates: dict[Rate, list[float]] = {ours: [], raw: []}
    for turn in bench.times(f"{what}, and raw inserts", rounds=2):
        for one in (raw, ours) if turn % 2 else (ours, raw):
            rates[one].append(one(bench.server, count, senders))
            bench.server.clear()
        bench.say(f"{rates[ours][-1]:,.0f} and {rates[raw][-1]:,.0f} tasks/s")
    bench.report.add(key, f"{what}, one by one", "tasks/s", rates[ours])
    bench.report.add(f"{key}_ratio", "… of the raw insert beside it", "", ratios(rates[ours], rates[raw]), Bar(0.6))


def all_at_once(server: Server, count: int) -> float:
    """One `send_many`."""
    from benchmarks.app import noop

    noop.send_many([(n,) for n in range(WARM_UP)]).unwrap()
    calls = [(n,) for n in range(count)]
    begin = time.perf_counter()
    noop.send_many(calls).unwrap()
    rate = count / (time.perf_counter() - begin)
    (written,) = server.row("SELECT count(*) FROM horsies_tasks")
    if written != count + WARM_UP:
        raise Failed(f"{written} of {count + WARM_UP} tasks were written: this is not a measurement")
    server.clear()
    return rate


def with_asyncio(server: Server, count: int, senders: int) -> float:
    """`send_async`, one by one in each of so many asyncio tasks."""
    from benchmarks.app import noop

    async def send(n: int) -> None:
        (await noop.send_async(n)).unwrap()

    return asyncio.run(_in_tasks([send] * senders, count))


def raw_with_asyncio(server: Server, count: int, senders: int) -> float:
    values = _values(server)

    def sender(conn: AsyncConnection[Any]) -> Callable[[int], Awaitable[None]]:
        async def send(n: int) -> None:
            await conn.execute(RAW, [new_task_id(), *values], prepare=True)

        return send

    async def run() -> float:
        async with AsyncExitStack() as stack:
            opened = [await AsyncConnection.connect(server.url, autocommit=True) for _ in range(senders)]
            return await _in_tasks([sender(await stack.enter_async_context(conn)) for conn in opened], count)

    return asyncio.run(run())


def with_threads(server: Server, count: int, senders: int) -> float:
    """`send`, one by one in each of so many threads."""
    from benchmarks.app import noop

    def send(n: int) -> None:
        noop.send(n).unwrap()

    return _in_threads([send] * senders, count)


def raw_with_threads(server: Server, count: int, senders: int) -> float:
    values = _values(server)

    def sender(conn: psycopg.Connection[Any]) -> Callable[[int], None]:
        def send(n: int) -> None:
            conn.execute(RAW, [new_task_id(), *values], prepare=True)

        return send

    with ExitStack() as stack:
        opened = [stack.enter_context(psycopg.connect(server.url, autocommit=True)) for _ in range(senders)]
        return _in_threads([sender(conn) for conn in opened], count)


def _values(server: Server) -> list[Any]:
    """What a real send wrote, but for the id."""
    text = WRITTEN.replace("flags", "flags::text")
    return list(server.row(f"SELECT {text} FROM bench_samples WHERE task_name = 'noop'")[1:])  # noqa: S608


async def _in_tasks(sends: list[Callable[[int], Awaitable[None]]], count: int) -> float:
    """`count` in all, after each sender has warmed up."""

    async def run(send: Callable[[int], Awaitable[None]], times: int) -> None:
        for n in range(times):
            await send(n)

    each = count // len(sends)
    await asyncio.gather(*(run(send, WARM_UP) for send in sends))
    begin = time.perf_counter()
    await asyncio.gather(*(run(send, each) for send in sends))
    return each * len(sends) / (time.perf_counter() - begin)


def _in_threads(sends: list[Callable[[int], None]], count: int) -> float:
    def run(send: Callable[[int], None], times: int) -> None:
        for n in range(times):
            send(n)

    each = count // len(sends)
    with ThreadPoolExecutor(len(sends)) as pool:
        list(pool.map(lambda send: run(send, WARM_UP), sends))
        begin = time.perf_counter()
        list(pool.map(lambda send: run(send, each), sends))
        return each * len(sends) / (time.perf_counter() - begin)
