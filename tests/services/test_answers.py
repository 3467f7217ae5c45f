"""An answer that does not come: the caller goes on in time, and the event loop survives it."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db.listener import answered_within
from tests.support import eventually

# In a process of its own: what goes wrong here ends the process.
SCRIPT = """
import asyncio, random, sys
from horsies.core.db.listener import answered_within
from psycopg import AsyncConnection

async def one(url):
    conn = await AsyncConnection.connect(url, autocommit=True)
    try:
        await answered_within(random.uniform(0.0985, 0.1025), conn, conn.execute("SELECT pg_sleep(1)"))
    except TimeoutError:
        assert conn.closed
        return 1

async def some(url):
    return sum([await one(url) for _ in range(5)])  # each connects anew at once: the socket's number comes back

async def main(url):
    assert sum(await asyncio.gather(*(some(url) for _ in range(10)))) == 50

run = asyncio.run
if sys.argv[2] == "uvloop":
    import uvloop
    run = uvloop.run
run(main(sys.argv[1]))
"""


async def test_w72_r101_the_loop_has_let_go_of_a_socket_before_it_is_closed(database_url: str) -> None:
    conn = await AsyncConnection.connect(database_url, autocommit=True)
    number = conn.pgconn.socket
    with pytest.raises(TimeoutError):
        await answered_within(0.05, conn, conn.execute("SELECT pg_sleep(0.5)"))
    assert conn.closed
    assert not asyncio.get_running_loop().remove_reader(number), "a closed socket was still watched"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_w72_r101_many_answers_that_do_not_come_harm_no_loop(database_url: str, loop: str) -> None:
    if loop == "uvloop" and importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is an extra")
    command = [sys.executable, "-c", SCRIPT, database_url, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


async def test_w72_an_answer_in_time_is_given_and_a_failure_raised(database_url: str) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as conn:
        cursor = await answered_within(30, conn, conn.execute("SELECT 7"))
        assert await cursor.fetchone() == (7,)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await answered_within(30, conn, conn.execute("SELECT 1 / 0"))
        assert not conn.closed


async def test_w72_whoever_is_cancelled_while_it_waits_hangs_up(database_url: str, db: AsyncConnection) -> None:
    conn = await AsyncConnection.connect(database_url, autocommit=True, application_name="mute")
    asking = asyncio.create_task(answered_within(60, conn, conn.execute("SELECT pg_sleep(60)")))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert conn.closed
    await eventually(lambda: _is_gone(db))


async def _is_gone(db: AsyncConnection) -> bool:
    await db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mute'")
    found = await db.execute("SELECT FROM pg_stat_activity WHERE application_name = 'mute'")
    return found.rowcount == 0
