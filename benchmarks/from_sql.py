"""How fast a row trigger of a user's table sends (X-40), beside one `send_many` of as many tasks."""

from __future__ import annotations

import asyncio
import time

import psycopg
from psycopg import AsyncConnection

from benchmarks.server import Server
from horsies.core.store import defaults
from horsies.core.tasks.catalogue import catalogue_of

TRIGGER = b"""
DROP TABLE IF EXISTS bench_orders;
CREATE TABLE bench_orders (id int);
CREATE OR REPLACE FUNCTION bench_on_order() RETURNS trigger AS $$
BEGIN
    PERFORM horsies_send('noop', jsonb_build_object('n', NEW.id));
    RETURN NULL;
END;
$$ LANGUAGE plpgsql;
CREATE TRIGGER bench_tell AFTER INSERT ON bench_orders FOR EACH ROW EXECUTE FUNCTION bench_on_order();
"""


def by_trigger(server: Server, count: int) -> float:
    """So many rows in one statement, each of which sends a task; in tasks per second."""
    asyncio.run(_publish(server.url))
    with psycopg.connect(server.url, autocommit=True) as conn:
        conn.execute(TRIGGER)
        begin = time.perf_counter()
        conn.execute("INSERT INTO bench_orders SELECT generate_series(1, %s::int)", [count])
        rate = count / (time.perf_counter() - begin)
        conn.execute("DROP TABLE bench_orders")
    (written,) = server.row("SELECT count(*) FROM horsies_tasks WHERE queue_name = 'default'")
    if written != count:
        raise SystemExit(f"{written} of {count} tasks were written: this is not a measurement")
    server.clear()
    return rate


async def _publish(url: str) -> None:
    from benchmarks.app import app

    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await defaults.publish(conn, catalogue_of(app.tasks))
