"""The app of the soak, and its worker: `horsies worker` as always, which also writes down how long its claims take.

    python -m benchmarks.soak_worker FILE worker benchmarks.soak_worker:app --processes 2

Each line of FILE is about one second: how long the slowest of a few statements took that do nothing, and each claim,
all in milliseconds. The former tells what else the machine has to do: a claim that waits for its turn is not slow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import perf_counter, time
from typing import Any, Literal, cast

from horsies import AppConfig, Horsies, PostgresConfig, TaskError, TaskResult
from horsies.core.db.pool import Connection
from horsies.core.store import tasks
from horsies.core.store.tasks import Claimed

PINGS = 10
Mode = Literal["always", "when_waiting", "off"]

app = Horsies(
    AppConfig(
        broker=PostgresConfig(
            database_url=os.environ.get("DATABASE_URL", "embedded:./.horsies/soak"),
            notify=cast(Mode, os.environ.get("NOTIFY", "always")),
        )
    )
)


@app.task("soak")
def work(n: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=n)


class ClaimTimes:
    """Collects, and writes once a second: a file is not worth a claim's time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._second = int(time())
        self._times: list[float] = []

    def note(self, seconds: float) -> bool:
        """Whether a new second has begun, and the last one is to be written."""
        self._times.append(seconds)
        return int(time()) != self._second

    def write(self, ping: float) -> None:
        with self._path.open("a") as file:
            file.write(" ".join(f"{one * 1000:.3f}" for one in (ping, *self._times)) + "\n")
        self._second, self._times = int(time()), []


def record_claims(path: Path) -> None:
    """From now on every claim of this process is timed."""
    times, claim = ClaimTimes(path), tasks.claim

    async def timed(conn: Connection, *given: Any, **named: Any) -> list[Claimed]:
        begin = perf_counter()
        rows = await claim(conn, *given, **named)
        if times.note(perf_counter() - begin):
            times.write(max([await ping(conn) for _ in range(PINGS)]))
        return rows

    tasks.claim = timed


async def ping(conn: Connection) -> float:
    begin = perf_counter()
    await conn.execute("SELECT 1")
    return perf_counter() - begin


if __name__ == "__main__":
    from horsies.cli.main import main

    record_claims(Path(sys.argv.pop(1)))
    sys.exit(main())
