"""A process of several reapers and sweepers, each with connections of its own, for tests of many at once.

`python -m tests.e2e.crowd URL REAPERS SWEEPERS`; begins when it reads a line, ends when nothing is in flight any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager

from horsies.core.db.connections import BY_INDEX, make_pool
from horsies.core.db.pool import Pool
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.recovery.hooks import NoHooks
from horsies.core.recovery.reaper import Reaper
from horsies.core.recovery.sweep import sweep
from horsies.core.worker.fence import Pulse
from tests import warm_start
from tests.recovery_support import hasty
from tests.worker_support import ROOT

RECOVERY = hasty()
SWEEPING = WorkerRecoveryConfig(heartbeat_interval=1, sweep_threshold=2, recovery_delay=0)


@contextmanager
def a_crowd(url: str, processes: int, *, reapers: int, sweepers: int) -> Iterator[list[subprocess.Popen[str]]]:
    """So many processes, begun at the same moment when all are connected."""
    args = (url, str(reapers), str(sweepers))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ExitStack() as stack:
        crowd = []
        for _ in range(processes):
            process = warm_start.start(args, program=__file__, cwd=ROOT, env=os.environ, **pipes)
            stack.enter_context(process)
            stack.callback(process.kill)
            crowd.append(process)
        for process in crowd:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        for process in crowd:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield crowd


async def is_over(pool: Pool) -> bool:
    async with pool.connection() as conn:
        cursor = await conn.execute("SELECT 1 FROM horsies_tasks WHERE claimed LIMIT 1")
        return await cursor.fetchone() is None


async def reap(pool: Pool, name: str) -> None:
    reaper = Reaper(pool, RECOVERY, SWEEPING, NoHooks(), name, Pulse(2.0))
    while not await is_over(pool):
        await reaper.tick()


async def clear(pool: Pool, name: str) -> None:
    while not await is_over(pool):
        await sweep(pool, SWEEPING, RECOVERY, NoHooks(), me=name)


async def main(url: str, reapers: int, sweepers: int) -> None:
    async with AsyncExitStack() as stack:
        pools = []
        for _ in range(reapers + sweepers):
            pool = make_pool(PostgresConfig(database_url=url), options=BY_INDEX)
            stack.push_async_callback(pool.close)
            assert not await is_over(pool)  # connected, and there is something to do
            pools.append(pool)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        jobs = [reap(pool, f"reaper {n}") for n, pool in enumerate(pools[:reapers])]
        jobs += [clear(pool, f"sweeper {n}") for n, pool in enumerate(pools[reapers:])]
        await asyncio.gather(*jobs)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
