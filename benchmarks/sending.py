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
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from benchmarks.server import Server
from horsies.core.producer.enqueue import new_task_id

WRITTEN = (
    "id, task_name, queue_name, priority, args, kwargs, sent_at, enqueued_at, good_until, max_retries, task_options,"
    " enqueue_sha, flags, idempotency_key"
)
RAW = f"INSERT INTO horsies_tasks ({WRITTEN}) VALUES ({', '.join(['%s'] * 12)}, %s::jsonb, %s)".encode()  # noqa: S608
WARM_UP = 20


class Pair(NamedTuple):
    """Tasks per second, measured one after the other."""

    ours: float
    raw: float


def with_asyncio(server: Server, count: int, senders: int, *, raw_first: bool = False) -> Pair:
    """`send_async`, one by one in each of so many asyncio tasks."""

    def ours() -> float:
        return asyncio.run(_send_async(count, senders))

    def raw() -> float:
        return asyncio.run(_raw_async(server, count, senders))

    return _pair(server, ours, raw, raw_first)


def with_threads(server: Server, count: int, senders: int, *, raw_first: bool = False) -> Pair:
    """`send`, one by one in each of so many threads."""
    from benchmarks.app import noop

    def send(n: int) -> None:
        noop.send(n).unwrap()

    def ours() -> float:
        return _in_threads([send] * senders, count)

    def raw() -> float:
        with ExitStack() as stack:
            connections = [stack.enter_context(psycopg.connect(server.url, autocommit=True)) for _ in range(senders)]
            return _in_threads([_raw_send(conn, _values(server)) for conn in connections], count)

    return _pair(server, ours, raw, raw_first)


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
        raise SystemExit(f"{written} of {count + WARM_UP} tasks were written: this is not a measurement")
    server.clear()
    return rate


def _pair(server: Server, ours: Callable[[], float], raw: Callable[[], float], raw_first: bool) -> Pair:
    rates: dict[str, float] = {}
    for name, run in (("raw", raw), ("ours", ours)) if raw_first else (("ours", ours), ("raw", raw)):
        rates[name] = run()
        server.clear()
    return Pair(**rates)


async def _send_async(count: int, senders: int) -> float:
    from benchmarks.app import noop

    async def send(n: int) -> None:
        (await noop.send_async(n)).unwrap()

    return await _in_tasks([send] * senders, count)


async def _raw_async(server: Server, count: int, senders: int) -> float:
    values = _values(server)
    async with AsyncExitStack() as stack:
        sends: list[Callable[[int], Awaitable[None]]] = []
        for _ in range(senders):
            conn = await AsyncConnection.connect(server.url, autocommit=True)
            sends.append(_raw_send_async(await stack.enter_async_context(conn), values))
        return await _in_tasks(sends, count)


def _raw_send(conn: psycopg.Connection[Any], values: list[Any]) -> Callable[[int], None]:
    def send(n: int) -> None:
        conn.execute(RAW, [new_task_id(), *values], prepare=True)

    return send


def _raw_send_async(conn: AsyncConnection[Any], values: list[Any]) -> Callable[[int], Awaitable[None]]:
    async def send(n: int) -> None:
        await conn.execute(RAW, [new_task_id(), *values], prepare=True)

    return send


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
