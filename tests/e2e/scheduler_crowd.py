"""Schedulers that are started and killed at random, all the time.

`python -m tests.e2e.scheduler_crowd SECONDS COUNT SEED` imports everything once and forks each scheduler from there: a
process of its own, with its own connections, that does what `horsies scheduler` does. The last ones end by SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time

import psycopg

from horsies.core import logs
from horsies.core.checks import require_sound
from horsies.core.worker.scheduler_process import SchedulerProcess
from tests.apps.scheduled import app


def start() -> int:
    """One more scheduler; its pid."""
    if pid := os.fork():
        return pid
    try:
        code = asyncio.run(SchedulerProcess(app).run(install_signals=True))
    except BaseException as problem:
        print(f"a scheduler failed: {problem!r}", file=sys.stderr)
        code = 99
    os._exit(code)


def wait_until_caught_up(patience_s: float = 60) -> bool:
    """Until those that are left have fired whatever is due."""
    end = time.monotonic() + patience_s
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        while time.monotonic() < end:
            row = conn.execute("SELECT bool_and(next_run_at > now()) FROM horsies_schedule_state").fetchone()
            if row is not None and row[0]:
                return True
            time.sleep(0.02)
    print("the last schedulers did not catch up", file=sys.stderr)
    return False


def main(seconds: float, count: int, seed: int) -> int:
    logs.configure("WARNING")
    require_sound(app)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # for one that is told to end before it has begun
    chance = random.Random(seed)
    running = [start() for _ in range(count)]
    killed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.02, 0.4))
        for pid in chance.sample(running, chance.randint(1, max(1, count // 3))):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            running.remove(pid)
            running.append(start())
            killed += 1
    has_caught_up = wait_until_caught_up()
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in running]
    print(f"{killed} killed, the last {count} ended with {sorted(set(codes))}")
    return 0 if set(codes) == {0} and has_caught_up else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
